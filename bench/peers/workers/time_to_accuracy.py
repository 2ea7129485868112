"""Seconds until nine of ten test pictures of Fashion-MNIST are right, as bench/workers/time_to_accuracy.cpp has them: one process,
two with Hogwild over a shared model, two with DistributedDataParallel over Gloo. Arguments: rounds, the data set's folder, what names of ways have."""

import gzip
import json
import os
import pathlib
import socket
import sys
import time

import numpy
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

BATCH, BETWEEN_LOOKS, MOST, ASKED, RATE = 32, 15_000, 3_000_000, 0.9, 0.001


def convolutions():
    return nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(32 * 5 * 5, 128), nn.ReLU(), nn.Linear(128, 10))


def read(folder, name):
    path = pathlib.Path(folder) / name
    return path.read_bytes() if path.exists() else gzip.decompress(path.with_name(name + ".gz").read_bytes())


def load(folder):
    tensors = []
    for part in ("train", "t10k"):
        images = numpy.frombuffer(read(folder, f"{part}-images-idx3-ubyte"), numpy.uint8, offset=16).reshape(-1, 28, 28)
        labels = numpy.frombuffer(read(folder, f"{part}-labels-idx1-ubyte"), numpy.uint8, offset=8).astype(numpy.int64)
        tensors += [torch.from_numpy(array.copy()).share_memory_() for array in (images, labels)]
    return tensors


def as_input(pictures):
    return pictures.unsqueeze(1).to(torch.float).div_(255)


@torch.no_grad()
def good_enough(net, pictures):
    data, target = pictures[2:]
    right = sum(int((net(as_input(data[at:at + 1000])).argmax(1) == target[at:at + 1000]).sum()) for at in range(0, len(data), 1000))
    return right >= ASKED * len(data)


def steps(net, optimizer, pictures, ranks, is_over):
    data, target = pictures[:2]
    between = BETWEEN_LOOKS // (ranks * BATCH)
    for number in range(1, MOST // (ranks * BATCH) + 1):
        which = torch.randint(len(target), (BATCH,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(as_input(data[which])), target[which]).backward()
        optimizer.step()
        if number % between == 0 and is_over():
            return
    raise RuntimeError(f"{MOST} pictures, and not yet {ASKED} of the test pictures right")


def hogwild(rank, ranks, net, over, pictures, seed):
    torch.set_num_threads(1)
    torch.manual_seed(seed + rank)

    def is_over():
        if rank == 0 and good_enough(net, pictures):
            over.fill_(1)
        return int(over) != 0

    steps(net, torch.optim.Adam(net.parameters(), RATE), pictures, ranks, is_over)


def ddp(rank, ranks, port, pictures, seed):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.manual_seed(seed + rank)
    net = convolutions()
    parallel = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
    over = torch.zeros(1, dtype=torch.long)

    def is_over():
        if rank == 0 and good_enough(net, pictures):
            over.fill_(1)
        dist.broadcast(over, 0)
        return int(over) != 0

    steps(parallel, torch.optim.Adam(net.parameters(), RATE), pictures, ranks, is_over)
    dist.destroy_process_group()


def run(way, ranks, pictures, seed):
    start = time.perf_counter()
    if way == "ddp":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        mp.spawn(ddp, args=(ranks, port, pictures, seed), nprocs=ranks)
    else:
        torch.manual_seed(seed)
        net = convolutions().share_memory()
        mp.spawn(hogwild, args=(ranks, net, torch.zeros(1, dtype=torch.long).share_memory_(), pictures, seed), nprocs=ranks)
    return time.perf_counter() - start


if __name__ == "__main__":
    rounds, folder, only = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    torch.set_num_threads(1)
    pictures = load(folder)
    ways = {"1 process": ("hogwild", 1), "2 processes, Hogwild": ("hogwild", 2), "2 processes, DDP": ("ddp", 2)}
    ways = {case: way for case, way in ways.items() if only in case}
    samples = {case: [] for case in ways}
    for number in range(rounds):
        for case, (way, ranks) in ways.items():
            samples[case].append(run(way, ranks, pictures, 1000 * number))
    for case, values in samples.items():
        values.sort()
        print(json.dumps({"impl": "python", "case": case, "metric": "median", "value": values[len(values) // 2], "unit": "s",
                          "min": values[0], "max": values[-1], "n": len(values)}), flush=True)

"""Training steps a second of torch's DistributedDataParallel over Gloo, and without communication, in turns as bench/workers/ddp_step.cpp
has them. Arguments: model, case, ranks, steps of a window, windows."""

import json
import os
import resource
import socket
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

IMPLS = ("python DDP, gloo", "python, no communication")


class Transformer(nn.Module):
    def __init__(self, words=96, width=384):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 6, 4 * width, dropout=0), 6,
                                            enable_nested_tensor=False)
        self.last = nn.Linear(width, words)

    def forward(self, words):
        return self.last(self.layers(self.words(words))).flatten(0, 1)


def perceptron():
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))


def convolutions():
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(64 * 5 * 5, 128), nn.ReLU(), nn.Linear(128, 10))


MODELS = {
    "perceptron": (perceptron, lambda: (torch.randn(32, 784), torch.randint(0, 10, (32,)))),
    "convolutions": (convolutions, lambda: (torch.randn(32, 1, 28, 28), torch.randint(0, 10, (32,)))),
    "transformer": (Transformer, lambda: (torch.randint(0, 96, (64, 2)), torch.randint(0, 96, (128,)))),
}


def spent():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {": CPU time of a step": 1e6 * (usage.ru_utime + usage.ru_stime), ": page faults of a step": usage.ru_minflt,
            ": context switches of a step": usage.ru_nvcsw + usage.ru_nivcsw}


UNITS = {"": "steps/s", ": CPU time of a step": "us", ": page faults of a step": "faults", ": context switches of a step": "switches"}


def run(rank, port, model, ranks, steps, windows, results):
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    make, make_data = MODELS[model]
    ways = []
    for impl in IMPLS:
        net = make()
        if impl == IMPLS[0]:
            net = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
        ways.append((net, torch.optim.SGD(net.parameters(), 0.001)))
    data, target = make_data()
    measured = []
    for window in range(-2, windows):
        net, optimizer = ways[window % 2]
        dist.barrier()
        before, start = spent(), time.perf_counter()
        for _ in range(steps):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(data), target).backward()
            optimizer.step()
        took, after = time.perf_counter() - start, spent()
        if window >= 0:
            measured.append({"": steps / took} | {what: (after[what] - before[what]) / steps for what in after})
    results.put(measured)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    model, case = sys.argv[1:3]
    ranks, steps, windows = (int(word) for word in sys.argv[3:6])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    results = mp.get_context("spawn").SimpleQueue()
    processes = mp.spawn(run, args=(port, model, ranks, steps, windows, results), nprocs=ranks, join=False)
    of_ranks = [results.get() for _ in range(ranks)]
    while not processes.join():
        pass
    for first, impl in enumerate(IMPLS):
        for what, unit in UNITS.items():
            samples = sorted(sum(of_rank[window][what] for of_rank in of_ranks) / ranks
                             for window in range(first, windows, 2))
            print(json.dumps({"impl": impl, "case": case + what, "metric": "median", "value": samples[len(samples) // 2],
                              "unit": unit, "min": samples[0], "max": samples[-1], "n": len(samples)}), flush=True)

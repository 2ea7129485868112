"""Training steps a second of two processes: torch's DistributedDataParallel over Gloo, and without communication."""

import json
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

CASE = "MLP of 269 k parameters, batch 32, 2 ranks"


def run(rank, port):
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=rank, world_size=2)
    for impl in ("python, no communication", "python DDP, gloo"):
        model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
        if "DDP" in impl:
            model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
        optimizer = torch.optim.SGD(model.parameters(), 0.001)
        data, target = torch.randn(32, 784), torch.randint(0, 10, (32,))
        samples = []
        for sample in range(-3, 15):
            start = time.perf_counter()
            for _ in range(50):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(data), target).backward()
                optimizer.step()
            if sample >= 0:
                samples.append(50 / (time.perf_counter() - start))
        samples.sort()
        if rank == 0:
            print(json.dumps({"impl": impl, "case": CASE, "metric": "median", "value": samples[len(samples) // 2],
                              "unit": "steps/s", "min": samples[0], "max": samples[-1], "n": len(samples)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(run, args=(port,), nprocs=2)

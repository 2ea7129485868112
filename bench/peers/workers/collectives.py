"""Collectives through torch.distributed with Gloo: collectives.py RANKS SUFFIX SECONDS OPERATION:BYTES...

The same questions, checks and loop as bench/collectives/measure.cpp.
"""

import json
import os
import socket
import statistics
import sys
import time
import warnings

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


warnings.filterwarnings("ignore", category=FutureWarning)   # newer names are not in older versions


def element(rank, count, begin=0):
    return (torch.arange(begin, begin + count) % 251 + 1).float() * (rank + 1)


class Run:
    """The data of a case on one rank: what it is filled with, the call, and what has to come out."""

    def __init__(self, operation, size, rank, ranks):
        self.operation, self.rank, self.ranks = operation, rank, ranks
        whole, part = size // 4, size // 4 // ranks
        self.input = element(rank, part if operation == "all_gather" else whole)
        self.output = None
        both = sum(range(1, ranks + 1))
        if operation == "all_reduce":
            self.expected = element(both - 1, whole)
        elif operation == "all_gather":
            self.output = torch.zeros(whole)
            self.expected = torch.cat([element(other, part) for other in range(ranks)])
        elif operation == "reduce_scatter":
            self.output = torch.zeros(part)
            self.expected = element(both - 1, part, rank * part)
        elif operation == "all_to_all":
            self.output = torch.zeros(whole)
            self.expected = torch.cat([element(other, part, rank * part) for other in range(ranks)])
        elif operation == "broadcast":
            self.expected = element(0, whole)
        elif operation == "barrier":
            self.expected = None
        elif operation == "send and recv":
            self.expected = element(rank & ~1, whole)

    def call(self):
        if self.operation == "all_reduce":
            dist.all_reduce(self.input)
        elif self.operation == "all_gather":
            dist.all_gather_into_tensor(self.output, self.input)
        elif self.operation == "reduce_scatter":
            dist.reduce_scatter_tensor(self.output, self.input)
        elif self.operation == "all_to_all":
            dist.all_to_all_single(self.output, self.input)
        elif self.operation == "broadcast":
            dist.broadcast(self.input, 0)
        elif self.operation == "barrier":
            dist.barrier()
        elif self.rank % 2 == 0:
            dist.send(self.input, self.rank + 1)
            dist.recv(self.input, self.rank + 1)
        else:
            dist.recv(self.input, self.rank - 1)
            dist.send(self.input, self.rank - 1)

    def check(self):
        result = self.input if self.output is None else self.output
        if self.expected is not None and not torch.equal(result, self.expected):
            raise RuntimeError(f"{self.operation}: rank {self.rank} has a wrong result")
        self.expected = None
        for tensor in (self.input, self.output):
            if tensor is not None:
                tensor.zero_()


def took(run, calls):
    samples = []
    for _ in range(calls):
        if run.operation == "broadcast":
            dist.barrier()
        start = time.perf_counter()
        run.call()
        samples.append((time.perf_counter() - start) * 1e6)
    return samples


def agree(number):
    one = torch.tensor([int(number)])
    dist.broadcast(one, 0)
    return int(one[0])


def measure(run, seconds):
    run.call()
    run.check()
    dist.barrier()
    times = 3 if run.operation == "broadcast" else 1

    def calls_in(part, samples):
        return agree(min(20_000, max(5, part * seconds * 1e6 / max(statistics.median(samples) * times, 0.1))))

    warm_up = calls_in(0.1, took(run, 3))
    calls = calls_in(1, took(run, warm_up))
    samples = []
    start = time.perf_counter()
    for _ in range(10):
        samples += took(run, (calls + 9) // 10)
        if agree(time.perf_counter() - start > 4 * seconds):
            break
    if run.operation == "broadcast":
        slowest = torch.tensor(samples)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        samples = slowest.tolist()
    elif run.operation == "send and recv":
        samples = [sample / 2 for sample in samples]
    return sorted(samples)


def rank_of(rank, ranks, port, suffix, seconds, cases):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    for case in cases:
        operation, size = case.split(":")
        size = int(size)
        samples = measure(Run(operation, size, rank, ranks), seconds)
        if rank:
            continue
        shown = f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB" if size >= 1 << 10 else f"{size} B"
        name = f"{ranks} ranks, {operation}" + (f" of {shown}" if operation != "barrier" else "") + suffix
        for metric, value in (("p50", samples[len(samples) // 2]), ("p99", samples[min(len(samples) - 1, len(samples) * 99 // 100)]),
                              ("mean", statistics.fmean(samples))):
            print(json.dumps({"impl": "gloo (python)", "case": name, "metric": metric, "value": value, "unit": "us",
                              "min": samples[0], "max": samples[-1], "n": len(samples)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks, suffix, seconds, *cases = sys.argv[1:]
    mp.spawn(rank_of, args=(int(ranks), port, suffix, float(seconds), cases), nprocs=int(ranks))

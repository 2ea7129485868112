"""All-reduce of two processes through torch.distributed with Gloo."""

import json
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SIZES = ((1 << 10, "1 KiB"), (256 << 10, "256 KiB"), (4 << 20, "4 MiB"), (32 << 20, "32 MiB"))


def run(rank, port):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=rank, world_size=2)
    for size, name in SIZES:
        tensor = torch.ones(size // 4)
        calls = max(20, min(1000, (512 << 20) // size))
        samples = []
        for i in range(-calls // 5 - 2, calls):
            start = time.perf_counter()
            dist.all_reduce(tensor)
            if i >= 0:
                samples.append((time.perf_counter() - start) * 1e6)
            if i % 16 == 0:
                tensor.fill_(1)
        samples.sort()
        if rank == 0:
            # Where a tensor lies is all the same to Gloo.
            for place in ("in the heap", "private"):
                print(json.dumps({"impl": "gloo (python)", "case": f"2 ranks, {name} of floats, {place}", "metric": "p50",
                                  "value": samples[len(samples) // 2], "unit": "us", "min": samples[0],
                                  "max": samples[-1], "n": len(samples)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(run, args=(port,), nprocs=2)

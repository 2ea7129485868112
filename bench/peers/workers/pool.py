"""Tasks in a pool of two workers: multiprocessing.Pool, and torch.multiprocessing.Pool for a shared tensor."""

import json
import multiprocessing
import sys
import time

import torch
import torch.multiprocessing as torch_multiprocessing

ROUNDS = 5


def negate(x):
    return -x


def same(tensor):
    return tensor


def one_thread():
    torch.set_num_threads(1)


def measure(impl, case, calls, run):
    rates = []
    for i in range(ROUNDS + 1):
        start = time.perf_counter()
        run()
        if i > 0:
            rates.append(calls / (time.perf_counter() - start))
    rates.sort()
    print(json.dumps({"bench": "pool", "impl": impl, "case": case, "metric": "median", "value": rates[len(rates) // 2],
                      "unit": "1/s", "min": rates[0], "max": rates[-1], "n": len(rates)}), flush=True)


def main():
    one_thread()
    python = "multiprocessing.Pool"
    with multiprocessing.get_context("fork").Pool(2) as pool:
        measure(python, "apply, empty", 2000, lambda: [pool.apply(negate, (i,)) for i in range(2000)])
        measure(python, "apply_async, then get", 20000,
                lambda: [r.get() for r in [pool.apply_async(negate, (i,)) for i in range(20000)]])
        measure(python, "map, chunks of 1", 20000, lambda: pool.map(negate, range(20000), chunksize=1))
        measure(python, "imap_unordered, chunks of 1", 20000, lambda: list(pool.imap_unordered(negate, range(20000))))
        many = list(range(1_000_000))
        measure(python, "map, default chunks", len(many), lambda: pool.map(negate, many))
    torch_multiprocessing.set_sharing_strategy("file_system")
    shared = torch.zeros(1 << 18).share_memory_()
    with torch_multiprocessing.get_context("fork").Pool(2, one_thread) as pool:
        measure("torch.multiprocessing.Pool", "apply, shared tensor there and back", 300,
                lambda: [pool.apply(same, (shared,)) for _ in range(300)])


if __name__ == "__main__":
    sys.exit(main())

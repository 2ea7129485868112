"""Allocating and freeing shared memory with torch: each storage is a file and a mapping of its own."""

import json
import time

import torch
import torch.multiprocessing as mp



def measure(strategy, size, name):
    # It writes to every page at once, so large ones take long.
    batches, per_batch = (50, 20) if size <= 1 << 20 else (5, 2) if size <= 64 << 20 else (3, 1)
    mp.set_sharing_strategy(strategy)
    samples = []
    for batch in range(-1, batches):
        start = time.perf_counter()
        for _ in range(per_batch):
            storage = torch.UntypedStorage._new_shared(size)
            del storage
        if batch >= 0:
            samples.append((time.perf_counter() - start) * 1e9 / per_batch)
    samples.sort()
    print(json.dumps({"impl": "torch " + strategy, "case": f"allocate and free {name}", "metric": "median",
                      "value": samples[len(samples) // 2], "unit": "ns", "min": samples[0], "max": samples[-1],
                      "n": len(samples)}), flush=True)


if __name__ == "__main__":
    for strategy in ("file_descriptor", "file_system"):
        for size, name in ((16, "16 B"), (4096, "4 KiB"), (64 << 10, "64 KiB"), (1 << 20, "1 MiB"), (64 << 20, "64 MiB"),
                           (1 << 30, "1 GiB")):
            measure(strategy, size, name)

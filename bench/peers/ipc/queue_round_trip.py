"""Round trip of a shared tensor through two torch.multiprocessing queues, with each sharing strategy."""

import json
import sys
import time

import torch
import torch.multiprocessing as mp


def echo(there, back, strategy):
    mp.set_sharing_strategy(strategy)
    torch.set_num_threads(1)
    while True:
        tensor = there.get()
        if tensor is None:
            return
        back.put(tensor)


def measure(strategy, size, name, count, idle):
    mp.set_sharing_strategy(strategy)
    context = mp.get_context("fork")
    there, back = context.Queue(), context.Queue()
    process = context.Process(target=echo, args=(there, back, strategy))
    process.start()
    tensor = torch.empty(size, dtype=torch.uint8).share_memory_()
    samples = []
    for i in range(-count // 10, count):
        if idle:
            time.sleep(idle)
        start = time.perf_counter()
        there.put(tensor)
        back.get()
        if i >= 0:
            samples.append((time.perf_counter() - start) * 1e6)
    there.put(None)
    process.join()
    samples.sort()
    for percent in (50, 99):
        if idle and percent == 99:
            continue
        value = samples[min(len(samples) - 1, len(samples) * percent // 100)]
        print(json.dumps({"impl": "torch.multiprocessing " + strategy, "case": name, "metric": f"p{percent}",
                          "value": value, "unit": "us", "min": samples[0], "max": samples[-1], "n": len(samples)}),
              flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for strategy in ("file_system", "file_descriptor"):
        for size, name in ((64, "64 B"), (4096, "4 KiB"), (1 << 20, "1 MiB"), (64 << 20, "64 MiB")):
            measure(strategy, size, f"shared tensor {name}, busy", 2000, 0)
        measure(strategy, 4096, "shared tensor 4 KiB, both asleep", 300, 0.002)
    sys.exit(0)

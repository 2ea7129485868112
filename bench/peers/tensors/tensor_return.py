"""Nested results of tensors, from a rank to its parent through a SimpleQueue, with each sharing strategy."""

import json
import time

import torch
import torch.multiprocessing as mp

CASES = (("100 tensors of 4 KiB", 10, 10, 1024, 50), ("4 tensors of 16 MiB", 2, 2, 4 << 20, 5))


def make(lists, tensors, floats):
    result = {f"layer{i}": [torch.ones(floats) for _ in range(tensors)] for i in range(lists)}
    return {"tensors": result, "loss": 0.5, "returned_at": time.monotonic()}


def rank(strategy, asks, results, shape):
    mp.set_sharing_strategy(strategy)
    torch.set_num_threads(1)
    while asks.get():
        results.put(make(*shape))
    asks.get()  # a rank has to stay until its results are fetched


def once(strategy, asks, results, shape):
    mp.set_sharing_strategy(strategy)
    torch.set_num_threads(1)
    results.put(make(*shape))
    asks.get()


def report(strategy, case, samples):
    samples.sort()
    print(json.dumps({"impl": "torch.multiprocessing " + strategy, "case": case, "metric": "median",
                      "value": samples[len(samples) // 2], "unit": "us", "min": samples[0], "max": samples[-1],
                      "n": len(samples)}), flush=True)


def measure(strategy, name, shape, count):
    mp.set_sharing_strategy(strategy)
    context = mp.get_context("fork")
    asks, results = context.SimpleQueue(), context.SimpleQueue()
    process = context.Process(target=rank, args=(strategy, asks, results, shape))
    process.start()
    samples = []
    for i in range(-1, count):
        asks.put(True)
        result = results.get()
        if i >= 0:
            samples.append((time.monotonic() - result["returned_at"]) * 1e6)
        del result
    asks.put(False)
    asks.put(False)
    process.join()
    report(strategy, f"through a queue, {name}", samples)
    samples = []
    for _ in range(min(count, 10)):
        process = context.Process(target=once, args=(strategy, asks, results, shape))
        process.start()
        result = results.get()
        asks.put(False)
        process.join()
        samples.append((time.monotonic() - result["returned_at"]) * 1e6)
        del result
    report(strategy, f"returned and joined, {name}", samples)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for strategy in ("file_system", "file_descriptor"):
        for name, lists, tensors, floats, count in CASES:
            measure(strategy, name, (lists, tensors, floats), count)

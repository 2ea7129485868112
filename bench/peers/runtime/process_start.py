"""Start and join of a process that runs an empty function, with torch.multiprocessing's start methods."""

import json
import time

import torch
import torch.multiprocessing as mp


def nothing():
    pass


def measure(method, count):
    context = mp.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(["torch"])
    samples = []
    for i in range(count + 1):
        start = time.perf_counter()
        process = context.Process(target=nothing)
        process.start()
        process.join()
        if i > 0:
            samples.append((time.perf_counter() - start) * 1e3)
    samples.sort()
    print(json.dumps({"impl": "torch.multiprocessing", "case": method, "metric": "median",
                      "value": samples[len(samples) // 2], "unit": "ms", "min": samples[0], "max": samples[-1],
                      "n": len(samples)}), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    measure("spawn", 5)
    measure("forkserver", 50)
    measure("fork", 50)

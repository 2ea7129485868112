"""One way through a torch.multiprocessing queue, with each sharing strategy: small tensors, and fresh ones of 1 and 64 MiB."""

import json
import time

import torch
import torch.multiprocessing as mp

ROUNDS = 5


def consume(queue, barrier, strategy, count):
    mp.set_sharing_strategy(strategy)
    torch.set_num_threads(1)
    for _ in range(ROUNDS + 1):
        barrier.wait()
        for _ in range(count):
            queue.get()
        barrier.wait()


def measure(strategy, case, size, count, capacity, fresh, unit, scale):
    mp.set_sharing_strategy(strategy)
    context = mp.get_context("fork")
    queue, barrier = context.Queue(capacity), context.Barrier(2)
    process = context.Process(target=consume, args=(queue, barrier, strategy, count))
    process.start()
    source = torch.ones(size, dtype=torch.uint8)
    shared = [torch.ones(size, dtype=torch.uint8).share_memory_() for _ in range(1 if fresh else 200)]
    samples = []
    for round in range(ROUNDS + 1):
        barrier.wait()
        start = time.perf_counter()
        for i in range(count):
            # put moves a private tensor into shared memory, in place: each needs one of its own.
            queue.put(source.clone() if fresh else shared[i % len(shared)])
        barrier.wait()
        if round > 0:
            samples.append(count / (time.perf_counter() - start) * scale)
    process.join()
    samples.sort()
    print(json.dumps({"impl": "torch.multiprocessing " + strategy, "case": case, "metric": "median",
                      "value": samples[len(samples) // 2], "unit": unit, "min": samples[0], "max": samples[-1],
                      "n": len(samples)}), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for strategy in ("file_system", "file_descriptor"):
        measure(strategy, "shared tensor 64 B, 1 x 1", 64, 1000, 128, False, "1/s", 1)
        measure(strategy, "fresh tensor 64 B, 1 x 1", 64, 1000, 128, True, "1/s", 1)
        measure(strategy, "fresh 1 MiB, 1 x 1", 1 << 20, 200, 8, True, "GB/s", (1 << 20) / 1e9)
        measure(strategy, "fresh 64 MiB, 1 x 1", 64 << 20, 6, 2, True, "GB/s", (64 << 20) / 1e9)

"""Round trip of an int and of a shared tensor through a multiprocessing.Pipe; tensors with each sharing strategy."""

import json
import time

import torch
import torch.multiprocessing as mp


def echo(connection, strategy):
    mp.set_sharing_strategy(strategy)
    torch.set_num_threads(1)
    try:
        while True:
            connection.send(connection.recv())
    except EOFError:
        pass


def measure(impl, strategy, case, value, count, idle=0):
    mp.set_sharing_strategy(strategy)
    context = mp.get_context("fork")
    mine, theirs = context.Pipe()
    process = context.Process(target=echo, args=(theirs, strategy))
    process.start()
    theirs.close()
    samples = []
    for i in range(-count // 10, count):
        if idle:
            time.sleep(idle)
        start = time.perf_counter()
        mine.send(value)
        mine.recv()
        if i >= 0:
            samples.append((time.perf_counter() - start) * 1e6)
    mine.send(None)
    mine.recv()
    # The child has inherited our end too, so that closing it is no end of file there.
    process.terminate()
    process.join()
    samples.sort()
    print(json.dumps({"impl": impl, "case": case, "metric": "p50", "value": samples[len(samples) // 2], "unit": "us",
                      "min": samples[0], "max": samples[-1], "n": len(samples)}), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    measure("multiprocessing (python)", "file_system", "pipe of an int, busy", 1, 5000)
    measure("multiprocessing (python)", "file_system", "pipe of an int, both asleep", 1, 300, 0.002)
    tensor = torch.empty(4096, dtype=torch.uint8).share_memory_()
    for strategy in ("file_system", "file_descriptor"):
        measure("torch.multiprocessing " + strategy, strategy, "pipe of a shared tensor 4 KiB, busy", tensor, 2000)

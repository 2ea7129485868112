"""Sharing tensors, and pickling and unpickling shared ones, with torch.multiprocessing and each sharing strategy."""

import io
import json
import pickle
import time

import torch
import torch.multiprocessing as mp
from multiprocessing.reduction import ForkingPickler

BATCH = 16


def layouts():
    yield "64 B", lambda: torch.ones(16)
    yield "transposed view", lambda: torch.ones(4, 4).t()
    yield "leaf that requires grad", lambda: torch.ones(16).requires_grad_()
    yield "quantized per tensor", lambda: torch.quantize_per_tensor(torch.ones(8, 8), 0.1, 3, torch.quint8)
    yield "sparse COO", lambda: torch.eye(8).to_sparse()
    yield "sparse CSR", lambda: torch.eye(8).to_sparse_csr()


def parts(tensor):
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout == torch.sparse_csr:
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    return [tensor]


def dumps(tensor):
    buffer = io.BytesIO()
    ForkingPickler(buffer, pickle.HIGHEST_PROTOCOL).dump(tensor)
    return buffer.getvalue()


def report(strategy, case, unit, samples):
    samples.sort()
    print(json.dumps({"impl": "torch.multiprocessing " + strategy, "case": case, "metric": "median",
                      "value": samples[len(samples) // 2], "unit": unit, "min": samples[0], "max": samples[-1],
                      "n": len(samples)}), flush=True)


def measure(strategy, name, make, rounds):
    mp.set_sharing_strategy(strategy)
    times = {"share": [], "encode": [], "decode and release": []}

    def each(what, call):
        start = time.perf_counter()
        result = call()
        times[what].append((time.perf_counter() - start) * 1e9 / BATCH)
        return result

    for _ in range(rounds):
        tensors = [make() for _ in range(BATCH)]
        each("share", lambda: [part.share_memory_() for tensor in tensors for part in parts(tensor)])
        messages = each("encode", lambda: [dumps(tensor) for tensor in tensors])

        def decode():
            for message in messages:
                pickle.loads(message)

        each("decode and release", decode)
    for what, samples in times.items():
        report(strategy, f"{what} {name}", "ns", samples)


def share_large(strategy, size, name, count):
    mp.set_sharing_strategy(strategy)
    samples = []
    for _ in range(count):
        tensor = torch.ones(size, dtype=torch.uint8)
        start = time.perf_counter()
        tensor.share_memory_()
        samples.append((time.perf_counter() - start) * 1e6)
    report(strategy, f"share {name}", "us", samples)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for strategy in ("file_system", "file_descriptor"):
        for name, make in layouts():
            measure(strategy, name, make, 20)
        share_large(strategy, 1 << 20, "1 MiB", 50)
        share_large(strategy, 64 << 20, "64 MiB", 5)

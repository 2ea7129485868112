"""Batches on their way to a GPU beside the loop's kernels, by torch.utils.data."""

import argparse
import json
import time

import torch
from torch.utils.data import DataLoader, Dataset

BATCH, BATCHES, ROUNDS = 64, 60, 7


class Pictures(Dataset):
    def __init__(self):
        self.pictures = torch.full((256, 3, 224, 224), 0.5)

    def __len__(self):
        return BATCH * BATCHES

    def __getitem__(self, index):
        return self.pictures[index % len(self.pictures)]


def report(case, samples):
    samples = sorted(samples)
    print(json.dumps({"impl": "torch.utils.data", "case": case, "metric": "median", "value": samples[len(samples) // 2],
                      "unit": "ms", "min": samples[0], "max": samples[-1], "n": len(samples)}), flush=True)


def rounds(loader, products, matrix):
    """Milliseconds a batch, of whole epochs after the one that starts the workers."""
    result = []
    for epoch in range(ROUNDS + 1):
        start = time.perf_counter()
        for batch in loader:
            batch = batch.to("cuda", non_blocking=True)
            value = matrix + batch.sum()
            for _ in range(products):
                value = value @ matrix
        torch.cuda.current_stream().synchronize()
        if epoch:
            result.append((time.perf_counter() - start) * 1e3 / BATCHES)
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, nargs="+")
    parser.add_argument("--products", type=int, nargs="+")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        return
    matrix = torch.randn(4096, 4096, device="cuda") * 1e-3
    for products in arguments.products:
        for workers in arguments.workers:
            loader = DataLoader(Pictures(), batch_size=BATCH, num_workers=workers, pin_memory=True, persistent_workers=True)
            report(f"{products} products a batch, {workers} workers", rounds(loader, products, matrix))


if __name__ == "__main__":
    main()

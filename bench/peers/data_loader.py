"""Samples a second of torch.utils.data.DataLoader over a data set in memory, and the time to an epoch's first batch."""

import json
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

ROUNDS = 3


class Images(Dataset):
    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index]


def show(case, unit, samples):
    samples.sort()
    print(json.dumps({"bench": "data_loader", "impl": "torch.utils.data", "case": case, "metric": "median",
                      "value": samples[len(samples) // 2], "unit": unit, "min": samples[0], "max": samples[-1],
                      "n": len(samples)}), flush=True)


def main():
    torch.set_num_threads(1)
    for name, shape, kind in (("uint8 3x224x224", (2048, 3, 224, 224), torch.uint8),
                              ("float 28x28", (60000, 28, 28), torch.float32)):
        images = Images(torch.zeros(shape, dtype=kind))
        for workers in (0, 1, 2):
            loader = DataLoader(images, batch_size=32, num_workers=workers, persistent_workers=workers > 0)
            rates, firsts = [], []
            for i in range(ROUNDS + 1):
                start = time.perf_counter()
                count = 0
                for batch in loader:
                    if count == 0:
                        firsts.append((time.perf_counter() - start) * 1e3)
                    count += len(batch)
                if i > 0:
                    rates.append(count / (time.perf_counter() - start))
            show(f"{name}, {workers} workers", "1/s", rates)
            if workers == 2 and name.startswith("uint8"):
                show("first batch of a later epoch, uint8 3x224x224", "ms", firsts[1:])


if __name__ == "__main__":
    sys.exit(main())

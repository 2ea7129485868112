"""Samples a second of torch.utils.data.DataLoader, and the time to an epoch's first batch. FOLDER has the pictures."""

import json
import pathlib
import sys
import time

import numpy
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

ROUNDS = 3
WORKERS = (0, 1, 2, 4)


class Images(Dataset):
    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index]


class Pictures(Dataset):
    def __init__(self, folder):
        self.folder = folder
        self.count = len(list(pathlib.Path(folder).glob("*.jpg")))

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        with open(f"{self.folder}/{index}.jpg", "rb") as file:
            image = numpy.array(Image.open(file).convert("RGB"))
        return torch.from_numpy(image).permute(2, 0, 1).contiguous()


class Texts(Dataset):
    def __len__(self):
        return 20000

    def __getitem__(self, index):
        return torch.full((20 + index * 7919 % 180,), index, dtype=torch.int64)


def padded(texts):
    lengths = torch.tensor([len(text) for text in texts])
    return torch.nn.utils.rnn.pad_sequence(texts, batch_first=True), lengths


def show(case, unit, samples):
    samples.sort()
    print(json.dumps({"bench": "data_loader", "impl": "torch.utils.data", "case": case, "metric": "median",
                      "value": samples[len(samples) // 2], "unit": unit, "min": samples[0], "max": samples[-1],
                      "n": len(samples)}), flush=True)


def rates(loader):
    found = []
    for i in range(ROUNDS + 1):
        start = time.perf_counter()
        count = 0
        for batch in loader:
            count += len(batch[0]) if isinstance(batch, tuple) else len(batch)
        if i > 0:
            found.append(count / (time.perf_counter() - start))
    return found


def all_rates(name, dataset, collate=None):
    best = []
    for workers in WORKERS:
        found = rates(DataLoader(dataset, batch_size=32, num_workers=workers, persistent_workers=workers > 0,
                                 collate_fn=collate))
        show(f"{name}, {workers} workers", "1/s", found)
        if workers > 0 and (not best or sorted(found)[len(found) // 2] > sorted(best)[len(best) // 2]):
            best = found
    show(f"{name}, best with workers", "1/s", best)


def milliseconds(start):
    return (time.perf_counter() - start) * 1e3


def first_batches(images):
    first, later, turns = [], [], []
    for _ in range(4):
        loader = DataLoader(images, batch_size=32, num_workers=2, persistent_workers=True)
        last = None
        for epoch in range(4):
            start = time.perf_counter()
            batches = iter(loader)
            next(batches)
            (later if epoch else first).append(milliseconds(start))
            if last is not None:
                turns.append(milliseconds(last))
            last = time.perf_counter()
            for _ in batches:
                last = time.perf_counter()
    show("first batch of the first epoch, uint8 3x224x224", "ms", first)
    show("first batch of a later epoch, uint8 3x224x224", "ms", later)
    show("from an epoch's last batch to the next one's first, uint8 3x224x224", "ms", turns)


def main():
    torch.set_num_threads(1)
    for name, shape, kind in (("uint8 3x224x224", (2048, 3, 224, 224), torch.uint8),
                              ("float 28x28", (60000, 28, 28), torch.float32)):
        all_rates(name, Images(torch.zeros(shape, dtype=kind)))
    all_rates("JPEG 256x256", Pictures(sys.argv[1]))
    all_rates("texts of 20 to 199 tokens", Texts(), padded)
    first_batches(Images(torch.zeros((512, 3, 224, 224), dtype=torch.uint8)))


if __name__ == "__main__":
    sys.exit(main())

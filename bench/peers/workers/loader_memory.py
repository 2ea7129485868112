"""Memory, by PSS, of four ranks with four loader workers each: a data set that is a tensor in shared memory, and one of
Python's objects. SIZE is the data set's, in MiB."""

import json
import os
import sys

import torch
import torch.multiprocessing as mp
from data_loader import Images
from torch.utils.data import DataLoader, Dataset

RANKS, WORKERS, SAMPLE = 4, 4, 3 * 32 * 32


class Objects(Dataset):
    """As where a list of names, annotations or texts is the data set."""

    def __init__(self, count):
        self.samples = [bytes([i % 256]) * SAMPLE for i in range(count)]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return torch.frombuffer(bytearray(self.samples[index]), dtype=torch.uint8)


def load(rank, dataset, loaded, looked_at):
    torch.set_num_threads(1)
    loader = DataLoader(dataset, batch_size=64, num_workers=WORKERS, persistent_workers=True)
    for batch in loader:
        len(batch)
    loaded.wait()
    looked_at.wait()


def descendants(pid):
    found = [pid]
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children") as children:
            for child in children.read().split():
                found += descendants(int(child))
    return found


def pss(pid):
    with open(f"/proc/{pid}/smaps_rollup") as rollup:
        return next(int(line.split()[1]) / 1024 for line in rollup if line.startswith("Pss:"))


def show(impl, case, value):
    print(json.dumps({"bench": "loader_memory", "impl": impl, "case": case, "metric": "median", "value": value,
                      "unit": "MiB", "min": value, "max": value, "n": 1}), flush=True)


def measure(impl, dataset, size):
    context = mp.get_context("spawn")
    loaded, looked_at = context.Barrier(RANKS + 1), context.Barrier(RANKS + 1)
    ranks = mp.start_processes(load, (dataset, loaded, looked_at), nprocs=RANKS, join=False, start_method="spawn")
    loaded.wait()
    together = sum(pss(pid) for pid in descendants(os.getpid()))
    looked_at.wait()
    ranks.join()
    show(impl, f"all processes, data set of {size} MiB", together)
    show(impl, "beside one copy of the data set", together - size)


def main():
    size = int(sys.argv[1])
    count = (size << 20) // SAMPLE
    measure("torch.utils.data, a shared tensor",
            Images(torch.ones((count, SAMPLE), dtype=torch.uint8).share_memory_()), size)
    measure("torch.utils.data, Python's objects", Objects(count), size)


if __name__ == "__main__":
    sys.exit(main())

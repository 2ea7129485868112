"""Python's Hogwild: torch.optim over a model in shared memory, one and two processes, dense and sparse gradients. Adam's state is
each process's own there."""

import json
import time

import torch
import torch.multiprocessing as mp
from torch import nn

ROUNDS, WINDOWS, WINDOW, WARM_UP, BATCHES = 3, 4, 0.25, 60, 512


class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.EmbeddingBag(100_000, 64, mode="sum", sparse=True)

    def forward(self, words):
        return self.table(words)[:, :10]


def dense():
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))


CASES = {"dense, SGD": (dense, torch.optim.SGD), "dense, Adam": (dense, torch.optim.Adam),
         "sparse, SGD": (Sparse, torch.optim.SGD), "sparse, Adam": (Sparse, torch.optim.SparseAdam)}


def input_of(case, batch):
    torch.manual_seed(batch)
    return torch.randn(32, 784) if "dense" in case else torch.randint(100_000, (32, 8))


def train(rank, case, model, steps, start, results):
    torch.set_num_threads(1)
    optimizer = CASES[case][1](model.parameters(), lr=1e-3)
    inputs = [input_of(case, batch) for batch in range(rank, BATCHES, len(steps))]   # its part of the data set
    target = torch.randint(0, 10, (32,))
    done = 0

    def step():
        nonlocal done
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs[done % len(inputs)]), target).backward()
        optimizer.step()
        done += 1
        steps[rank] = done      # only this process writes it

    for _ in range(WARM_UP):
        step()
    start.wait()
    samples = []
    for _ in range(WINDOWS):
        begun, before = time.perf_counter(), int(steps.sum())
        while time.perf_counter() - begun < WINDOW:
            step()
        samples.append((int(steps.sum()) - before) / (time.perf_counter() - begun))
    start.wait()
    if rank == 0:
        results.put(samples)


def show(case, unit, values):
    values = sorted(values)
    print(json.dumps({"impl": "python, torch.optim", "case": case, "metric": "median", "value": values[len(values) // 2],
                      "unit": unit, "min": values[0], "max": values[-1], "n": len(values)}), flush=True)


if __name__ == "__main__":
    context = mp.get_context("spawn")
    for case, (make, _) in CASES.items():
        samples, ratios = {1: [], 2: []}, []
        for _ in range(ROUNDS):
            best = {}
            for ranks in (1, 2):
                model = make().share_memory()
                steps = torch.zeros(ranks, dtype=torch.long).share_memory_()
                start, results = context.Barrier(ranks), context.SimpleQueue()
                mp.spawn(train, args=(case, model, steps, start, results), nprocs=ranks)
                of_round = results.get()
                samples[ranks] += of_round
                best[ranks] = max(of_round)
            ratios.append(best[2] / best[1])
        for ranks in (1, 2):
            show(f"{case}, {ranks} process{'' if ranks == 1 else 'es'}", "steps/s", samples[ranks])
        show(f"{case}, two by one", "times", ratios)

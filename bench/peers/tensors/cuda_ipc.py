"""Tensors on a GPU between two processes, through torch.multiprocessing."""

import json
import time

import torch
import torch.multiprocessing as mp

KEEP, USE, FORGET, END = range(4)


def answer(requests, answers):
    kept = None
    while True:
        tensor, then = requests.get()
        if then == END:
            return
        if then == KEEP:
            kept = tensor
        if then == USE:
            tensor.view(-1)[:1].cpu()
        del tensor
        answers.put(0)
        if then != KEEP:
            torch.cuda.ipc_collect()


def report(case, samples):
    samples = sorted(s * 1e6 for s in samples)
    print(json.dumps({"impl": "torch.multiprocessing", "case": case, "metric": "median", "value": samples[len(samples) // 2],
                      "unit": "us", "min": samples[0], "max": samples[-1], "n": len(samples)}), flush=True)


def main():
    if not torch.cuda.is_available():
        return
    context = mp.get_context("spawn")
    requests, answers = context.SimpleQueue(), context.SimpleQueue()
    process = context.Process(target=answer, args=(requests, answers))
    process.start()

    def round_trip(tensor, then):
        start = time.perf_counter()
        requests.put((tensor, then))
        answers.get()
        return time.perf_counter() - start

    round_trip(torch.zeros(1, device="cuda"), USE)  # the other side's CUDA starts
    for case, then in (("round trip, allocation not open yet", FORGET),
                       ("round trip, allocation not open yet, and its first use", USE)):
        samples = []
        for _ in range(40):
            tensor = torch.empty(64 << 20, dtype=torch.uint8, device="cuda").fill_(1)
            torch.cuda.synchronize()
            samples.append(round_trip(tensor, then))
            del tensor
            torch.cuda.ipc_collect()
            torch.cuda.empty_cache()
        report(case, samples)
    tensor = torch.zeros(1 << 20, device="cuda")
    round_trip(tensor, KEEP)
    report("round trip, a slice of an open allocation",
           [round_trip(tensor[i % 1000 * 1024:i % 1000 * 1024 + 1024], KEEP) for i in range(2000)])
    requests.put((None, END))
    process.join()


if __name__ == "__main__":
    main()

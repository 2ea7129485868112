"""multiprocessing.Manager: reads and writes of a dict and a list from this process, and from several at once."""

import json
import multiprocessing as mp
import time

IMPL = "Python multiprocessing.Manager"
DURATION = 0.7


def report(case, unit, samples):
    samples.sort()
    print(json.dumps({"impl": IMPL, "case": case, "metric": "median", "value": samples[len(samples) // 2], "unit": unit,
                      "min": samples[0], "max": samples[-1], "n": len(samples)}), flush=True)


def timed(case, call, each=200):
    samples = []
    for sample in range(-2, 20):
        start = time.perf_counter()
        for _ in range(each):
            call()
        if sample >= 0:
            samples.append((time.perf_counter() - start) * 1e6 / each)
    report(case, "us", samples)


def read_at_once(values, start, results):
    values["key7"]  # its connection
    start.wait()
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < DURATION:
        values["key7"]
        count += 1
    results.put(count)


def main():
    with mp.Manager() as manager:
        values, texts, numbers = manager.dict(), manager.dict(), manager.list(range(1000))
        lock = manager.Lock()
        values.update({f"key{i}": i for i in range(1000)})
        texts["kib"], texts["mib"] = "x" * 1024, "x" * (1 << 20)
        timed("dict: read a number", lambda: values["key7"])
        timed("dict: write a number", lambda: values.__setitem__("key7", 7))

        def add():
            with lock:
                values["key7"] = values["key7"] + 1

        timed("dict: add 1 under a lock", add, 100)
        timed("dict: read 1 KiB", lambda: texts["kib"])
        timed("dict: read 1 MiB", lambda: texts["mib"], 20)
        timed("dict: all 1000 items", lambda: values.items(), 20)
        timed("list: read a number", lambda: numbers[500])

        def append_and_pop():
            numbers.append(1)
            numbers.pop()

        timed("list: append and pop", append_and_pop, 100)
        rates = []
        for _ in range(3):
            start, results = mp.Barrier(2), mp.Queue()
            children = [mp.Process(target=read_at_once, args=(values, start, results)) for _ in range(2)]
            for child in children:
                child.start()
            rates.append(sum(results.get() for _ in children) / DURATION)
            for child in children:
                child.join()
        report("dict: reads of 2 processes at once", "1/s", rates)


if __name__ == "__main__":
    mp.set_start_method("fork")
    main()

"""multiprocessing.Lock: alone, and wanted by several processes all the time."""

import json
import multiprocessing as mp
import time

DURATION = 0.7


def report(case, unit, samples):
    samples.sort()
    print(json.dumps({"impl": "Python multiprocessing.Lock", "case": case, "metric": "median",
                      "value": samples[len(samples) // 2], "unit": unit, "min": samples[0], "max": samples[-1],
                      "n": len(samples)}), flush=True)


def uncontended():
    lock = mp.Lock()
    acquire, release = lock.acquire, lock.release
    samples = []
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(20_000):
            acquire()
            release()
        samples.append((time.perf_counter() - start) * 1e9 / 20_000)
    report("lock and unlock, uncontended", "ns", samples)


def contend(lock, hold, start, results):
    start.wait()
    locks, longest = 0, 0.0
    begin = now = time.perf_counter()
    while now - begin < DURATION:
        lock.acquire()
        if hold:
            since = time.perf_counter()
            while time.perf_counter() - since < hold:
                pass
        lock.release()
        locks += 1
        then, now = now, time.perf_counter()
        longest = max(longest, now - then)
    results.put((locks, longest))


def contended(processes, hold):
    rates, slowest, longest = [], [], []
    for _ in range(3):
        lock, start, results = mp.Lock(), mp.Barrier(processes), mp.Queue()
        children = [mp.Process(target=contend, args=(lock, hold, start, results)) for _ in range(processes)]
        for child in children:
            child.start()
        shares = [results.get() for _ in children]
        for child in children:
            child.join()
        rates.append(sum(share[0] for share in shares) / DURATION)
        slowest.append(min(share[0] for share in shares) / DURATION)
        longest.append(max(share[1] for share in shares) * 1e3)
    who = f"{processes} processes, {hold * 1e6:.0f} us each: "
    report(who + "all", "locks/s", rates)
    report(who + "slowest", "locks/s", slowest)
    report(who + "longest turn", "ms", longest)


if __name__ == "__main__":
    mp.set_start_method("fork")
    uncontended()
    for count, seconds in ((2, 0), (8, 0), (8, 200e-6)):
        contended(count, seconds)

"""The cost model of docs/scaling.md: prints its table.

    scaling.py [NAME=VALUE...]

takes other figures than the ones below, in seconds, bytes a second and ranks: `scaling.py link=11.5e9 message=5e-6`.
"""

import math
import sys

figures = {
    "round": 0.6e-6,     # a round of two ranks of a host, each with a CPU
    "rank": 0.1e-6,      # more for each further rank: a cache line that has to come
    "memory": 37e9,      # bytes a second that all ranks of a host read and write together
    "message": 12e-6,    # CPU time of a message between hosts, sent and received, on each side
    "flight": 40e-6,     # from a message's sending until it was received, less the CPU time
    "link": 0.118e9,     # of a host, each direction: 1 Gbit/s
    "local": 8,          # ranks a host
}


def in_host(bytes, ranks, f):
    """All-reduce in the heap: two rounds; each rank reads and writes all bytes once, its part of each rank's tensor."""
    return 2 * (f["round"] + f["rank"] * max(0, ranks - 2)) + 2 * ranks * bytes / f["memory"]


def columns(bytes, hosts, ranks, f):
    """Between hosts, as it is: a note and the data to every other host of the column, together if they are small, in two steps if
    they are large."""
    if hosts == 1:
        return 0
    direct = hosts == 2 or bytes / ranks <= 16 << 10
    with_note = bytes / ranks / (1 if direct else hosts) <= 256 << 10
    notes = 0 if with_note else (hosts - 1) * f["message"]
    if direct:
        return notes + (hosts - 1) * (f["message"] + bytes / f["link"]) + f["flight"]
    return notes + 2 * ((hosts - 1) * f["message"] + f["flight"]) + 2 * (hosts - 1) / hosts * bytes / f["link"]


def halving(bytes, hosts, ranks, f):
    """Between hosts by halving and doubling, which is not built: 2 log2(hosts) messages one after the other."""
    steps = 2 * math.ceil(math.log2(hosts)) if hosts > 1 else 0
    return steps * (f["message"] + f["flight"]) + 2 * (hosts - 1) / hosts * bytes / f["link"]


def ring(bytes, ranks, f):
    """Of all ranks, host or no host; one link carries what one rank sends."""
    return 2 * (ranks - 1) * (f["message"] + f["flight"]) + 2 * (ranks - 1) / ranks * bytes / f["link"]


def number(seconds):
    return f"{float(f'{seconds * 1e3:.2g}'):g}"


def main():
    for word in sys.argv[1:]:
        name, value = word.split("=")
        figures[name] = float(value)
    local = int(figures["local"])
    print("| all_reduce, ms | " + " | ".join(f"{ranks:,} ranks" for ranks in (local, 16, 128, 1024, 10_000)) + " |")
    print("|---" * 6 + "|")
    for bytes, name in ((4 << 10, "4 KiB"), (256 << 10, "256 KiB"), (4 << 20, "4 MiB"), (32 << 20, "32 MiB"), (1 << 30, "1 GiB")):
        cells = []
        for ranks in (local, 16, 128, 1024, 10_000):
            hosts = ranks // local
            base = in_host(bytes, local, figures)
            if hosts == 1:
                cells.append(number(base))
                continue
            cells.append(" / ".join(number(time) for time in (base + columns(bytes, hosts, local, figures),
                                                              base + halving(bytes, hosts, local, figures),
                                                              ring(bytes, ranks, figures))))
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()

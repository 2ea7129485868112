"""Pictures of what benchmarks measured, one a question, as SVG that follows a reader's light or dark page.

    plot.py RESULTS PICTURES

takes NAME.txt of the folder RESULTS, what `./dev bench` keeps of a program's run, puts its figures into PICTURES/NAME.jsonl in place
of those that were there, and draws anew every picture that PICTURES has figures for. Without a result nothing is replaced, so a
fresh clone draws what it has. Needs nothing but Python.
"""

import collections
import datetime
import html
import json
import math
import pathlib
import re
import sys

# Question: a picture's name, the program, what it asks, which of its cases answer it and how they are called there, and the metric.
Question = collections.namedtuple("Question", "name program asks cases metrics", defaults=[("p50", "median")])
questions = [
    Question("round_trip_shared", "queue_round_trip", "How long is a tensor in shared memory on its way there and back?",
             {r"shared tensor (\S+ \S+), busy": r"\1"}),
    Question("round_trip_asleep", "queue_round_trip", "How long is a message there and back if both sides sleep in between?",
             {r"shared tensor 4 KiB, both asleep": "a shared tensor of 4 KiB", r"bytes 64 B copied, both asleep": "64 bytes, copied"}),
    Question("round_trip_bytes", "queue_round_trip", "How long are bytes that are copied in and out on their way there and back?",
             {r"bytes (\S+ \S+) copied, busy": r"\1"}),
    Question("throughput_messages", "queue_throughput", "How many messages of 64 bytes go one way in a second?",
             {r"64 B, (\d) x (\d)": r"\1 to \2 processes"}),
    Question("throughput_tensors", "queue_throughput", "How many shared tensors go one way in a second?",
             {r"shared tensor 64 B, (\d) x (\d)": r"\1 to \2 processes"}),
    Question("throughput_bytes", "queue_throughput", "How many gigabytes go one way in a second, in fresh memory each time?",
             {r"fresh (\S+ \S+), 1 x 1": r"\1"}),
    Question("start_and_join", "process_start", "How long do start and join of an empty function take?",
             {r"spawn": "spawn", r"fork": "fork", r"forkserver": "fork server", r"forkserver, cold": "fork server, started for it"}),
    Question("start_until_running", "process_start", "How long is it from the call until the function runs?",
             {r"until the function runs": "started when asked for", r"until the function runs, from a spare": "from a spare"}),
    Question("pool_tasks", "pool", "How many tasks does a pool of two workers do in a second?",
             {r"(apply, empty|apply_async, then get|map, chunks of 1|map, default chunks)": r"\1",
              r"apply, shared tensor there and back": "apply, with a shared tensor there and back"}),
    Question("all_reduce", "all_reduce", "How long does an all-reduce of two ranks take?",
             {r"2 ranks, (\S+ \S+) of floats, in the heap": r"\1, shared tensors", r"2 ranks, (\S+ \S+) of floats, private": r"\1, private tensors"}),
    Question("collectives_two", "collectives", "How long does an all-reduce of two ranks take, called as MPI is?",
             {r"2 ranks, all_reduce of (\S+ \S+)": r"\1"}),
    Question("collectives_many", "collectives", "How long does an all-reduce take with more ranks than CPUs?",
             {r"([48]) ranks, all_reduce of (1 KiB|256 KiB|32 MiB)": r"\1 ranks, \2"}),
    Question("collectives_busy", "collectives", "How long is an all-reduce of 1 KiB on average, beside other busy processes?",
             {r"2 ranks, all_reduce of 1 KiB, beside (\d) busy, turn (\d)": r"beside \1, turn \2"}, ("mean",)),
    Question("lock_uncontended", "lock", "How long do lock and unlock take if nobody else wants the lock?",
             {r"lock and unlock, uncontended": "lock and unlock"}),
    Question("lock_turns", "lock", "How long is the longest turn if eight processes want the lock?",
             {r"8 processes, (\d+) us each: longest turn": r"held for \1 us each"}),
    Question("tensor_share", "tensor_share", "What do the steps of sharing a tensor of 64 bytes cost by themselves?",
             {r"(share|encode|decode and release) 64 B": r"\1"}),
    Question("data_loader", "data_loader", "How many samples a second come out of a data loader, with the best number of workers?",
             {r"(.*), best with workers": r"\1"}),
    Question("loader_memory", "loader_memory", "How much memory do four ranks with four workers each take over 256 MiB of data?",
             {r"all processes, data set of (.*)": "all processes together"}),
]
units = {"ns": "nanoseconds", "us": "microseconds", "ms": "milliseconds", "s": "seconds", "1/s": "a second", "M/s": "millions a second",
         "msg/s": "messages a second", "locks/s": "locks a second", "tasks/s": "tasks a second", "GB/s": "gigabytes a second",
         "MB": "megabytes", "MiB": "mebibytes", "samples/s": "samples a second"}
# What the kernel or the hardware takes for the least of it: no peer does less.
floors = ("futex", "cache line", "memcpy", "bare fork", "exec and load", "at::from_blob", "as many bare")
most = 10   # times the median: as far as a line to the slowest goes

width, row, labels, values, ratios = 960, 20, 275, 118, 120
style = """
.shoal-plot { --ink: #24292f; --soft: #57606a; --grid: #d8dee4; --ours: #1779c4; --peer: #8c959f; --floor: #d0d7de; --line: #424a53; }
@media (prefers-color-scheme: dark) { .shoal-plot {
  --ink: #d0d6dc; --soft: #9198a1; --grid: #353b42; --ours: #2f8fdc; --peer: #6e7781; --floor: #424a53; --line: #c8d1da; } }
html.light-mode .shoal-plot { --ink: #24292f; --soft: #57606a; --grid: #d8dee4; --ours: #1779c4; --peer: #8c959f; --floor: #d0d7de; --line: #424a53; }
html.dark-mode .shoal-plot {
  --ink: #d0d6dc; --soft: #9198a1; --grid: #353b42; --ours: #2f8fdc; --peer: #6e7781; --floor: #424a53; --line: #c8d1da; }
.shoal-plot text { fill: var(--ink); font: 13px system-ui, "Liberation Sans", "DejaVu Sans", sans-serif; }
.shoal-plot .asks { font-size: 17px; font-weight: 600; } .shoal-plot .case { font-weight: 600; }
.shoal-plot .soft { fill: var(--soft); font-size: 12px; } .shoal-plot .ours { font-weight: 600; }
"""


def figures_of(text):
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                yield json.loads(line)
            except ValueError:   # cut off: the program was ended
                pass


def keep(result, kept):
    """What is drawn of a program's run: a line on where and when it ran, and its figures."""
    text = result.read_text(errors="replace")
    figures = [figure for figure in figures_of(text) if "case" in figure]
    if not figures:
        return
    head = re.search(r"^# \w+: (.*)$", text, re.MULTILINE)
    begun = re.search(r"^# begun (\S+), load (\S+)", text, re.MULTILINE)
    run = {"machine": head[1] if head else "unknown",
           "date": begun[1] if begun else datetime.date.fromtimestamp(result.stat().st_mtime).isoformat(),
           "load": float(begun[2]) if begun else None}
    figures = [{key: round(value, 4) if isinstance(value, float) else value for key, value in figure.items()} for figure in figures]
    kept.write_text("".join(json.dumps(line) + "\n" for line in [run, *figures]))


def is_rate(unit):
    return unit.endswith("/s")


def rows_of(question, figures):
    """For each case that answers it, in the program's order: how it is called, and its figures, the best first."""
    cases = {}
    for figure in figures:
        if figure["metric"] not in question.metrics or figure["value"] <= 0:
            continue
        for pattern, name in question.cases.items():
            if found := re.fullmatch(pattern, figure["case"]):
                case = cases.setdefault(found.expand(name), {})
                other = case.get(figure["impl"])   # measured twice: the better one
                if other is None or (figure["value"] > other["value"]) == is_rate(figure["unit"]):
                    case[figure["impl"]] = figure
    return [(name, sorted(case.values(), key=lambda figure: figure["value"] * (-1 if is_rate(figure["unit"]) else 1)))
            for name, case in cases.items()]


def is_ours(figure):
    return figure["impl"].split(",")[0].split(" ")[0] == "shoal"


def number(value):
    """Three digits, as people say them."""
    if value >= 1e9:
        return f"{float(f'{value / 1e9:.3g}'):g} billion"
    if value >= 1e6:
        return f"{float(f'{value / 1e6:.3g}'):g} million"
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"


def ratio(figure, ours):
    """Ours beside it."""
    a, b = (ours, figure) if is_rate(figure["unit"]) else (figure, ours)
    times = a["value"] / b["value"]
    if abs(times - 1) < 0.05:
        return "the same"
    said = max(times, 1 / times)
    return f"{said:,.0f} times " * (said >= 10) + f"{said:.2g} times " * (said < 10) + ("better" if times > 1 else "worse")


class Scale:
    """From a value to its place, by powers of ten."""

    def __init__(self, figures, left, right):
        ends = [end for figure in figures for end in (figure["value"], max(figure["min"], figure["value"] / most),
                                                      min(figure["max"], figure["value"] * most)) if end > 0]
        self.low, self.high = math.floor(math.log10(min(ends)) - 0.15), math.ceil(math.log10(max(ends)))
        self.left, self.right = left, right
        self.step = 1 if self.high - self.low <= 6 else 2   # powers of ten from one line to the next

    def __call__(self, value):
        share = (math.log10(max(value, 10 ** self.low)) - self.low) / (self.high - self.low)
        return self.left + min(share, 1) * (self.right - self.left)

    def ticks(self):
        return [10.0 ** power for power in range(self.low, self.high + 1, self.step)]


def draw(question, cases, run):
    figures = [figure for _, case in cases for figure in case]
    unit = figures[0]["unit"]
    figures = [figure for figure in figures if figure["unit"] == unit]
    scale = Scale(figures, labels, width - values - ratios)
    out, y = [], 30

    def text(x, y, said, kind="", anchor="start"):
        out.append(f'<text x="{x:.0f}" y="{y:.0f}"' + (f' class="{kind}"' if kind else "")
                   + (f' text-anchor="{anchor}"' if anchor != "start" else "") + f">{html.escape(said)}</text>")

    text(10, y, question.asks, "asks")
    y += 22
    better = "more is better" if is_rate(unit) else "less is better"
    text(10, y, f"{units.get(unit, unit)}, {better}; each line on the scale is {'ten' if scale.step == 1 else 'a hundred'} times the one before", "soft")
    text(width - 10, y, "shoal is", "soft", "end")
    top = y + 8
    y += 12
    bars = []
    for name, case in cases:
        ours = next((figure for figure in case if figure["impl"] == "shoal"), None) or next(filter(is_ours, case), None)
        y += 26
        text(10, y, name, "case")
        for figure in case:
            if figure["unit"] != unit:
                continue
            y += row
            floor = figure["impl"].startswith(floors)
            kind = "ours" if is_ours(figure) else "floor" if floor else "peer"
            value, middle = figure["value"], y - 4.5
            text(labels - 8, y, figure["impl"], "ours" if kind == "ours" else "", "end")
            bars.append(f'<rect x="{labels}" y="{y - 12}" width="{max(scale(value) - labels, 1):.1f}" height="15" fill="var(--{kind})"/>')
            low, high = max(figure["min"], value / most), min(figure["max"], value * most)
            if low > 0 and scale(high) - scale(low) > 1:
                bars.append(f'<path d="M{scale(low):.1f} {middle}H{scale(high):.1f}" stroke="var(--line)" stroke-width="1.5"/>')
                for end, is_end in ((low, low > value / most), (high, high < value * most)):
                    if is_end:
                        bars.append(f'<path d="M{scale(end):.1f} {middle - 3}v6" stroke="var(--line)" stroke-width="1.5"/>')
            text(width - ratios - 20, y, number(value), "ours" if kind == "ours" else "", "end")
            if ours is not None and not is_ours(figure):
                text(width - 10, y, ratio(figure, ours), "soft" if floor else "", "end")
    bottom = y + 10
    grid = []
    for tick in scale.ticks():
        x = scale(tick)
        grid.append(f'<path d="M{x:.1f} {top}V{bottom}" stroke="var(--grid)"/>')
        text(x, bottom + 16, number(tick) if tick >= 1 else f"{tick:g}", "soft", "middle")
    y = bottom + 44
    kinds = [("ours", "shoal"), ("peer", "others")] + ([("floor", "a floor: what the machine or libtorch takes by itself")]
                                                       if any(f["impl"].startswith(floors) for f in figures) else [])
    x = 10
    for kind, said in kinds:
        out.append(f'<rect x="{x}" y="{y - 11}" width="12" height="12" fill="var(--{kind})"/>')
        text(x + 18, y, said, "soft")
        x += 40 + 6.5 * len(said)
    lines = f"; lines: from the best to the worst, {most} times it at most" if any("stroke-width" in bar for bar in bars) else ""
    text(width - 10, y, f"bars: the median{lines}", "soft", "end")
    y += 20
    load = run.get("load")
    busy = "" if load is None or load < 1 else f"; the machine was busy with other work (load {load:g})"
    text(10, y, f"{run['machine']}; {run['date']}{busy}", "soft")
    height = y + 14
    said = f"{question.asks} Medians: " + "; ".join(
        f"{name}: " + ", ".join(f"{figure['impl']} {number(figure['value'])} {unit}" for figure in case) for name, case in cases)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" class="shoal-plot" viewBox="0 0 {width} {height:.0f}" role="img">\n'
            f"<title>{html.escape(said)}</title>\n<style>{style}</style>\n" + "\n".join(grid + bars + out) + "\n</svg>\n")


def pictures(folder):
    """All pictures that the folder has figures for: their names and contents."""
    for question in questions:
        kept = folder / f"{question.program}.jsonl"
        if not kept.exists():
            continue
        run, *figures = map(json.loads, kept.read_text().splitlines() or ["{}"])
        if cases := rows_of(question, figures):
            yield f"{question.name}.svg", draw(question, cases, run)


def main(results, folder):
    folder.mkdir(parents=True, exist_ok=True)
    programs = {question.program for question in questions}
    for result in sorted(results.glob("*.txt")):
        if result.stem in programs:
            keep(result, folder / f"{result.stem}.jsonl")
    drawn = list(pictures(folder))
    for name, picture in drawn:
        (folder / name).write_text(picture)
        print(folder / name)
    if not drawn:
        print(f"nothing measured in {results} yet: ./dev bench first", file=sys.stderr)
    return 0 if drawn else 1


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])))

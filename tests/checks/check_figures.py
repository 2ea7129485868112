"""README's figures and those that the plots are drawn of are those of docs/benchmarks.md.

* Each row of the table in README's section "Measured", and each paragraph of it, has its figures in one row or paragraph there.
* A row's ratios follow from its own figures, to the last digit: so they are those that a reader finds, and that a plot writes.
* A file docs/plots/NAME.jsonl whose first line says that it has the page's medians: what it has of a case stands in one row there.
"""

import json
import re

from repository import finish, root, tracked

number = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*")
code = re.compile(r"`[^`]*`")
claim = "as docs/benchmarks.md has them"


def section(path, title):
    text = path.read_text() if path.exists() else ""
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return found.group(1) if found else ""


def units(text):
    """Rows of tables as lists of cells, paragraphs as lists of one."""
    for block in re.split(r"\n\s*\n", text.strip()):
        lines = block.splitlines()
        if lines and lines[0].startswith("|"):
            yield from ([cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines[2:])
        elif block:
            yield [" ".join(lines)]


def figures(text):
    return set(number.findall(code.sub("", text)))


def in_paragraph(text):
    """Of a sentence only what was measured: numbers with a point or a comma."""
    return {figure for figure in figures(text) if re.search("[.,]", figure)}


faults = []
checked = 0
benchmarks = root / "docs/benchmarks.md"
there = [figures(" ".join(unit[1:] if len(unit) > 1 else unit))
         for unit in units(benchmarks.read_text() if benchmarks.exists() else "")]
for unit in units(section(root / "README.md", "Measured")):
    is_row = len(unit) > 1
    wanted = figures(" ".join(unit[1:3])) if is_row else in_paragraph(unit[0])
    checked += len(wanted)
    label = unit[0] if is_row else unit[0][:40]
    nearest = max(there, key=lambda row: len(wanted & row), default=set())
    if missing := wanted - nearest:
        faults.append(f"README.md: '{label}': docs/benchmarks.md has no row or paragraph with {', '.join(sorted(missing))}"
                      + (f" beside {', '.join(sorted(wanted & nearest))}" if wanted & nearest else ""))
    if not is_row:
        continue
    ours, peers = ([float(figure.replace(",", "")) for figure in number.findall(code.sub("", cell))] for cell in unit[1:3])
    possible = {a * scale / b for ours_one in ours for peer in peers if ours_one and peer
                for a, b in ((ours_one, peer), (peer, ours_one)) for scale in (1, 1000)}
    for ratio in number.findall(code.sub("", " ".join(unit[3:]))):
        checked += 1
        half = 0.5 * 10.0 ** -len(ratio.partition(".")[2])   # of its last digit
        if not any(abs(float(ratio.replace(",", "")) - value) <= half * 1.001 for value in possible):
            faults.append(f"README.md: '{label}': no two of its figures have the ratio {ratio}")

of_plots = 0
values_there = [[float(figure.replace(",", "")) for figure in row if figure.count(".") < 2] for row in there]
for name in tracked("docs/plots/*.jsonl"):
    run, *kept = map(json.loads, (root / name).read_text().splitlines() or ["{}"])
    if claim not in run.get("machine", ""):
        continue   # of a run of its own
    cases = {}
    for figure in kept:
        cases.setdefault((figure["case"], figure["metric"]), set()).update((figure["value"], figure["min"], figure["max"]))
    for (case, _), values in cases.items():
        of_plots += len(values)
        best = min(({value for value in values   # the page may write 23 ms where the plot has 23,000 us
                     if not any(abs(said * scale / value - 1) < 1e-9 for said in row for scale in (1e-6, 1e-3, 1, 1e3, 1e6))}
                    for row in values_there), key=len, default=values)
        if best:
            faults.append(f"{name}: '{case}': docs/benchmarks.md has no row or paragraph with all of "
                          + ", ".join(f"{value:g}" for value in sorted(values)) + ": not " + ", ".join(f"{value:g}" for value in sorted(best)))
finish("figures", f"{checked} figures of README and {of_plots} of plots", faults)

"""README's figures are those of docs/benchmarks.md. Each row of the table in README's section "Measured", and each paragraph of
it, has its figures in one row or paragraph there; and a row's ratios follow from its own figures."""

import re

from repository import finish, root

number = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*")
code = re.compile(r"`[^`]*`")
tolerance = 0.05   # of a ratio: figures are rounded


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
        if not any(abs(float(ratio.replace(",", "")) / value - 1) <= tolerance for value in possible):
            faults.append(f"README.md: '{label}': no two of its figures have the ratio {ratio}")
finish("figures", f"{checked} figures of README", faults)

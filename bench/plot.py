"""Pictures of what `./dev bench` measured: NAME.png beside each NAME.txt of the folder given.

One bar a figure, grouped by case, from the JSON lines; logarithmic, since peers are often a hundred times apart.
"""

import json
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend is chosen first)


def read(path):
    figures = []
    for line in path.read_text(errors="replace").splitlines():
        if not line.startswith("{"):
            continue
        try:
            figure = json.loads(line)
        except ValueError:
            continue
        if figure.get("metric") in ("p50", "median") and figure.get("value", 0) > 0:
            figures.append(figure)
    return figures


def draw(name, figures, target):
    cases = list(dict.fromkeys((figure["unit"], figure["case"]) for figure in figures))
    cases.sort(key=lambda case: case[0])  # stable: one unit after the other
    impls = list(dict.fromkeys(figure["impl"] for figure in figures))
    colours = {impl: plt.cm.tab20(i % 20) for i, impl in enumerate(sorted(impls, key=lambda impl: impl != "shoal"))}
    rows, labels, at = [], [], 0.0
    for unit, case in cases:
        here = [figure for figure in figures if (figure["unit"], figure["case"]) == (unit, case)]
        labels.append((at + (len(here) - 1) / 2, f"{case} [{unit}]"))
        for figure in here:
            rows.append((at, figure))
            at += 1
        at += 1
    plt.figure(figsize=(12, 1.5 + 0.17 * at))
    seen = set()
    for place, figure in rows:
        value = figure["value"]
        error = [[max(value - figure["min"], 0)], [max(min(figure["max"], value * 10) - value, 0)]]
        plt.barh(place, value, height=0.9, color=colours[figure["impl"]], xerr=error, ecolor="0.6",
                 label=None if figure["impl"] in seen else figure["impl"])
        plt.text(value, place, f" {value:.3g}", va="center", fontsize=6)
        seen.add(figure["impl"])
    plt.yticks([place for place, _ in labels], [label for _, label in labels], fontsize=7)
    plt.gca().invert_yaxis()
    plt.xscale("log")
    plt.title(f"{name}: median; the lines go from min to max, at most 10 times the median")
    plt.legend(fontsize=7)
    plt.tight_layout()
    plt.savefig(target, dpi=110)
    plt.close()


def main(folder):
    drawn = 0
    for path in sorted(pathlib.Path(folder).glob("*.txt")):
        if figures := read(path):
            draw(path.stem, figures, path.with_suffix(".png"))
            print(path.with_suffix(".png"))
            drawn += 1
    if drawn == 0:
        print(f"nothing measured in {folder} yet: ./dev bench first", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

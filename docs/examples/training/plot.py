"""Pictures of a training's log, as SVG that follows a reader's light or dark page.

    plot.py LOG FOLDER [--csv FILE] [--only NAME]

draws into FOLDER what the training programs wrote to LOG (JSON lines; docs/training-programs.md says which):

    loss.svg             losses of training and test over samples or tokens
    accuracy.svg         test accuracy over samples and over time
    learning_rate.svg    the learning rate over steps
    confusion_MODE.svg   which classes were taken for which, at the end
    convergence.svg      if there are several modes: accuracy over samples, over time, and loss

Where the log has two lines for one step (the run was killed after its last checkpoint), the later one counts. --csv writes the
lines as a table, a row each; --only draws one of the pictures. Needs nothing but Python.
"""

import argparse
import csv
import html
import json
import math
import pathlib
import sys

style = """
.training-plot { --ink: #24292f; --soft: #57606a; --grid: #d8dee4; --page: #ffffff;
  --c0: #1779c4; --c1: #c2570c; --c2: #1a7f37; --c3: #8250df; }
@media (prefers-color-scheme: dark) { .training-plot { --ink: #d0d6dc; --soft: #9198a1; --grid: #353b42; --page: #0d1117;
  --c0: #4aa3e8; --c1: #e8833a; --c2: #3fb950; --c3: #b392f0; } }
html.light-mode .training-plot { --ink: #24292f; --soft: #57606a; --grid: #d8dee4; --page: #ffffff;
  --c0: #1779c4; --c1: #c2570c; --c2: #1a7f37; --c3: #8250df; }
html.dark-mode .training-plot { --ink: #d0d6dc; --soft: #9198a1; --grid: #353b42; --page: #0d1117;
  --c0: #4aa3e8; --c1: #e8833a; --c2: #3fb950; --c3: #b392f0; }
.training-plot text { fill: var(--ink); font: 13px system-ui, "Liberation Sans", "DejaVu Sans", sans-serif; }
.training-plot .title { font-weight: 600; } .training-plot .soft { fill: var(--soft); font-size: 12px; }
.training-plot path { fill: none; } .training-plot .cell { font-size: 11px; }
"""
width, height, left, bottom, top = 420, 300, 52, 44, 56   # of a panel; its margins
modes_shown = ("single", "ddp", "hogwild", "data_parallel")


def read(text):
    """The log's lines by mode and event, in the order of steps."""
    runs = {}
    for line in text.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:   # cut off: the machine stopped
            continue
        if "event" in entry:
            runs.setdefault(entry.get("mode", "training"), {}).setdefault(entry["event"], {})[entry.get("step", 0)] = entry
    order = {mode: place for place, mode in enumerate(modes_shown)}
    return {mode: {event: [lines[step] for step in sorted(lines)] for event, lines in events.items()}
            for mode, events in sorted(runs.items(), key=lambda run: order.get(run[0], len(order)))}


def number(value):
    for limit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{name}"
    return f"{value:.3g}"


def ticks_of(low, high):
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step = next(step * times for times in (1, 2, 2.5, 5, 10) if (high - low) / (step * times) <= 5)
    first = math.ceil(low / step - 1e-9)
    return [(first + i) * step for i in range(int((high - first * step) / step + 1e-9) + 1)]


def text(x, y, said, kind="", anchor="start"):
    return (f'<text x="{x:.1f}" y="{y:.1f}"' + (f' class="{kind}"' if kind else "")
            + (f' text-anchor="{anchor}"' if anchor != "start" else "") + f">{html.escape(said)}</text>")


class Curve:
    """Points of one color; `dots` for those few that were measured, `dashed` for a second kind of line."""

    def __init__(self, name, color, points, dots=False, dashed=False):
        self.name, self.color, self.dots, self.dashed = name, color, dots, dashed
        self.points = [(x, y) for x, y in points if x is not None and y is not None and math.isfinite(y)]


def panel(title, under, curves, at=0):
    """A diagram `at` so many panels from the left; nothing if there are no points."""
    curves = [curve for curve in curves if curve.points]
    if not curves:
        return []
    xs = [x for curve in curves for x, _ in curve.points]
    ys = [y for curve in curves for _, y in curve.points]
    x_low, x_high = 0, max(max(xs), 1e-12)
    y_low, y_high = min(ys), max(ys)
    slack = (y_high - y_low) * 0.06 or max(abs(y_high), 1e-9) * 0.1
    y_low, y_high = y_low - slack, y_high + slack
    begin, end = at * width + left, (at + 1) * width - 14

    def place(x, y):
        return begin + (x - x_low) / (x_high - x_low) * (end - begin), height - bottom - (y - y_low) / (y_high - y_low) * (height - bottom - top)

    out = [text(begin, 18, title, "title")]
    for tick in ticks_of(y_low, y_high):
        _, y = place(0, tick)
        out += [f'<path d="M{begin:.1f} {y:.1f}H{end:.1f}" stroke="var(--grid)"/>', text(begin - 6, y + 4, number(tick), "soft", "end")]
    for tick in ticks_of(x_low, x_high):
        x, _ = place(tick, y_low)
        out += [f'<path d="M{x:.1f} {height - bottom}v4" stroke="var(--soft)"/>', text(x, height - bottom + 18, number(tick), "soft", "middle")]
    out.append(text((begin + end) / 2, height - 8, under, "soft", "middle"))
    x = begin
    for curve in curves:
        places = [place(*point) for point in curve.points]
        line = "M" + "L".join(f"{px:.1f} {py:.1f}" for px, py in places)
        dash = ' stroke-dasharray="5 3"' if curve.dashed else ""
        out.append(f'<path d="{line}" stroke="var(--c{curve.color % 4})" stroke-width="1.8"{dash}/>')
        if curve.dots:
            out += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="var(--c{curve.color % 4})"/>' for px, py in places]
        if not curve.name:   # a second kind of line in a color that has its name
            continue
        out += [f'<path d="M{x:.1f} 36h16" stroke="var(--c{curve.color % 4})" stroke-width="3"{dash}/>', text(x + 21, 40, curve.name, "soft")]
        x += 32 + 7 * len(curve.name)
    return out


def svg(panels, said, columns, rows=height):
    body = [part for part in panels if part]
    if not body:
        return None
    return (f'<svg xmlns="http://www.w3.org/2000/svg" class="training-plot" viewBox="0 0 {columns} {rows}" role="img">\n'
            f"<title>{html.escape(said)}</title>\n<style>{style}</style>\n" + "\n".join(line for part in body for line in part) + "\n</svg>\n")


def curve_of(runs, event, x, y, **kind):
    return [Curve(mode, place, [(line.get(x), line.get(y)) for line in run.get(event, [])], **kind) for place, (mode, run) in enumerate(runs.items())]


def loss_curves(runs, x):
    tests = curve_of(runs, "evaluation", x, "test_loss", dots=True, dashed=True)
    for test in tests:
        test.name = ""
    return curve_of(runs, "step", x, "loss") + tests


def confusion(mode, line):
    counts, side, corner = line["confusion"], 34, 64
    most = max(max(row) for row in counts) or 1
    wide = corner + side * len(counts) + 20
    out = [text(12, 20, f"{mode}: answers (columns) to images of each class (rows)", "title"),
           text(12, 38, f"accuracy {line['test_accuracy']:.4f} of {sum(map(sum, counts)):,}, epoch {line['epoch'] + 1}", "soft")]
    for i, row in enumerate(counts):
        out += [text(corner - 8, corner + side * i + 21, str(i), "soft", "end"), text(corner + side * i + 17, corner - 6, str(i), "soft", "middle")]
        for j, count in enumerate(row):
            # By the root: the few wrong ones are what is looked for.
            shade = math.sqrt(count / most)
            x, y = corner + side * j, corner + side * i
            out.append(f'<rect x="{x}" y="{y}" width="{side - 1}" height="{side - 1}" fill="var(--c{0 if i == j else 1})" fill-opacity="{shade:.3f}"/>')
            if count:
                color = ' style="fill: var(--page)"' if shade > 0.6 else ""
                out.append(f'<text x="{x + side / 2 - 0.5:.1f}" y="{y + 21}" class="cell" text-anchor="middle"{color}>{count}</text>')
    return svg([out], f"Confusion matrix of {mode}, accuracy {line['test_accuracy']:.4f}", max(wide, 480), corner + side * len(counts) + 16)


def said_of(runs):
    ends = [f"{mode} {run['evaluation'][-1]['test_accuracy']:.4f} after {run['evaluation'][-1]['seconds']:.1f} s"
            for mode, run in runs.items() if run.get("evaluation") and "test_accuracy" in run["evaluation"][-1]]
    return "Test accuracy: " + ", ".join(ends)


def convergence(runs):
    return svg([panel("test accuracy over samples", "samples, all processes together", curve_of(runs, "evaluation", "samples", "test_accuracy", dots=True)),
                panel("test accuracy over time", "seconds of training", curve_of(runs, "evaluation", "seconds", "test_accuracy", dots=True), 1),
                panel("training loss over samples", "samples, all processes together", curve_of(runs, "step", "samples", "loss"), 2)],
               said_of(runs), 3 * width)


def pictures(log):
    """Names and contents of all pictures that a log has lines for."""
    runs = read(log)
    lines = [line for run in runs.values() for event in run.values() for line in event]
    x = "samples" if any("samples" in line for line in lines) else "tokens"
    drawn = {"loss.svg": svg([panel("loss", f"{x}; dashed: the test set", loss_curves(runs, x))], "Loss", width),
             "accuracy.svg": svg([panel("test accuracy over samples", "samples, all processes together", curve_of(runs, "evaluation", "samples", "test_accuracy", dots=True)),
                                  panel("test accuracy over time", "seconds of training", curve_of(runs, "evaluation", "seconds", "test_accuracy", dots=True), 1)],
                                 said_of(runs), 2 * width),
             "learning_rate.svg": svg([panel("learning rate", "steps", curve_of(runs, "step", "step", "lr"))], "Learning rate", width)}
    for mode, run in runs.items():
        if run.get("evaluation") and "confusion" in run["evaluation"][-1]:
            drawn[f"confusion_{mode}.svg"] = confusion(mode, run["evaluation"][-1])
    if len(runs) > 1:
        drawn["convergence.svg"] = convergence(runs)
    return {name: picture for name, picture in drawn.items() if picture}


def write_csv(log, file):
    lines = [line for run in read(log).values() for event in run.values() for line in event]
    columns = list(dict.fromkeys(key for line in lines for key in line if key != "confusion"))
    with open(file, "w", newline="") as out:
        table = csv.DictWriter(out, columns, extrasaction="ignore")
        table.writeheader()
        table.writerows(lines)


def main():
    options = argparse.ArgumentParser(description="Draws a training's log.")
    options.add_argument("log", type=pathlib.Path, help="JSON lines of a training program")
    options.add_argument("folder", type=pathlib.Path, help="where the pictures go")
    options.add_argument("--csv", type=pathlib.Path, help="the lines as a table, too")
    options.add_argument("--only", metavar="NAME", help="this picture alone: convergence")
    asked = options.parse_args()
    log = asked.log.read_text()
    drawn = {name: picture for name, picture in pictures(log).items() if asked.only in (None, name.removesuffix(".svg"))}
    if not drawn:
        print(f"{asked.log} has no line of a training yet", file=sys.stderr)
        return 1
    asked.folder.mkdir(parents=True, exist_ok=True)
    for name, picture in drawn.items():
        (asked.folder / name).write_text(picture)
        print(asked.folder / name)
    if asked.csv:
        write_csv(log, asked.csv)
        print(asked.csv)
    return 0


if __name__ == "__main__":
    sys.exit(main())

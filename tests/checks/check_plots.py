"""The pictures in docs/plots are those that bench/plot.py draws of the figures kept beside them, and for convergence.svg
docs/examples/training/plot.py of the log there; docs/plots.md shows each."""

import importlib.util
import pathlib
import re
import sys

from repository import finish, root, tracked

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import plot  # noqa: E402  (its folder comes first)

spec = importlib.util.spec_from_file_location("training_plot", pathlib.Path(__file__).resolve().parents[2] / "docs/examples/training/plot.py")
training = importlib.util.module_from_spec(spec)
spec.loader.exec_module(training)

page = root / "docs/plots.md"
shown = set(re.findall(r"\]\(plots/([\w.]+)\)", page.read_text())) if page.exists() else set()
drawn = dict(plot.pictures(root / "docs/plots"))
log = root / "docs/plots/convergence.jsonl"
if log.exists():
    drawn["convergence.svg"] = training.pictures(log.read_text())["convergence.svg"]
there = {pathlib.Path(name).name for name in tracked("docs/plots/*.svg")}
faults = [f"docs/plots.md: shows {name}, which is not there" for name in sorted(shown - there)]
faults += [f"docs/plots/{name}: docs/plots.md does not show it" for name in sorted(there - shown)]
faults += [f"docs/plots/{name}: nothing draws one of that name: no figures, or no question" for name in sorted(there - set(drawn))]
faults += [f"docs/plots/{name}: not what is drawn of its figures: ./dev bench --plot" for name, picture in drawn.items()
           if name not in there or (root / "docs/plots" / name).read_text() != picture]
finish("plots", f"{len(drawn)} pictures", faults)

"""The pictures in docs/plots are those that bench/plot.py draws of the figures kept beside them, and docs/plots.md shows each."""

import pathlib
import re
import sys

from repository import finish, root, tracked

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import plot  # noqa: E402  (its folder comes first)

page = root / "docs/plots.md"
shown = set(re.findall(r"\]\(plots/([\w.]+)\)", page.read_text())) if page.exists() else set()
drawn = dict(plot.pictures(root / "docs/plots"))
there = {pathlib.Path(name).name for name in tracked("docs/plots/*.svg")}
faults = [f"docs/plots.md: shows {name}, which is not there" for name in sorted(shown - there)]
faults += [f"docs/plots/{name}: docs/plots.md does not show it" for name in sorted(there - shown)]
faults += [f"docs/plots/{name}: bench/plot.py draws none of that name: no figures, or no question" for name in sorted(there - set(drawn))]
faults += [f"docs/plots/{name}: not what bench/plot.py draws: ./dev bench --plot" for name, picture in drawn.items()
           if name not in there or (root / "docs/plots" / name).read_text() != picture]
finish("plots", f"{len(drawn)} pictures", faults)

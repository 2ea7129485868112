"""A public header lies at a door, is in <shoal/shoal.h> and is named by a page, in docs/headers.md with its first line; and users are
shown no other one. How a header is included says which kind it is."""

import re

from repository import finish, root, tracked
from rooms import doors, included, sources

written = re.compile(r"^\s*#\s*include\s*<(shoal/[^>]+)>", re.MULTILINE)
page_names = re.compile(r"<shoal/([\w./]+\.h)>|`((?:ipc|runtime|tensors|workers)/[\w/]+\.h)`")

faults = []
names = sources()
open_folders = doors() if names else []
public = {name for name in names if name.endswith(".h") and name.rpartition("/")[0] in open_folders} - {"workers/shoal.h"}
if "workers/shoal.h" in names:
    everything = set(included("workers/shoal.h"))
    faults += [f"workers/shoal.h: lacks the public header {name}" for name in sorted(public - everything)]
    faults += [f"workers/shoal.h: {name} is not public" for name in sorted(everything - public)]
    pages = tracked("*.md")
    named = {a or b for page in pages for a, b in page_names.findall((root / page).read_text())}
    faults += [f"{name}: no page names it: add it to docs/headers.md" for name in sorted(public - named)]
    for page in pages:
        for path in re.findall(r"<shoal/(internal/[^>]+)>", (root / page).read_text()):
            faults.append(f"{page}: shows users <shoal/{path}>")
page = root / "docs/headers.md"
for name, row in re.findall(r"^\| `([\w/]+\.h)` \| (.*) \|$", page.read_text() if page.exists() else "", re.MULTILINE):
    comment = re.match(r"(?:// ?.*\n)*", (root / name).read_text() if name in public else "")[0]
    said = " ".join(comment.replace("// ", "").split())
    if not said.startswith(row):
        faults.append(f"docs/headers.md: {name} begins with '{said}'")
files = names + [name for name in tracked("tests/**", "bench/**", "docs/**") if name.endswith((".h", ".cpp"))]
known = set(names)
for name in files:
    for path in written.findall((root / name).read_text()):
        place = "workers/shoal.h" if path == "shoal/shoal.h" else path.removeprefix("shoal/").removeprefix("internal/")
        is_door = place.rpartition("/")[0] in open_folders
        if place not in known:
            faults.append(f"{name}: includes <{path}>, which is not there")
        elif is_door == path.startswith("shoal/internal/"):
            faults.append(f"{name}: includes <{path}>, which is {'public' if is_door else 'internal'}")
        elif not is_door and name.startswith(("docs/", "tests/consumer/")):
            faults.append(f"{name}: includes <{path}>, which users cannot rely on")
finish("public headers", f"{len(public)} public headers and {len(files)} files", faults)

"""The pages: links lead somewhere, docs/architecture.md names every source file and no file that is not there."""

import re

from repository import finish, root, tracked

link = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
heading = re.compile(r"^#+\s+(.*)$", re.MULTILINE)
fence = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
named = re.compile(r"`((?:ipc|runtime|tensors|workers|tests|bench|docs)/[\w./-]+\.\w+)`")
layers = ("ipc", "runtime", "tensors", "workers")

faults = []
checked = 0


def anchors(path):
    """GitHub's rule: lower case, punctuation dropped, spaces to hyphens."""
    titles = heading.findall(fence.sub("", path.read_text()))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


pages = tracked("*.md")
for page in pages:
    path = root / page
    text = path.read_text()
    for target in link.findall(fence.sub("", text)):
        if re.match(r"[a-z]+:", target):
            continue
        checked += 1
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists():
            faults.append(f"{page}: link to {target}: no such file")
        elif anchor and file.suffix == ".md" and anchor not in anchors(file):
            faults.append(f"{page}: link to {target}: no such heading")
    for name in named.findall(text):
        checked += 1
        if not (root / name).exists():
            faults.append(f"{page}: names {name}, which does not exist")

# Every source file has a line in the map of the house: by its path, or, where header and source lie side by side, by the
# path without ending (`ipc/queue`), or by its name in the section of its folder.
architecture = root / "docs/architecture.md"
if not architecture.exists():
    faults.append("docs/architecture.md: missing")
else:
    text = architecture.read_text()
    for name in tracked(*(f"{layer}/**" for layer in layers)):
        if not name.endswith((".h", ".cpp", ".inl", ".cu")):
            continue
        checked += 1
        stem = name.rsplit(".", 1)[0]
        if not re.search(rf"(?<![\w/]){re.escape(stem)}(?!\w)", text):
            faults.append(f"docs/architecture.md: does not name {name} (`{stem}`)")
finish("docs", f"{checked} links and names in {len(pages)} pages", faults)

"""A source file of more than 600 lines says in its first comment why it is that long; a page has at most 250 lines, but
for the map of the house, which has a line for every file."""

import re

from repository import finish, root, tracked

limit, page_limit = 600, 250
comment = re.compile(r'\A(?:#!.*\n)?\s*((?://.*\n|#.*\n)+|/\*.*?\*/|""".*?""")', re.DOTALL)
reason = re.compile(r"\b(lines|long|length)\b")

faults = []
files = tracked("*.h", "*.cpp", "*.inl", "*.cu", "*.py", "*.sh", "*.cmake", "*CMakeLists.txt", "dev", "*.md")
for name in files:
    text = (root / name).read_text()
    count = text.count("\n")
    if name.endswith(".md"):
        if count > page_limit and name != "docs/architecture.md":
            faults.append(f"{name}: {count} lines, a page has at most {page_limit}")
    elif count > limit:
        first = comment.match(text)
        if first is None or not reason.search(first.group(1)):
            faults.append(f"{name}: {count} lines, and its first comment does not say why it is that long")
finish("sizes", f"{len(files)} files", faults)

"""A source file of more than 600 lines says in its first comment why it is that long; a page has at most 250 lines, but
for the map of the house, which has a line for every file. A folder has at most 20 names, where a header and its source are one
name; public headers at a door do not count, since users find them by short paths."""

import collections
import re

from repository import finish, root, tracked
from rooms import doors, sources

limit, page_limit, folder_limit = 600, 250, 20
comment = re.compile(r'\A(?:#!.*\n)?\s*((?://.*\n|#.*\n)+|/\*.*?\*/|""".*?""")', re.DOTALL)
reason = re.compile(r"\b(lines|long|length)\b")

faults = []
files = tracked("*.h", "*.cpp", "*.inl", "*.cu", "*.py", "*.sh", "*.cmake", "*CMakeLists.txt", "dev", "*.md")
folders = collections.defaultdict(set)
open_folders = doors() if sources() else []
for name in files:
    text = (root / name).read_text()
    count = text.count("\n")
    folder, _, file = name.rpartition("/")
    if name.endswith(".md"):
        if count > page_limit and name != "docs/architecture.md":
            faults.append(f"{name}: {count} lines, a page has at most {page_limit}")
        continue
    if count > limit:
        first = comment.match(text)
        if first is None or not reason.search(first.group(1)):
            faults.append(f"{name}: {count} lines, and its first comment does not say why it is that long")
    if file != "CMakeLists.txt" and not (folder in open_folders and file.endswith(".h")):
        folders[folder].add(file.partition(".")[0])
faults += [f"{folder}/: {len(names)} names, a folder has at most {folder_limit}: give what belongs together a folder"
           for folder, names in sorted(folders.items()) if len(names) > folder_limit]
finish("sizes", f"{len(files)} files in {len(folders)} folders", faults)

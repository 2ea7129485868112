"""No build output is tracked: no build folder, no object, library, program, precompiled header or cache; and no link."""

import re

from repository import finish, root, tracked

output = re.compile(r"(^|/)(build|\.venv|__pycache__|CMakeFiles|\.cache)/|\.(o|a|so|gch|pyc|d|ninja)$|(^|/)(CMakeCache\.txt|core)$")
magics = {b"\x7fELF": "an ELF file", b"!<arch>\n": "an archive"}
allowed = {"LICENSE", "README.md", "CMakeLists.txt", "dev", "runtime", "tensors", "ipc", "workers", "tests", "bench", "docs"}

faults = []
files = tracked()
for name in files:
    first = name.split("/")[0]
    if not first.startswith(".") and first != "CMakePresets.json" and first not in allowed:
        faults.append(f"{name}: nothing but {', '.join(sorted(allowed))} belongs at the top")
    if output.search(name):
        faults.append(f"{name}: build output")
        continue
    with open(root / name, "rb") as file:
        start = file.read(8)
    for magic, what in magics.items():
        if start.startswith(magic):
            faults.append(f"{name}: {what}")
# Checked out, one takes the place of a folder that lies there and is ignored.
faults += [f"{name}: a link" for name in tracked(links=True)]
finish("tracked files", f"{len(files)} files", faults)

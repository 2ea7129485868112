"""A pid may be another process's by the time a signal arrives: signals go by pidfd, and a line that sends one by number says
beside it, or in the line above, why that number is surely the one that is meant."""

import re

from repository import finish, root, tracked

by_number = re.compile(r"(?<!\w)::(?:kill|killpg)\s*\(|\bSYS_(?:tgkill|tkill|kill)\b")
own = re.compile(r"::getpid\(\)")

faults = []
files = 0
for name in tracked("ipc/**", "runtime/**", "tensors/**", "workers/**"):
    if not name.endswith((".h", ".cpp", ".inl")):
        continue
    files += 1
    lines = (root / name).read_text().splitlines()
    for i, line in enumerate(lines):
        code = line.split("//")[0]
        if not by_number.search(code) or own.search(code):
            continue
        if "//" not in line and (i == 0 or "//" not in lines[i - 1]):
            faults.append(f"{name}:{i + 1}: a signal to a number: send it by pidfd, or say why that process is surely meant")
finish("signals", f"{files} files", faults)

"""Rooms inside a layer form no circle: nothing includes, by whatever way round, what includes it. In the tables of
docs/architecture.md each room stands below those that it includes."""

import collections
import re

from repository import finish, root
from rooms import doors, included, room_of, sources


def circles(arrows):
    """The sets of rooms that reach each other (Tarjan)."""
    number, low, stack, found = {}, {}, [], []

    def visit(room):
        number[room] = low[room] = len(number)
        stack.append(room)
        for other in sorted(arrows.get(room, ())):
            if other not in number:
                visit(other)
            if other in stack:
                low[room] = min(low[room], low[other])
        if low[room] == number[room]:
            members = stack[stack.index(room):]
            del stack[stack.index(room):]
            if len(members) > 1:
                found.append(sorted(members))

    for room in sorted(arrows):
        if room not in number:
            visit(room)
    return found


names = set(sources()) - {"workers/shoal.h"}
open_folders = doors() if names else []
rooms = {name: room_of(name, names, open_folders) for name in names}
reasons = collections.defaultdict(list)
for name in sorted(names):
    for other in included(name):
        if other in rooms and rooms[other] != rooms[name] and other.split("/")[0] == name.split("/")[0]:
            reasons[rooms[name], rooms[other]].append(f"{name} includes {other}")
arrows = collections.defaultdict(set)
for room, other in reasons:
    arrows[room].add(other)
faults = []
for circle in circles(arrows):
    files = [reason for (room, other), all_reasons in sorted(reasons.items()) if room in circle and other in circle
             for reason in all_reasons]
    faults.append(f"a circle of {', '.join(circle)}: " + "; ".join(files))
architecture = root / "docs/architecture.md"
rows = [line.split("|")[1] for line in architecture.read_text().splitlines() if line.startswith("| `")] if architecture.exists() else []
place = {folder: number for number, row in enumerate(rows) for folder in re.findall(r"`([^`]+/)`", row)}
for (room, other), files in sorted(reasons.items()):
    if room in place and other in place and place[room] < place[other]:
        faults.append(f"docs/architecture.md: {room} stands above {other}, and {files[0]}")
finish("rooms", f"{len(set(rooms.values()))} rooms and {len(reasons)} arrows", faults)

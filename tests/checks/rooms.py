"""Which room a file belongs to, which headers are public, and what includes what: for the checks beside this file."""

import re

from repository import root, tracked

may_include = {
    "ipc": {"ipc"},
    "runtime": {"ipc", "runtime"},
    "tensors": {"ipc", "tensors"},
    "workers": {"ipc", "runtime", "tensors", "workers"},
}
layers = tuple(may_include)
suffixes = (".h", ".cpp", ".inl", ".cu")
include = re.compile(r"^\s*#\s*include\s*<shoal/([^>]+)>", re.MULTILINE)


def doors():
    """Folders whose headers are public, as .cmake/IncludeTree.cmake lists them."""
    found = re.search(r"set\(SHOAL_DOORS ([^)]*)\)", (root / ".cmake/IncludeTree.cmake").read_text())
    return found.group(1).split()


def sources():
    return [name for name in tracked(*(f"{layer}/**" for layer in layers)) if name.endswith(suffixes)]


def included(name):
    """The files of shoal that a file includes, by their place in the repository."""
    for path in include.findall((root / name).read_text()):
        yield "workers/shoal.h" if path == "shoal.h" else path.removeprefix("internal/")


def home_of(name, names, open_folders):
    """The folder with the source of a header at a door, if there is one: the room that the header is the door of. None where that
    source is another header's, which lies beside it."""
    folder, _, file = name.rpartition("/")
    stem = file.rpartition(".")[0]
    layer = folder.split("/")[0]
    homes = {other.rpartition("/")[0] for other in names
             if other.startswith(layer + "/") and other.rpartition("/")[2] == stem + ".cpp"} - set(open_folders)
    if len(homes) != 1:
        return None
    home = homes.pop()
    return None if f"{home}/{stem}.h" in names else home


def room_of(name, names, open_folders):
    """A folder is a room. What lies at a door belongs to the room that has its source, or is a room by itself."""
    folder, _, file = name.rpartition("/")
    if folder not in open_folders:
        return folder + "/"
    home = home_of(name, names, open_folders) if file.endswith(".h") else None
    return home + "/" if home else f"{folder}/{file.rpartition('.')[0]}"

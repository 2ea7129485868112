"""The files of the repository, for the checks beside this file. Every check takes the repository's root as an optional argument."""

import pathlib
import subprocess
import sys

root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]


def tracked(*patterns, links=False):
    """Tracked files, and new ones that are not ignored, so that a check tells of a fault before it is committed. Or such links."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    is_meant = pathlib.Path.is_symlink if links else pathlib.Path.is_file
    return sorted(name for name in set(names) if name and is_meant(root / name))


def finish(check, counted, faults):
    """Prints the faults and what was checked, and ends with 1 if there is a fault, or nothing was checked at all."""
    for fault in faults:
        print(f"{check}: {fault}")
    nothing = counted.split()[0] == "0"
    print(f"{check}: {counted} checked, {len(faults)} faults" + (": a check of nothing is a fault" if nothing else ""))
    sys.exit(1 if faults or nothing else 0)

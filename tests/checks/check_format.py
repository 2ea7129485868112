"""clang-format finds nothing to change. `./dev format` mends."""

import pathlib
import subprocess

from repository import finish, root, tracked

program = pathlib.Path(__file__).resolve().parents[2] / ".venv/bin/clang-format"
files = tracked("*.h", "*.cpp", "*.inl")
faults = []
if files:
    result = subprocess.run([program, "--dry-run", "-Werror", "--style=file", *files], cwd=root, capture_output=True, text=True)
    faults = [line for line in result.stderr.splitlines() if "error:" in line]
    if result.returncode != 0 and not faults:
        faults = result.stderr.splitlines()
finish("format", f"{len(files)} files", faults)

"""A function that does nothing but __builtin_prefetch has no effect for GCC, which may drop calls of it, and for writing it asks
to read. ipc/base/prefetch.h says both right: nothing else calls the builtin."""

from repository import finish, root, tracked

faults = []
files = 0
for name in tracked("ipc/**", "runtime/**", "tensors/**", "workers/**"):
    if not name.endswith((".h", ".cpp", ".inl")) or name == "ipc/base/prefetch.h":
        continue
    files += 1
    for number, line in enumerate((root / name).read_text().splitlines(), 1):
        if "__builtin_prefetch" in line.split("//")[0]:
            faults.append(f"{name}:{number}: __builtin_prefetch, which GCC may drop: call what ipc/base/prefetch.h has")
finish("prefetch", f"{files} files", faults)

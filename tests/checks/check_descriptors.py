"""Every descriptor that shoal makes goes through lift() (ipc/fd.h): where standard output is closed, the next one made would
be it, and what the program prints would go there. A line that makes one lifts it, or says beside it or in the line above
why it need not ("unlifted: ..."); duplicates ask the kernel for 3 or above; received ones are lifted in their file."""

import re

from repository import finish, root, tracked

# By their full name, as everywhere here: members that are called so are something else.
makes = re.compile(
    r"(?<![\w>])::(?:memfd_create|socket|epoll_create1?|eventfd|timerfd_create|signalfd|inotify_init1?|accept4?|"
    r"open|openat|creat|mkstemp|mkostemp|fanotify_init)\s*\("
    r"|\bSYS_(?:pidfd_open|pidfd_getfd|memfd_create|userfaultfd|perf_event_open)\b")
pairs = re.compile(r"(?<!\w)::(?:pipe2?|socketpair)\s*\(")
duplicates = re.compile(r"(?<!\w)::dup\s*\(|\bF_DUPFD(?:_CLOEXEC)?\b(?!\s*,\s*(?:[3-9]|STDERR_FILENO \+ 1)\b)")
receives = re.compile(r"\bMSG_CMSG_CLOEXEC\b")

faults = []
files = 0
for name in tracked("ipc/**", "runtime/**", "tensors/**", "workers/**"):
    if not name.endswith((".h", ".cpp", ".inl")):
        continue
    files += 1
    text = (root / name).read_text()
    lines = text.splitlines()
    for i, line in enumerate(lines):
        code = line.split("//")[0]
        around = (lines[i - 1] if i > 0 else "") + line
        if "unlifted:" in around:
            continue
        if makes.search(code) and "lift(" not in around:
            faults.append(f"{name}:{i + 1}: a descriptor that is not lifted: lift(Fd(...)) of ipc/fd.h")
        if pairs.search(code) and "lift(" not in "".join(lines[i:i + 6]):
            faults.append(f"{name}:{i + 1}: a pair that is not lifted: make_pipe() of ipc/fd.h, or lift() both")
        if duplicates.search(code):
            faults.append(f"{name}:{i + 1}: a duplicate below 3: F_DUPFD_CLOEXEC, 3")
        if receives.search(code) and "lift(" not in text:
            faults.append(f"{name}:{i + 1}: descriptors that are received and not lifted")
finish("descriptors", f"{files} files", faults)

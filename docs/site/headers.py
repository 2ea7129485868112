"""The public headers as Doxygen is given them: copies, under the names by which users include them.

A copy differs from its header where the project's form is not Doxygen's:
* the first line, which says what the file is, becomes the file's documentation;
* what is protected is private: users derive from nothing of shoal's, so it is shoal's own; friends are not there;
* a `<` in a comment is one, and not the beginning of HTML; what is set further in there is code;
* of the headers that it includes from shoal/internal/, those that declare what users name stand in place of the #include.
"""

import re

# Internal headers that declare what users name, and the public header that brings each.
brought = {
    "ipc/base/deadline.h": "ipc/wait.h",
    "ipc/codec/base.h": "ipc/codec.h",
    "ipc/codec/decoder.h": "ipc/codec.h",
    "ipc/codec/encoder.h": "ipc/codec.h",
    "ipc/pipe/any_connection.h": "ipc/pipe.h",
    "ipc/process/session.h": "ipc/session.h",
    "runtime/cpu/binding.h": "runtime/options.h",
    "runtime/crash/symbols.h": "runtime/failure.h",
    "workers/copies/device_choice.h": "workers/data/loader_options.h",
    "workers/datasets/parts/ram_files.h": "workers/datasets/ram_dataset.h",
    "workers/loader/continuing.h": "workers/data/data_loader.h",
    "workers/plan/loader_task.h": "workers/data/loader_options.h",
    "workers/pool/calls/pool_calls.h": "workers/pool.h",
    "workers/train/ddp/ddp_options.h": "workers/train/ddp/gradient_reducer.h",
    "workers/train/ddp/gradient_reducer.h": "workers/train/distributed_data_parallel.h",
    "workers/train/reduce/reduce_kernel.h": "workers/train/communicator.h",
}
# Namespaces and names that are different in the copies: what pools share is as good as their own.
renamed = {
    "workers/pool/calls/pool_calls.h": [(r"^namespace detail \{$|^\}  // namespace detail$", "")],
    "workers/pool.h": [(r"\bdetail::PoolCalls\b", "PoolCalls")],
    "workers/thread_pool.h": [(r"\bdetail::PoolCalls\b", "PoolCalls")],
}

doors = re.compile(r"set\(SHOAL_DOORS ([^)]*)\)")
code = re.compile(r"(`[^`]*`)")
comment = re.compile(r"///(<?)(.*)$")
internal = re.compile(r"^#include <shoal/internal/([^>]+)>")


def public_headers(root):
    """Where the public headers lie in the repository."""
    for door in doors.search((root / ".cmake/IncludeTree.cmake").read_text()).group(1).split():
        yield from (f"{door}/{path.name}" for path in sorted((root / door).glob("*.h")))


def included_as(header):
    return "shoal/shoal.h" if header == "workers/shoal.h" else f"shoal/{header}"


def escaped(text):
    """Outside of `code`, which Doxygen leaves alone."""
    parts = code.split(text)
    return "".join(part if part.startswith("`") else re.sub(r"(?<!\\)<(?=[\w/!])", r"\\<", part) for part in parts)


def converted(root, header, is_door=True):
    """The lines of the copy: each with the header, and the line in it, that it is of."""
    text = (root / header).read_text()
    for pattern, replacement in renamed.get(header, []):
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    in_front, in_friend = True, False
    for number, line in enumerate(text.splitlines(), 1):
        if in_front and not line.startswith("//"):
            in_front = False
            if is_door:
                yield from (("///", header, number), (f"///     #include <{included_as(header)}>", header, number))
        include = internal.match(line)
        if in_front and number == 1 and is_door:
            line = f"/// \\file {included_as(header)} \\brief {escaped(line[2:].strip())}"
        elif in_front:
            line = f"/// {escaped(line[2:].strip())}" if is_door else ""
        elif in_friend or line.strip().startswith("friend "):   # or Doxygen leads to the friend, which has no place there
            in_friend, line = not line.rstrip().endswith(";"), ""
        elif line.strip() == "protected:":
            line = line.replace("protected", "private")
        elif include and brought.get(include[1]) == header and (root / include[1]).exists():
            yield from converted(root, include[1], is_door=False)
            line = ""
        elif not is_door and line.startswith("#"):
            line = ""
        else:
            line = comment.sub(lambda found: f"///{found[1]}{escaped(found[2])}", line)
        yield line, header, number


def with_examples(lines):
    """What is set further in, behind an empty line of a comment, is code; Doxygen has to be told so."""
    in_code, before = False, ""
    for line, header, number in lines:
        here = re.match(r"^( *///)(?: ( {2,})(\S.*)|( .*)?)$", line)
        is_code = here and here[2] is not None and (in_code or (before.strip() == "///" and not re.match(r"[*-] ", here[3])))
        if is_code and not in_code:
            yield f"{here[1]} ```{{.cpp}}", header, number
        if in_code and not is_code:
            yield f"{margin} ```", header, number
            in_code = False
        if is_code:
            in_code, margin = True, here[1]
            line = line.replace("\\<", "<")
        yield line, header, number
        before = line


def stage(root, target):
    """Writes the copies below `target`. Returns for each copy's path what its lines are of."""
    origins = {}
    for header in public_headers(root):
        copy = target / included_as(header)
        copy.parent.mkdir(parents=True, exist_ok=True)
        lines = list(with_examples(converted(root, header)))
        copy.write_text("\n".join(line for line, _, _ in lines) + "\n")
        origins[str(copy)] = [(source, number) for _, source, number in lines]
    return origins

"""Plants one fault for each rule in a repository made for it, and expects the check to name it; and no fault in a clean one."""

import pathlib
import shutil
import subprocess
import sys
import tempfile

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parents[1] / "bench"))
import plot  # noqa: E402  (its folder comes first)

kept = ('{"machine": "a machine", "date": "2026-11-22", "load": 0}\n'
        '{"impl": "shoal", "case": "lock and unlock, uncontended", "metric": "median", "value": 14, "unit": "ns", "min": 13, "max": 20}\n'
        '{"impl": "std::mutex", "case": "lock and unlock, uncontended", "metric": "median", "value": 2.7, "unit": "ns", "min": 2, "max": 3}\n')
clean = {
    ".clang-format": (here.parents[1] / ".clang-format").read_text(),
    ".cmake/IncludeTree.cmake": "set(SHOAL_DOORS ipc runtime tensors workers)\n",
    "ipc/queue.h": "// A queue.\n#pragma once\n#include <vector>\n",
    "ipc/base/deadline.h": "// A deadline.\n#pragma once\nvoid never();\n",
    "ipc/heap/block.h": "// A block.\n#pragma once\nstruct Block {};\ninline constexpr int kBlocks = 3;\n",
    "ipc/ring/ring.h": "// A ring.\n#pragma once\n#include <shoal/internal/ipc/heap/block.h>\nstruct Ring {\n  Block blocks[kBlocks];\n};\n",
    "ipc/ring/queue.cpp": "#include <shoal/ipc/queue.h>\n\n#include <shoal/internal/ipc/ring/ring.h>\n",
    **{f"ipc/ring/part_{number}.cpp": "// A part.\n" for number in range(18)},   # as many names as a folder may have
    "workers/shoal.h": "// All.\n#pragma once\n#include <shoal/ipc/queue.h>\n",
    "README.md": "# Title\n\nSee [the house](docs/architecture.md#the-house), [figures](docs/benchmarks.md) and `ipc/queue.h`.\n\n## Measured\n\n"
                 "| what | shoal | peer | ratio |\n|---|---|---|---|\n| a round trip | 0.95 us | torch 271 us | 285 x |\n",
    "docs/benchmarks.md": "# Benchmarks\n\n| case | shoal | peer |\n|---|---|---|\n"
                          "| there and back | 0.95 us | torch 271 us |\n| one way | 20.5 M/s | Boost 6.7 M/s |\n",
    "docs/architecture.md": "# The house\n\n`ipc/` has the queue, `ipc/base/` deadlines, `ipc/heap/` blocks, `ipc/ring/` rings, `workers/` all, `runtime/command/` the "
                            "program: `./dev check`, `shoal top NAME --all`.\n",
    "dev": "case $command in\n  check) check ;;\n  bench) bench ;;\nesac\n",
    "runtime/command/top.cpp": '// The program.\nauto x = shoal.add_subcommand("top", "");\nauto y = x.add_flag("-a,--all", all);\n',
}
with tempfile.TemporaryDirectory() as folder:
    (pathlib.Path(folder) / "lock.jsonl").write_text(kept)
    name, picture = next(plot.pictures(pathlib.Path(folder)))
clean.update({"docs/plots/lock.jsonl": kept, f"docs/plots/{name}": picture, "docs/plots.md": f"# Pictures\n\n![x](plots/{name})\n"})
clean["README.md"] = clean["README.md"].replace("[figures]", "[pictures](docs/plots.md), [figures]")
measured = "## Measured\n\n| what | shoal | peer | ratio |\n|---|---|---|---|\n| a round trip | {} | torch {} | {} |\n"
link = "a link to "   # begins the content of what is one
# check, file planted, its content, what the check has to say
faults = [
    ("format", "ipc/queue.h", "int   f( );\n", "queue.h"),
    ("layering", "ipc/queue.h", "#include <shoal/runtime/spawn.h>\n", "ipc may not include <shoal/runtime/spawn.h>"),
    ("layering", "tensors/share.h", "#include <shoal/runtime/spawn.h>\n", "tensors may not include <shoal/runtime/spawn.h>"),
    ("layering", "runtime/spawn.h", "#include <ATen/ATen.h>\n", "runtime may not know libtorch"),
    ("layering", "ipc/queue.h", '#include "ring.h"\n', 'write <shoal/FOLDER/name.h>'),
    ("layering", "workers/pool.h", "#include <shoal/shoal.h>\n", "<shoal/shoal.h> is for users"),
    ("layering", "ipc/pipe.h", "// A pipe.\nint pipe();\n", "ipc/pipe.h: has no #pragma once"),
    ("includes", "ipc/base/deadline.h", "// A deadline.\n#pragma once\nvoid never(const Block& block);\n",
     "ipc/base/deadline.h: names Block without an include that leads to ipc/heap/block.h"),
    ("includes", "ipc/ring/queue.cpp", "#include <shoal/ipc/queue.h>\n\nRing ring;\n", "names Ring without an include that leads to ipc/ring/ring.h"),
    ("includes", "runtime/count.cpp", "// Counts.\nint count = shoal::kBlocks;\n", "names kBlocks without an include that leads to ipc/heap/block.h"),
    ("rooms", "ipc/heap/block.h", "#include <shoal/internal/ipc/ring/ring.h>\n",
     "a circle of ipc/heap/, ipc/ring/: ipc/heap/block.h includes ipc/ring/ring.h; ipc/ring/ring.h includes ipc/heap/block.h"),
    ("rooms", "ipc/heap/block.h", "#include <shoal/ipc/queue.h>\n", "ipc/heap/block.h includes ipc/queue.h"),   # the ring's door
    ("rooms", "docs/architecture.md", "| `ipc/ring/` | rings |\n| `ipc/heap/` | blocks |\n",
     "docs/architecture.md: ipc/ring/ stands above ipc/heap/, and ipc/ring/ring.h includes ipc/heap/block.h"),
    ("public", "ipc/pipe.h", "// A pipe.\n", "workers/shoal.h: lacks the public header ipc/pipe.h"),
    ("public", "ipc/pipe.h", "// A pipe.\n", "ipc/pipe.h: no page names it"),
    ("public", "docs/headers.md", "| `ipc/queue.h` | A pipe. |\n", "docs/headers.md: ipc/queue.h begins with 'A queue.'"),
    ("public", "workers/shoal.h", "#include <shoal/internal/ipc/heap/block.h>\n", "ipc/heap/block.h is not public"),
    ("public", "ipc/ring/ring.h", "#include <shoal/ipc/heap/block.h>\n", "<shoal/ipc/heap/block.h>, which is internal"),
    ("public", "ipc/ring/ring.h", "#include <shoal/internal/ipc/queue.h>\n", "<shoal/internal/ipc/queue.h>, which is public"),
    ("public", "ipc/ring/ring.h", "#include <shoal/ipc/gone.h>\n", "<shoal/ipc/gone.h>, which is not there"),
    ("public", "docs/examples/x.cpp", "#include <shoal/internal/ipc/heap/block.h>\n", "which users cannot rely on"),
    ("public", "README.md", "`ipc/queue.h` and <shoal/internal/ipc/heap/block.h>\n", "shows users <shoal/internal/"),
    ("tracked", "build/release/x.txt", "x\n", "build/release/x.txt: build output"),
    ("tracked", "ipc/queue.o", "x\n", "ipc/queue.o: build output"),
    ("tracked", "bench/program", "\x7fELF and so on", "bench/program: an ELF file"),
    ("tracked", "notes.txt", "x\n", "notes.txt: nothing but"),
    ("tracked", ".kept", link + "/tmp", ".kept: a link"),
    ("sizes", "ipc/queue.h", "// A queue.\n" + "int x;\n" * 601, "ipc/queue.h: 602 lines"),
    ("sizes", "docs/page.md", "line\n" * 251, "docs/page.md: 251 lines"),
    ("sizes", "ipc/ring/list.cpp", "// A list.\n", "ipc/ring/: 21 names, a folder has at most 20"),
    ("signals", "runtime/end.cpp", "void f(int pid) { ::kill(pid, 9); }\n", "runtime/end.cpp:1: a signal to a number"),
    ("prefetch", "workers/x.h", "void f(char* p) { __builtin_prefetch(p, 1); }\n", "workers/x.h:1: __builtin_prefetch, which GCC may drop"),
    ("descriptors", "ipc/fd.cpp", 'Fd f(::memfd_create("x", 0));\n', "ipc/fd.cpp:1: a descriptor that is not lifted"),
    ("descriptors", "ipc/fd.cpp", "int f() { return ::open(path, O_RDONLY); }\n", "a descriptor that is not lifted"),
    ("descriptors", "workers/x.cpp", "Fd f(int(::syscall(SYS_pidfd_open, pid, 0)));\n", "a descriptor that is not lifted"),
    ("descriptors", "ipc/fd.cpp", "int ends[2];\n::pipe2(ends, 0);\nFd one(ends[0]);\n", "ipc/fd.cpp:2: a pair that is not"),
    ("descriptors", "ipc/fd.cpp", "Fd f(::fcntl(one, F_DUPFD_CLOEXEC, 0));\n", "ipc/fd.cpp:1: a duplicate below 3"),
    ("descriptors", "ipc/fd.cpp", "::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);\n", "received and not lifted"),
    ("docs", "README.md", "[x](docs/nothing.md)\n", "docs/nothing.md: no such file"),
    ("docs", "README.md", "[x](docs/architecture.md#nowhere)\n", "docs/architecture.md#nowhere: no such heading"),
    ("docs", "README.md", "`ipc/gone.h`\n", "names ipc/gone.h, which does not exist"),
    ("docs", "README.md", "    put -> ipc/ring/gone.cpp\n", "names ipc/ring/gone.cpp, which does not exist"),
    ("docs", "docs/architecture.md", "`ipc/` `workers/`\n\n| `ipc/heap/` | blocks | `block.h` |\n| `ipc/ring/` | rings | `ring.h`, `gone.h` |\n",
     "ipc/ring/ has no gone.h to read"),
    ("docs", "docs/architecture.md", "`ipc/` `ipc/base/` `ipc/heap/` `ipc/ring/` `workers/`\n\n# The house\n\n"
     "<!-- from ipc/queue.h -->\n```cpp\n#include <list>\n```\n", "ipc/queue.h does not have '#include <list>'"),
    ("docs", "README.md", "    ./dev chek   # all\n", "README.md: there is no command ./dev chek"),
    ("docs", "README.md", "    ./dev bench queue\n", "README.md: there is no benchmark queue"),
    ("docs", "README.md", "`shoal look NAME`\n", "README.md: there is no command shoal look"),
    ("docs", "README.md", "```sh\nshoal top --al -- ./program --none\n```\n", "README.md: shoal top has no option --al"),
    ("docs", "README.md", "```cmake\ntarget_link_libraries(x PRIVATE shoal::ipcc)\n```\n", "README.md: there is no library shoal::ipcc"),
    ("docs", "README.md", "| promise | test |\n|---|---|\n| one | `queue: it is *` |\n", "README.md: there is no test `queue: it is *`"),
    ("docs", ".clang-tidy", "Checks: >\n  -*,\n  bugprone-*,\n  -bugprone-empty-catch,\n", "does not say why .clang-tidy leaves out bugprone-empty-catch"),
    ("docs", "docs/lonely.md", "# A page\n", "README.md: does not link docs/lonely.md"),
    ("docs", "ipc/other.cpp", "int x;\n", "ipc/other.cpp: the first line has to be a comment"),
    ("figures", "README.md", measured.format("0.90 us", "271 us", "301 x"), "no row or paragraph with 0.90 beside 271"),
    ("figures", "README.md", measured.format("0.95 us", "6.7 us", "7.1 x"), "no row or paragraph with"),   # of two rows
    ("figures", "README.md", measured.format("0.95 us", "271 us", "385 x"), "no two of its figures have the ratio 385"),
    ("figures", "README.md", measured.format("0.95 us", "271 us", "286 x"), "no two of its figures have the ratio 286"),   # 285.3
    ("figures", "docs/plots/lock.jsonl", kept.replace("a machine", "a machine; medians, as docs/benchmarks.md has them"),
     "docs/plots/lock.jsonl: 'lock and unlock, uncontended': docs/benchmarks.md has no row or paragraph with all of"),
    ("figures", "README.md", "## Measured\n\nThe demo: 9,310 samples.\n", "'The demo: 9,310 samples.': docs/benchmarks.md has no"),
    ("docs", "runtime/spawn.h", "// Starts.\n", "does not name the folder `runtime/`"),
    ("plots", "docs/plots/lock.jsonl", kept.replace("14", "13"), "docs/plots/lock_uncontended.svg: not what is drawn of its figures"),
    ("plots", "docs/plots/convergence.jsonl", "".join(f'{{"event": "evaluation", "mode": "{mode}", "step": 1, "samples": 9, "seconds": 1, '
                                                       '"test_accuracy": 0.5}\n' for mode in ("ddp", "hogwild")),
     "docs/plots/convergence.svg: not what is drawn of its figures"),
    ("plots", "docs/plots/lock.jsonl", "", "docs/plots/lock_uncontended.svg: nothing draws one of that name"),
    ("plots", "docs/plots.md", "# Pictures\n", "docs/plots/lock_uncontended.svg: docs/plots.md does not show it"),
    ("plots", "docs/plots.md", "![x](plots/other.svg)\n", "docs/plots.md: shows other.svg, which is not there"),
    ("reference", "ipc/queue.h", "// A queue.\n#pragma once\n/// Puts.\nvoid put();\nvoid get();\n",
     "ipc/queue.h:5: Member get() (function) of file queue.h is not documented."),
    ("reference", "ipc/queue.h", "// A queue.\n#pragma once\n/// Q.\nstruct Queue {\n  int size;\n};\n",
     "ipc/queue.h:5: Member size (variable) of struct Queue is not documented."),
    ("reference", "ipc/queue.h", "// A queue.\n#pragma once\n/// Puts.\n/// @param nothing a value\nvoid put(int value);\n",
     "argument 'nothing' of command @param is not found"),
    ("reference", "ipc/queue.h", "// A queue.\n#pragma once\ntemplate <class T>\nconcept Value = true;\n",
     "ipc/queue.h:4: Concept Value is not documented."),
    ("reference", "ipc/wait.h", "// Waits.\n#pragma once\n#include <shoal/internal/ipc/base/deadline.h>\n",   # a header that it brings
     "ipc/base/deadline.h:3: Member never() (function) of file wait.h is not documented."),
]
if shutil.which("doxygen") is None:
    print("doxygen is not installed: check_reference.py is not tried")
    faults = [fault for fault in faults if fault[0] != "reference"]


def run_check(check, files):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        subprocess.run(["git", "init", "-q", folder], check=True)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            if text.startswith(link):
                (root / name).symlink_to(text.removeprefix(link))
            else:
                (root / name).write_text(text)
        command = [sys.executable, here / f"check_{check}.py", folder]
        result = subprocess.run(command, capture_output=True, text=True)
        return result.returncode, result.stdout + result.stderr


wrong = []

# ./dev bench --plot: a run's figures take the place of older ones; one that was cut off in a line, or has none, of none.
with tempfile.TemporaryDirectory() as folder:
    results, pictures = pathlib.Path(folder) / "results", pathlib.Path(folder) / "plots"
    results.mkdir()
    pictures.mkdir()
    (pictures / "lock.jsonl").write_text(kept)
    for text, expected in (("# lock: another machine\n", "a machine"),
                           ("# lock: another machine\n# begun 2026-12-24, load 7.5\n" + kept.split("\n", 1)[1].replace("14", "900")
                            + '{"impl": "cut o', "another machine; 2026-12-24; the machine was busy with other work (load 7.5)")):
        (results / "lock.txt").write_text(text)
        subprocess.run([sys.executable, here.parents[1] / "bench/plot.py", results, pictures], check=True, stdout=subprocess.DEVNULL)
        drawn = (pictures / "lock_uncontended.svg").read_text()
        if expected not in drawn or ("333 times worse" in drawn) != ("900" in text):
            wrong.append(f"plot.py did not draw '{expected}' of this result:\n{text}")

for check in sorted({fault[0] for fault in faults}):
    code, output = run_check(check, clean)
    if code != 0:
        wrong.append(f"{check} fails on a clean repository:\n{output}")
    code, output = run_check(check, {})
    if code != 1:
        wrong.append(f"{check} passes on an empty repository:\n{output}")
for check, name, text, expected in faults:
    code, output = run_check(check, {**clean, name: text})
    if code != 1 or expected not in output:
        wrong.append(f"{check} did not say '{expected}' of {name}:\n{output}")
print("\n".join(wrong))
print(f"{len(faults)} planted faults, {len(wrong)} checks that went wrong")
sys.exit(1 if wrong else 0)

"""planted_blocks.py COMPILER: plants faults in blocks of a page, compiles what is made of it with a shoal.h of its own, and expects
the compiler to name them by page and line; and nothing to be wrong with what a page may show."""

import pathlib
import subprocess
import sys
import tempfile

from page_blocks import make

header = """#include <string>
#include <type_traits>
namespace shoal {
struct Lock { void lock(); void unlock(); };
namespace hogwild { struct SGD; }
template <class T> struct Codec;
template <class T> void send(const T&) { static_assert(!std::is_pointer_v<T>, "a pointer cannot cross"); }
}
"""
program = '#include <shoal/shoal.h>\n#include <vector>\nint main() { std::vector<int> numbers{1}; }'


def page(*blocks):
    """A page; a block is its code, or a mark and its code."""
    return "# A page\n\n" + "".join((f"<!-- {block[0]} -->\n" if len(block) > 1 else "") + f"```cpp\n{block[-1]}\n```\n\n"
                                    for block in ([part] if isinstance(part, str) else part for part in blocks))


right = {
    "statements": page("shoal::Lock lock;\nlock.lock();   // a ' in a comment; and {"),
    "two of one name": page("int i = 1;", "int i = 2;\nstruct i_too {};"),
    "a definition and statements": page("int twice(int i) { return 2 * i; }\nint four = twice(2);\nfor (int i = 0; i < four; ++i) {\n}"),
    "a loop with braces over lines": page("int sum = 0;\nif (sum == 0) {\n  ++sum;\n} else {\n  --sum;\n}"),
    "a variable of the file": page("static int count = 0;\nauto add = +[] { ++count; };"),
    "continued": page("int a = 1;", ("continues", "int b = a;\nint f() { return 0; }"), ("continues", "int c = a + b + f();")),
    "a program": page(program),
    "inside shoal": page("struct Mine {};\ntemplate <>\nstruct shoal::Codec<Mine> {\n  static int size();\n};"),
    "two with torch/torch.h": page("#include <torch/torch.h>\nint i = 1;", "#include <shoal/shoal.h>\n#include <torch/torch.h>\nint i = 2;"),
    "a program's piece": page(("from docs/examples/x.cpp", "nothing that compiles")),
    "refused": page(("refused: a pointer cannot cross", 'shoal::send((int*)nullptr);')),
    "text": "```text\nshoal {\n```\n\n    a --put()--> b\n\n* One thing\n    and more of it;\n\n`shoal::Lock`, `shoal::workers`, `shoal::hogwild`\n",
}
faults = [
    (page("shoal::Lock lock;\nlock.lokc();"), "page.md:5:6: error: ‘struct shoal::Lock’ has no member named ‘lokc’"),
    (page("int i;", "i = 2;"), "page.md:8:1: error: ‘i’ was not declared"),
    (page("int i = 1;", ("continues", "int b = i;"), "int c = b;"), "page.md:13:9: error: ‘b’ was not declared"),
    (page("int i = 1;\nstatic auto f = [] { return i; };"), "page.md:5:29: error: ‘i’ was not declared"),
    (page("for (int i : {1, 2}) { ... }"), "page.md:4:24: error: expected"),
    (page(program, "std::vector<int> numbers;"), "page.md:10:6: error: ‘vector’ is not a member of ‘std’"),
    (page("#include <torch/torch.h>\nint i = j;"), "page.md:5:9: error: ‘j’ was not declared"),
    (page("int main() { shoal::Locks lock; }"), "page.md:4:21: error: ‘Locks’ is not a member of ‘shoal’"),
    (page("int i = 1;\nif (i == 1) {"), 'page.md:5:2: error: #error "this has no end'),
    (page("shoal::Lock lock"), 'page.md:4:2: error: #error "this has no end'),
    (page(("continues", "int i = 1;")), 'page.md:4:2: error: #error "no block before this one'),
    (page(("from ipc/lock.h", "int i = 1;")), 'page.md:4:2: error: #error "ipc/lock.h is no program of docs/examples'),
    (page(("refused: a pointer cannot cross", "shoal::send(1);")), "passed, but should have failed"),
    (page(("refused: a pointer cannot cross", "shoal::sendd(1);")), "without a word of"),
    ("```\nint i;\n```\n", 'page.md:1:2: error: #error "a block says what it is'),
    ("<!-- continues -->\n\n```cpp\nint i;\n```\n", 'page.md:2:2: error: #error "no block below'),
    ("So:\n\n    shoal::Lock lock;   // a lock\n", 'page.md:3:2: error: #error "C++ stands in a block'),
    ("One\n`shoal::Lock` and `shoal::Locks`\n", "page.md:2:14: error: ‘Locks’ has not been declared in ‘shoal’"),
]


def compile_page(text):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, content in {"include/shoal/shoal.h": header, "include/torch/torch.h": "", "docs/page.md": text, "docs/examples/x.cpp": "",
                              "README.md": "# Here\n\n```cpp\nint i;\n```\n"}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(content)
        make(root, root / "out", root)
        command = [sys.argv[1], "-std=c++20", "-fsyntax-only", "-fdiagnostics-color=never", f"-I{root}/include"]
        listed = (root / "out/blocks.cmake").read_text()
        output = ""
        for source in sorted((root / "out").glob("*.cpp")):
            refused = [line for line in listed.split("\n") if line.startswith("page_refused(") and f"/{source.name}" in line]
            must_fail = pathlib.Path(__file__).resolve().parents[1] / "support/must_fail/must_fail.sh"
            prefix = [must_fail, refused[0].split("[==[")[1].split("]==]")[0]] if refused else []
            result = subprocess.run([*prefix, *command, source], cwd=root, capture_output=True, text=True,
                                    env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"})
            output += (result.stdout + result.stderr) if result.returncode else ""
        return output


wrong = [f"{name} is found wrong:\n{output}" for name, text in right.items() if (output := compile_page(text))]
for text, expected in faults:
    output = compile_page(text)
    if expected not in output:
        wrong.append(f"nobody said '{expected}' of\n{text}\nbut:\n{output}")
print("\n".join(wrong))
print(f"{len(faults)} planted faults and {len(right)} right pages, {len(wrong)} went wrong")
sys.exit(1 if wrong else 0)

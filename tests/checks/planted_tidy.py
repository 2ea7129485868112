"""Plants faults for clang-tidy in a repository made for it, and expects that each is found, also through what is noted as clean."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

here = pathlib.Path(__file__).resolve().parent
clean = {
    "ipc/count.h": "#pragma once\n\ninline int count_of(int all) { return all; }\n",
    "ipc/count.cpp": "#include <shoal/ipc/count.h>\n\n#include <cstddef>\n\nint twice(int all) { return 2 * count_of(all); }\n",
    "ipc/other.cpp": "int other(int all) { return all; }\n",
}
# file planted, its content, what has to be said
faults = [
    ("ipc/count.cpp", "int CountOf(int all) { return all; }\n", "ipc/count.cpp:1:5: invalid case style for function 'CountOf'"),
    ("ipc/count.h", "#pragma once\n\nstruct Kept {\n  int CountOf(int all) { return all; }\n};\n", "ipc/count.h:4:7: invalid case style"),
    ("ipc/count.cpp", "#include <string>\n#include <utility>\n\nstd::string twice(std::string word) {\n"
     "  std::string kept = std::move(word);\n  return kept + word;\n}\n", "'word' used after it was moved"),
    ("ipc/count.cpp", "int twice(long all) { return (int)all; }\n", "use of old-style cast"),
    ("ipc/count.cpp", "int twice(int all) {\n", "expected '}'"),
    ("ipc/count.cpp", "int Twice() { return 2; }  // NOLINT\n", "ipc/count.cpp:1:31: write NOLINT(the check): the reason"),
    ("ipc/count.cpp", "int Twice() { return 2; }  // NOLINT(readability-identifier-naming)\n", "write NOLINT(the check): the reason"),
    ("ipc/count.h", "#pragma once\n\ninline int count_of(std::size_t all) { return int(all); }\n", "ipc/count.h:3:21: use of undeclared"),
    ("ipc/count.cpp", "typedef int Count;\n", "ipc/count.cpp:1:1: write using in place of typedef"),
    ("ipc/count.cpp", "#include <shoal/ipc/gone.h>\n", "'shoal/ipc/gone.h' file not found"),
]
# Sources that are looked at together, if there are so many of them, and what is planted in one of them.
many = {}
for number in range(18):
    many[f"ipc/part{number}.h"] = f"#pragma once\n\n#include <cstddef>\n\nstd::size_t part{number}(std::size_t all);\n"
    many[f"ipc/part{number}.cpp"] = (f"#include <shoal/ipc/part{number}.h>\n\nnamespace {{\n\nconstexpr std::size_t kOf = {number + 1};\n\n"
                                     f"}}  // namespace\n\nstd::size_t part{number}(std::size_t all) {{ return all / kOf; }}\n")
many["ipc/part3.h"] = "#pragma once\n\n#include <cstddef>\n#include <string>\n\nstd::size_t part3(std::size_t all);\nstd::string name3();\n"
many["ipc/part3.cpp"] += "std::string name3() { return \"3\"; }\n"
for number in range(14):   # names of their own: they go together
    many[f"ipc/part{number}.cpp"] = many[f"ipc/part{number}.cpp"].replace("kOf", f"kOf{number}")
for number in (1, 7, 10):   # names that are not looked for: these do not go together, which is no fault
    many[f"ipc/part{number}.cpp"] = many[f"ipc/part{number}.cpp"].replace("constexpr", "  constexpr").replace(f"kOf{number}", "kSame")
for number in range(3):   # without a header: they go where there is room
    many[f"ipc/alone{number}.cpp"] = f"int alone{number}() {{ return {number}; }}\n"
faults_of_many = [
    ("ipc/alone1.cpp", "int CountOf() { return 1; }\n", "ipc/alone1.cpp:1:5: invalid case style"),
    ("ipc/part0.cpp", "int CountOf(int all) { return all; }\n", "ipc/part0.cpp:1:5: invalid case style"),
    ("ipc/part4.h", "#pragma once\n\n#include <cstddef>\n\nstd::size_t part4(std::size_t all);\nstd::string name4();\n", "ipc/part4.h:6:6:"),
    ("ipc/part5.cpp", "namespace {\n\nconst int kUnused = 5;\n\n}  // namespace\n", "unused variable 'kUnused'"),
    ("ipc/part5.cpp", "#include <cstddef>\n#include <cstddef>\n", "duplicate include"),
]
allowed = "int Twice() { return 2; }  // NOLINT(readability-identifier-naming): as the standard has it\n"


class Repository:
    def __init__(self, folder):
        self.root = pathlib.Path(folder)
        self.write(".clang-tidy", (here.parents[1] / ".clang-tidy").read_text())
        build = self.root / "build/release"
        (build / "include/shoal").mkdir(parents=True)
        (build / "include/shoal/ipc").symlink_to(self.root / "ipc")
        self.compile(clean)

    def compile(self, files):
        build = self.root / "build/release"
        # Flags that clang does not know must not reach it.
        command = f"c++ -I{build}/include -O3 -std=c++20 -fpch-preprocess -Winvalid-pch -include {build}/cmake_pch.hxx -c "
        (build / "compile_commands.json").write_text(json.dumps(
            [{"directory": str(build), "file": str(self.root / name), "command": command + str(self.root / name)}
             for name in files if name.endswith(".cpp")]))

    def write(self, name, text):
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def check(self, *names):
        command = [sys.executable, here / "tidy.py", "--root", self.root, *(self.root / name for name in names)]
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.root / "cache")}
        result = subprocess.run(command, capture_output=True, text=True, env=environment)
        return result.returncode, result.stdout + result.stderr


wrong = []


def expect(result, code, words, what):
    if result[0] != code or words not in result[1]:
        wrong.append(f"{what}: expected {code} and '{words}', got {result[0]}:\n{result[1]}")


with tempfile.TemporaryDirectory() as folder:
    repository = Repository(folder)
    for name, text in clean.items():
        repository.write(name, text)
    expect(repository.check(), 0, "2 sources, 2 of them looked at, 0 faults", "a clean repository")
    expect(repository.check(), 0, "2 sources, 0 of them looked at, 0 faults", "the same again")
    repository.write("ipc/count.h", clean["ipc/count.h"].replace("}", "}  // of all, \"all\""))
    expect(repository.check(), 0, "2 sources, 0 of them looked at, 0 faults", "another comment")
    repository.write("ipc/count.h", clean["ipc/count.h"].replace("}", "}  // NOLINT(misc-static-assert): of all"))
    expect(repository.check(), 0, "2 sources, 1 of them looked at, 0 faults", "a comment for clang-tidy")
    repository.write("ipc/count.h", clean["ipc/count.h"].replace("all; }", "all + int(sizeof \"//\"); }"))
    expect(repository.check(), 0, "2 sources, 1 of them looked at, 0 faults", "a text that is no comment")
    repository.write("ipc/count.h", clean["ipc/count.h"].replace("all; }", "all + int(sizeof \"//.\"); }"))
    expect(repository.check(), 0, "2 sources, 1 of them looked at, 0 faults", "another text that is no comment")
    repository.write("ipc/count.h", clean["ipc/count.h"])
    for name, text, words in faults:
        repository.write(name, text)
        expect(repository.check(), 1, words, f"{name} with {text!r}")
        expect(repository.check(), 1, words, f"again {name} with {text!r}")
        repository.write(name, clean[name])
        expect(repository.check(), 0, "0 of them looked at, 0 faults", f"{name} as it was")
    repository.write("ipc/count.cpp", allowed)
    expect(repository.check("ipc/count.cpp"), 0, "1 sources, 1 of them looked at, 0 faults", "a fault silenced with its reason")
    expect(repository.check("ipc/other.cpp", "README.md"), 0, "1 sources, 0 of them looked at", "a page among the sources")
    expect(repository.check("README.md"), 1, "a check of nothing is a fault", "a page alone")
    expect(repository.check("ipc/gone.cpp"), 1, "no source of build/release", "a source that is not there")
    expect(repository.check("ipc/count.h"), 1, "no source of build/release", "a header that no source begins with")
    first = "build/release/headers_alone/first"
    repository.write(first, f"ipc/count.h {repository.root}/ipc/count.cpp\n")
    expect(repository.check("ipc/count.h"), 0, "1 sources, 0 of them looked at", "a header by the source that begins with it")
    repository.write(first, f"ipc/count.h {repository.root}/ipc/gone.cpp\n")
    expect(repository.check(), 1, "ipc/gone.cpp, which begins with it, is not looked at", "a header by a source that is none")
    repository.compile(many)
    repository.write(first, "".join(f"{name} {repository.root}/{name[:-1]}cpp\n" for name in many if name.endswith(".h")))
    for name, text in many.items():
        repository.write(name, text)
    expect(repository.check(), 0, "21 sources, 21 of them looked at, 0 faults", "many sources")
    expect(repository.check(), 0, "21 sources, 0 of them looked at, 0 faults", "many sources again")
    for name, text, words in faults_of_many:
        shutil.rmtree(repository.root / "cache")
        repository.write(name, text)
        expect(repository.check(), 1, words, f"many sources, {name} with {text!r}")
        repository.write(name, many[name])
        expect(repository.check(), 0, "1 of them looked at, 0 faults", f"many sources, {name} as it was")
    repository.compile(clean)
    repository.write(first, "")
    repository.write(".clang-tidy", (repository.root / ".clang-tidy").read_text() + "# another rule\n")
    expect(repository.check("ipc/other.cpp"), 0, "1 of them looked at, 0 faults", "another rule")
print("\n".join(wrong))
print(f"{len(faults) + len(faults_of_many)} planted faults, {len(wrong)} that went wrong")
sys.exit(1 if wrong else 0)

#!/usr/bin/env python3
"""planted_refused.py COMPILER: refused.py finds a part that compiles, and one that is refused for another reason, and what is in no part."""
import pathlib
import subprocess
import sys
import tempfile

SOURCE = """\
template <class T>
struct Crosses {
  static_assert(sizeof(T) <= 2, "a large thing cannot cross");
  static_assert(alignof(T) != 2, "an even thing cannot cross");
};
template <class T>
int cross() {
  static_assert(sizeof(T) <= 2, "this is large");
  static_assert(sizeof(T) <= 2, "a thing so large cannot cross");
  return sizeof(Crosses<T>);
}
[[deprecated("is used")]] void warned(int);
void warned(char*) = delete;
int right() { return cross<char>(); }
void parts() {
#if REFUSED == 1
  // refused: a thing so large cannot cross
  cross<int>();
  // refused: an even thing .*cannot cross
  cross<short>();
  // refused: a large thing .*cannot cross
  cross<bool>();
  // refused: an even thing .*cannot cross
  Crosses<long> other;
  // refused: not declared|undeclared
  undeclared();
  // refused: is used
  warned(1);
#elif REFUSED == 2
  // refused: only of the other number
#endif
}
"""
WRONG = ["21: compiled, but should have been refused: a large thing", "23: refused as it should be, but without a word of 'an even",
         "27: compiled, but should have been refused: is used"]   # a warning is none

UNMARKED = {   # what is in no part, or in another than was meant
    "int a;": "21: write // refused: PATTERN above it",
    "// refused: x\nint a;\n//refused: y\nint b;": "23: write // refused: PATTERN:",
    "// refused: x\n#ifdef A\nint a;\n#endif": "22: nothing but #elif and #endif there",
    "// refused: x\nint a;\n#endif\n#if REFUSED==2\n": "24: write #if REFUSED == NUMBER",
    "#endif\n// refused: x\nint a;\n#if REFUSED == 2": "22: there is no #if REFUSED == NUMBER above it",
}


def run(source, text):
    source.write_text(text)
    command = [pathlib.Path(__file__).with_name("refused.py"), source, "1", sys.argv[1], "-std=c++20"]
    return subprocess.run(command, capture_output=True, text=True)


def check(ended, *expected):
    missing = [text for text in expected if text not in ended.stdout + ended.stderr]
    if ended.returncode != 1 or missing:
        sys.exit(f"ended with {ended.returncode}, without {missing}:\n{ended.stdout}{ended.stderr}")


with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder) / "source.cpp"
    check(run(file, SOURCE), *WRONG, "3 of 6 parts")
    for text, fault in UNMARKED.items():
        check(run(file, "\n" * 19 + "#if REFUSED == 1\n" + text + "\n#endif\n"), fault)
print(f"{len(WRONG) + len(UNMARKED)} planted faults found")

#!/usr/bin/env python3
"""planted_refused.py COMPILER: refused.py finds a part that compiles, and one that is refused for another reason."""
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
int right() { return cross<char>(); }
#if REFUSED == 1
void parts() {
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
}
#elif REFUSED == 2
  // refused: only of the other number
#endif
"""
WRONG = ["19: compiled, but should have been refused: a large thing", "21: refused as it should be, but without a word of 'an even"]

with tempfile.TemporaryDirectory() as folder:
    source = pathlib.Path(folder) / "source.cpp"
    source.write_text(SOURCE)
    command = [pathlib.Path(__file__).with_name("refused.py"), source, "1", sys.argv[1], "-std=c++20"]
    ended = subprocess.run(command, capture_output=True, text=True)
    expected = [*WRONG, "3 of 5 parts"]
    missing = [text for text in expected if text not in ended.stdout]
    if ended.returncode != 1 or missing:
        sys.exit(f"ended with {ended.returncode}, without {missing}:\n{ended.stdout}{ended.stderr}")
print(f"{len(WRONG)} planted faults found")

"""clang-tidy finds nothing, by the rules of .clang-tidy: `./dev check` runs this over all sources, `./dev check FILE...` over some.

A source in which nothing was found is not looked at again before it, a header of the project that it includes, the flags that it
is compiled with, .clang-tidy or clang-tidy itself have changed, but for comments: what was looked at is noted in
~/.cache/shoal-tidy, for all clones. How a source is compiled stands in build/release/compile_commands.json. clang takes the flags that change what a source
means; precompiled headers and warnings are GCC's own.

Six sevenths of the time go into headers of others, so many sources are looked at sixteen at a time, one behind the other in a file
made for it. The headers that they begin with stand in front, each behind those by which no header of others is there that it does
not reach itself: what it forgets of those is found as if it were alone. What a source forgets, and which of the project's headers a
header does, is found where few are looked at, each by itself, and of types and constants by check_includes.py. If something is
found, or a source does not go with the others, both halves are looked at.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

folders = ("ipc/", "runtime/", "tensors/", "workers/")   # tests, benchmarks and examples only if they are named
warnings = ["-Wall", "-Wextra", "-Wold-style-cast", "-Wno-unknown-pragmas", "-Wno-ignored-attributes"]   # without GCC's own
meaning = re.compile(r"-[DUI].+|-std=.+")                # flags of one word
meaning_with_value = ("-isystem", "-I", "-D", "-U")      # flags of two
include = re.compile(r'^\s*#\s*include(?:_next)?\s*[<"]([^>"]+)[>"]', re.MULTILINE)
literal_or_comment = re.compile(r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])')|[ \t]*//(?!\s*NOLINT)[^\n]*""")
finding = re.compile(r"^(/[^:\n]+):(\d+):(\d+): (?:warning|error): (.*)$", re.MULTILINE)
old = re.compile(r"^\s*typedef\b", re.MULTILINE)   # by text: modernize-use-using takes a twelfth of clang-tidy's time
silenced = re.compile(r"\bNOLINT(NEXTLINE|BEGIN)?\b(?!\([a-z0-9.,\- ]+\): \S)")   # without a check's name or without a reason
begun = re.compile(r"^namespace \{\n(.*?)^\}  // namespace$", re.MULTILINE | re.DOTALL)
declared = re.compile(r"^(?!using namespace)[\w\[(].*?\b(\w+) ?[({=;\[]|, (k[A-Z]\w*) =", re.MULTILINE)   # or of one more constant
apart = "\n#define SHOAL_NEXT_SOURCE\n#undef SHOAL_NEXT_SOURCE\n"   # for readability-duplicate-include, which begins anew there
together = 16   # sources; more share little more
few = 16          # each by itself: all that it forgets to include is found, too
days_kept = 30


class ReachedHeaders:
    """The headers of others that an #include reaches, by their texts: whatever #if says, which takes seconds, not minutes."""

    def __init__(self):
        said = subprocess.run(["g++", "-E", "-v", "-x", "c++", "/dev/null"], check=True, capture_output=True, text=True).stderr
        self.standard = tuple(line.strip() for line in said.splitlines() if line.startswith(" /") and os.path.isdir(line.strip()))
        self.bits = {}       # a header's path, or the name of one that is not there -> its bit
        self.included = {}   # (a header's path, folders) -> the paths of those that it includes
        self.found = {}      # (name, folders) -> bits

    def by(self, names, folders):
        """What all of these names reach, with folders that are searched before those of the standard library."""
        bits = 0
        for name in names:
            if (name, folders) not in self.found:
                self.found[name, folders] = self.by_one(name, folders + self.standard)
            bits |= self.found[name, folders]
        return bits

    def by_one(self, name, folders):
        seen, left = set(), [self.resolved(name, folders) or name]
        while left:
            path = left.pop()
            if path not in seen:
                seen.add(path)
                left += self.included_by(path, folders)
        return sum(self.bits.setdefault(path, 1 << len(self.bits)) for path in seen)

    def included_by(self, path, folders):
        if (path, folders) not in self.included:
            names = include.findall(pathlib.Path(path).read_text(errors="replace")) if os.path.isabs(path) else []
            paths = (self.resolved(name, (os.path.dirname(path), *folders)) for name in names)
            self.included[path, folders] = [path for path in paths if path]
        return self.included[path, folders]

    @staticmethod
    def resolved(name, folders):
        return next((path for path in (os.path.join(folder, name) for folder in folders) if os.path.isfile(path)), None)


class Tidy:
    def __init__(self, root, build, cache):
        self.root, self.build, self.cache = root, build, cache
        self.program = pathlib.Path(__file__).resolve().parents[2] / ".venv/bin/clang-tidy"
        self.rules = root / ".clang-tidy"
        version = subprocess.run([self.program, "--version"], check=True, capture_output=True, text=True).stdout
        self.common = repr([version, self.rules.read_text(), warnings])
        self.texts = {}   # a file of the project -> its digest, the files of the project that it includes, the headers of others
        self.flags = {}   # a source -> its flags
        self.first = self.headers_and_sources("first")
        self.alone = self.headers_and_sources("alone")
        entries = json.loads((build / "compile_commands.json").read_text())
        for entry in sorted(entries, key=lambda entry: "_apart.dir/" in entry.get("command", "")):   # .cmake/Libraries.cmake
            words = entry.get("arguments") or shlex.split(entry["command"])
            source = os.path.realpath(os.path.join(entry["directory"], entry["file"]))
            flags = self.flags_that_matter(words)
            for one in self.compiled_as(source):
                self.flags.setdefault(one, flags)

    def headers_and_sources(self, name):
        """A header of the project -> "first": the source that begins with it, and is looked at in place of the header alone;
        "alone": the one that includes it behind no other that it does not include."""
        path = self.build / "headers_alone" / name
        lines = path.read_text().splitlines() if path.exists() else []
        return dict(line.split(" ", 1) for line in lines)

    def compiled_as(self, source):
        """The source, or those of tests and examples that it includes: .cmake/Together.cmake."""
        folder = os.path.dirname(source)
        if os.path.basename(folder) != "together":
            return [source]
        return [os.path.realpath(os.path.join(folder, name)) for name in include.findall(pathlib.Path(source).read_text())]

    @staticmethod
    def flags_that_matter(words):
        kept = []
        for flag, value in zip(words, words[1:] + [""]):
            if flag in meaning_with_value:
                kept += [flag, value]
            elif meaning.fullmatch(flag):
                kept.append(flag)
        return kept

    def read(self, path, folders):
        if path not in self.texts:
            text = pathlib.Path(path).read_text(errors="replace")
            included, others = [], []
            for name in include.findall(text):
                for folder in (os.path.dirname(path), *folders):
                    candidate = os.path.realpath(os.path.join(folder, name))
                    if candidate.startswith(f"{self.root}/") and os.path.isfile(candidate):
                        included.append(candidate)
                        break
                else:
                    others.append(name)
            code = literal_or_comment.sub(lambda match: match[1] or "", text)
            self.texts[path] = hashlib.sha256(code.encode()).hexdigest(), included, others
        return self.texts[path]

    def all_below(self, path, flags):
        """The file and the files of the project that it includes, all in all, each with what read() says of it."""
        folders = [flag[2:] for flag in flags if flag.startswith("-I")]
        seen, left = {}, [path]
        while left:
            path = left.pop()
            if path not in seen:
                seen[path] = self.read(path, folders)
                left += seen[path][1]
        return seen

    def note(self, source):
        """The file that says that nothing was found in the source as it is, and with the headers as they are."""
        flags = self.flags[source]
        texts = sorted((os.path.relpath(path, self.root), digest) for path, (digest, *_) in self.all_below(source, flags).items())
        key = self.common + repr([flag.replace(str(self.root), ".") for flag in flags]) + repr(texts)
        return self.cache / hashlib.sha256(key.encode()).hexdigest()

    def others_below(self, path, flags, reached):
        """Headers of others that the file reaches, one bit each: of `reached`."""
        if not path:
            return 0
        names = {name for _, _, others in self.all_below(str(path), flags).values() for name in others}
        return reached.by(names, tuple(folder for flag, folder in zip(flags, flags[1:]) if flag == "-isystem"))

    def batches(self, sources):
        """Sources that are looked at together: lists of (source, the header that it begins with)."""
        if len(sources) <= few:
            return [[(source, None)] for source in sources]
        first = {source: header for header, source in self.first.items()}
        reached = ReachedHeaders()
        found = []
        units = []
        for source in sources:
            header = first.get(source)
            of_header, of_source = (self.others_below(path, self.flags[source], reached)
                                    for path in (header and self.root / header, source))
            blocks = begun.findall(pathlib.Path(source).read_text())
            names = {one or other for block in blocks for one, other in declared.findall(block)}
            units.append((of_header.bit_count(), source, header, of_header, of_source, names))
        units.sort(key=lambda unit: (unit[2] is None, unit[0], unit[1]))   # without a header they fit anywhere, and fill up
        for _, source, header, of_header, of_source, names in units:
            fits = [batch for batch in found if len(batch["sources"]) < together and batch["flags"] == self.flags[source]
                    and (not header or not batch["of_headers"] & ~of_header) and not batch["names"] & names
                    and not source.startswith(str(self.build))]
            if not fits:
                fits = [{"sources": [], "flags": self.flags[source], "of_headers": 0, "of_sources": 0, "names": set()}]
                found += fits
            best = min(fits, key=lambda batch: (batch["of_sources"] ^ of_source).bit_count())
            best["sources"].append((source, header))
            best["of_headers"] |= of_header
            best["of_sources"] |= of_source
            best["names"] |= names
        return [batch["sources"] for batch in found]

    def look_together(self, batch):
        """What is found in each source of a batch, and the project's headers. If there is something, each half is looked at: in the
        end what is found is of a source by itself, and two that do not go together are apart."""
        if len(batch) == 1:
            source, _ = batch[0]
            return [(source, self.look(source, self.flags[source]))]
        with tempfile.NamedTemporaryFile("w", suffix=".cpp") as file:
            file.writelines(f'#include "{self.root / header}"\n' for _, header in batch if header)
            file.writelines(apart + pathlib.Path(source).read_text() for source, _ in batch)
            file.flush()
            if not self.look(file.name, self.flags[batch[0][0]]):
                return [(source, set()) for source, _ in batch]
        half = len(batch) // 2
        return self.look_together(batch[:half]) + self.look_together(batch[half:])

    def look(self, source, flags):
        """What is found in the source and the project's headers: (file, line, column, text) for each."""
        command = [self.program, "--quiet", f"--config-file={self.rules}", source, "--", "-xc++", *flags, *warnings]
        result = subprocess.run(command, capture_output=True, text=True, cwd=self.root)
        found = {(os.path.relpath(os.path.realpath(path), self.root), int(line), int(column), text)
                 for path, line, column, text in finding.findall(result.stdout)}
        if result.returncode != 0 and not found:
            found = {(os.path.relpath(source, self.root), 0, 0, f"clang-tidy ended with {result.returncode}: {result.stderr[-500:]}")}
        return found

    def source_for(self, name):
        """A header is looked at by the source that begins with it, or includes it alone."""
        if name in self.first:
            return self.first[name]
        return self.alone.get(name) or str(self.root / name)

    def all_sources(self):
        named = [str(self.root / folder) for folder in folders]
        return [source for source in self.flags if source.startswith(tuple(named)) or source.endswith("/headers_alone/together.cpp")]


def found_by_text(root, path):
    for number, line in enumerate(pathlib.Path(path).read_text(errors="replace").splitlines(), 1):
        for pattern, remedy in ((silenced, "write NOLINT(the check): the reason"), (old, "write using in place of typedef")):
            for match in pattern.finditer(line):
                yield os.path.relpath(path, root), number, match.start() + 1, remedy


def forget_old(cache):
    for note in cache.iterdir():
        if time.time() - note.stat().st_mtime > days_kept * 86400:
            note.unlink(missing_ok=True)


def main():
    arguments = sys.argv[1:]
    root = pathlib.Path(__file__).resolve().parents[2]
    if arguments[:1] == ["--root"]:
        root, arguments = pathlib.Path(arguments[1]).resolve(), arguments[2:]
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "shoal-tidy"
    cache.mkdir(parents=True, exist_ok=True)
    tidy = Tidy(root, root / "build/release", cache)
    names = [os.path.relpath(os.path.realpath(name), root) for name in arguments if name.endswith((".cpp", ".h"))]
    sources = [tidy.source_for(name) for name in names] if arguments else tidy.all_sources()
    faults = set()

    def tell(found):
        for file, line, column, text in sorted(found - faults):
            print(f"tidy: {file}:{line}:{column}: {text}", flush=True)
        faults.update(found)

    tell({(name, 0, 0, "no source of build/release") for name, source in zip(names, sources) if source not in tidy.flags})
    if not arguments:
        looked_at = set(sources)
        tell({(name, 0, 0, f"{source}, which begins with it, is not looked at")
              for name, source in tidy.first.items() if source not in looked_at})
    changed = {}   # a source -> its note
    for source in sources:
        if source in tidy.flags:
            note = tidy.note(source)
            note.touch() if note.exists() else changed.update({source: note})
    tell({fault for path in tidy.texts for fault in found_by_text(root, path)})
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        done = 0
        for looked_at in threads.map(tidy.look_together, tidy.batches(list(changed))):
            for source, found in looked_at:
                tell(found)
                if not found:
                    changed[source].touch()
            done += len(looked_at)
            if sys.stderr.isatty():
                print(f"tidy: {done} of {len(changed)} sources", end="\r", flush=True, file=sys.stderr)
    forget_old(cache)
    nothing = not sources
    print(f"tidy: {len(sources)} sources, {len(changed)} of them looked at, {len(faults)} faults"
          + (": a check of nothing is a fault" if nothing else ""))
    return 1 if faults or nothing else 0


if __name__ == "__main__":
    sys.exit(main())

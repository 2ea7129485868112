"""The pages: links lead somewhere, README links every page, docs/architecture.md names every folder and no file that is not
there, snippets are those of the programs that they name, commands, CMake's targets and tests named are there, every check that
.clang-tidy leaves out is in docs/style.md, and every file says in its first line what it is. C++ in pages: tests/pages."""

import re

from repository import finish, root, tracked
from rooms import doors, suffixes

link = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
heading = re.compile(r"^#+\s+(.*)$", re.MULTILINE)
fence = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
snippet = re.compile(r"^<!-- from (\S+) -->\n```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
named = re.compile(r"`((?:ipc|runtime|tensors|workers|tests|bench|docs)/[\w./-]+\.\w+)`")
drawn = re.compile(r"(?<![\w./-])((?:ipc|runtime|tensors|workers)/[\w/-]+\.(?:h|cpp|inl))\b")   # in pictures, without quotes
row = re.compile(r"^\|((?: `[\w/]+/`,?)+ )\|[^|]*\|([^|]*)\|", re.MULTILINE)
layers = ("ipc", "runtime", "tensors", "workers")

faults = []
checked = 0


def unindented(text):
    return "\n" + "\n".join(line.strip() for line in text.splitlines()) + "\n"


def anchors(path):
    """GitHub's rule: lower case, punctuation dropped, spaces to hyphens."""
    titles = heading.findall(fence.sub("", path.read_text()))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


pages = tracked("*.md")
for page in pages:
    path = root / page
    text = path.read_text()
    for target in link.findall(fence.sub("", text)):
        if re.match(r"[a-z]+:", target):
            continue
        checked += 1
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists():
            faults.append(f"{page}: link to {target}: no such file")
        elif anchor and file.suffix == ".md" and anchor not in anchors(file):
            faults.append(f"{page}: link to {target}: no such heading")
    for name in sorted({*named.findall(text), *drawn.findall(text)}):
        checked += 1
        if not (root / name).exists():
            faults.append(f"{page}: names {name}, which does not exist")

    # What a page takes from a program stands there, so that it is built and run.
    for name, code in snippet.findall(text):
        checked += 1
        if not (root / name).exists() or unindented(code) not in unindented((root / name).read_text()):
            faults.append(f"{page}: {name} does not have '{code.strip().splitlines()[0]}' and what follows it")

# Commands of `./dev` and `shoal`, with their options up to a "--"; benchmarks by name; libraries to link.
text_of = {name: (root / name).read_text() for name in tracked("dev", "runtime/command/*.cpp", "workers/beton/command/*.cpp")}
has = {"./dev": set(re.findall(r"^  (\w+)[^()\n]*\) ", text_of.get("dev", "").partition("case $command in")[2], re.MULTILINE)),
       "shoal": {name for text in text_of.values() for name in re.findall(r'add_subcommand\("(\w+)"', text)}}
options = {"-h", "--help", "--version"} | {name for text in text_of.values() for name in re.findall(r'[",](--?\w[\w-]*)(?=[",])', text)}
# Those that are members of a struct of settings.
options |= {"--" + name.replace("_", "-") for file in tracked("runtime/command/*_settings.h")
            for name in re.findall(r'^ *\{"(\w+)",', (root / file).read_text(), re.MULTILINE)}
benchmarks = {name.rpartition("/")[2].removesuffix(".cpp") for name in tracked("bench/*.cpp")}
for page in pages:
    text = (root / page).read_text()
    shown = re.findall(r"`([^`\n]+)`", fence.sub("", text)) + re.findall(r"^    (.*)", text, re.MULTILINE) \
        + "\n".join(re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)).split("\n")
    for line in shown:
        found = re.match(r"(\./dev|shoal) (\w+)((?: [^#|]*)?)", line.strip())
        if found is None:
            continue
        program, command, rest = found.groups()
        checked += 1
        if command not in has[program]:
            faults.append(f"{page}: there is no command {program} {command}")
        elif program == "shoal":
            faults += [f"{page}: {program} {command} has no option {name}"
                       for name in re.findall(r"(?<![\w-])--?\w[\w-]*", rest.split(" -- ")[0].split(" ./")[0])
                       if name not in options and name.replace("_", "-") not in options]
        elif command == "bench":
            faults += [f"{page}: there is no benchmark {name}" for name in re.findall(r"(?<= )[a-z]\w*", rest) if name not in benchmarks]
    for code in re.findall(r"^```cmake\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for name in re.findall(r"\bshoal::(\w+)", code):
            checked += 1
            if not (root / name / "CMakeLists.txt").exists():
                faults.append(f"{page}: there is no library shoal::{name}")

# Tests in the last column of tables: `subject: outcome`; a star is anything. A macro may write the subject.
sources_of_tests = [(root / name).read_text() for name in tracked("tests/**") if name.endswith((".h", ".cpp"))]
subject_of = {macro: subject for text in sources_of_tests
              for macro, subject in re.findall(r'^#define (\w+)\(name\) \w*TEST_CASE\("([^"]*)" name', text, re.MULTILINE)}
tests = {subject_of.get(macro, "") + "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', strings)) for text in sources_of_tests
         for macro, strings in re.findall(r'^(\w*TEST_CASE)\(((?:\s*"(?:[^"\\\n]|\\.)*")+)', text, re.MULTILINE)}
for page in pages:
    for rows in re.findall(r"^\|.*\| test \|\n\|[-|]+\|\n((?:\|.*\n)+)", (root / page).read_text(), re.MULTILINE):
        for name in re.findall(r"`([^`\n]+: [^`\n]+)`", " ".join(line.split("|")[-2] for line in rows.splitlines())):
            checked += 1
            pattern = re.compile(".*".join(re.escape(part) for part in name.split("*")))
            if not any(pattern.fullmatch(test) for test in tests):
                faults.append(f"{page}: there is no test `{name}`")

# Who starts at the README finds every page.
linked = {target.partition("#")[0] for target in link.findall(fence.sub("", (root / "README.md").read_text()))} \
    if (root / "README.md").exists() else set()
for page in pages:
    if page.startswith("docs/"):
        checked += 1
        if page not in linked:
            faults.append(f"README.md: does not link {page}")

# The map of the house names every folder; the files say themselves what they are, in their first line.
architecture = root / "docs/architecture.md"
if not architecture.exists():
    faults.append("docs/architecture.md: missing")
else:
    text = architecture.read_text()
    # Rows of rooms: the files to read first lie in one of the row's folders.
    for folders, files in row.findall(text):
        rooms = re.findall(r"`([\w/]+)/`", folders)
        for file in re.findall(r"`(\w+\.(?:h|cpp))`", files):
            checked += 1
            if not any((root / room / file).exists() for room in rooms):
                faults.append(f"docs/architecture.md: {rooms[0]}/ has no {file} to read")
    sources = [name for name in tracked(*(f"{layer}/**" for layer in layers))
               if name.endswith(suffixes)]
    for folder in sorted({name.rsplit("/", 1)[0] for name in sources}):
        checked += 1
        if f"`{folder}/`" not in text:
            faults.append(f"docs/architecture.md: does not name the folder `{folder}/`")
    for name in sources:
        file = name.rpartition("/")[2].removesuffix(".cpp") + ".h"
        beside = {name.rpartition("/")[0], *(door for door in doors() if door.split("/")[0] == name.split("/")[0])}
        if name.endswith(".cpp") and any(f"{folder}/{file}" in sources for folder in beside):
            continue   # its header says it
        checked += 1
        first = (root / name).read_text().split("\n", 1)[0]
        if not re.match(r"// \S", first):
            faults.append(f"{name}: the first line has to be a comment that says what the file is")

# What clang-tidy does not look for has a reason.
style = (root / "docs/style.md").read_text() if (root / "docs/style.md").exists() else ""
rules = (root / ".clang-tidy").read_text() if (root / ".clang-tidy").exists() else ""
for name in re.findall(r"^  -([a-z][\w.-]+),$", rules, re.MULTILINE):
    checked += 1
    if f"`{name}`" not in style:
        faults.append(f"docs/style.md: does not say why .clang-tidy leaves out {name}")
finish("docs", f"{checked} links and names in {len(pages)} pages", faults)

"""A header or source reaches, by its own includes, the project's header that declares each type and constant that it names.

Compilers tell only of what stands alone: sources are compiled together, and clang-tidy looks at many headers one behind the other.
By text, so of names that one header alone declares, and that no reached one declares in any sense, also as a member or a
parameter of a template.
"""

import collections
import re

from repository import finish, root
from rooms import included, may_include, sources

no_code = re.compile(r"""^\s*#\s*include[^\n]*|"(?:\\.|[^"\\\n])*"|//[^\n]*""", re.MULTILINE)
type_name = r"(?:class|struct|enum(?:\s+class)?|union|using|concept)\s+(?:\[\[[^\]]*\]\]\s*)?"
at_the_margin = re.compile(rf"^(?:template\s*<[^{{;]*?>\s*)?(?:{type_name}([A-Z]\w*)\b(?!\s*;)|(?:inline\s+)?constexpr\s[^=({{;]*?\b(k[A-Z]\w*)\b)",
                           re.MULTILINE)
anywhere = re.compile(rf"\b(?:{type_name}|typename\s*(?:\.\.\.)?\s*|(?:class|auto|bool|int)\s*\.\.\.\s*)([A-Z]\w*)"
                      r"|[<,]\s*[\w:]+(?:<[^<>]*>)?\s+([A-Z]\w*)\s*[,>=]"     # template <Kind K, ...>
                      r"|(?:constexpr|const|auto|bool|int|size_t|\w)\s+&?(k[A-Z]\w*)\b"
                      r"|\b(k[A-Z]\w*)\s*[,}=]")                               # an enumerator
named = re.compile(r"(?<!::)(?<!\.)(?<!->)(?<!template )\b([A-Z]\w*|k[A-Z]\w*)\b|\b(?:shoal|detail)::([A-Z]\w*|k[A-Z]\w*)\b")


def names(pattern, code):
    return {name for groups in pattern.findall(code) for name in groups if name}


files = sources()
code = {name: no_code.sub(" ", (root / name).read_text()) for name in files}
includes = {name: [other for other in included(name) if other in code] for name in files}
declared_by = collections.defaultdict(set)
for name in files:
    if name.endswith(".h"):
        for declared in names(at_the_margin, code[name]):
            declared_by[declared].add(name)
declares = {name: names(anywhere, text) for name, text in code.items()}


def reached(name):
    seen, left = set(), [name]
    while left:
        other = left.pop()
        if other not in seen:
            seen.add(other)
            left += includes[other]
    return seen


faults = []
for name in files:
    if name.endswith(".inl"):
        continue   # a part of the file that includes it
    there = reached(name)
    known = set().union(*(declares[other] for other in there))
    for used in sorted(names(named, code[name]) - known):
        by = [other for other in declared_by[used] if other.split("/")[0] in may_include[name.split("/")[0]]]
        if len(by) == len(declared_by[used]) == 1 and by[0] not in there:
            faults.append(f"{name}: names {used} without an include that leads to {by[0]}")
finish("includes", f"{len(files)} files", faults)

"""A header or source reaches, by its own includes, the project's header that declares each type and constant that it names.

Compilers tell only of what stands alone: sources are compiled together, and clang-tidy looks at many headers one behind the other.
By text, so of names that one header alone declares, and that no reached one declares in any sense, also as a member or a
parameter of a template.
"""

import collections
import re

from repository import finish, root, tracked

layers = {"ipc": "ipc", "runtime": "ipc runtime", "tensors": "ipc tensors", "workers": "ipc runtime tensors workers"}   # what each includes
include = re.compile(r"^\s*#\s*include\s*<shoal/(?:internal/)?([^>]+)>", re.MULTILINE)
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
    return {name for groups in pattern.findall(code) for name in ([groups] if isinstance(groups, str) else groups) if name}


texts = {name: (root / name).read_text() for layer in layers for name in tracked(f"{layer}/**") if name.endswith((".h", ".cpp", ".inl"))}
code = {name: no_code.sub(" ", text) for name, text in texts.items()}
included = {name: [other for other in include.findall(text) if other in texts] for name, text in texts.items()}
declared_by = collections.defaultdict(set)
for name in texts:
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
            left += included[other]
    return seen


faults = []
for name in texts:
    if name.endswith(".inl"):
        continue   # a part of the file that includes it
    there = reached(name)
    known = set().union(*(declares[other] for other in there))
    for used in sorted(names(named, code[name]) - known):
        by = [other for other in declared_by[used] if other.split("/")[0] in layers[name.split("/")[0]].split()]
        if len(by) == len(declared_by[used]) == 1 and by[0] not in there:
            faults.append(f"{name}: names {used} without an include that leads to {by[0]}")
finish("includes", f"{len(texts)} files", faults)

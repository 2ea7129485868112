"""page_blocks.py ROOT OUT [BASE]: makes sources in OUT of the C++ blocks of README.md and docs/**/*.md below ROOT, and OUT/blocks.cmake,
which lists them. A reader copies a block, includes <shoal/shoal.h>, and has what works: so a block is given nothing else.

* Definitions of a block (functions, types, using, static variables) come before its statements, which become a function's.
* All blocks lie in one source, each in a namespace; those that include <torch/torch.h>, too, and nothing else, in a second. One with
  `int main`, another #include or something inside namespace shoal is a source of its own; then what it includes is all that it is
  given, with <shoal/shoal.h> where that is nothing of shoal's.
* A comment right above a block says more: `<!-- continues -->`: it goes on where the block before it on the page ended.
  `<!-- refused: PATTERN -->`: it must not compile, and the compiler's words match PATTERN.
  `<!-- from FILE -->`: it stands in that program of docs/examples, which the tests build.
* Every `shoal::name` within a line of text is a name of shoal's.

#line names page and line in the compiler's messages, as they are found from BASE, the compiler's folder. What is wrong with a page
itself is an #error in its place."""

import dataclasses
import os
import pathlib
import re
import sys

mark = re.compile(r"<!-- (continues|refused|from):? ?(.*?) ?-->")
first_words = re.compile(r"(?:struct|class|enum|union|template|namespace|using|typedef|static|inline|thread_local|TORCH_MODULE)(?!\w)|#")
control = re.compile(r"(?:if|for|while|switch|do|else|return|throw|delete|co_\w+)\b")
heads_a_function = re.compile(r"[\w:<>,&*\s]*[\w>&*]\s[&*]*[\w:]+\s*$")
inside_shoal = re.compile(r"\bnamespace\s+shoal\b|\btemplate\s*<\s*>\s*\w+\s+shoal::")
namespaces = {"config", "hogwild"}   # public ones
layers = {"ipc", "runtime", "tensors", "workers", "detail"}   # CMake's targets, and what users are not shown


@dataclasses.dataclass
class Block:
    page: str
    line: int                       # of its first line of code
    code: list                      # lines
    kind: str = ""                  # its mark
    says: str = ""
    items: list = dataclasses.field(default_factory=list)   # (line, text, is a definition)
    before: "Block | None" = None   # what it continues


def blank(code):
    """The same text, with spaces in place of what comments and literals say."""
    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])*\''
    return re.sub(pattern, lambda found: re.sub(r"[^\n]", " ", found.group()), code, flags=re.DOTALL)


def is_definition(text):
    text = blank(text).strip()
    if first_words.match(text):
        return True
    opened = text.find("(")
    if opened < 0 or control.match(text) or not heads_a_function.match(text[:opened]):
        return False
    depth = 0
    for place in range(opened, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth == 0:
            return re.match(r"\s*(?:const\b|noexcept\b|\s)*(?:->[^{;]*)?\{", text[place + 1:]) is not None
    return False


def split(block):
    """Whole lines, cut where a statement or a definition has ended; or a fault."""
    plain = blank("\n".join(block.code)).split("\n")
    begun, depth = None, 0
    for number, text in enumerate(plain):
        if begun is None:
            if not text.strip():
                continue
            begun = number
        depth += len(re.findall(r"[({\[]", text)) - len(re.findall(r"[)}\]]", text))
        directive = text.lstrip().startswith("#")
        if depth == 0 and (directive or re.search(r"[;}]\s*$", text) or re.match(r"TORCH_MODULE", text)):
            item = "\n".join(block.code[begun:number + 1])
            block.items.append((block.line + begun, item, is_definition(item)))
            begun = None
    return None if begun is None else (block.line + begun, "this has no end: a brace, a bracket or a semicolon is missing")


def read(root, page):
    """The blocks of a page, and its faults: (page, line, text)."""
    blocks, faults = [], []
    lines = (root / page).read_text().split("\n")
    number, previous, said = 0, None, None
    while number < len(lines):
        line, number = lines[number], number + 1
        if found := mark.fullmatch(line.strip()):
            said = found
            continue
        fence = re.match(r"\s*```(\S*)", line)
        if fence is None:
            if said:
                faults.append((page, number, f"no block below the comment {said.group()}"))
            if re.match(r"    .*;\s*(//.*)?$", line) and is_code(lines, number - 1):
                faults.append((page, number, "C++ stands in a block between ```cpp and ```"))
            said = None
            continue
        end = next((n for n in range(number, len(lines)) if lines[n].strip() == "```"), len(lines))
        if fence[1] == "":
            faults.append((page, number, "a block says what it is: ```cpp, ```cmake, ```sh or ```text"))
        elif fence[1] == "cpp":
            block = Block(page, number + 1, lines[number:end], *(said.groups() if said else ()))
            if block.kind == "from":
                if not (re.match(r"docs/examples/.*\.cpp", block.says) and (root / block.says).exists()):
                    faults.append((page, number, f"{block.says} is no program of docs/examples"))
            else:
                if block.kind == "continues":
                    block.before = previous
                    if previous is None:
                        faults.append((page, number, "no block before this one that it could continue"))
                if fault := split(block):
                    faults.append((page, *fault))
            previous = previous if block.kind == "refused" else block
            blocks.append(block)
        said, number = None, end + 1
    return blocks, faults


def is_code(lines, number):
    """Whether an indented line is part of a block: that begins behind an empty line."""
    while number > 0 and lines[number].startswith("    "):
        number -= 1
    return not lines[number].strip()


def place(base, root, page, line):
    return f'#line {line} "{os.path.relpath(root / page, base)}"\n'


class Writer:
    def __init__(self, root, base):
        self.root, self.base = root, base

    def text(self, block, line, code):
        return place(self.base, self.root, block.page, line) + code + "\n"

    def source(self, block, name):
        """What the compiler is given of a block and all that it continues; and the source in which it lies with others, or none."""
        chain = [block]
        while chain[0].before:
            chain.insert(0, chain[0].before)
        items = [(part, *item) for part in chain for item in part.items]
        includes = [item for item in items if item[2].lstrip().startswith("#include")]
        definitions = [item for item in items if item[3] and item not in includes]
        statements = [item for item in items if not item[3]]
        whole = "".join(blank(item[2]) for item in definitions)
        is_program = re.search(r"\bint main\(", whole) is not None
        headers = {header for item in includes for header in re.findall("<(.*)>", item[2])} - {"shoal/shoal.h"}
        shared = "together_torch" if headers == {"torch/torch.h"} else None if includes else "together"
        if is_program or inside_shoal.search(whole) or block.kind == "refused":
            shared = None
        result = ""
        if shared:
            result += f"namespace {name} {{\n"
        else:
            if not any("<shoal/" in item[2] for item in includes):
                result += "#include <shoal/shoal.h>\n"
            result += "".join(self.text(part, line, code) for part, line, code, _ in includes)
        result += "".join(self.text(part, line, code) for part, line, code, _ in definitions)
        if statements:
            result += f"void {name}_statements() {{\n" + \
                      "".join(self.text(part, line, code) for part, line, code, _ in statements) + "}\n"
        return result + ("}\n" if shared else ""), shared


def names_in_text(root, page):
    """(line, name) of what stands as shoal::name within a line of text."""
    fenced = False
    for number, line in enumerate((root / page).read_text().split("\n"), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            for code in re.findall(r"`([^`]+)`", line):
                yield from ((number, name) for name in re.findall(r"(?<![\w:])shoal::(\w+)", code) if name not in layers)


def make(root, out, base):
    writer = Writer(root, base)
    pages = sorted(path.relative_to(root).as_posix() for path in [root / "README.md", *(root / "docs").rglob("*.md")] if path.exists())
    together = {"together": "#include <shoal/shoal.h>\n"}
    sources, refused, counted, named = {}, [], 0, set()
    for page in pages:
        blocks, faults = read(root, page)
        for _, line, text in faults:
            together["together"] += place(base, root, page, line) + f'#error "{text}"\n'
        broken = {line for _, line, _ in faults}
        for block in blocks:
            counted += 1
            if block.kind == "from" or any(block.line <= line < block.line + len(block.code) for line in broken):
                continue
            name = re.sub(r"\W", "_", page.removesuffix(".md")) + f"_{block.line}"
            text, shared = writer.source(block, name)
            if block.kind == "refused":
                refused.append((f"{name}.cpp", f"{page}:{block.line}", block.says))
            if shared:
                together.setdefault(shared, "#include <shoal/shoal.h>\n#include <torch/torch.h>\n")
                together[shared] += text
            else:
                sources[f"{name}.cpp"] = text
        for line, name in names_in_text(root, page):
            if name not in named:
                named.add(name)
                declaration = f"namespace {name} = shoal::{name};" if name in namespaces else f"using shoal::{name};"
                together["together"] += f"namespace names {{\n{place(base, root, page, line)}{declaration}\n}}\n"
    sources |= {f"{name}.cpp": text for name, text in together.items()}
    listed = "".join(f'list(APPEND page_sources "${{CMAKE_CURRENT_LIST_DIR}}/{name}")\n' for name in sorted(sources)
                     if name not in {file for file, _, _ in refused})
    listed += "".join(f'page_refused("{title}" [==[{pattern}]==] "${{CMAKE_CURRENT_LIST_DIR}}/{name}")\n'
                      for name, title, pattern in refused)
    for path in out.glob("*.cpp"):
        if path.name not in sources:
            path.unlink()
    for name, text in {**sources, "blocks.cmake": listed, "count": f"{counted}\n"}.items():
        path = out / name
        if not path.exists() or path.read_text() != text:   # else everything would be compiled anew
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return counted


if __name__ == "__main__":
    root, out = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    sys.exit(0 if make(root, out, sys.argv[3] if len(sys.argv) > 3 else os.getcwd()) else "page_blocks: no block at all")

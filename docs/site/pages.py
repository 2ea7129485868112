"""The Markdown pages as Doxygen is given them. The pages are written for whoever reads them as they lie in the repository; a copy
differs where Doxygen reads Markdown in another way, and leads to the reference where the page names something of it."""

import html
import re
import xml.etree.ElementTree as ElementTree

fence = re.compile(r"^( *)(```+)(\w*)\s*$")
heading = re.compile(r"^(#+) (.*?)\s*$")
inline = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)|(!?)\[((?:[^\[\]`]|`[^`]*`)*)\]\(([^)\s]+)\)")   # a code span, or a link, or a picture
comment = re.compile(r"^<!--.*-->$")   # for checks: where a block comes from, that it goes on
name_of_symbol = re.compile(r"^(?:shoal::)?([A-Za-z_]\w*(?:::[A-Za-z_]\w*)*)(?:<[^()]*>)?(?:\(\))?$")
name_of_header = re.compile(r"^<?(?:shoal/)?((?:ipc|runtime|tensors|workers)/[\w/]+\.h|shoal\.h)>?$")


def slug(title):
    """GitHub's rule for the anchor of a heading, as tests/checks/check_docs.py has it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


class Symbols:
    """Where the reference has what, from Doxygen's tag file."""

    def __init__(self, tag_file):
        self.places = {}
        ambiguous = set()
        for compound in ElementTree.parse(tag_file).getroot():
            kind, name = compound.get("kind"), compound.findtext("name")
            file = compound.findtext("filename")
            file = file if file.endswith(".html") else file + ".html"
            if kind == "file":
                self.places[(compound.findtext("path") + name).partition("shoal/")[2]] = file
                continue
            if kind not in ("class", "struct", "namespace", "concept"):
                continue
            name = name.removeprefix("shoal::")
            if kind != "namespace" and "<" not in name:
                self.places[name] = file
            for member in compound.findall("member"):
                of_class = "" if kind == "namespace" else name + "::"
                place = f"{member.findtext('anchorfile')}#{member.findtext('anchor')}"
                called = of_class + member.findtext("name")
                if called in self.places and called not in ambiguous:
                    ambiguous.add(called)   # overloads: the first one
                    continue
                self.places.setdefault(called, place)

    def place_of(self, code):
        """Of a header's name, of a type (`Queue`, `shoal::Queue<T>`), or of a function that is told by its namespace or class."""
        if header := name_of_header.match(code):
            return self.places.get(header[1])
        symbol = name_of_symbol.match(code)
        if symbol is None or ("::" not in code and not symbol[1][0].isupper()):
            return None
        return self.places.get(symbol[1])


class Pages:
    def __init__(self, root, symbols):
        self.root, self.symbols = root, symbols
        self.ids = {"README.md": "index"}   # where a file of the repository is in the site
        self.titles = {}

    def add(self, path):
        page = path.removeprefix("docs/").removesuffix(".md").replace("/", "-")
        self.ids.setdefault(path, page)
        text = (self.root / path).read_text()
        self.titles[path] = heading.match(text.split("\n", 1)[0])[2]

    def add_program(self, path):
        self.ids[path] = "program-" + re.sub(r"\W", "-", path.removeprefix("docs/examples/"))
        self.titles[path] = path.rpartition("/")[2]

    def short_title(self, path):
        return self.titles[path].partition(":")[0].replace("`", "")

    def url(self, page, target):
        """Where a link of a page leads to in the site; None where that is not in it."""
        if re.match(r"[a-z]+:", target):
            return target
        name, _, anchor = target.partition("#")
        path = page if name == "" else str((self.root / page).parent.joinpath(name).resolve().relative_to(self.root))
        file = self.ids.get(path)
        if file is None:
            return None
        return f"{file}.html" + (f"#{anchor if file == 'index' else file + '-' + anchor}" if anchor else "")

    def page_named_by(self, page, text, target):
        """The page that a link names by its file's name, which in the site is its title."""
        name = target.partition("#")[0]
        if not name.endswith(".md") or text not in (name, name.rpartition("/")[2]):
            return None
        return str((self.root / page).parent.joinpath(name).resolve().relative_to(self.root))

    def text(self, page, line):
        """A line outside of code."""
        def replaced(found):
            if found[2] is not None:
                if "`" in found[2]:   # Doxygen knows no such span
                    return f"@htmlonly<code>{html.escape(found[2].strip()).replace('`', '&#96;')}</code>@endhtmlonly"
                is_bold = line[:found.start()].count("**") % 2   # Doxygen does not end it behind a link
                place = None if is_bold else self.symbols.place_of(found[2].strip())
                return f"[{found[0]}]({place})" if place else found[0]
            target = self.url(page, found[5])
            if path := self.page_named_by(page, found[4], found[5]):
                return f"[{self.short_title(path)}]({target})"
            if found[3]:   # a picture stands in the page itself, so that it follows its colours
                return svg((self.root / page).parent / found[5], found[4])
            return f"[{found[4]}]({target})" if target else found[4]

        result, at = "", 0
        for found in inline.finditer(line):
            result += escaped(line[at:found.start()]) + replaced(found)
            at = found.end()
        return result + escaped(line[at:])

    def converted(self, page):
        """The page for Doxygen."""
        this = self.ids[page]
        lines, in_fence, sections = [], None, 0
        text = (self.root / page).read_text()
        has_contents = len(re.findall(r"^## ", text, re.MULTILINE)) >= 3
        for line in joined(text.splitlines()):
            if mark := fence.match(line):
                in_fence = None if in_fence else mark[2]
                lines.append(f"{mark[1]}```{{.{mark[3]}}}" if in_fence and mark[3] else f"{mark[1]}```")
            elif in_fence:
                lines.append(line)
            elif comment.match(line):
                pass
            elif title := heading.match(line):
                if title[1] == "#":
                    lines.append(f"# {self.text(page, title[2])} {{#{'mainpage' if this == 'index' else this}}}")
                    lines += ["", "[TOC]", ""] if has_contents and this != "index" else []
                elif this == "index":   # or they would stand in the tree before all pages
                    lines.append(f"<h2 id=\"{slug(title[2])}\">{html.escape(title[2])}</h2>")
                else:
                    lines.append(f"{title[1]} {plain(title[2])} {{#{this}-{slug(title[2])}}}")
                    sections += 1
            elif re.match(r"^\|[-:| ]+$", line):
                lines.append(line)
            elif line.startswith("|"):   # Doxygen takes no empty heading of a column
                lines.append(self.text(page, re.sub(r"\|(?= +\|)", "| &nbsp;", line)))
            elif line.startswith("    ") and not re.match(r" *([*-]|\d+\.) ", line) and in_indented(lines):
                lines.append(Code(line))
            else:
                lines.append(self.text(page, line))
        return "\n".join(fenced(lines)) + "\n"

    def sections(self, page):
        """What a search through the page's text looks at: a section each, as it is read."""
        found = [{"page": self.short_title(page), "title": "", "url": self.url(page, "") or "", "text": []}]
        in_fence = False
        for line in (self.root / page).read_text().splitlines():
            title = heading.match(line)
            if fence.match(line):
                in_fence = not in_fence
            elif title and not in_fence and title[1] == "#":
                continue
            elif title and not in_fence:
                found.append({**found[0], "title": title[2].replace("`", ""), "url": self.url(page, "#" + slug(title[2])), "text": []})
            elif not comment.match(line) and not re.match(r"^\|[-:| ]+$", line):
                said = re.sub(r"!?\[((?:[^\[\]`]|`[^`]*`)*)\]\([^)\s]+\)", r"\1", line) if not in_fence else line
                found[-1]["text"].append(re.sub(r"\s+", " ", said.replace("`", "").replace("**", "").strip("|* ")))
        return [{**section, "text": " ".join(filter(None, section["text"]))} for section in found]

    def program(self, path):
        """A program as a page: what its first comment says, then all of it."""
        source = (self.root / path).read_text()
        language = "cpp" if path.endswith((".cpp", ".h")) else ""
        return (f"# {self.titles[path]} {{#{self.ids[path]}}}\n\n`{path}`\n\n"
                f"```{{.{language}}}\n{source.rstrip()}\n```\n")


class Code(str):
    """A line of code that is told by four spaces in front of it."""


def fenced(lines):
    """The same with marks around such code: in it, newer Doxygens look for Markdown."""
    for number, line in enumerate(lines):
        before = next((one for one in reversed(lines[:number]) if one.strip()), "")
        after = next((one for one in lines[number + 1:] if one.strip()), "")
        if isinstance(line, Code) and not isinstance(before, Code):
            yield "```"
        yield line[4:] if isinstance(line, Code) else line
        if isinstance(line, Code) and not isinstance(after, Code):
            yield "```"


def in_indented(lines):
    """Whether a line of four spaces after these is code, and not the rest of a list's item."""
    for line in reversed(lines):
        if line.startswith("    "):
            continue
        if line.strip() == "":
            before = next((one for one in reversed(lines) if one.strip() and not one.startswith("    ")), "")
            return not re.match(r" *([*-]|\d+\.) ", before)
        return False
    return True


def joined(lines):
    """Paragraphs and items on one line each: a code span or a link may go over the end of a line, and Doxygen reads a line that
    begins with a number or a sign as something else."""
    result, in_fence = [], False
    starts = re.compile(r"^\s*([*+-] |\d+\. |#|\||<|```|$)|^    ")
    for line in lines:
        if fence.match(line):
            in_fence = not in_fence
            result.append(line)
        elif (not in_fence and result and result[-1].strip() and not starts.match(line)
              and not re.match(r"^(\||#|<!--| *```|    \S)", result[-1])):
            result[-1] += " " + line.strip()
        elif (not in_fence and result and line.startswith("  ") and re.match(r"^ *([*+-]|\d+\.) ", result[-1])
              and line.strip() and not re.match(r"\s*([*+-] |\d+\. |```|\|)", line)):
            result[-1] += " " + line.strip()   # the rest of a list's item
        else:
            result.append(line)
    return result


def escaped(text):
    """What Doxygen would take for a command, for HTML, or for a dash."""
    text = re.sub(r"[@\\](?=\w)", r"\\\g<0>", text)
    text = re.sub(r"<(?=[\w/!])", r"\\<", text)
    return text.replace("--", "\\--")


def plain(title):
    """A heading is no place for links, nor, for Doxygen, for code."""
    return escaped(title.replace("`", ""))


def svg(path, caption):
    picture = re.sub(r"<\?xml.*?\?>\s*", "", path.read_text())
    return (f"\n@htmlonly[block]\n<figure class=\"plot\">\n{picture}\n<figcaption>{html.escape(caption)}</figcaption>\n</figure>\n"
            "@endhtmlonly\n")


search_page = """# Search the guides {#search-guides}

Sections that have all of the words. Names of the reference are found by the box at the top, while you type.

@htmlonly[block]
<input id="guide-search" type="search" aria-label="words to look for"/>
<div id="guide-results"></div>
<script type="text/javascript" src="guides.js"></script>
@endhtmlonly
"""

"""Makes the site: the pages as guides, in the order of README, and the reference from the public headers. `build.py FOLDER`
writes FOLDER/index.html and what it needs, which is nothing outside of FOLDER, and fails where Doxygen has something to say.

Doxygen reads neither the pages nor the comments as people here write them: its Markdown is another one, and what users name lies
partly in internal headers. So it is given copies, and nothing in the repository is written for it. What its search does not do,
finding words in the text of guides, site.js does."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

import headers
import pages
import reference

root = pathlib.Path(__file__).resolve().parents[2]
here = root / "docs/site"
theme = pathlib.Path("/usr/share/doxygen-awesome-css")
scripts = ["doxygen-awesome-darkmode-toggle.js", "doxygen-awesome-fragment-copy-button.js", "doxygen-awesome-paragraph-link.js",
           "doxygen-awesome-interactive-toc.js"]
styles = ["doxygen-awesome.css", "doxygen-awesome-sidebar-only.css", "doxygen-awesome-sidebar-only-darkmode-toggle.css"]


def reading_order():
    """README's section "Where to read on": pairs of a title (For users) and its lines, each a label, if it has one, and pages."""
    section = re.search(r"^## Where to read on\n(.*?)(?=^## )", (root / "README.md").read_text(), re.MULTILINE | re.DOTALL)[1]
    parts = []
    for paragraph in re.split(r"\n\s*\n", section.strip()):
        items = re.split(r"^\* ", paragraph, flags=re.MULTILINE)
        if len(items) == 1:
            parts.append((paragraph.split(",")[0].strip(" :"), []))
        for item in items[1:]:
            label = re.match(r"([A-Z][\w ]*): \[", item)
            found = [page for page in re.findall(r"\]\((docs/[\w-]+\.md)\)", item)]
            if found:
                parts[-1][1].append((label[1] if label else None, found))
    return [part for part in parts if part[1]]


def programs():
    names = subprocess.run(["git", "-C", str(root), "ls-files", "--", "docs/examples"], check=True, capture_output=True, text=True)
    return [name for name in names.stdout.split() if name.endswith((".cpp", ".h"))]


def layout(guide, target):
    """What stands in the tree at the side."""
    tree = ElementTree.fromstring(subprocess.run(["doxygen", "-l", "-"], check=True, capture_output=True, text=True).stdout)
    index = tree.find("navindex")
    for tab in list(index):
        index.remove(tab)

    def tab(parent, kind, title, url=""):
        return ElementTree.SubElement(parent, "tab", type=kind, visible="yes", title=title, **({"url": url} if url else {}))

    def page(parent, path):
        tab(parent, "user", guide.short_title(path), f"@ref {guide.ids[path]}")

    tab(index, "mainpage", "shoal")
    tab(index, "user", "Search the guides", "@ref search-guides")
    for title, lines in reading_order():
        group = tab(index, "usergroup", title, "[none]")
        for label, paths in lines:
            inner = tab(group, "usergroup", label, "[none]") if label else group
            for path in paths:
                page(inner, path)
    group = tab(index, "usergroup", "Whole programs", "[none]")
    folders = {}
    for path in sorted(programs(), key=lambda name: (name.count("/"), name)):
        folder = path.removeprefix("docs/examples/").rpartition("/")[0]
        if folder not in folders:
            folders[folder] = tab(group, "usergroup", folder, "[none]") if folder else group
        page(folders[folder], path)
    group = tab(index, "usergroup", "API reference", "[none]")
    tab(group, "user", "Headers, in a line each", "@ref headers")
    tab(group, "classlist", "Types")
    tab(group, "concepts", "Concepts")
    tab(group, "user", "Functions, and all of namespace shoal", "namespaceshoal.html")
    tab(group, "classmembers", "Members from A to Z")
    tab(group, "filelist", "Header files")
    declared = tree.find("namespace/memberdecl")   # types are listed by themselves: functions come first here
    for number, name in enumerate(("functions", "enums", "typedefs")):
        part = declared.find(name)
        declared.remove(part)
        declared.insert(number, part)
    ElementTree.ElementTree(tree).write(target)


def header(target):
    """Doxygen's own head of a page, with the theme's scripts."""
    folder = target.parent
    subprocess.run(["doxygen", "-w", "html", str(target), str(folder / "footer.html"), str(folder / "unused.css")], check=True,
                   capture_output=True)
    tags = [f'<script type="text/javascript" src="$relpath^{name}"></script>' for name in scripts if (theme / name).exists()]
    tags.append('<script type="text/javascript" src="$relpath^site.js"></script>')
    text = target.read_text()
    assert "</head>" in text
    target.write_text(text.replace("</head>", "\n".join(tags) + "\n</head>"))


def dead_links(site, guide):
    """Links of guides and of the lists of the reference that lead nowhere in the site."""
    anchors = {path.name: set(re.findall(r'(?:id|name)="([^"]+)"', path.read_text())) for path in site.glob("*.html")}
    for page in [*(f"{one}.html" for path, one in guide.ids.items() if path in guide.titles), "annotated.html", "concepts.html"]:
        for target in re.findall(r'href="([^":]+\.html[^":]*)"', (site / page).read_text()):
            file, _, anchor = target.partition("#")
            if file not in anchors or (anchor and anchor not in anchors[file]):
                yield f"{page}: leads to {target}, which is not there"


def fail(faults):
    for fault in faults:
        print(f"docs: {fault}")
    print(f"docs: {len(faults)} faults: no site")
    sys.exit(1)


def stop_at(faults):
    if faults:
        fail(faults)


def read_headers(folder):
    """Puts the headers' copies into `folder`, and lets Doxygen read them once, for their faults and for what there is. Returns the
    settings that are the same for the site, and what the copies' lines are of."""
    origins = headers.stage(root, folder / "in")
    below = [str(folder / "in")]
    common = {"INPUT": [*below, str(here / "namespaces.dox")], "STRIP_FROM_PATH": below, "STRIP_FROM_INC_PATH": below,
              "EXCLUDE_SYMBOLS": reference.hidden, "OUTPUT_DIRECTORY": str(folder)}
    # Twice, since it has nothing to say of what it is told to hide.
    said = reference.run({**common, "GENERATE_HTML": "YES", "HTML_OUTPUT": "first", "SEARCHENGINE": "NO", "HIDE_UNDOC_MEMBERS": "YES",
                          "GENERATE_TAGFILE": str(folder / "tags")})
    said += reference.run({**common, "GENERATE_XML": "YES", "XML_OUTPUT": "xml", "XML_PROGRAMLISTING": "NO"})
    stop_at(reference.faults(said, origins) + list(reference.silent_concepts(folder / "xml", origins)))
    return common, origins


def write_pages(folder, origins):
    """Puts the pages' copies, and what is searched, into `folder`."""
    guide = pages.Pages(root, pages.Symbols(folder / "tags"))
    guide.add("README.md")
    for _, lines in reading_order():
        for _, paths in lines:
            for path in paths:
                guide.add(path)
    for path in programs():
        guide.add_program(path)
    for folder_of_programs in ("docs/examples", "docs/examples/recipes"):
        guide.ids[folder_of_programs] = guide.ids["docs/recipes.md"]
    (folder / "pages").mkdir()
    for path in guide.titles:
        copy = folder / "pages" / f"{guide.ids[path]}.md"
        copy.write_text(guide.converted(path) if path.endswith(".md") else guide.program(path))
        origins[str(copy)] = path
    (folder / "pages/search-guides.md").write_text(pages.search_page)
    sections = [section for path in guide.titles if path.endswith(".md") for section in guide.sections(path)]
    (folder / "guides.js").write_text(f"searchGuides({json.dumps(sections)})\n")
    return guide


def main(output):
    if shutil.which("doxygen") is None or not theme.exists():
        fail(["doxygen and doxygen-awesome-css have to be installed"])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        common, origins = read_headers(folder)
        guide = write_pages(folder, origins)
        layout(guide, folder / "layout.xml")
        header(folder / "header.html")
        settings = {
            "INPUT": [*common["INPUT"], str(folder / "pages")],
            "USE_MDFILE_AS_MAINPAGE": [str(folder / "pages/index.md")],
            "LAYOUT_FILE": [str(folder / "layout.xml")],
            "GENERATE_HTML": "YES",
            "HTML_HEADER": [str(folder / "header.html")],
            "HTML_EXTRA_STYLESHEET": [*(str(theme / name) for name in styles), str(here / "site.css")],
            "HTML_EXTRA_FILES": [*(str(theme / name) for name in scripts if (theme / name).exists()), str(here / "site.js"),
                                 str(folder / "guides.js")],
            "HIDE_UNDOC_MEMBERS": "YES",
            "WARN_IF_UNDOCUMENTED": "NO",   # that was seen to
        }
        if reference.version() >= (1, 9, 5):
            settings["HTML_COLORSTYLE"] = "LIGHT"   # the theme's colours, and not Doxygen's own dark ones
        said = reference.run({**common, **settings})
        stop_at(reference.faults(said, origins) + list(dead_links(folder / "html", guide)))
        shutil.rmtree(output, ignore_errors=True)
        shutil.copytree(folder / "html", output)
    print(f"docs: {len(guide.titles)} guides and programs, {len(list(headers.public_headers(root)))} headers: "
          f"{len(list(output.glob('*.html')))} pages, {output / 'index.html'}")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))

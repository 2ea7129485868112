"""A header is behind those alone that it includes in any case, and no source is there that another could do without."""

import pathlib
import subprocess
import sys
import tempfile

texts = {
    "a.h": "", "b.h": "#include <shoal/a.h>\n", "c.h": "#include <string>\n#include <shoal/b.h>\n",   # one chain
    "e.h": "#include <shoal/between.h>\n", "between.h": "#include <shoal/f.h>\n", "f.h": "",        # by way of one not asked for
    "g.h": "", "h.h": "#include <shoal/g.h>\n", "i.h": "#include <shoal/g.h>\n#include <shoal/h.h>\n",
    "round.h": "#include <shoal/about.h>\n", "about.h": "#include <shoal/round.h>\n",              # neither is first
}
asked = [name for name in texts if name != "between.h"]
with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    (folder / "tree/shoal").mkdir(parents=True)
    for name, text in texts.items():
        (folder / "tree/shoal" / name).write_text("#pragma once\n" + text)
    script = pathlib.Path(__file__).resolve().parent / "chains.py"
    printed = subprocess.run([sys.executable, script, folder / "tree", folder / "made", *(f"shoal/{name}" for name in asked)],
                             check=True, capture_output=True, text=True).stdout
    source_of = dict(line.split(" ") for line in printed.splitlines())
    assert sorted(source_of) == sorted(f"shoal/{name}" for name in asked), printed
    made = sorted(sorted(header for header in source_of if source_of[header] == source) for source in set(source_of.values()))
    named = [[header[len("shoal/"):] for header in chain] for chain in made]
    assert named == [["a.h", "b.h", "c.h"], ["about.h"], ["e.h", "f.h"], ["g.h", "h.h", "i.h"], ["round.h"]], named
    text = pathlib.Path(source_of["shoal/i.h"]).read_text()
    lines = [line.split("  //")[0] for line in text.splitlines()]
    assert lines == 2 * [f"#include <shoal/{name}.h>" for name in "ghi"], text
print("headers: chains are as they should be")

"""The API reference is whole: every public member in a public header says what it is, and Doxygen can read it.

Where Doxygen is not installed nothing is checked, and that is said; `./dev check` installs it where it can.
"""

import pathlib
import shutil
import sys
import tempfile

from repository import finish, root

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "docs/site"))
import headers  # noqa: E402  (its folder comes first)
import reference  # noqa: E402

if shutil.which("doxygen") is None:
    print("reference: doxygen is not installed: not checked")
    sys.exit(0)

with tempfile.TemporaryDirectory() as folder:
    target = pathlib.Path(folder)
    try:
        origins = headers.stage(root, target / "in")
    except FileNotFoundError as missing:
        finish("reference", "0 headers", [f"no {missing.filename}"])
    said = reference.run({"INPUT": [folder + "/in"], "STRIP_FROM_PATH": [folder + "/in"], "OUTPUT_DIRECTORY": folder,
                          "GENERATE_XML": "YES", "XML_PROGRAMLISTING": "NO", "EXCLUDE_SYMBOLS": reference.hidden})
    finish("reference", f"{len(origins)} headers",
           reference.faults(said, origins) + list(reference.silent_concepts(folder + "/xml", origins)))

"""tensors -> ipc <- runtime, workers -> all three: nothing includes upwards, and libtorch is in tensors and workers alone.
Every header may be included twice."""

import re

from repository import finish, root
from rooms import may_include, sources

without_torch = {"ipc", "runtime"}
torch_folders = ("torch/", "ATen/", "c10/", "caffe2/")
include = re.compile(r'^\s*#\s*include\s*(?:<([^>]+)>|"([^"]+)")', re.MULTILINE)

faults = []
includes = 0
for name in sources():
    layer = name.split("/")[0]
    text = (root / name).read_text()
    if name.endswith(".h") and "\n#pragma once\n" not in "\n" + text:
        faults.append(f"{name}: has no #pragma once")
    for match in include.finditer(text):
        includes += 1
        system, quoted = match.groups()
        if quoted is not None:
            faults.append(f'{name}: #include "{quoted}": write <shoal/FOLDER/name.h>, or <shoal/internal/FOLDER/name.h>')
            continue
        if system == "shoal/shoal.h":
            faults.append(f"{name}: <shoal/shoal.h> is for users: include what is needed")
        elif system.startswith("shoal/") and system.removeprefix("shoal/").removeprefix("internal/").split("/")[0] not in may_include[layer]:
            if name != "workers/shoal.h":
                faults.append(f"{name}: {layer} may not include <{system}>")
        elif system.startswith(torch_folders) and layer in without_torch:
            faults.append(f"{name}: {layer} may not know libtorch: <{system}>")
finish("layering", f"{includes} includes", faults)

#!/usr/bin/env python3
"""man_pages.py SHOAL FOLDER: man pages of the program SHOAL and its subcommands, made from what their --help says."""
import os
import re
import subprocess
import sys

program, folder = sys.argv[1], sys.argv[2]


def asked(*words):
    return subprocess.run([program, *words], check=True, capture_output=True, text=True).stdout


def escaped(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def subcommands(text):
    listed = re.search(r"^Subcommands:\n((?:  .*\n?|\n(?=  ))+)", text, flags=re.M | re.I)
    return re.findall(r"^  (\S+)", listed.group(1), flags=re.M) if listed else []


def write(words, text):
    name = "-".join(words)
    about, _, rest = text.strip().partition("\n")
    about = about.strip().rstrip(".")
    version = asked("--version").split()[-1]
    page = [f'.TH {name.upper()} 1 "" "shoal {version}" "User Commands"', ".SH NAME",
            f"{escaped(name)} \\- {escaped(about[:1].lower() + about[1:])}"]
    for line in rest.splitlines():
        heading = re.match(r"^([A-Z][A-Za-z \[\]]*):\s*(.*)$", line)
        if heading:
            page += [f".SH {heading.group(1).upper()}", ".nf"] + ([escaped(heading.group(2))] if heading.group(2) else [])
        else:
            page.append(escaped(line))
    page.append(".fi")
    with open(os.path.join(folder, name + ".1"), "w", encoding="utf-8") as file:
        file.write("\n".join(page) + "\n")


def write_all(words):
    text = asked(*words[1:], "--help")
    write(words, text)
    for each in subcommands(text):
        write_all([*words, each])


os.makedirs(folder, exist_ok=True)
write_all(["shoal"])

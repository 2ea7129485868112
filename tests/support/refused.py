#!/usr/bin/env python3
"""refused.py SOURCE NUMBER COMPILER ARG...: what stands behind `#if REFUSED == NUMBER` in SOURCE does not compile, each part for
its own reason.

A comment `// refused: PATTERN` begins a part, which ends where the next begins. Of what the compiler says, an error belongs to the
parts whose lines it names, by itself or as the place that instantiates; one that belongs to a part has to match the regular
expression, its lines joined by blanks. A part needs a NUMBER for itself, to which all errors belong, where
* the error names no line of the source: virtual functions and default members of classes are instantiated at the end;
* another one is refused by the same words of the same template with the same arguments, which the compiler says once.
"""
import pathlib
import re
import subprocess
import sys


def errors_of(output):
    """Each error with the lines around it that explain it: gcc says before it where it came from, clang after it."""
    before = re.compile(r"In file included from|\s+from |.*: In |.*:\s+(required|recursively required|in .constexpr. expansion)")
    errors, context = [], []
    for line in output.splitlines():
        if re.search(r": (fatal )?error: ", line):
            errors.append(context + [line])
            context = []
        elif before.match(line) and ": note: " not in line:
            context.append(line)
        elif errors and not context:
            errors[-1].append(line)
    return errors


def parts_of(source, number):
    """(the first line, the last line, PATTERN) of each part behind `#if REFUSED == number`; lines count from 1."""
    parts, here = [], False
    for count, line in enumerate(pathlib.Path(source).read_text().splitlines(), 1):
        refused = re.match(r"\s*// refused: (.+)", line)
        ends = re.match(r"#(if|elif|endif)", line)
        if here and (refused or ends) and parts and parts[-1][1] is None:
            parts[-1][1] = count - 1
        if ends:
            here = re.match(rf"#(el)?if REFUSED == {number}$", line) is not None
        if here and refused:
            parts.append([count, None, refused[1]])
    return parts


def faults(source, parts, output):
    """What is wrong, a text each: the `parts` that compiled, and those that were refused in other words."""
    named = re.compile(re.escape(str(source)) + r":(\d+)")
    errors, lines = [], set()
    for error in errors_of(output):
        text = " ".join(error)
        # Of several errors in one instantiation the compilers say once where it came from.
        lines = {int(line) for line in named.findall(text) if parts and int(line) > parts[0][0]} or lines
        errors.append((text, lines))
    found = []
    for first, last, pattern in parts:
        own = [text for text, lines in errors if len(parts) == 1 or any(first <= line <= last for line in lines)]
        if not own:
            found.append(f"{source}:{first}: compiled, but should have been refused: {pattern}")
        elif not any(re.search(pattern, text) for text in own):
            found.append(f"{source}:{first}: refused as it should be, but without a word of '{pattern}':\n" + "\n".join(own))
    return found


def main():
    source, number, *command = sys.argv[1:]
    parts = parts_of(source, number)
    command += ["-fsyntax-only", "-fdiagnostics-color=never", f"-DREFUSED={number}", source]
    found = faults(source, parts, subprocess.run(command, capture_output=True, text=True).stderr)
    print(*found, f"{source}: {len(parts) - len(found)} of {len(parts)} parts refused as they should be", sep="\n")
    return 1 if found or not parts else 0


if __name__ == "__main__":
    sys.exit(main())

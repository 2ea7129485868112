#!/usr/bin/env python3
"""refused.py SOURCE NUMBER COMPILER ARG...: what stands behind `#if REFUSED == NUMBER` in SOURCE does not compile, each part for
its own reason.

A comment `// refused: PATTERN` begins a part, which ends where the next begins: one statement, since one refused suffices. Of what
the compiler says, an error belongs to the parts whose lines it names, by itself or as the place that instantiates, and otherwise to
those of the error before; one of a part's errors has to match the regular expression, its lines joined by blanks. A part needs a
NUMBER for itself, to which all errors belong, where
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
        elif ": note: " in line and errors:   # with what leads to it
            errors[-1] += context + [line]
            context = []
        elif before.match(line):
            context.append(line)
        elif errors and not context:
            errors[-1].append(line)
    return errors


def parts_of(source, number):
    """(the first line, the last line, PATTERN) of each part behind `#if REFUSED == number`; lines count from 1. Nothing behind such a
    line is in no part."""
    parts, in_region, in_part, here = [], False, False, False
    for count, line in enumerate(pathlib.Path(source).read_text().splitlines(), 1):
        mark, directive = re.match(r"\s*// refused: (.+)", line), re.match(r"\s*#\s*(\w+)", line)
        region = re.match(r"#(?:el)?if REFUSED == (\d+)$", line)
        wrong = ("write #if REFUSED == NUMBER, or #elif" if "REFUSED" in line and not region else
                 "write // refused: PATTERN" if re.search(r"//\W*refused", line, re.IGNORECASE) and not mark else
                 "nothing but #elif and #endif there" if in_region and directive and directive[1] not in ("elif", "endif") else
                 "write // refused: PATTERN above it" if in_region and not in_part and line.strip() and not mark and not directive else
                 "there is no #if REFUSED == NUMBER above it" if mark and not in_region else None)
        if wrong:
            sys.exit(f"{source}:{count}: {wrong}: {line}")
        if (mark or directive) and in_part and here:
            parts[-1][1] = count - 1
        if directive:
            in_region, in_part, here = region is not None, False, region is not None and region[1] == number
        elif mark:
            in_part = True
            if here:
                parts.append([count, None, mark[1]])
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
    command += ["-w", "-fsyntax-only", "-fdiagnostics-color=never", f"-DREFUSED={number}", source]
    found = faults(source, parts, subprocess.run(command, capture_output=True, text=True).stderr)
    print(*found, f"{source}: {len(parts) - len(found)} of {len(parts)} parts refused as they should be", sep="\n")
    return 1 if found or not parts else 0


if __name__ == "__main__":
    sys.exit(main())

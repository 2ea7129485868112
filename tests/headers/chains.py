"""Which headers are compiled alone in one source: chains.py INCLUDE_TREE FOLDER HEADER..., headers as `shoal/ipc/queue.h`.

A header is alone behind others if it includes them in any case: what those bring, it has. So each source is a chain, whose headers
each include the one before, directly or by way of others, and the sources are as few as chains can be. They are written to FOLDER
and named after the last header; printed is a line for each header: the header, its source.
"""

import pathlib
import re
import sys

include = re.compile(r'^\s*#\s*include\s*<(shoal/[^>]+)>', re.MULTILINE)


def included(tree, header, known):
    """All headers that the header includes, directly or by way of others."""
    found, left = set(), [header]
    while left:
        name = left.pop()
        if name not in known:
            path = tree / name
            known[name] = include.findall(path.read_text()) if path.exists() else []
        for other in known[name]:
            if other not in found:
                found.add(other)
                left.append(other)
    return found


def chains(headers, below):
    """A cover by the fewest chains: a maximum matching of headers with those that follow them (Dilworth; Fulkerson)."""
    followers = {one: [other for other in headers if one in below[other] and other not in below[one]] for one in headers}
    before = {}   # a header -> the one before it in its chain

    def has_follower(one, tried):
        for other in followers[one]:
            if other not in tried:
                tried.add(other)
                if other not in before or has_follower(before[other], tried):
                    before[other] = one
                    return True
        return False

    for one in headers:
        has_follower(one, set())
    after = {one: other for other, one in before.items()}
    for first in headers:
        if first not in before:
            chain = [first]
            while chain[-1] in after:
                chain.append(after[chain[-1]])
            yield chain


def main():
    tree, folder, headers = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
    known = {}
    below = {header: included(tree, header, known) for header in headers}
    for chain in chains(headers, below):
        source = folder / f"{chain[-1]}.cpp"
        text = "".join(f"#include <{header}>\n" for header in chain)
        text += "".join(f"#include <{header}>  // NOLINT(readability-duplicate-include): what is checked\n" for header in chain)
        source.parent.mkdir(parents=True, exist_ok=True)
        if not source.exists() or source.read_text() != text:
            source.write_text(text)
        for header in chain:
            print(header, source)


if __name__ == "__main__":
    main()

"""Runs Doxygen, and says what it has to say of the public headers: a member without a word, a comment that it cannot read."""

import pathlib
import re
import subprocess
import xml.etree.ElementTree as ElementTree

here = __file__.rpartition("/")[0]
warning = re.compile(r"^(/[^:]+):(\d+): (?:warning|error): (.*)$")
undocumented = re.compile(r"(?:Member|Compound) (?P<name>.*?)(?: \((?P<kind>\w+)\) of \w+ (?P<owner>.*))? is not documented\.$")

# What may stand there without a word. It is not in the site then.
unsaid = [
    r"~",                                          # destructors
    r"operator==\(.*\) const\b",                   # member by member
    r"(using )?(iterator_concept|iterator|value_type|difference_type|result_type)$",   # what the standard asks of ranges, iterators,
    r"(begin|end|min|max)\(\)",                                                        # and random engines
    r"(output|apply|move)\(const (ImageShape &shape|std::uint8_t \*in)\b",             # what ImageTransform asks of each transform
    r"(using )?Core$",                             # what pools are made of
    r"\w+\(.*\) ?-> ",                             # deduction guides
]
unsaid = re.compile("|".join(f"(?:{pattern})" for pattern in unsaid))

# What is no user's, though it stands in a public header: layouts of shared memory, what handles share, specializations by which
# types take part (their page is docs/codec.md; Collator says it of itself), and what layers of shoal say to each other.
hidden = ["*::detail", "*::detail::*", "*Layout", "*::State", "shoal::ChainDataset<*", "shoal::Codec<*", "shoal::Collator<*",
          "*::Level", "*::Descriptors", "shoal::Kept", "shoal::ReduceKernel", "shoal::GradientReducer", "shoal::RamFiles",
          "shoal::NotEncodable*", "shoal::NotCollatable*",
          "shoal::module_codec", "shoal::module_codec::*", "shoal::hooks", "shoal::hooks::*", "shoal::trace",
          "shoal::trace::*", "shoal::object_collectives", "shoal::object_collectives::*"]


def is_copy_or_move(name, owner):
    """Of a class with a copy or move that is not the compiler's, its comment says what that does."""
    type_name = re.escape(re.sub(r"<.*", "", owner or "").rpartition("::")[2].strip())
    return re.match(rf"(?:operator=|{type_name})\((?:const )?{type_name}(?:<.*>)? ?&", name) is not None


def version():
    said = subprocess.run(["doxygen", "--version"], check=True, capture_output=True, text=True).stdout
    return tuple(int(part) for part in re.findall(r"\d+", said)[:3])


def run(settings):
    """What Doxygen had to say, one line each. `settings`: a map."""
    lines = [f"{key} = " + (" ".join(f'"{one}"' for one in value) if isinstance(value, list) else str(value))
             for key, value in settings.items()]
    command = ["doxygen", "-"]
    text = "\n".join([f"@INCLUDE = {here}/Doxyfile", *lines])
    result = subprocess.run(command, input=text, capture_output=True, text=True)
    said = result.stderr.splitlines()
    if result.returncode != 0 and not said:
        said = [f"doxygen ended with {result.returncode}"]
    return said


def faults(said, origins):
    """Of what Doxygen said, that which has to be mended. `origins`: for the path of each copy, what its lines are of, or the page that
    it is of."""
    found = []
    for line in said:
        parts = warning.match(line)
        if parts is None:
            if line.strip() and not line.startswith((" ", "\t")):
                found.append(line)
            elif line.strip() and found:
                found[-1] += " " + line.strip()   # the rest of the message above
            continue
        path, number, text = parts.groups()
        about = undocumented.match(text)
        if about and (unsaid.match(about["name"]) or is_copy_or_move(about["name"], about["owner"])):
            continue
        origin = origins.get(path, f"{path}:{number}")
        place = origin if isinstance(origin, str) else "{}:{}".format(*origin[int(number) - 1])
        found.append(f"{place}: {text}")
    return sorted(set(found))   # a template is said once an instance


def silent_concepts(xml, origins):
    """Concepts without a word, of which Doxygen says nothing. `xml`: the folder that it wrote."""
    for path in sorted(pathlib.Path(xml).glob("concept*.xml")):
        concept = ElementTree.parse(path).find("compounddef")
        said = [text for part in ("briefdescription", "detaileddescription") for text in concept.find(part).itertext() if text.strip()]
        place = concept.find("location")
        if not said:
            lines = next(lines for copy, lines in origins.items() if copy.endswith("/" + place.get("file")))
            header, line = lines[int(place.get("line")) - 1]
            yield f"{header}:{line}: Concept {concept.findtext('compoundname')} is not documented."

#!/usr/bin/env python3
"""Checks the documentation against the tree: quoted code, links, and paths."""
import os
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
UNTRACKED = {"build", "data", "runs", ".git", ".cache"}  # directories at the root that are no part of the project
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.S | re.M)
QUOTE = re.compile(r"// (\S+/\S+\.\w+): (\S.*)")
LINK = re.compile(r"\]\(([^()\s]+)\)")
PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)+\.(?:h|cpp|cu|py|sh|md|cmake|txt|toml|yaml|sbatch|svg|png))`")


def documents():
    """Every Markdown file of the project, as {path: text}."""
    found = {}
    for directory, subdirectories, names in os.walk(ROOT):
        here = pathlib.Path(directory)
        if here == ROOT:
            subdirectories[:] = [name for name in subdirectories if name not in UNTRACKED]
        for name in names:
            if name.endswith(".md"):
                found[(here / name).relative_to(ROOT).as_posix()] = (here / name).read_text(encoding="utf-8")
    return found


def squeezed(code):
    """The code without comments and white space."""
    return re.sub(r"\s+", "", re.sub(r"//.*", "", code))


def is_quoted_from(quote, source):
    """Whether the parts of the quote between the ellipses occur in the source in this order."""
    place = 0
    for part in squeezed(quote).split("…"):
        place = squeezed(source).find(part, place)
        if place < 0:
            return False
        place += len(part)
    return True


def quote_problems(name, text):
    problems = []
    for language, block in BLOCK.findall(text):
        first, _, code = block.partition("\n")
        quote = QUOTE.fullmatch(first)
        if language != "cpp" or first == "// example":
            continue
        if not quote:
            problems.append(f"{name}: a cpp block begins with '{first}', expected '// FILE: NAME' or '// example'")
        elif not (ROOT / quote[1]).is_file():
            problems.append(f"{name}: quotes {quote[1]}, which does not exist")
        elif not is_quoted_from(code, (ROOT / quote[1]).read_text(encoding="utf-8")):
            problems.append(f"{name}: the quote '{quote[2]}' is not in {quote[1]}")
        elif quote[2].split("::")[-1] not in code:
            problems.append(f"{name}: the quote from {quote[1]} does not show '{quote[2]}'")
    return problems


def anchors(text):
    """The anchors that GitHub gives the headings."""
    titles = re.findall(r"^#+ (.*)$", BLOCK.sub("", text), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def link_problems(name, text):
    problems = []
    for target in LINK.findall(BLOCK.sub("", text)):
        path, _, anchor = target.partition("#")
        file = ROOT / pathlib.PurePosixPath(name).parent / path if path else ROOT / name
        if re.match(r"\w+:", target):
            continue
        if not file.exists():
            problems.append(f"{name}: links to {target}, which does not exist")
        elif anchor and anchor not in anchors(file.read_text(encoding="utf-8")):
            problems.append(f"{name}: links to {target}, and {file.name} has no such heading")
    return problems


def path_problems(name, text):
    """A path counts as one of the repository if its first directory exists at the root or next to the document."""
    problems = []
    for path in PATH.findall(BLOCK.sub("", text)):
        bases = [ROOT, (ROOT / name).parent]
        known = any((base / path.split("/")[0]).is_dir() for base in bases)
        if known and path.split("/")[0] not in UNTRACKED and not any((base / path).exists() for base in bases):
            problems.append(f"{name}: names {path}, which does not exist")
    return problems


def tour_problems(text, limit=25):
    links = LINK.findall(text)
    problems = [f"docs/tour.md: {len(links)} links, at most {limit}"] if len(links) > limit else []
    return problems + [f"docs/tour.md: {link} is no file" for link in links if not (ROOT / "docs" / link).is_file()]


class Documentation(unittest.TestCase):
    maxDiff = None

    def check(self, problems_of):
        self.assertEqual([], [problem for name, text in documents().items() for problem in problems_of(name, text)])

    def test_quotes_match_the_source(self):
        self.check(quote_problems)

    def test_links_lead_to_files(self):
        self.check(link_problems)

    def test_named_paths_exist(self):
        self.check(path_problems)

    def test_the_tour_is_short(self):
        self.assertEqual([], tour_problems(documents()["docs/tour.md"]))


class Checks(unittest.TestCase):
    """Each check finds a planted mistake."""

    def test_finds_a_false_quote(self):
        for code, count in (("auto on(const Stream& stream,\n  F&& f) {  // any comment\n…\n}", 0),
                            ("auto on(const Stream& stream, G&& g) {", 1), ("}  // namespace x\n…\n#pragma", 1)):
            text = f"```cpp\n// kernels/runtime/stream.h: on\n{code}\n```\n"
            self.assertEqual(count, len(quote_problems("a.md", text)), code)
        self.assertEqual(1, len(quote_problems("a.md", "```cpp\n// kernels/no.h: on\nint a;\n```\n")))
        self.assertEqual(1, len(quote_problems("a.md", "```cpp\n// kernels/runtime/stream.h: no\n#pragma once\n```\n")))
        self.assertEqual(1, len(quote_problems("a.md", "```cpp\nint a;\n```\n")))
        self.assertEqual([], quote_problems("a.md", "```cpp\n// example\nint a;\n```\n"))

    def test_finds_a_broken_link(self):
        self.assertEqual(1, len(link_problems("docs/a.md", "[it](../kernels/no.h) and [this](../README.md)")))
        self.assertEqual(1, len(link_problems("docs/a.md", "[it](../README.md#no-such-heading)")))
        self.assertEqual([], link_problems("docs/a.md", "[it](https://example.org/no.h), [this](../README.md#layout)"))

    def test_finds_a_missing_path(self):
        self.assertEqual(1, len(path_problems("docs/a.md", "`kernels/no.h` and `kernels/elementwise.h`")))
        self.assertEqual(1, len(path_problems("kernels/README.md", "`cpu/no.cpp` and `cpu/elementwise.cpp`")))
        self.assertEqual([], path_problems("docs/a.md", "`oneapi/dnnl/dnnl.hpp` `data/a.txt` `build/a.txt`"))

    def test_finds_a_long_tour(self):
        self.assertEqual(1, len(tour_problems("[a](../README.md)\n" * 26)))
        self.assertEqual(1, len(tour_problems("[a](../no.h)")))


if __name__ == "__main__":
    unittest.main()

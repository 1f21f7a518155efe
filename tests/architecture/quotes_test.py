#!/usr/bin/env python3
"""Checks the documentation against the tree: quoted code, links, paths, counts of lines, and the order of terms."""
import os
import pathlib
import re
import subprocess
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


SCRIPT = re.compile(r"(?<![\w./-])((?:apps|bench|cmake|docs|scripts|tests)/[\w./-]+\.(?:py|sh))\b")


def script_problems(name, text):
    """Scripts that a command names anywhere in a document: in a block, in a table or in the text."""
    return [f"{name}: names {path}, which does not exist" for path in SCRIPT.findall(text)
            if not any((base / path).exists() for base in (ROOT, (ROOT / name).parent))]


def lines_in(*paths):
    return sum((ROOT / path).read_text(encoding="utf-8").count("\n") for path in paths)


# The files of an example of docs/own-network.md, if they are more than its program.
EXAMPLE_FILES = {"custom_op": ["custom_op.cpp", "softsign.h"], "vision_transformer": ["vision_transformer.cpp", "vision_transformer.h"]}


def count_problems(name, text):
    """Numbers of lines: "90 lines (`wc -l FILE`)", the table of examples, and those of the README, which are rounded."""
    found = []  # (number, what, the true number, tolerance)
    for number, path in re.findall(r"([\d,]+) lines \(`wc -l ([^`]+)`\)", text):
        found.append((number, path, lines_in(path), 0))
    if re.search(r"^\| example \| lines \| lines of the PyTorch script \|", text, re.M):
        for example, lines, peer in re.findall(r"^\| `(\w+)` \| ([\d,]+) \| ([\d,]*) \|", text, re.M):
            files = EXAMPLE_FILES.get(example, [example + ".cpp"])
            found.append((lines, example, lines_in(*(f"apps/examples/{file}" for file in files)), 0))
            if peer:
                found.append((peer, f"the script of {example}", lines_in(f"bench/python/examples/{example}.py"), 0))
    if match := re.search(r"about ([\d,]+) lines in about ([\d,]+) C\+\+ and CUDA files", text):
        listed = subprocess.run(["git", "ls-files", "kernels", "engine", "comm", "models", "datasets", "apps", "bench"],
                                cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
        sources = [path for path in listed if re.search(r"\.(h|cpp|cu)$", path) and (ROOT / path).is_file()]
        found += [(match[1], "the product", lines_in(*sources), 0.03), (match[2], "files of the product", len(sources), 0.03)]
    if match := re.search(r"through 25 files with about ([\d,]+) lines", text):
        files = re.findall(r"\(\.\./([^)]+)\)", (ROOT / "docs" / "tour.md").read_text(encoding="utf-8"))
        found.append((match[1], "the files of the tour", lines_in(*files), 0.03))
    return [f"{name}: {number} for {what}, expected {true}" for number, what, true, tolerance in found
            if abs(int(number.replace(",", "")) - true) > tolerance * true]


def experiment_problems(text):
    """What docs/batch-norm.md says about its tables: distances between one rank and four, at the intended rate."""
    rows = {kind: [(float(a), float(b)) for a, b in re.findall(rf"^\| {kind} \| ([\d.]+) \| ([\d.]+) \| [\d.]+ \| [\d.]+ \|$", text, re.M)]
            for kind in ("1 rank", "4 ranks, own statistics", "4 ranks, averaged statistics", "4 ranks, common statistics")}

    def distances(*kinds):
        return [round(abs(a - b), 1) for kind in kinds for row, one in zip(rows[kind], rows["1 rank"]) for a, b in zip(row, one)]

    common = distances("4 ranks, common statistics")
    farthest = max(distances("4 ranks, own statistics", "4 ranks, averaged statistics"))
    words = " ".join(text.split())
    return [f"docs/batch-norm.md: expected '{claim}'" for claim in
            (f"they end {min(common)} to {max(common)} points apart", f"each end within {farthest} points of one rank")
            if claim not in words]


# Terms that a reader of the chapters does not bring along.
TERMS = ("all-gather", "all-reduce", "bucket", "collective", "compute stream", "CUDA graph", "GEMM", "grid", "loss scale", "mantissa",
         "micro-batch", "rank", "reduce-scatter", "schedule", "side stream", "stream", "tensor core", "VJP", "warp", "watchdog", "world size")


def chapters():
    """The chapters in reading order, as docs/README.md lists them."""
    order = (ROOT / "docs" / "README.md").read_text(encoding="utf-8").partition("Guides and references")[0].partition("| chapter |")[2]
    return {f"docs/{name}": (ROOT / "docs" / name).read_text(encoding="utf-8") for name in re.findall(r"\]\(([\w-]+\.md)\)", order)}


def term_problems(texts, terms=TERMS):
    """A term's first paragraph, in reading order, has it in italics, in parentheses, or with a link to another chapter."""
    problems = []
    for term in terms:
        word = rf"\b{re.escape(term)}(?:e?s)?"
        uses = [(name, paragraph) for name, text in texts.items() for paragraph in re.split(r"\n\s*\n|\n(?=\d+\. )", BLOCK.sub("", text))
                if re.search(word, " ".join(re.sub(r"`[^`]*`|\]\([^)]*\)", "", paragraph).split()), re.I)]
        if not uses:
            continue
        name, paragraph = uses[0]
        words = " ".join(paragraph.split())
        if not re.search(rf"\*[^*]*{word}[^*]*\*|\({word}\)|{word} \(", words, re.I):
            problems.append(f"{name}: '{term}' is used before a definition (in italics, or in parentheses): {words[:90]}")
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

    def test_scripts_of_commands_exist(self):
        self.check(script_problems)

    def test_counts_are_those_of_the_files(self):
        self.check(count_problems)

    def test_the_experiment_is_described_as_measured(self):
        self.assertEqual([], experiment_problems(documents()["docs/batch-norm.md"]))

    def test_chapters_define_their_terms(self):
        self.assertEqual([], term_problems(chapters()))


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

    def test_finds_a_missing_script(self):
        text = "| goal | `python3 bench/no.py --x` |\n```sh\nscripts/no.sh\nscripts/test.sh\n```\n"
        self.assertEqual(2, len(script_problems("docs/a.md", text)))
        self.assertEqual([], script_problems("docs/a.md", "`tests/bench/compare_test.py`, `build/bench/no.py`"))

    def test_finds_a_false_count(self):
        self.assertEqual(1, len(count_problems("a.md", "The program has 85 lines (`wc -l apps/examples/first_network.cpp`).")))
        table = "| example | lines | lines of the PyTorch script |\n|---|---|---|\n| `vision_transformer` | 3 | 4 |\n"
        self.assertEqual(2, len(count_problems("a.md", table)))
        self.assertEqual(2, len(count_problems("a.md", "about 7 lines in about 8 C++ and CUDA files")))
        self.assertEqual(1, len(count_problems("a.md", "through 25 files with about 9 lines")))

    def test_finds_a_false_distance(self):
        text = (ROOT / "docs" / "batch-norm.md").read_text(encoding="utf-8")
        self.assertEqual(1, len(experiment_problems(text.replace("0.3 to 4.0", "0.7 to 4.0"))))
        self.assertEqual(1, len(experiment_problems(text.replace("within 2.2 points", "within two points"))))

    def test_finds_a_term_before_its_definition(self):
        early = {"docs/a.md": "The iterations are GEMMs.", "docs/b.md": "Matrix multiplications (GEMM) use cuBLASLt."}
        self.assertEqual(1, len(term_problems(early, ["GEMM", "warp"])))
        self.assertEqual([], term_problems({"docs/b.md": early["docs/b.md"], "docs/a.md": early["docs/a.md"]}, ["GEMM"]))
        self.assertEqual([], term_problems({"docs/a.md": "*Warps* are groups of threads.\n\nA warp waits."}, ["warp"]))

    def test_finds_a_long_tour(self):
        self.assertEqual(1, len(tour_problems("[a](../README.md)\n" * 26)))
        self.assertEqual(1, len(tour_problems("[a](../no.h)")))


if __name__ == "__main__":
    unittest.main()

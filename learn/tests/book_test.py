#!/usr/bin/env python3
"""Checks the book against its data and the tree. tests/architecture/quotes_test.py checks its quotes, links and paths, as
those of all Markdown files; learn/book/record.py --verify runs its programs and commands."""
import ast
import importlib.util
import json
import operator
import pathlib
import re
import sys
import tomllib
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BOOK = ROOT / "learn" / "book"
sys.path[:0] = [str(ROOT / "tests" / "architecture"), str(BOOK / "figures"), str(BOOK)]
import draw  # noqa: E402
import record  # noqa: E402
from quotes_test import BLOCK, QUOTE, term_problems  # noqa: E402

MAX_CODE_LINES, MAX_WORDS = 25, 3300  # a printed page has about 330 words, code included
COMMENT = re.compile(r"<!-- numbers: (.*?) -->", re.S)
NUMBER = re.compile(r"(?<![\w.,])\d+(?:,\d{3})*(?:\.\d+)?(?![\w]|[.,]\d)")


def chapters():
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in sorted(BOOK.glob("[0-9]*.md"))}


def exercises():
    """The number of the chapter of each exercise."""
    return {path.parent.name: tomllib.loads(path.read_text(encoding="utf-8"))["chapter"]
            for path in (ROOT / "learn" / "exercises").glob("*/exercise.toml")}


def prose(text):
    """The text without code, formulas and targets of links."""
    return re.sub(r"`[^`]*`|\$\$.*?\$\$|\$[^$]*\$|\]\([^)]*\)", "", BLOCK.sub("", text), flags=re.S)


def value_of(expression):
    """Computes an expression of numbers, + - * / % ** and brackets."""
    known = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv, ast.Mod: operator.mod, ast.Pow: operator.pow}

    def visit(node):
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            return node.value
        if isinstance(node, ast.BinOp) and type(node.op) in known:
            return known[type(node.op)](visit(node.left), visit(node.right))
        raise ValueError(f"found '{expression}', expected numbers and + - * / % **")

    return visit(ast.parse(expression.strip(), mode="eval").body)


def recorded(source):
    """Returns the value of "calc EXPRESSION", of facts/NAME in data/facts.json, or of RUN/KEY/… in data/counts.json."""
    if source.startswith("calc "):
        return value_of(source.removeprefix("calc "))
    name, *path = source.split("/")
    file = "facts" if name == "facts" else "counts"
    value = json.loads((BOOK / "data" / f"{file}.json").read_text(encoding="utf-8"))
    for part in [*path, "value"] if name == "facts" else [name, *path]:
        value = value[part]
    return value


def entry_problems(block, source, shown):
    """One entry of a comment: the number that the block shows is the value of its source."""
    try:
        true = recorded(source)
        expected = f"{true:,.{len(shown.partition('.')[2])}f}"
    except (KeyError, ValueError, SyntaxError, TypeError) as error:
        return [f"no value for '{source}': {error}"]
    if expected != shown:
        return [f"{shown} for {source}, expected {expected}"]
    if shown not in NUMBER.findall(re.sub("[`$*]", "", COMMENT.sub("", block))):
        return [f"the text above does not have the number {shown} of {source}"]
    return []


def number_problems(name, text):
    """A number of three digits or with a fraction is in the comment below its block, with its source, or it is a constant of
    a file that the chapter quotes. Smaller numbers may be in comments, too."""
    problems = []
    quoted = [QUOTE.match(code)[1] for language, code in BLOCK.findall(text) if language == "cpp"]
    constants = {digits for file in quoted for digits in re.findall(r"\d+", (ROOT / file).read_text(encoding="utf-8"))}
    for block in re.split(r"\n\s*\n|(?<=-->)\n", BLOCK.sub("\n\n", text)):
        entries = [entry.rpartition("=") for comment in COMMENT.findall(block) for entry in comment.split(";")]
        found = {shown.strip() for _, _, shown in entries}
        found |= {digits for source, _, _ in entries if source.strip().startswith("calc ") for digits in NUMBER.findall(source)}
        for source, _, shown in entries:
            problems += [f"{name}: {problem}" for problem in entry_problems(block, source.strip(), shown.strip())]
        for number in NUMBER.findall(prose(COMMENT.sub("", block))):
            plain = number.replace(",", "")
            if (len(plain) >= 3 or "." in plain) and number not in found and plain not in constants and not block.startswith("#"):
                problems.append(f"{name}: {number} has no source: {' '.join(block.split())[:60]}")
    return problems


def size_problems(name, text):
    problems = [f"{name}: a block of {lines} lines, at most {MAX_CODE_LINES}" for language, code in BLOCK.findall(text)
                if language == "cpp" and (lines := len(code.splitlines()) - 1) > MAX_CODE_LINES]
    problems += [f"{name}: a console block omits all output of a command" for language, code in BLOCK.findall(text)
                 if language == "console" and re.search(r"^\$ .*\n…\n(?=\$|\Z)", code, re.M)]
    if (words := len(COMMENT.sub("", text).split())) > MAX_WORDS:
        problems.append(f"{name}: {words} words, at most {MAX_WORDS} (10 pages)")
    if (questions := text.count("**Question.**")) != 1:
        problems.append(f"{name}: {questions} questions, expected 1")
    return problems


def order_problems(texts, terms):
    """A term is in italics at its first use, in the chapter of terms.toml, and only there."""
    problems = term_problems({name: re.sub(r"^#.*$", "", COMMENT.sub("", text), flags=re.M) for name, text in texts.items()}, terms)
    for term, number in terms.items():
        used = [name for name, text in texts.items() if re.search(rf"(?<!\*)\*{re.escape(term)}(?:e?s)?\*(?!\*)", prose(text), re.I)]
        if len(used) != 1 or not pathlib.PurePosixPath(used[0]).name.startswith(f"{number:02}-"):
            problems.append(f"'{term}': defined in {used or 'no chapter'}, expected chapter {number}")
    return problems


def name_problems(name, text, known_exercises, findings):
    """The exercises and the codes of findings that the text names exist."""
    found = re.findall(r"convoy-learn (?:start|check|hint|show|debug) ([a-z]+-\d+)|^:::\{exercise\} (\S+)$|[Ee]xercise ([a-z]+-\d+)", text, re.M)
    problems = [f"{name}: names the exercise {id_}, which does not exist" for ids in found for id_ in ids if id_ and id_ not in known_exercises]
    return problems + [f"{name}: names {code}, which has no page" for code in sorted(set(re.findall(r"\bCE\d{3}\b", text)) - findings)]


def figure_problems(drawn):
    problems = [f"figures/{name}: differs from what figures/draw.py draws" for name, svg in drawn.items()
                if not (BOOK / "figures" / name).is_file() or (BOOK / "figures" / name).read_text(encoding="utf-8") != svg]
    return problems + [f"figures/{path.name}: figures/draw.py does not draw it" for path in (BOOK / "figures").glob("*.svg")
                       if path.name not in drawn]


def formulas():
    """The module that writes formulas. It is tested where Sphinx is not installed, too."""
    for module, member in (("docutils", "nodes"), ("sphinx", "util"), ("sphinx.util", "logging")):
        try:
            importlib.import_module(module)
        except ImportError:
            sys.modules[module] = types.SimpleNamespace(**{member: None})
    spec = importlib.util.spec_from_file_location("book_mathml", BOOK / "_ext" / "mathml.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Book(unittest.TestCase):
    maxDiff = None
    terms = tomllib.loads((BOOK / "terms.toml").read_text(encoding="utf-8"))["terms"]
    findings = {path.stem for directory in ("emulator", "learn") for path in (ROOT / directory / "findings").glob("CE*.md")}

    def check(self, problems_of):
        self.assertEqual([], [problem for name, text in chapters().items() for problem in problems_of(name, text)])

    def test_numbers_are_those_of_their_sources(self):
        self.check(number_problems)

    def test_chapters_are_short(self):
        self.check(size_problems)

    def test_terms_are_defined_before_they_are_used(self):
        self.assertEqual([], order_problems(chapters(), self.terms))

    def test_exercises_and_findings_exist(self):
        self.check(lambda name, text: name_problems(name, text, exercises(), self.findings))

    def test_each_exercise_is_in_its_chapter(self):
        asked = {id_: int(pathlib.PurePosixPath(name).name[:2]) for name, text in chapters().items()
                 for id_ in re.findall(r"^:::\{exercise\} (\S+)$", text, re.M)}
        self.assertEqual(exercises(), asked)

    def test_figures_are_drawn_from_the_data(self):
        self.assertEqual([], figure_problems(draw.drawn()))

    def test_formulas_are_mathml(self):
        to_mathml = formulas().to_mathml
        for text in chapters().values():
            for block, inline in re.findall(r"\$\$(.*?)\$\$|\$([^$]+)\$", re.sub(r"`[^`]*`", "", BLOCK.sub("", text)), re.S):
                self.assertTrue(to_mathml(block or inline, bool(block)).endswith("</math>"))


class Checks(unittest.TestCase):
    """Each check finds a planted mistake."""

    def test_finds_a_false_number(self):
        key = "sum.cu/modulo/shared_loads/wavefronts"
        for text, entry, count in (("It takes 24,320 wavefronts.", f"{key}=24,320", 0), ("It takes 24,321.", f"{key}=24,321", 1),
                                   ("It takes 24,321.", f"{key}=24,320", 2), ("It takes a few.", f"{key}=24,320", 1),
                                   ("It takes 24,320.", "sum.cu/modulo/none=24,320", 1), ("31.26 lanes", "calc 1000 / 32 = 31.26", 1),
                                   ("31.25 lanes", "calc 1000 / 32 = 31.25", 0), ("1,024 threads", "facts/threads_per_block=1,024", 0)):
            self.assertEqual(count, len(number_problems("a.md", f"{text}\n<!-- numbers: {entry} -->\n")), (text, entry))

    def test_finds_a_number_without_a_source(self):
        self.assertEqual(1, len(number_problems("a.md", "It takes 24,320 wavefronts.\n")))
        self.assertEqual(1, len(number_problems("a.md", "It is 1.5 times as fast.\n")))
        self.assertEqual([], number_problems("a.md", "1,000 floats.\n\n```cpp\n// learn/book/programs/kernels/saxpy.cu: saxpy\n…\n```\n"))

    def test_finds_a_long_chapter(self):
        question = "**Question.** Why?\n"
        self.assertEqual([], size_problems("a.md", question))
        self.assertEqual(1, len(size_problems("a.md", question + "```cpp\n// a/b.cu: f\n" + "f();\n" * 26 + "```\n")))
        self.assertEqual(1, len(size_problems("a.md", question + "word " * MAX_WORDS)))
        self.assertEqual(1, len(size_problems("a.md", question * 2)))
        self.assertEqual(1, len(size_problems("a.md", question + "```console\n$ cuemu run a.cu\n…\n```\n")))

    def test_finds_a_term_before_its_definition(self):
        self.assertEqual(1, len(order_problems({"a/00-a.md": "The warp.", "a/08-b.md": "A *warp*."}, {"warp": 8})))
        self.assertEqual(1, len(order_problems({"a/08-b.md": "A *warp*."}, {"warp": 9})))
        self.assertEqual([], order_problems({"a/08-b.md": "A *warp*."}, {"warp": 8}))

    def test_finds_a_missing_exercise(self):
        for text in (":::{exercise} warm-9\n:::", "`convoy-learn check warm-9`", "Exercise warm-9 asks"):
            self.assertEqual(1, len(name_problems("a.md", text, {"warm-1"}, set())), text)
        self.assertEqual(1, len(name_problems("a.md", "CE999", set(), {"CE101"})))

    def test_finds_a_changed_figure(self):
        drawn = draw.drawn()
        name = next(iter(drawn))
        self.assertEqual(1, len(figure_problems({**drawn, name: drawn[name] + " "})))
        del drawn[name]
        self.assertEqual(1, len(figure_problems(drawn)))

    def test_a_figure_needs_the_counts_that_it_shows(self):
        counts = json.loads(draw.COUNTS.read_text(encoding="utf-8"))
        counts["transpose.cu"]["padded"]["shared_loads"]["wavefronts"] += 1
        with self.assertRaisesRegex(ValueError, "banks, padded"):
            draw.banks(counts)

    def test_finds_another_output(self):
        self.assertEqual([("f", "a\n"), ("g 1", "…\nb\n")], record.sessions("$ f\na\n$ g 1\n…\nb\n"))
        for expected, actual, is_equal in (("a\n", "a\n", True), ("a\n", "b\n", False), ("a\n", "a\nb\n", False),
                                           ("…\nb\n", "a\na\nb\n", True), ("…\nb\n", "a\nb\nc\n", False)):
            self.assertEqual(is_equal, record.is_equal(expected, actual), (expected, actual))

    def test_finds_an_unknown_command_in_a_formula(self):
        to_mathml = formulas().to_mathml
        self.assertIn("<mfrac><mi>a</mi><mn>2</mn></mfrac>", to_mathml(r"\frac{a}{2}", False))
        self.assertIn("<msubsup>", to_mathml("x_i^2", True))
        for tex in (r"\nosuch", "{x", "x_"):
            with self.assertRaises(ValueError):
                to_mathml(tex, False)


if __name__ == "__main__":
    unittest.main()

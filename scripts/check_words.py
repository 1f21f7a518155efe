#!/usr/bin/env python3
"""scripts/check_words.py [FILE…]: finds words that this project does not use, and names the ones that it does.

Without arguments it checks every tracked source, script and Markdown file. Prints one line per finding and exits with 1
if there is any. CONTRIBUTING.md has the rules of style that the table below makes checkable.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUFFIXES = {".h", ".cpp", ".cu", ".py", ".sh", ".md", ".cmake", ".txt", ".yml"}
# The table and its test name the words themselves.
EXEMPT = {"scripts/check_words.py", "tests/architecture/words_test.py"}

# (pattern, what to write instead)
WORDS = [
    (r"nobody|somebody|everybody|anybody|whoever|whomever", "the caller, no thread, all ranks, the peer that …"),
    (r"beside(?![-_]mpi)", "next to, compared with, relative to"),
    (r"lies|dwells", "is stored, is"),
    (r"counterparts?", "peer"),
    (r"carriers?", "node leader, backend"),
    (r"farewells?", "shutdown"),
    (r"anew", "again"),
    (r"lent", "borrowed"),
    (r"stood still|fell silent", "is unresponsive, timed out"),
    (r"goes away|went away", "disconnects, exits"),
    (r"half cop(?:y|ies)", "low-precision copy"),
    (r"timed choices?", "algorithm cache, autotune"),
]
# Identifiers, with case.
NAMES = [
    (r"k(?:Most|Least|Fewest)(?:[A-Z]\w*)?", "kMax…, kMin…"),
    (r"(?:most|least|fewest)_\w+", "max_…, min_…"),
    (r"(?:text|name)_of(?:_\w+)?", "to_string, format_…"),
    (r"half_cop(?:y|ies)\w*", "low_precision_copy…"),
    (r"(?!\w*[iI]mage_?[fF]older)(?:\w+_folders?(?:_\w+)?|folders?_\w+|(?!workspace)\w*[a-z]Folders?)", "directory"),
]
RULES = [(re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE), instead) for pattern, instead in WORDS] + [
    (re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])"), instead) for pattern, instead in NAMES]


def problems(name, text):
    """Returns one line per word in `text` that a rule rejects."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        for rule, instead in RULES:
            for match in rule.finditer(line):
                found.append(f"{name}:{number}: '{match.group()}': write {instead}")
    return found


def tracked_files():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout.splitlines()
    return [name for name in listed if pathlib.Path(name).suffix in SUFFIXES and name not in EXEMPT
            and not name.startswith("bench/results/") and (ROOT / name).is_file()]


def main():
    names = sys.argv[1:] or tracked_files()
    found = [line for name in names for line in problems(name, (ROOT / name).read_text(encoding="utf-8"))]
    print("\n".join(found) if found else f"{len(names)} files use none of the words")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

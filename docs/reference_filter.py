"""Prints a header or a page of docs/ as Doxygen expects it, with the same number of lines.

usage: reference_filter.py FILE

Headers: the comment above #pragma once describes the file, a comment after a declaration describes it, and indented
lines of a comment are code. Declarations of kernels are left out, since only ops call them; the options next to them
are public. Pages: links to files outside of docs/ and to headings become text, since Doxygen cannot follow them.
"""
import re
import sys


def header(text):
    head, _, body = text.partition("#pragma once")
    head = re.sub(r"^//(?!/)", "///", head, flags=re.MULTILINE)
    body = re.sub(r"^void \w+\((?:Cpu|Cuda)Stream&[^;]*;", lambda kernel: "\n" * kernel[0].count("\n"), body,
                  flags=re.MULTILINE)
    body = re.sub(r"^((?![}#])[^/\n]*[^/\s][^/\n]* )// (?!NOLINT)", r"\1///< ", body, flags=re.MULTILINE)
    text = head + r"/// \file" + body
    # Lines with an extra indentation, after a line of text that is no item of a list.
    return re.sub(r"^( *///(?! (?:\d+\.|-) )(?: \S.*)?)((?:\n *///   .*)+)", r"\1 @code\2 @endcode", text,
                  flags=re.MULTILINE)


def page(text):
    text = re.sub(r"\[([^]]*)\]\((?:\.\./|#)[^)]*\)", r"\1", text)
    return re.sub(r"(\]\([^):#]*)#[^)]*\)", r"\1)", text)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        source = file.read()
    sys.stdout.reconfigure(encoding="utf-8")
    sys.stdout.write(page(source) if sys.argv[1].endswith(".md") else header(source))

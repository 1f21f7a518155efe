"""Writes formulas as MathML, which browsers draw without a script and without a network. Knows the part of TeX that
the book uses; any other command is a warning, which `sphinx-build -W` turns into an error."""
import html
import re

from docutils import nodes
from sphinx.util import logging

SYMBOLS = {"cdot": "⋅", "times": "×", "le": "≤", "ge": "≥", "ne": "≠", "ldots": "…", "sum": "∑", "partial": "∂", "lfloor": "⌊", "rfloor": "⌋",
           "lceil": "⌈", "rceil": "⌉", "oplus": "⊕", "bmod": "mod", "approx": "≈", "in": "∈", "log": "log", "max": "max"}
GREEK = {"alpha": "α", "beta": "β", "varepsilon": "ε", "sigma": "σ"}
TOKEN = re.compile(r"\\[A-Za-z]+|\\[,{}]|\d+(?:[.,]\d+)*|[A-Za-z]|[^\s]")


class Parser:
    """A formula of TeX, read once from left to right."""

    def __init__(self, tex):
        self.tokens, self.at = TOKEN.findall(tex), 0

    def next(self):
        if self.at == len(self.tokens):
            raise ValueError("the formula ends too early")
        self.at += 1
        return self.tokens[self.at - 1]

    def peek(self):
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def row(self, end):
        """Returns the elements up to `end`, which is None for the end of the formula, as one element."""
        parts = []
        while self.peek() != end:
            parts.append(self.scripted())
        if end is not None:
            self.next()
        return parts[0] if len(parts) == 1 else f"<mrow>{''.join(parts)}</mrow>"

    def scripted(self):
        base = self.element()
        scripts = {}
        while self.peek() in ("^", "_"):
            kind = self.next()
            scripts[kind] = self.element()
        if not scripts:
            return base
        under = base.endswith("∑</mo>")
        name = {("_",): "munder" if under else "msub", ("^",): "mover" if under else "msup"}.get(
            tuple(scripts), "munderover" if under else "msubsup")
        return f"<{name}>{base}{''.join(scripts[kind] for kind in '_^' if kind in scripts)}</{name}>"

    def element(self):
        token = self.next()
        if token == "{":
            return self.row("}")
        if token == r"\frac":
            return f"<mfrac>{self.element()}{self.element()}</mfrac>"
        if token in (r"\text", r"\mathrm"):
            return self.text()
        if token == r"\,":
            return '<mspace width="0.17em"/>'
        if token in (r"\{", r"\}"):
            return f"<mo>{token[1:]}</mo>"
        if token.startswith("\\"):
            name = token[1:]
            if name in GREEK:
                return f"<mi>{GREEK[name]}</mi>"
            if name not in SYMBOLS:
                raise ValueError(f"found {token}, which learn/book/_ext/mathml.py does not know")
            return f"<mo>{SYMBOLS[name]}</mo>"
        if token[0].isdigit():
            return f"<mn>{token}</mn>"
        if token.isalpha():
            return f"<mi>{token}</mi>"
        if token in "}^_":
            raise ValueError(f"found {token} where an element was expected")
        if token in "()":
            return f'<mo stretchy="false">{token}</mo>'
        return f"<mo>{html.escape('−' if token == '-' else token)}</mo>"

    def text(self):
        if self.next() != "{":
            raise ValueError(r"found no { after \text")
        words = []
        while self.peek() != "}":
            words.append(self.next())
        self.next()
        return f"<mtext>{html.escape(' '.join(words))}</mtext>"


def to_mathml(tex, is_block):
    """Returns the element <math> for a formula. Raises ValueError with what it does not know."""
    display = ' display="block"' if is_block else ""
    return f'<math xmlns="http://www.w3.org/1998/Math/MathML"{display}>{Parser(tex).row(None)}</math>'


def visit(is_block):
    def write(translator, node):
        try:
            translator.body.append(to_mathml(node.astext(), is_block))
        except ValueError as error:
            logging.getLogger(__name__).warning("formula %s: %s", node.astext(), error, location=node)
        raise nodes.SkipNode
    return write


def setup(app):
    app.add_html_math_renderer("mathml", inline_renderers=(visit(False), None), block_renderers=(visit(True), None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}

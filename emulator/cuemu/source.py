"""The text of a C++ file: what of it is code, and where brackets and statements begin and end."""
import bisect
import re


class Refused(Exception):
    """A place in a file that cuemu cannot translate, and why."""

    def __init__(self, path, line, why):
        super().__init__(f"{path}:{line}: CE007: {why}")


TOKENS = re.compile(r"""
    (?P<comment> // (?:\\\n | [^\n])* | /\* .*? \*/ )
  | (?P<literal> R"(?P<mark>[^(\s]*)\( .*? \)(?P=mark)"
      | " (?:\\. | [^"\\\n])* "
      | (?<![0-9a-fA-F]) ' (?:\\. | [^'\\\n])* ' )""", re.S | re.X)
DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.M)  # of the preprocessor


def blanked(text):
    """The text with spaces instead of all characters but the ends of lines."""
    return re.sub(r"[^\n]", " ", text)


class Source:
    """A file. `code` is its text without comments; in `mask`, strings and characters are blank, too. Positions are the
    same in all three."""

    def __init__(self, path, text):
        self.path, self.text = path, text
        self.code = TOKENS.sub(lambda m: blanked(m[0]) if m["comment"] is not None else m[0], text)
        self.mask = TOKENS.sub(lambda m: blanked(m[0]), text)
        self.line_begins = [0] + [m.end() for m in re.finditer("\n", text)]

    def line(self, position):
        return bisect.bisect_right(self.line_begins, position)

    def refuse(self, position, why):
        raise Refused(self.path, self.line(position), why)

    def closing(self, position):
        """Returns the position of the bracket that closes the one at `position`."""
        pairs = {"(": ")", "{": "}", "[": "]"}
        opening, depth = self.mask[position], 0
        for at in range(position, len(self.mask)):
            depth += (self.mask[at] == opening) - (self.mask[at] == pairs[opening])
            if depth == 0:
                return at
        self.refuse(position, f"found no {pairs[opening]} for this {opening}")

    def statement_begin(self, position):
        """Returns where the statement of `position` begins: after a ; or a brace, or a directive of the preprocessor."""
        begin = max(self.mask.rfind(c, 0, position) for c in ";{}") + 1
        return max([begin, *(m.end() for m in DIRECTIVE.finditer(self.mask, begin, position))])

    def is_outside_functions(self, position):
        """Whether the position is in no braces but those of namespaces and of extern "C"."""
        depth, opened = 0, []  # whether each open brace is that of a namespace
        for m in re.finditer(r"[{}]", self.mask[:position]):
            if m[0] == "{":
                before = self.code[:m.start()].rstrip()
                is_namespace = re.search(r'(\bnamespace(\s+[\w:]+)?|\bextern\s*"C")$', before[-200:]) is not None
                opened.append(is_namespace)
                depth += not is_namespace
            elif opened:
                depth -= not opened.pop()
        return depth == 0


def split(text):
    """Splits at the commas outside of brackets."""
    parts, depth, begin = [], 0, 0
    for at, c in enumerate(text):
        depth += (c in "([{<") - (c in ")]}>")
        if c == "," and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
    return [part.strip() for part in parts + [text[begin:]]]

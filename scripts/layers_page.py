#!/usr/bin/env python3
"""Writes docs/layers.md: all layers, losses, readers and file functions, from the comments of the headers.

    scripts/layers_page.py            # writes the page
    scripts/layers_page.py --check    # exit code 1 and the first difference if the page is another one

The examples are the bodies of the tests in tests/apps/tutorials/layer_examples_test.cpp: `EXPECT_EQ(a, b);` becomes `a;  // b`.
A declaration without an example, and an example without a declaration, are errors. Needs Python alone.
"""
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "layers.md"
EXAMPLES = "tests/apps/tutorials/layer_examples_test.cpp"
INTRODUCTION = """# Layers, losses, readers and files

All layers, losses, readers of data sets and functions of files, with their arguments and one example each.
`scripts/layers_page.py` generates this page from the headers, and one test compiles and runs all examples
(`{examples}`). In them, `images` is a Tensor [2, 8, 8, 3], `x` a Variable [2, 5, 16],
`directory` an empty directory, and `using namespace convoy` is in effect; a comment after an expression is its value.
"""
# Title, namespace, and for each header the part of it and the names; no names: all.
SECTIONS = [
    ("Layers", "nn::", [("engine/nn/layers.h", "", ())]),
    ("Losses", "", [("engine/ops/ops.h", "// ---- Losses ----", ()), ("engine/ops/ops.h", "// ---- Losses of elements", ())]),
    ("Readers of data sets", "data::", [("datasets/formats/readers.h", "", (
        "read_cifar10", "read_mnist", "read_image_folder", "generate_shapes", "read_image", "decode_image"))]),
    ("Files of networks", "", [("engine/io/state_dict.h", "", ("save", "load")), ("engine/io/onnx.h", "", ("to_onnx",))]),
    ("Files of tensors and checkpoints", "io::", [
        ("engine/io/onnx.h", "", ("encode_onnx",)),
        ("engine/io/state_dict.h", "", ("state_dict", "load_state_dict", "parameters_hash")),
        ("engine/io/safetensors.h", "", ("read_safetensors", "encode_safetensors")),
        ("engine/io/checkpoint.h", "", ("open_checkpoint", "load_checkpoint"))]),
]
EXPECTATION = r"EXPECT_EQ\(((?:(?!EXPECT_EQ).)*?),\s+(?:\(Shape\{([^}]*)\}\)|([^,;]*))\);(?: +// ([^\n]*))?"
DOC = r"((?:^ *///[^\n]*\n)+)"


def prose(comment):
    return " ".join(re.sub(r"^ *///<? ?", "", comment, flags=re.MULTILINE).split())


def one_line(code):
    return " ".join(code.split())


def options_of(headers):
    """Returns {name of a struct: [(field, default, meaning)]} of all structs of options."""
    found = {}
    for header in headers:
        for name, body in re.findall(r"^struct (\w+Options) \{\n(.*?)^\};", header, re.MULTILINE | re.DOTALL):
            fields = re.findall(r"((?:^ *///.*\n)*)^ +([\w:<>,. ]+?) (\w+)(?: = ([^;]+)|(\{[^;]*\}))?;(?: *// (.*(?:\n {10,}// .*)*))?",
                                body, re.MULTILINE)
            found[name] = [(f"{kind} {field}", default or braces or "",
                            prose(doc) or one_line(after.replace("//", "")))
                           for doc, kind, field, default, braces, after in fields]
    return found


def layers_in(header):
    """Yields (name, description, [(arguments, description)]) of the layers of a header."""
    for doc, name, body in re.findall(
            DOC + r"^class (\w+)(?: final)? : public (?:Module|Function) \{\n(.*?)^\};", header, re.MULTILINE | re.DOTALL):
        public = re.split(r"^ (?:private|protected):", body, flags=re.MULTILINE)[0]
        constructors = re.findall(DOC + rf"^ +(?:explicit )?{name}\((.*?)\)(?=;|\s+:|\s*\{{)", public, re.MULTILINE | re.DOTALL)
        yield name, prose(doc), [(one_line(arguments), prose(what)) for what, arguments in constructors]
    for name, what in re.findall(r"^using (\w+) = ActivationOf<.*>; *///< (.*)", header, re.MULTILINE):
        yield name, what, [("", "")]


def functions_in(header, names):
    """Yields the same for functions: overloads are together, with their result in front."""
    found = {}
    for doc, result, name, arguments in re.findall(
            DOC + r"(?:^template [^\n]*\n)?^([\w:<>]+(?: [\w:<>]+)*[&*]?) (\w+)\((.*?)\)(?:;| \{)", header, re.MULTILINE | re.DOTALL):
        if not result.startswith(("class", "struct", "using", "inline")) and (not names or name in names):
            found.setdefault(name, []).append((result, one_line(arguments), prose(doc)))
    for name, overloads in found.items():
        yield name, "", [(f"{result} ", arguments, what) for result, arguments, what in overloads]


def value_comment(match):
    """Returns the line of an example for an EXPECT_EQ with a shape or another value, and maybe a comment."""
    value = match[3] if match[2] is None else f"[{match[2]}]"
    return f"{one_line(match[1])};  // {value}" + (f": {match[4]}" if match[4] else "")


def examples():
    found = {}
    text = (ROOT / EXAMPLES).read_text()
    for name, body in re.findall(r"^TEST_F\(LayerExamples, (\w+)\) \{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        body = textwrap.dedent(body).rstrip()
        found[name] = re.sub(EXPECTATION, value_comment, body, flags=re.DOTALL)
    return found


def table(options):
    rows = [f"| `{field}` | {f'`{default}`' if default else ''} | {meaning.replace('|', chr(92) + '|')} |"
            for field, default, meaning in options]
    return ["| option | default | meaning |", "|---|---|---|", *rows, ""]


def page():
    unused = examples()
    headers = {path: path.read_text() for directory in ("engine", "kernels", "datasets")
               for path in sorted((ROOT / directory).rglob("*.h"))}
    options = options_of(headers.values())
    lines = [INTRODUCTION.format(examples=EXAMPLES)]
    shown = set()
    for title, namespace, parts in SECTIONS:
        lines += [f"## {title}", ""]
        for header, begin, names in parts:
            text = (ROOT / header).read_text()
            text = text[text.index(begin):] if begin else text
            text = text.split("\n// ----", 1)[0] if begin else text
            entries = [(name, what, [("", *one) for one in how]) for name, what, how in layers_in(text)]
            entries += list(functions_in(text, names))
            missing = [name for name, _, _ in entries if name not in unused]
            if missing or not entries:
                raise SystemExit(f"layers_page: {header}: found no example of {missing}, expected one in {EXAMPLES}")
            for name, what, how in entries:
                lines += [f"### {namespace}{name}", ""]
                if what:
                    lines += [textwrap.fill(what, 100, break_long_words=False, break_on_hyphens=False), ""]
                for result, arguments, doc in how:
                    item = f"- `{result}{namespace}{name}({arguments})`" + (f": {doc}" if doc else "")
                    lines.append(textwrap.fill(item, 100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False))
                lines.append("")
                for kind in re.findall(r"\b\w+Options\b", " ".join(arguments for _, arguments, _ in how)):
                    if kind in options and kind not in shown:
                        shown.add(kind)
                        lines += [f"`{kind}`:", "", *table(options[kind])]
                lines += ["```cpp", "// example", unused.pop(name), "```", ""]
    if unused:
        raise SystemExit(f"layers_page: {EXAMPLES}: found examples of {sorted(unused)}, expected their declarations")
    return "\n".join(lines).rstrip() + "\n"


def main():
    text = page()
    if sys.argv[1:] != ["--check"]:
        PAGE.write_text(text)
        return 0
    old = PAGE.read_text()
    if old == text:
        return 0
    pairs = zip(old.splitlines() + [""], text.splitlines() + [""])
    number, (found, expected) = next((i, pair) for i, pair in enumerate(pairs, 1) if pair[0] != pair[1])
    print(f"docs/layers.md:{number}: found '{found}', expected '{expected}'; run scripts/layers_page.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())

"""Translates a CUDA file to C++ for g++, line by line: launches, __shared__, variables of the device, inline PTX."""
import pathlib
import re

from names import check_names, own_names
from ptx import HEADER as PTX_HEADER, inline_ptx
from source import Source, split

HEADER = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.M)


class Translator:
    """Translates a file and the headers that it includes by "…". The results are files of `directory`."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.headers = {}  # the translation of each
        self.own = set()  # names that the files define
        self.kernels = []
        self.clusters = {}  # __cluster_dims__ of kernels

    def translate(self, path):
        """Returns the C++ of a file. Raises Refused for what cannot be translated."""
        source = Source(str(path), pathlib.Path(path).read_text(encoding="utf-8"))
        edits = list(self.header_edits(source))
        self.own |= own_names(source)
        check_names(source, self.own)
        self.kernels += kernels(source)
        self.clusters |= clusters(source)
        ptx = list(inline_ptx(source))
        edits += [*launches(source, self.clusters, self.kernels), *cluster_launches(source, self.clusters), *shared_variables(source), *device_variables(source), *ptx]
        return (PTX_HEADER if ptx else "") + f'#line 1 "{path}"\n' + edited(source, edits)

    def header_edits(self, source):
        """Replaces the names of local headers by those of their translations."""
        for m in HEADER.finditer(source.code):
            header = pathlib.Path(source.path).parent / m[1]
            if not header.exists():
                continue
            header = header.resolve()
            if header not in self.headers:
                self.headers[header] = target = self.directory / f"{len(self.headers)}_{header.name}"
                target.write_text(self.translate(header), encoding="utf-8")
            yield m.start(1), m.end(1), str(self.headers[header].resolve())


def edited(source, edits):
    """The code with each (begin, end, text) replaced, with as many lines as before."""
    parts, done = [], 0
    for begin, end, text in sorted(edits):
        lines = source.text.count("\n", begin, end)
        parts += [source.code[done:begin], text.replace("\n", " "), "\n" * lines]
        done = end
    return "".join(parts) + source.code[done:]


def kernels(source):
    """The names of the kernels of a file."""
    return re.findall(r"\b__global__\b[^;{(]*?(?:__(?:launch_bounds|cluster_dims)__\s*\([^)]*\)\s*)*(?:[\w:<>*&]+\s+)*(?!__)\b(\w+)\s*\(", source.mask)


def clusters(source):
    """The __cluster_dims__ of kernels, by name."""
    result = {}
    for m in re.finditer(r"\b__cluster_dims__\s*\(", source.mask):
        end = source.closing(m.end() - 1)
        name = re.search(r"(\w+)\s*\(", re.sub(r"__launch_bounds__\s*\([^)]*\)", lambda part: " " * len(part[0]), source.mask[end + 1:]))
        if name is None:
            source.refuse(m.start(), "expected a kernel after __cluster_dims__(…)")
        result[name[1]] = source.code[m.end():end]
    return result


def base_name(kernel):
    return re.search(r"(\w*)\s*(<.*)?$", kernel.strip(), re.S)[1]


def cluster_launches(source, dims):
    """cudaLaunchKernelEx(&config, kernel, …) of a kernel with __cluster_dims__  ->  cuemu::launch_in_clusters(…)"""
    for m in re.finditer(r"\bcudaLaunchKernelEx\s*\(", source.mask):
        arguments = split(source.code[m.end():source.closing(m.end() - 1)])
        if len(arguments) > 1 and base_name(arguments[1]) in dims:
            yield m.start(), m.end(), f"cuemu::launch_in_clusters(dim3({dims[base_name(arguments[1])]}), "


def launches(source, dims, known):
    """kernel<T><<<grid, block, bytes, stream>>>(arguments)  ->  cuemu::launch(…)"""
    for m in re.finditer("<<<", source.mask):
        end = source.mask.find(">>>", m.end())
        opening = re.match(r">>>\s*\(", source.mask[end:]) if end >= 0 else None
        if opening is None:
            source.refuse(m.start(), "found <<< without >>>(…), expected a launch: kernel<<<grid, block>>>(arguments)")
        if inside_kernel(source, m.start()):
            source.refuse(m.start(), "a kernel launches a kernel (dynamic parallelism), which cuemu does not support")
        begin = kernel_begin(source, m.start())
        configuration = split(source.code[m.end():end])
        if not 2 <= len(configuration) <= 4:
            source.refuse(m.start(), f"found {len(configuration)} values in <<<…>>>, expected 2 to 4")
        kernel = " ".join(source.code[begin:m.start()].split())
        open_ = end + opening.end() - 1
        close = source.closing(open_)
        if "\\\n" in source.text[begin:close]:
            source.refuse(begin, "found a launch over several lines in a macro, expected it on one line")
        arguments = source.code[open_ + 1:close].strip()
        if dims and base_name(kernel) not in known:
            source.refuse(begin, f"found a launch of {kernel}, expected the name of a kernel, since others here have __cluster_dims__")
        in_clusters = f".in_clusters({dims[base_name(kernel)]})" if base_name(kernel) in dims else ""
        yield begin, close + 1, (
            f'cuemu::launch("{kernel}", cuemu::shape({", ".join(configuration)}){in_clusters}, '
            f"[=](auto... cuemu_values) CUEMU_PLAIN {{ {kernel}(cuemu_values...); }}{', ' if arguments else ''}{arguments})")


def kernel_begin(source, position):
    """Returns where the name of a kernel begins, whose <<< is at `position`."""
    mask, at = source.mask, position
    while mask[at - 1].isspace():
        at -= 1
    if mask[at - 1] == ">":  # the arguments of a template
        depth = 0
        while at > 0:
            at -= 1
            depth += (mask[at] == ">") - (mask[at] == "<")
            if depth == 0:
                break
        while mask[at - 1].isspace():
            at -= 1
    end = at
    while at > 0 and re.match(r"[\w:]", mask[at - 1]):
        at -= 1
    if at == end:
        source.refuse(position, "found no name of a kernel before <<<")
    return at


def inside_kernel(source, position):
    """Whether the function around a position runs on the GPU."""
    for m in re.finditer(r"\b(__global__|__device__)\b", source.mask[:position]):
        brace = re.match(r"[^;{]*\{", source.mask[m.end():])
        if brace is None or "__host__" in source.mask[source.statement_begin(m.start()):m.end() + brace.end()]:
            continue
        opening = m.end() + brace.end() - 1
        if opening < position < source.closing(opening):
            return True
    return False


def shared_variables(source):
    """__shared__ T name[n];  ->  auto& name = *cuemu::static_shared<T[n]>("name", [] {});"""
    for m in re.finditer(r"\b__shared__\b", source.mask):
        begin, end = source.statement_begin(m.start()), source.mask.find(";", m.end())
        begin += len(source.mask[begin:]) - len(source.mask[begin:].lstrip())
        statement = source.code[begin:end].replace("__shared__", " ")
        if end < 0 or "=" in statement or "(" in re.sub(r"(alignas|__align__)\s*\([^()]*\)", "", statement) and "[" not in statement:
            source.refuse(m.start(), "expected a declaration as `__shared__ float name[256];`, without a value")
        alignment = re.search(r"(?:alignas|__align__)\s*\(([^()]*)\)", statement)
        statement = re.sub(r"(alignas|__align__)\s*\([^()]*\)", " ", statement)
        is_extern = re.search(r"\bextern\b", statement) is not None
        statement = re.sub(r"\b(extern|static)\b", " ", statement)
        type_, names = declared(statement)
        if type_ is None:
            source.refuse(m.start(), "expected a declaration as `__shared__ float name[256];`")
        outside = source.is_outside_functions(m.start())
        if outside and not is_extern:
            source.refuse(m.start(), "found a __shared__ variable outside of a function, expected it in the kernel")
        text = ""
        for name, extents in names:
            if is_extern:
                text += f'{"static " if outside else ""}{type_}* const {name} = cuemu::dynamic_shared<{type_}>("{name}"); '
            else:
                more = f", {alignment[1]}" if alignment else ""
                text += f'auto& {name} = *cuemu::static_shared<{type_}{extents}>("{name}", [] {{}}{more}); '
        yield begin, end + 1, text.strip()


def declared(statement):
    """Splits `unsigned a[2], b` into "unsigned" and [("a", "[2]"), ("b", "")]."""
    type_, names = None, []
    for part in split(" ".join(statement.split())):
        extents = ""
        while part.endswith("]"):
            depth, at = 0, len(part)
            while at > 0:
                at -= 1
                depth += (part[at] == "]") - (part[at] == "[")
                if depth == 0:
                    break
            extents, part = part[at:] + extents, part[:at].rstrip()
        m = re.fullmatch(r"(.*?)(\w+)", part, re.S)
        if m is None or (type_ is not None and m[1].strip()):
            return None, []
        if type_ is None:
            type_ = m[1].strip()
            if not type_:
                return None, []
        names.append((m[2], extents))
    return type_, names


def device_variables(source):
    """__device__ int count;  ->  CUEMU_DEVICE_VARIABLE int count;   (functions keep __device__)"""
    for m in re.finditer(r"\b(__device__|__constant__)\b", source.mask):
        begin = source.statement_begin(m.start())
        rest = re.sub(r"\b(alignas|__align__|__attribute__)\s*\(+[^()]*\)+", "", source.mask[m.end():])
        first = re.search(r"[;={(\[]", rest)
        if first is None or first[0] == "(" and m[0] == "__device__":
            continue  # a function
        if not source.is_outside_functions(m.start()):
            if m[0] == "__constant__":
                source.refuse(m.start(), "found __constant__ in a function, expected it outside")
            continue
        words = source.mask[begin:m.end()] + rest[:first.start()]
        if re.search(r"\b(constexpr|const)\b", words):
            continue  # neither side changes it
        yield m.start(), m.end(), "CUEMU_DEVICE_VARIABLE"

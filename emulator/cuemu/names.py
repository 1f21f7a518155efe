"""The names of CUDA that cuemu supports: those in its headers. Others are refused with their line."""
import functools
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADERS = [ROOT / "include", ROOT / "program"]
# What looks like a name of CUDA.
CUDA = re.compile(r"\b(?:cuda[A-Z]\w*|cu[A-Z][a-z]\w*|atomic[A-Z]\w*|(?:tex|surf)[123]D\w*|__[a-z]\w*|make_[a-z]+\d)\b")
# Names of C++ and of its compilers.
CXX = re.compile(r"__(?:restrict|restrict__|attribute__|inline__|inline|func__|builtin_\w+|int128|has_include|asm__|volatile__"
                 r"|typeof__|extension__|cplusplus|shared__|global__|device__|host__|constant__|forceinline__|launch_bounds__)$")
UNSUPPORTED = {
    "__managed__": "found a __managed__ variable (expected cudaMallocManaged)",
    "__CUDA_ARCH__": "found code that is another one on the GPU than on the host",
    "__activemask": "found __activemask, whose result depends on how a GPU schedules the lanes (expected a mask)",
}
LIBRARY = re.compile(r"^(thrust|cub|cuda|nv|cutlass)/|^(cu|nv|nccl|mma|cooperative_groups)\w*(/\w+)?\.h$")


@functools.lru_cache(maxsize=1)
def supported():
    """The identifiers of cuemu's headers."""
    names = set()
    for directory in HEADERS:
        for header in directory.iterdir():
            if header.suffix == ".h":
                names |= set(re.findall(r"\w+", re.sub(r"//[^\n]*", "", header.read_text(encoding="utf-8"))))
    vectors = ["char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "longlong", "ulonglong", "float", "double"]
    return names | {f"{prefix}{vector}{n}" for prefix in ("", "make_") for vector in vectors for n in "1234"}


def api():
    """The names of CUDA that cuemu supports, sorted."""
    return sorted(name for name in supported() if CUDA.fullmatch(name) and not name.startswith("__nv_") and not CXX.match(name))


def own_names(source):
    """The names that a file defines, as macros and functions."""
    return (set(re.findall(r"#\s*define\s+(\w+)", source.mask)) |
            set(re.findall(r"\b(\w+)\s*\([^;{}()]*\)\s*\{", source.mask)))


def check_names(source, own):
    """Raises Refused for the first name of CUDA that neither cuemu supports nor the program defines."""
    for m in re.finditer(r"^[ \t]*#[ \t]*include[ \t]*<([^>\n]+)>", source.code, re.M):
        if LIBRARY.match(m[1]) and not any((directory / m[1]).exists() for directory in HEADERS):
            source.refuse(m.start(1), f"<{m[1]}> is not supported; cuemu --api lists the names that are")
    for m in re.finditer(r"\b\w+\b", source.mask):
        if m[0] in UNSUPPORTED:
            source.refuse(m.start(), f"{UNSUPPORTED[m[0]]}, which cuemu does not support")
        if CUDA.fullmatch(m[0]) and m[0] not in supported() and m[0] not in own and not CXX.match(m[0]):
            source.refuse(m.start(), f"{m[0]} is not supported; cuemu --api lists the names that are")

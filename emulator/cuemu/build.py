"""Compiles translated programs, and the emulator's library once per version and compiler."""
import concurrent.futures
import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile

from source import Refused
from translate import Translator

ROOT = pathlib.Path(__file__).resolve().parent.parent
KINDS = {"plain": ["-O1", "-g1"], "count": (ROOT / "counting" / "options.txt").read_text().split(), "debug": ["-O0", "-g"]}


class Failed(Exception):
    """A program that does not compile; the compiler's messages."""


def compiler():
    """The g++ of CXX, or the one of the PATH."""
    name = os.environ.get("CXX", "g++")
    if shutil.which(name) is None:
        raise Failed(f"cuemu: found no compiler {name}; install g++ 12 or later, or set CXX")
    return name


def execute(command):
    """Runs a compiler. Raises Failed with its messages, which name the lines of the .cu file."""
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise Failed(result.stderr.strip() or f"cuemu: {' '.join(command)}: exit status {result.returncode}")
    return result.stderr


def sources():
    return sorted(path for directory in ("runtime", "counting", "checking") for path in (ROOT / directory).glob("*.cpp"))


def include_options():
    """ROOT has the name emulator in the sources' includes."""
    return [f"-I{ROOT.parent}", f"-I{ROOT / 'include'}"]


def version():
    """Returns a name of the compiler and of the emulator's sources."""
    digest = hashlib.sha256(subprocess.run([compiler(), "--version"], capture_output=True).stdout)
    for path in sorted(ROOT.glob("*/*.[hc]*")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def library():
    """Returns the directory of libcuemu_runtime.a and libcuemu_hooks.a: that of CUEMU_LIBRARY, or compiled once into the
    user's cache."""
    if "CUEMU_LIBRARY" in os.environ:
        return pathlib.Path(os.environ["CUEMU_LIBRARY"])
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "cuemu"
    target = cache / version()
    if target.exists():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    print("cuemu: compiling the emulator, once", flush=True)
    with tempfile.TemporaryDirectory(dir=cache) as work:
        def compile_one(path):
            output = pathlib.Path(work) / (path.stem + ".o")
            execute([compiler(), "-std=c++20", "-O2", "-g1", *include_options(), "-c", str(path), "-o", str(output)])
            return output
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(compile_one, sources()))
        hooks = [path for path in objects if path.stem == "hooks"]
        archive(pathlib.Path(work) / "libcuemu_hooks.a", hooks)
        archive(pathlib.Path(work) / "libcuemu_runtime.a", [path for path in objects if path not in hooks])
        for path in objects:
            path.unlink()
        try:
            os.rename(work, target)  # at once, for other processes
            os.mkdir(work)
        except OSError:
            pass  # another process was first
    return target


def precompiled_header(libraries, kind):
    """Returns a header that includes program.h, compiled once per kind and place of the emulator next to the library: it is
    two thirds of the time of a small program. Findings skip the emulator's lines by their path, so the included header is
    that of ROOT. Where the directory cannot be written, program.h itself."""
    header = ROOT / "program" / "program.h"
    name = hashlib.sha256(f"{version()} {ROOT}".encode()).hexdigest()[:16]
    target = libraries / f"{kind}-{name}"
    if not target.exists():
        try:
            with tempfile.TemporaryDirectory(dir=libraries) as work:
                copy = pathlib.Path(work) / header.name
                copy.write_text(f'#include "{header}"\n', encoding="utf-8")
                execute([compiler(), "-std=c++20", *KINDS[kind], f"-I{ROOT / 'program'}", *include_options(), "-x", "c++-header",
                         "-c", str(copy), "-o", f"{copy}.gch"])
                os.rename(work, target)  # at once, for other processes
                os.mkdir(work)
        except OSError:
            pass  # another process was first, or nothing may be written here
    return target / header.name if target.exists() else header


def archive(path, objects):
    execute(["ar", "rcs", str(path), *map(str, objects)])


def compile_program(file, output, kind, options=()):
    """Translates and compiles a .cu file. Returns the names of its kernels. Raises Refused and Failed."""
    work = pathlib.Path(output).parent
    translator = Translator(work)
    text = translator.translate(file)
    cpp = work / (pathlib.Path(file).stem + ".cuemu.cpp")
    cpp.write_text(text, encoding="utf-8")
    libraries = library()
    hooks = ["-Wl,--whole-archive", str(libraries / "libcuemu_hooks.a"), "-Wl,--no-whole-archive"] if kind == "count" else []
    messages = execute([compiler(), "-std=c++20", *KINDS[kind], *options, "-include", str(precompiled_header(libraries, kind)),
                        f"-I{ROOT / 'program'}", *include_options(), f"-I{pathlib.Path(file).resolve().parent}",
                        "-c", str(cpp), "-o", str(output) + ".o"])
    execute([compiler(), str(output) + ".o", *hooks, str(libraries / "libcuemu_runtime.a"), "-pthread", "-ldl", "-o", str(output)])
    pathlib.Path(str(output) + ".o").unlink()
    if messages:
        print(messages, end="")
    return translator.kernels


__all__ = ["Failed", "Refused", "compile_program"]

"""Compiles a learner's kernel with the driver of its exercise, and runs the program in one order of threads."""
import hashlib
import json
import os
import pathlib
import re
import resource
import secrets
import shutil
import subprocess
import tempfile

from convoy_learn.exercises import ROOT, Failure, compiler, cuemu


class NotCompiled(Exception):
    """The compiler's messages, with the learner's lines. Exit status 2."""


def write_program(exercise, file, work):
    """Writes the program of the learner's file and its driver. Returns its path."""
    path = pathlib.Path(work) / f"{exercise.id}{exercise.suffix}"
    path.write_text(f'#include "{file}"\n#include "{exercise.driver}"\n', encoding="utf-8")
    return path


OPTIONS = ["-std=c++20", "-g1", "-pthread", "-fsanitize=address,undefined", "-fno-sanitize=object-size,vptr,null,alignment",
           "-fno-sanitize-recover=all"]


def shared_parts():
    """Returns the directory of what all exercises in C++ need, compiled once per compiler and version of learn/common into
    the user's cache: the standard headers, and the network of links.h."""
    common = ROOT / "common"
    version = hashlib.sha256(subprocess.run([compiler(), "--version"], capture_output=True).stdout + " ".join(OPTIONS).encode())
    for path in sorted(common.glob("*.[hc]*")):
        version.update(path.read_bytes())
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "convoy-learn"
    target = cache / version.hexdigest()[:16]
    if target.exists():
        return target
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as work:
            header = shutil.copy(common / "standard.h", work)
            command = [compiler(), *OPTIONS, f"-I{common}"]
            subprocess.run([*command, "-x", "c++-header", "-c", str(header), "-o", f"{header}.gch"], check=True)
            subprocess.run([*command, "-DLINKS_ARE_COMPILED", "-c", str(common / "links.cpp"), "-o", f"{work}/links.o"], check=True)
            try:
                os.rename(work, target)  # at once, for other processes
                os.mkdir(work)
            except OSError:
                pass  # another process was first
    except (OSError, subprocess.CalledProcessError) as error:
        raise Failure(f"compiling the standard headers into {cache} has failed: {error}; XDG_CACHE_HOME names another directory")
    return target


def compile_command(exercise, file):
    """Returns the command that compiles a program: of CUDA by cuemu, of C++ by g++ with its sanitizers."""
    if not exercise.is_program:
        return [*cuemu(), "compile", "--count"]
    parts = shared_parts()
    command = [compiler(), *OPTIONS, "-include", str(parts / "standard.h"), f"-I{ROOT / 'common'}"]
    if any("links::" in path.read_text(encoding="utf-8") for path in (pathlib.Path(file), exercise.driver)):
        command += ["-DLINKS_ARE_COMPILED", str(parts / "links.o")]
    return command


def compile_program(exercise, file, work):
    """Returns the compiled program, whose accesses are checked and counted. Raises NotCompiled."""
    source, program, command = write_program(exercise, file, work), pathlib.Path(work) / "program", compile_command(exercise, file)
    done = subprocess.run([*command, "-o", str(program), str(source)], capture_output=True, text=True)
    if done.returncode == 2 or done.returncode != 0 and exercise.is_program:
        lines = [line for line in done.stderr.replace(f"{file.parent}/", "").splitlines()
                 if not line.lstrip().startswith(("In file included from", "from "))]
        raise NotCompiled("\n".join(lines[:12]))
    if done.returncode != 0:
        raise Failure(f"cuemu compile has failed: {done.stderr.strip()}")
    return program


def arguments(seed, sizes):
    return [str(seed), *("x".join(map(str, size)) for size in sizes)]


class Report:
    """What one run has found: the finding of each code in order, wrong values, launches, and how it ended."""

    def __init__(self, lines, key, sizes, is_late, status):
        self.findings, self.launches, self.wrong, self.right, self.case = [], [], None, 0, None
        self.stated = None  # (code, message) of a finding of the driver
        for line in lines:
            if "finding" in line:
                self.findings.append({**line["finding"], "case": self.case})
            elif "launch" in line:
                self.launches.append(line["launch"])
            elif line.get("key") == key and line["driver"] == "case":
                self.case = [int(part) for part in line["case"].split("x")]
            elif line.get("key") == key and line["driver"] == "wrong":
                self.wrong = line["text"]
            elif line.get("key") == key and line["driver"] == "right":
                self.right += 1
            elif line.get("key") == key and line["driver"] == "count":  # of a program: as a launch with one count
                what, number = line["text"].split()
                self.launches.append({what: float(number)})
            elif line.get("key") == key and line["driver"].startswith("CE"):
                self.stated = (line["driver"], line["text"])
        self.is_complete = self.right == len(sizes)
        self.is_late, self.status = is_late, status


def limit(seconds):
    """Limits this process: time of the CPU, size of files, no core dumps."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 26, 1 << 26))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def isolation():
    """Returns the prefix of a command that has no network, or [] where that is not permitted."""
    prefix = ["unshare", "--map-root-user", "--net"]
    is_permitted = shutil.which("unshare") and subprocess.run([*prefix, "true"], capture_output=True).returncode == 0
    return prefix if is_permitted else []


def run(program, order, seed, sizes, exercise, is_counted=False, prefix=()):
    """Runs the program with the sizes, in an order of threads such as "ascending" or "random:2". Returns its Report."""
    seconds = exercise.settings.get("seconds", 20)
    path = program.with_name("report.jsonl")
    path.write_text("")
    name, _, number = order.partition(":")
    environment = {**os.environ, "CONVOY_EMULATOR_ORDER": name, "CONVOY_EMULATOR_STREAMS": exercise.settings.get("streams", "eager"),
                   "CONVOY_EMULATOR_SEED": number or "1", "CUEMU_REPORT": str(path), "CONVOY_LEARN_REPORT": str(path),
                   "CUEMU_COUNT" if is_counted else "CUEMU_CHECK": "1", "ASAN_OPTIONS": "detect_leaks=0"}
    key, is_late, status, errors = secrets.token_hex(16), False, None, ""
    try:
        done = subprocess.run([*prefix, str(program), *arguments(seed, sizes)], env=environment, input=key + "\n", text=True,
                              timeout=4 * seconds, capture_output=True, preexec_fn=lambda: limit(seconds))
        status, errors = done.returncode, done.stderr
    except subprocess.TimeoutExpired:
        is_late = True
    is_late = is_late or status in (-9, -24, 137, 152)  # SIGKILL and SIGXCPU of the limit
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            pass  # cut by the end of the program
    report = Report(lines, key, sizes, is_late, status)
    report.findings += sanitizer_finding(errors, report.case)
    return report


def sanitizer_finding(errors, case):
    """Returns the finding of AddressSanitizer or UndefinedBehaviorSanitizer with its first line, or none."""
    found = re.search(r"ERROR: AddressSanitizer: (?:SEGV|\S+)|runtime error: (.*)", errors)
    if not found:
        return []
    message = found[1] or found[0].removeprefix("ERROR: AddressSanitizer: ").replace("-", " ")
    # The first line outside of the libraries: the learner's, or that of the driver.
    place = re.search(r"(?:^|[ (])/(?!usr/|build/)\S*/([\w.-]+\.(?:cpp|h):\d+)", errors, re.M)
    return [{"code": "CE003", "place": place[1] if place else "?", "message": message, "case": case}]

#!/usr/bin/env python3
"""scripts/check_skips.py [JUNIT]: compares the skipped tests of a run with the capabilities of this machine.

A test may skip for a capability that it names and that the machine or its build lacks, and never for an error. Reads
the report of the last scripts/test.sh, build/tests/junit.xml. Exit codes: 0 if each skip names a capability in
CAPABILITIES that is missing here, 1 if not (each other skip is printed), 2 if there is no report.
"""
import collections
import ctypes
import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
IN_NETWORK_NAMESPACE = ("unshare", "--net", "--mount", "sh", "-c")
ADD_LINK = "PATH=$PATH:/usr/sbin:/sbin; ip link add cable type veth peer name other"
LIMIT = ADD_LINK + " && tc qdisc add dev cable root tbf rate 10mbit burst 32kbit latency 400ms"
LIBRARY_HEADERS = {"libwebp": "webp/decode.h", "libheif": "libheif/heif.h"}


def succeeds(*command):
    try:
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60).returncode == 0
    except OSError:
        return False


def has(program):
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") is not None


def answer(*command):
    """Returns the output of a program, or "" if there is none."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.strip()
    except OSError:
        return ""


def gpus():
    """Returns the compute capabilities of the GPUs of this machine, times 10."""
    found = answer("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader")
    return [int(line.replace(".", "")) for line in found.splitlines() if re.fullmatch(r"\d+\.\d", line)]


def has_modules(python, modules):
    return succeeds(python, "-c", "import importlib.util, sys\n"
                    "sys.exit(not all(importlib.util.find_spec(name) for name in sys.argv[1].split(', ')))", modules)


def any_python_has(modules):
    named = os.environ.get("CONVOY_PYTHONS", "").split(":")
    return any(has_modules(python, modules) for python in [*filter(None, named), "/usr/bin/python3"])


def may_trace():
    child = os.fork()
    if child == 0:
        os._exit(ctypes.CDLL(None).ptrace(0, 0, None, None) != 0)
    return os.waitpid(child, 0)[1] == 0


class Build:
    """The options of the build that a test belongs to, by the first part of its name, such as "test"."""

    def __init__(self, directory, builds_of_run=()):
        self.directory, self.builds_of_run = directory, builds_of_run
        cache = directory / "CMakeCache.txt"
        self.options = dict(re.findall(r"^(\w+):\w+=(.*)$", cache.read_text(), re.MULTILINE)) if cache.is_file() else {}

    def emulates(self):
        return self.options.get("CONVOY_CUDA") == "emulator"

    def has_cuda(self):
        return self.options.get("CONVOY_CUDA", "OFF") not in ("OFF", "")

    def sanitizes(self, kind=""):
        return kind in self.options["CONVOY_SANITIZE"] if self.options.get("CONVOY_SANITIZE") else False

    def has_gpus(self, count=1, capability=0):
        return self.has_cuda() and (self.emulates() or sum(each >= capability for each in gpus()) >= count)

    def has_programs(self, commands):
        return all((self.directory / "bin" / name).is_file() for name in re.findall(r"\bconvoy-[a-z-]+|custom_op_\w+", commands))


# What a test may say at a skip, and whether the machine and the build have it all the same.
CAPABILITIES = {
    r"needs a GPU: ": lambda build: build.has_gpus(),
    r"needs (\d+) GPUs": lambda build, count: not build.emulates() and build.has_gpus(int(count)),
    r"needs a GPU of compute capability 9\.0": lambda build: build.has_gpus(capability=90),
    r"needs a GPU that supports CUDA graphs": lambda build: build.has_gpus(),
    r"needs an emulated GPU": lambda build: build.emulates(),
    r"needs a machine without a GPU$": lambda build: not gpus(),
    r"needs a machine without a GPU's driver": lambda build: not build.emulates() and not has("nvidia-smi"),
    r"needs nvcc": lambda build: has("nvcc") or os.access(os.environ.get("CUDA_HOME", "/usr/local/cuda") + "/bin/nvcc", os.X_OK),
    r"skipped: .*(?:build the cuda preset|run scripts/test\.sh cuda)": lambda build: "cuda" in build.builds_of_run,
    r"needs a build with AddressSanitizer": lambda build: build.sanitizes("address"),
    r"needs a build with UndefinedBehaviorSanitizer": lambda build: build.sanitizes("undefined"),
    r"needs a build without sanitizers": lambda build: not build.sanitizes(),
    r"needs a build with (libwebp|libheif)":
        lambda build, name: bool(glob.glob("/usr/include/**/" + LIBRARY_HEADERS[name], recursive=True)),
    r"this build does not have the programs of(.*)": lambda build, commands: build.has_programs(commands),
    r"needs root and slurmctld": lambda build: os.geteuid() == 0 and all(
        map(has, ("slurmctld", "slurmd", "srun", "sbatch", "munged", "setpriv"))),
    r"needs root, ": lambda build: os.geteuid() == 0,
    r"needs another user than root": lambda build: os.geteuid() != 0,
    r"needs the permission to mount": lambda build: succeeds("unshare", "--mount", "mount", "-t", "tmpfs", "none", "/tmp"),
    r"needs the permission to create PID namespaces": lambda build: succeeds("unshare", "--pid", "--fork", "--mount-proc", "true"),
    r"needs the permission to create network namespaces": lambda build: succeeds(*IN_NETWORK_NAMESPACE, "true"),
    r"needs virtual network links": lambda build: succeeds(*IN_NETWORK_NAMESPACE, ADD_LINK),
    r"needs a limit of the rate of network links": lambda build: succeeds(*IN_NETWORK_NAMESPACE, LIMIT),
    r"needs the program (\w+) ": lambda build, name: has(name),
    r"needs (gdb)": lambda build, name: has(name),
    r"needs the permission to trace a child": lambda build: may_trace(),
    r"needs transparent huge pages": lambda build: os.path.exists("/sys/kernel/mm/transparent_hugepage/enabled"),
    r"needs VmFlags": lambda build: "VmFlags" in pathlib.Path("/proc/self/smaps").read_text(),
    r"needs two cores": lambda build: os.cpu_count() >= 2,
    r"needs a machine of at most eight cores": lambda build: os.cpu_count() <= 8,
    r"needs an address other than loopback": lambda build: answer("hostname", "-I") != "",
    r"needs CONVOY_DATA, ": lambda build: os.path.isdir(os.environ.get("CONVOY_DATA", "") + "/cifar10"),
    r"needs CONVOY_OP_SAMPLES, ": lambda build: "CONVOY_OP_SAMPLES" in os.environ,
    r"needs Chromium": lambda build: any(map(os.path.exists, ("/usr/bin/chromium-headless-shell", "/usr/bin/chromium"))),
    r"needs the font of the references": lambda build: answer("fc-list", "DejaVu Sans:style=Book") != "",
    r"needs a Python that has ([\w, ]+)": lambda build, modules: any_python_has(modules),
    r"needs PyTorch: torchrun": lambda build: has("torchrun") and has_modules("python3", "torch"),
    r"needs more ranks of this program": lambda build: False,  # its caller chooses how many
}


def find_capability(reason):
    """Returns the match of the one capability that a reason names, and what tells whether it is there; or None."""
    for pattern, is_there in CAPABILITIES.items():
        if match := re.match(pattern, reason, re.DOTALL):
            return match, is_there
    return None


def skips_of(output):
    """Returns [(test, reason)] of the skipped tests in the output of GoogleTest, unittest or a script."""
    found = [(name, reason.strip()) for reason, name in
             re.findall(r"^\S+:\d+: Skipped\n((?:(?!\[ RUN ).)*?)^\[  SKIPPED \] (\S+)", output, re.MULTILINE | re.DOTALL)]
    named = collections.Counter(name for name, _ in found)
    for name in re.findall(r"^\[  SKIPPED \] (\S+) \(\d+ ms\)", output, re.MULTILINE):
        if name.rstrip(",") not in named and name not in named:
            found.append((name, ""))
    found += re.findall(r"^(\w+) \([\w.]+\).*?\.\.\. skipped ['\"](.*)['\"]$", output, re.MULTILINE)
    found += [("the script", line) for line in re.findall(r"^skipped: .*$", output, re.MULTILINE)]
    return found


def check(report, root=ROOT):
    """Returns the lacking capabilities with the number of their tests, and the problems of a report of CTest."""
    lacking, problems = collections.Counter(), []
    cases = list(xml.etree.ElementTree.parse(report).getroot().iter("testcase"))
    builds_of_run = {case.get("name").split(".")[0] for case in cases}
    builds = {name: Build(root / "build" / name, builds_of_run) for name in builds_of_run}
    for case in cases:
        name = case.get("name")
        skips = skips_of(case.findtext("system-out") or "")
        if case.find("skipped") is not None and not skips:
            problems.append(f"{name}: skipped without a reason")
        for test, reason in skips:
            found = find_capability(reason)
            if found is None:
                problems.append(f"{name}: {test} names no capability that is known: '{reason}'")
                continue
            match, is_there = found
            if is_there(builds[name.split(".")[0]], *match.groups()):
                problems.append(f"{name}: {test} was skipped, and this machine has the capability: '{reason}'")
            else:
                lacking[match.group(0).splitlines()[0].strip()] += 1
    return lacking, problems


def main():
    report = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "tests" / "junit.xml"
    if not report.is_file():
        print(f"{report}: not found; run scripts/test.sh first", file=sys.stderr)
        return 2
    lacking, problems = check(report)
    for reason, count in sorted(lacking.items(), key=lambda item: -item[1]):
        print(f"{count:8}  skipped: {reason}")
    for problem in problems:
        print(f"check_skips.py: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Runs the steps of a Dockerfile in new root file systems, without a container engine.

    scripts/docker/run_steps.py scripts/docker/Dockerfile --work /var/tmp/steps

mmdebstrap makes the root file system of a FROM line, and each RUN command runs in it with chroot, in a mount and process
namespace of its own. It needs root. Images other than Debian's need --base. CMD of the last stage is run at the end.
What is copied are the files of the repository that .dockerignore does not name. WORK keeps the root file systems.
"""

import argparse
import dataclasses
import fnmatch
import glob
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
INSTRUCTIONS = {"FROM", "RUN", "COPY", "WORKDIR", "ENV", "USER", "CMD"}
SUITES = {"debian:12": "bookworm", "debian:13": "trixie"}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PASSED = ["http_proxy", "https_proxy", "no_proxy"]  # as docker build passes them


class StepError(Exception):
    """A step that cannot be run, or that failed."""


@dataclasses.dataclass
class Step:
    """An instruction: its keyword, its text without line breaks, and the line on which it begins."""

    keyword: str
    text: str
    line: int

    def __str__(self) -> str:
        return f"{self.keyword} {self.text}"


def parse(text: str) -> list:
    """Returns the steps of a Dockerfile. Raises StepError for an instruction that this script does not know."""
    steps, parts, begin = [], [], 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#") or (not parts and not line.strip()):
            continue
        begin = begin if parts else number
        parts.append(line.strip().removesuffix("\\").strip())
        if line.rstrip().endswith("\\"):
            continue
        keyword, _, rest = " ".join(parts).partition(" ")
        if keyword not in INSTRUCTIONS:
            raise StepError(f"line {begin}: found '{keyword}', expected one of {', '.join(sorted(INSTRUCTIONS))}")
        steps.append(Step(keyword, rest.strip(), begin))
        parts = []
    if parts:
        raise StepError(f"line {begin}: the last line ends with a backslash")
    if not steps or steps[0].keyword != "FROM":
        raise StepError("the first instruction is not FROM")
    return steps


def image_of(step: Step) -> tuple:
    """Returns the image and the name of the stage of a FROM step; an empty name if there is none."""
    found = re.fullmatch(r"(\S+)(?: +AS +(\S+))?", step.text, re.IGNORECASE)
    if not found:
        raise StepError(f"line {step.line}: found '{step}', expected FROM IMAGE [AS NAME]")
    return found[1], found[2] or ""


def copy_of(step: Step) -> tuple:
    """Returns the stage, the sources and the target of a COPY step; an empty stage for the files of the repository."""
    words = shlex.split(step.text)
    stage = words.pop(0).removeprefix("--from=") if words[0].startswith("--from=") else ""
    if len(words) < 2 or any(word.startswith("--") for word in words):
        raise StepError(f"line {step.line}: found '{step}', expected COPY [--from=STAGE] SOURCE… TARGET")
    return stage, words[:-1], words[-1]


def suite_of(image: str) -> str:
    """Returns the suite of Debian of an image."""
    for name, suite in SUITES.items():
        if image in (name, f"{name}-slim"):
            return suite
    raise StepError(f"{image}: no root file system of it can be made; --base {image}=debian:12 takes another one")


def is_ignored(relative: str, patterns: list) -> bool:
    return any(fnmatch.fnmatch(relative, pattern) for pattern in patterns)


def copy_repository(target: pathlib.Path) -> None:
    """Copies the files of the repository that .dockerignore does not name."""
    patterns = [line.strip("/") for line in (ROOT / ".dockerignore").read_text().split()]

    def ignored(directory, names):
        place = pathlib.Path(directory).relative_to(ROOT)
        return [name for name in names if is_ignored(str(place / name), patterns)]

    shutil.copytree(ROOT, target, symlinks=True, ignore=ignored, dirs_exist_ok=True)


class Stage:
    """A root file system with the settings that the instructions after FROM have made."""

    def __init__(self, root: pathlib.Path):
        self.root, self.directory, self.user, self.environment = root, "/", "root", {}

    def inside(self, path: str) -> pathlib.Path:
        """Returns the path on this machine of a path in the stage."""
        return self.root / os.path.join(self.directory, path).lstrip("/")

    def run(self, command: str) -> None:
        """Runs a command of the shell in the stage. Raises StepError if it fails."""
        script = """set -e
mount -t proc proc "$ROOT/proc"
mount --rbind /dev "$ROOT/dev"
cp -L /etc/resolv.conf "$ROOT/etc/resolv.conf"
cd /
exec chroot --userspec="$RUN_USER" "$ROOT" /usr/bin/env -i "$@" /bin/sh -c "cd \\"$DIRECTORY\\" && $COMMAND"
"""
        settings = {"PATH": PATH, "HOME": "/root"} | {name: os.environ[name] for name in PASSED if name in os.environ}
        words = [f"{name}={value}" for name, value in (settings | self.environment).items()]
        environment = os.environ | {"ROOT": str(self.root), "RUN_USER": self.user, "DIRECTORY": self.directory, "COMMAND": command}
        namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        found = subprocess.run([*namespaces, "sh", "-c", script, "sh", *words], env=environment, check=False)
        if found.returncode != 0:
            raise StepError(f"exit code {found.returncode}: {command}")


class Runner:
    """Runs the steps of one Dockerfile."""

    def __init__(self, work: pathlib.Path, bases: dict, instead: dict):
        self.work, self.bases, self.instead, self.stages, self.names = work, bases, instead, [], {}
        self.replaced, self.last_command = 0, []

    def run(self, step: Step) -> None:
        getattr(self, f"run_{step.keyword.lower()}")(step)

    def run_from(self, step: Step) -> None:
        image, name = image_of(step)
        suite = suite_of(self.bases.get(image, image))
        root = self.work / f"stage{len(self.stages)}"
        if root.exists():
            raise StepError(f"{root} exists; remove it, or name another --work")
        subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", suite, str(root)], check=True)
        self.stages.append(Stage(root))
        self.names[name or str(len(self.stages) - 1)] = self.stages[-1]
        self.last_command = []

    def run_run(self, step: Step) -> None:
        for text, command in self.instead.items():
            if text in step.text:
                subprocess.run(["sh", "-ec", command], env=os.environ | {"ROOT": str(self.stages[-1].root)}, check=True)
                self.replaced += 1
                return
        self.stages[-1].run(step.text)

    def run_copy(self, step: Step) -> None:
        stage, sources, target = copy_of(step)
        to = self.stages[-1].inside(target)
        if not stage:
            if sources != ["."]:
                raise StepError(f"found '{step}', expected COPY . TARGET")
            return copy_repository(to)
        files = [file for source in sources for file in glob.glob(str(self.names[stage].root / source.lstrip("/")))]
        if not files:
            raise StepError(f"{' '.join(sources)}: no such file in the stage {stage}")
        to.mkdir(parents=True, exist_ok=True)
        for file in files:
            shutil.copy2(file, to)

    def run_workdir(self, step: Step) -> None:
        self.stages[-1].directory = os.path.join(self.stages[-1].directory, step.text)
        self.stages[-1].inside(".").mkdir(parents=True, exist_ok=True)

    def run_env(self, step: Step) -> None:
        self.stages[-1].environment |= dict(word.split("=", 1) for word in shlex.split(step.text))

    def run_user(self, step: Step) -> None:
        self.stages[-1].user = step.text

    def run_cmd(self, step: Step) -> None:
        self.last_command = json.loads(step.text)

    def finish(self) -> None:
        """Runs the command of the image."""
        if self.last_command:
            self.stages[-1].run(shlex.join(self.last_command))


def pairs_of(words: list) -> dict:
    return dict(word.split("=", 1) for word in words)


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs the steps of a Dockerfile in new root file systems.")
    parser.add_argument("dockerfile", type=pathlib.Path)
    parser.add_argument("--work", type=pathlib.Path, required=True, help="directory for the root file systems")
    parser.add_argument("--base", metavar="IMAGE=OTHER", action="append", default=[],
                        help="begins with the image OTHER, such as debian:12, in place of IMAGE")
    parser.add_argument("--instead", metavar="TEXT=COMMAND", action="append", default=[],
                        help="runs COMMAND on this machine in place of RUN steps that contain TEXT; $ROOT is the stage")
    arguments = parser.parse_args()
    runner = Runner(arguments.work.resolve(), pairs_of(arguments.base), pairs_of(arguments.instead))
    step = None
    try:
        steps = parse(arguments.dockerfile.read_text())
        runner.work.mkdir(parents=True, exist_ok=True)
        for i, step in enumerate(steps, 1):
            print(f"[{i}/{len(steps)}] {step}", flush=True)
            begin = time.monotonic()
            runner.run(step)
            print(f"[{i}/{len(steps)}] done in {time.monotonic() - begin:.0f} s", flush=True)
        runner.finish()
        print(f"{len(steps) - runner.replaced} of {len(steps)} steps ran, {runner.replaced} were replaced")
    except (StepError, OSError, subprocess.CalledProcessError) as error:
        print(f"run_steps: {arguments.dockerfile}{f':{step.line}' if step else ''}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Exercises as files, and the learner's state."""
import json
import os
import pathlib
import re
import shutil
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
STATE = pathlib.Path(".convoy-learn")  # in the learner's directory


class Failure(Exception):
    """Nothing that the learner's kernel has done: usage, or the harness itself. Exit status 3."""


class Exercise:
    """A directory of learn/exercises. README.md there describes the keys of exercise.toml."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.settings = tomllib.loads((self.directory / "exercise.toml").read_text(encoding="utf-8"))
        self.id, self.title, self.chapter = (self.settings[key] for key in ("id", "title", "chapter"))
        self.points, self.goal, self.edit = (self.settings[key] for key in ("points", "goal", "edit"))
        # A program is plain C++: g++ compiles it, and its driver reports counts and findings.
        self.is_program = self.settings.get("kind") == "program"
        self.suffix = ".cpp" if self.is_program else ".cu"
        self.kernel = self.settings.get("kernel")
        self.names = self.settings["values"]["names"]
        self.sizes = [as_list(size) for size in self.settings["values"]["sizes"]]
        self.counts = [{**count, "at": as_list(count["at"])} for count in self.settings.get("count", [])]
        self.driver = (self.directory / self.settings.get("driver", f"driver{self.suffix}")).resolve()

    def learner_file(self, file=None):
        """Returns the learner's file: the given one, or where `start` has put it."""
        path = pathlib.Path(file) if file else pathlib.Path(self.id) / self.edit
        if not path.is_file():
            raise Failure(f"found no file {path}, expected your solution of {self.id}; `convoy-learn start {self.id}` makes it")
        return path.resolve()

    def secret(self):
        """Returns sizes, counts and seed that the learner has not seen, or None in a pack for students."""
        path = self.directory / "secret.toml"
        if not path.exists():
            return None
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
        at = settings.get("count_at")
        counts = [{**count, "at": as_list(at)} for count in self.counts] if at is not None else []
        return {"seed": settings["seed"], "sizes": [as_list(size) for size in settings["sizes"]], "counts": counts}

    def variants(self):
        """Returns the replacements of each variant, {"max": {text: other text}}: other tasks, for homework."""
        path = self.directory / "variants.toml"
        return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def write(self, directory, variant=None):
        """Writes the exercise, or a variant of it, with a driver of its own to a directory. Returns it, and the texts that
        the variant replaces and no file has."""
        shutil.copytree(self.directory, directory, ignore=shutil.ignore_patterns("variants.toml", "driver.*"))
        shutil.copyfile(self.driver, directory / f"driver{self.suffix}")
        settings = directory / "exercise.toml"
        text = re.sub(r"^driver = .*\n", "", settings.read_text(encoding="utf-8"), flags=re.M)
        settings.write_text((f'variant = "{variant}"\n' if variant else "") + text, encoding="utf-8")
        unused = set()
        for old, new in self.variants()[variant].items() if variant else ():
            found = [path for path in directory.rglob("*.*") if path.is_file() and old in path.read_text(encoding="utf-8")]
            for path in found:
                path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
            unused |= set() if found else {old}
        return Exercise(directory), unused

    def hints(self):
        text = (self.directory / "hints.md").read_text(encoding="utf-8")
        return [part.strip() for part in re.split(r"^## .*$", text, flags=re.M)[1:]]


def as_list(size):
    return size if isinstance(size, list) else [size]


def size_text(exercise, size):
    """Returns "rows = 37, columns = 65"."""
    return ", ".join(f"{name} = {value:,}" for name, value in zip(exercise.names, size))


def find(exercise_id):
    path = ROOT / "exercises" / exercise_id
    if not re.fullmatch(r"[a-z]+-\d+", exercise_id) or not (path / "exercise.toml").exists():
        raise Failure(f"found exercise '{exercise_id}', expected one of: {' '.join(each.id for each in every())}")
    return Exercise(path)


def every():
    """All exercises, in the order of the chapters and of what they need."""
    found = [Exercise(path.parent) for path in (ROOT / "exercises").glob("*/exercise.toml")]
    order = ["train", "tensor", "host", "grad", "engine", "num", "warm", "mem", "gemm", "mma", "fuse",
             "graph", "reduce", "comm", "overlap", "zero", "proof", "time", "seed", "failure", "conv", "norm", "sync"]
    return sorted(found, key=lambda each: (each.chapter, order.index(each.id.split("-")[0]), each.id))


def state(exercise_id):
    path = STATE / f"{exercise_id}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def update_state(exercise_id, **values):
    STATE.mkdir(exist_ok=True)
    path = STATE / f"{exercise_id}.json"
    new = path.with_suffix(".new")
    new.write_text(json.dumps({**state(exercise_id), **values}, indent=1) + "\n", encoding="utf-8")
    os.replace(new, path)


def compiler():
    """Returns the g++ of CXX, or that of the PATH."""
    name = os.environ.get("CXX", "g++")
    if shutil.which(name) is None:
        raise Failure(f"found no compiler {name}; install g++ 12 or later, or set CXX")
    return name


def cuemu():
    """Returns the command that starts cuemu: that of CUEMU, of this source tree, or of the PATH."""
    for path in (os.environ.get("CUEMU"), ROOT.parent / "emulator" / "bin" / "cuemu", shutil.which("cuemu")):
        if path and pathlib.Path(path).is_file():
            return [sys.executable, str(path)]
    raise Failure("found no cuemu, expected it in ../emulator/bin, in the PATH, or named by CUEMU")


def emulator_sources():
    """Returns the directory of cuemu's sources."""
    top = pathlib.Path(cuemu()[1]).resolve().parent.parent
    for path in (top, top / "share" / "cuemu" / "emulator"):
        if (path / "cuemu" / "__main__.py").is_file():
            return path
    raise Failure(f"found no sources of cuemu in {top}")

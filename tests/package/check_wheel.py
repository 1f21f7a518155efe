#!/usr/bin/env python3
"""check_wheel.py PREFIX WORK: packs an installed build as a wheel, installs it into a new virtual environment without a
network, and uses its programs and its package there."""

import base64
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = """
import pathlib, sys, convoy
here = pathlib.Path(convoy.__file__).parent
assert pathlib.Path(convoy.find_program("convoy-train")) == here / "bin" / "convoy-train", convoy.find_program("convoy-train")
run = convoy.train(sys.argv[1], model="lenet", dataset="shapes", device="cpu", max_steps=4, batch_size=16)
image = run.directory / "samples.png"
assert [len(each) for each in run.predict([image, image], top=2)] == [2, 2]
assert run.result["steps"] == 4
"""


def run(*command, **options):
    found = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    assert found.returncode == 0, f"{command}: exit code {found.returncode}\n{found.stdout}{found.stderr}"
    return found.stdout


def main():
    prefix, work = map(pathlib.Path, sys.argv[1:])
    shutil.rmtree(work, ignore_errors=True)
    run(sys.executable, "-B", ROOT / "scripts" / "packaging" / "bundle.py", prefix, "--version", "1.2.3", "--out", work, "--only", "wheel",
        env=os.environ | {"SOURCE_DATE_EPOCH": "1700000000"})
    (wheel,) = work.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        for line in archive.read("convoy-1.2.3.dist-info/RECORD").decode().splitlines():
            name, digest, _ = line.rsplit(",", 2)
            names.remove(name)
            if digest:
                found = base64.urlsafe_b64encode(hashlib.sha256(archive.read(name)).digest()).rstrip(b"=").decode()
                assert digest == "sha256=" + found, line
        assert not names, f"RECORD lacks {names}"
    # Programs of the build, and libraries of Debian, must not help.
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_LIBRARY_PATH")}
    environment |= {"PATH": f"{work}/venv/bin:/usr/bin:/bin", "CUDA_VISIBLE_DEVICES": ""}
    run(sys.executable, "-m", "venv", work / "venv")
    run("pip", "install", "--no-index", wheel, env=environment)
    programs = sorted(path.name for path in (prefix / "bin").iterdir())
    for program in programs:
        version = run(program, "--version", env=environment)
        assert version.startswith(program + " "), version
    run("python", "-B", "-c", PROGRAM, work / "run", env=environment)
    failed = subprocess.run(["convoy-predict", "--checkpoint", "none", "x.png"], env=environment, capture_output=True, text=True)
    assert failed.returncode == 5 and failed.stderr.startswith("convoy-predict: error: "), failed
    assert "share/convoy/recipes" in run("pip", "show", "--files", "convoy", env=environment)
    run("pip", "uninstall", "--yes", "convoy", env=environment)
    left = [path for path in (work / "venv").rglob("*convoy*")]
    assert not left, left
    shutil.rmtree(work)
    print(f"{wheel.name}: {len(programs)} programs, a training and predictions")


if __name__ == "__main__":
    main()

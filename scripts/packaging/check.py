#!/usr/bin/env python3
"""Installs and tries the packages of scripts/package.sh in new root file systems, as a new user would.

    scripts/packaging/check.py build/packages --work build/packages.check

- The archive: unpacked by a user who is not root, in a system without any library of Convoy's; moved to another
  directory, where a training, its report and the launcher still work.
- The wheel: installed from the file, without a network, into a new virtual environment; its programs train, and
  tests/apps/python/convoy_package_test.py runs with it.
- The Debian package: its size, its dependencies, and the time of its installation; a training under mpirun.
- scripts/docker/Dockerfile: its steps, in which the package replaces the build.

Trains on MNIST in $CONVOY_DATA/mnist, where it is, and otherwise on generated images. Prints lines that begin with
"measured: ". Needs root, mmdebstrap and a mirror of the distribution. WORK is removed at the end if all is well.
"""

import argparse
import dataclasses
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "docker"))
import run_steps  # noqa: E402

MAX_MEGABYTES = {".deb": 15}
MAX_SECONDS = 180  # to install the Debian package with its dependencies; an idle machine takes a fraction of a minute
USER = "visitor"
INSTALL = "DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 install --yes --no-install-recommends"
RUN_AS_ROOT = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1"


def measure(what):
    print(f"measured: {what}", flush=True)


@dataclasses.dataclass
class Time:
    """A time in seconds, by the clock and of the processors, which another job on the machine does not lengthen."""

    clock: float = 0
    processors: float = 0

    def __add__(self, other):
        return Time(self.clock + other.clock, self.processors + other.processors)

    def __str__(self):
        return f"{self.clock:.0f} s ({self.processors:.0f} s of CPU time)"


def now():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Time(time.monotonic(), usage.ru_utime + usage.ru_stime)


def timed(stage, command):
    """Runs a command in a stage and returns its Time."""
    print(f"+ {command}", flush=True)
    begin = now()
    stage.run(command)
    end = now()
    return Time(end.clock - begin.clock, end.processors - begin.processors)


def release():
    """Returns {"VERSION_CODENAME": …} and the other values of this system's /etc/os-release."""
    lines = pathlib.Path("/etc/os-release").read_text().splitlines()
    return {name: value.strip('"') for name, _, value in (line.partition("=") for line in lines)}


class Check:
    def __init__(self, packages, work):
        self.work, self.found, self.update = work, {}, Time()
        for suffix in (".deb", ".tar.xz", ".whl"):
            found = sorted(packages.glob("*" + suffix))
            if len(found) != 1:
                raise run_steps.StepError(f"{packages}: found {len(found)} files *{suffix}, expected one")
            self.found[suffix] = found[0]
        data = os.environ.get("CONVOY_DATA", "")
        self.mnist = pathlib.Path(data, "mnist") if data and pathlib.Path(data, "mnist").is_dir() else None
        self.flags = ("--dataset mnist --data /data/mnist --epochs 2" if self.mnist else
                      "--dataset shapes --max-steps 100") + " --model lenet --device cpu"

    def new_system(self, name):
        """Returns a new root file system with the packages in /packages, and a user."""
        root, base = self.work / name, self.work / "base"
        if not base.exists():
            subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", release()["VERSION_CODENAME"], base], check=True)
        subprocess.run(["cp", "--archive", base, root], check=True)
        print(f"{root}: a new {release()['PRETTY_NAME']}", flush=True)
        (root / "packages").mkdir()
        for file in self.found.values():
            shutil.copy(file, root / "packages")
        if self.mnist:
            shutil.copytree(self.mnist, root / "data" / "mnist")
        stage = run_steps.Stage(root)
        stage.run(f"useradd --create-home {USER} && chmod -R a+rX /packages {'/data' if self.mnist else ''}")
        self.update = timed(stage, "apt-get update")
        return stage

    @staticmethod
    def become(stage, user):
        stage.user, stage.environment["HOME"] = user, "/root" if user == "root" else f"/home/{user}"

    def check_sizes(self):
        for suffix, file in self.found.items():
            megabytes = file.stat().st_size / 1e6
            measure(f"{file.name}: {megabytes:.1f} MB")
            if megabytes > MAX_MEGABYTES.get(suffix, 1e9):
                raise run_steps.StepError(f"{file}: {megabytes:.1f} MB, expected at most {MAX_MEGABYTES[suffix]}")

    def check_archive(self, stage):
        name = self.found[".tar.xz"].name
        directory = name.removesuffix(".tar.xz")
        timed(stage, f"{INSTALL} xz-utils")
        self.become(stage, USER)
        seconds = timed(stage, f"cd ~ && tar xf /packages/{name}")
        there, elsewhere = f"~/{directory}/bin", '"$HOME/other place/convoy"/bin'
        seconds += timed(stage, f"cd ~ && {there}/convoy-train {self.flags} --out runs/a")
        measure(f"archive: unpacked, and LeNet trained, in {seconds}")
        timed(stage, f'mkdir ~/"other place" && mv ~/{directory} ~/"other place/convoy"')
        # The loader takes each library from the archive, but those of glibc.
        timed(stage, f"""cd ~ && export PATH={elsewhere}:$PATH &&
                     ldd {elsewhere}/convoy-train | grep '=> /' | grep -v -e '/other place/convoy/' |
                       grep -v -E '/lib(c|m|mvec|dl|rt|pthread|resolv)[.]so' > foreign; cat foreign; ! test -s foreign""")
        timed(stage, f"""cd ~ && export PATH={elsewhere}:$PATH && convoy-train --version | tee version &&
                     grep -q 'CPU kernels.*x86-64' version && convoy-report runs/a && test -s runs/a/report.html &&
                     convoy-predict --checkpoint runs/a --top 1 runs/a/samples.png &&
                     convoy-launch --ranks 2 convoy-train {self.flags} --max-steps 20 --out runs/ranks &&
                     convoy-train {self.flags} --max-steps 20 --devices 2 --out runs/devices""")
        self.become(stage, "root")

    def check_wheel(self, stage):
        timed(stage, f"{INSTALL} python3-venv python3-numpy python3-pandas")
        shutil.copy(ROOT / "tests" / "apps" / "python" / "convoy_package_test.py", stage.root / "packages")
        shutil.copy(ROOT / "apps" / "python" / "README.md", stage.root / "packages")
        self.become(stage, USER)
        seconds = timed(stage, "python3 -m venv --system-site-packages ~/venv && "
                               f"~/venv/bin/pip install --no-index /packages/{self.found['.whl'].name}")
        seconds += timed(stage, f". ~/venv/bin/activate && cd ~ && convoy-train {self.flags} --out runs/w && "
                                "convoy-predict --checkpoint runs/w --top 1 runs/w/samples.png")
        measure(f"wheel: a virtual environment, pip install, LeNet trained, and a prediction, in {seconds}")
        timed(stage, "cd ~ && ~/venv/bin/python -B /packages/convoy_package_test.py --readme /packages/README.md -v")
        self.become(stage, "root")

    def check_debian(self, stage):
        name = self.found[".deb"].name
        seconds = timed(stage, f"{INSTALL} /packages/{name}")
        measure(f"Debian package: apt-get update in {self.update}, installed with its dependencies in {seconds}")
        if seconds.clock > MAX_SECONDS:
            raise run_steps.StepError(f"{name}: installed in {seconds}, expected at most {MAX_SECONDS} s")
        seconds += timed(stage, f"cd /root && convoy-train {self.flags} --out runs/d && convoy-report runs/d")
        measure(f"Debian package: from the file to LeNet trained and its report in {self.update + seconds}")
        timed(stage, f"{INSTALL} openmpi-bin && cd /root && "
                     f"env {RUN_AS_ROOT} mpirun -n 2 convoy-train {self.flags} --max-steps 20 --out runs/ranks")
        timed(stage, "apt-get remove --yes convoy && test -z \"$(find /usr /etc /opt -name '*convoy*')\"")

    def check_docker(self):
        package = self.found[".deb"]
        subprocess.run([ROOT / "scripts" / "docker" / "run_steps.py", ROOT / "scripts" / "docker" / "Dockerfile",
                        "--work", self.work / "docker", "--instead", "scripts/setup.sh=true",
                        "--instead", f"cmake --preset=mkdir -p $ROOT/packages && cp '{package}' $ROOT/packages"], check=True)
        measure("scripts/docker/Dockerfile: its steps ran, with the package in place of the build")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packages", type=pathlib.Path, help="directory of the packages")
    parser.add_argument("--work", type=pathlib.Path, required=True, help="directory for the root file systems")
    parser.add_argument("--only", choices=["archive", "wheel", "debian", "docker"], action="append",
                        help="checks this alone")
    arguments = parser.parse_args()
    only = arguments.only or ["archive", "wheel", "debian", "docker"]
    try:
        work = arguments.work.resolve()
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        check = Check(arguments.packages.resolve(), work)
        check.check_sizes()
        if set(only) - {"docker"}:
            stage = check.new_system("system")
            # The archive comes first: nothing that it needs is installed yet.
            for name in [name for name in ("archive", "wheel") if name in only]:
                getattr(check, f"check_{name}")(stage)
        if "debian" in only:  # without the packages that the wheel brought
            check.check_debian(check.new_system("debian"))
        if "docker" in only:
            check.check_docker()
        shutil.rmtree(work)
    except (run_steps.StepError, OSError, subprocess.CalledProcessError) as error:
        print(f"check.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

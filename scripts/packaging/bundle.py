#!/usr/bin/env python3
"""Packs an installed build for machines where nothing can be installed: a relocatable archive, and a Python wheel.

    scripts/packaging/bundle.py PREFIX --version 0.1.0 --out build/packages

PREFIX is a `cmake --install` of shared libraries (the preset archive). Both have the programs, the recipes, and all
libraries that the programs load but those of glibc, with the licences of the Debian packages that these come from:

    convoy-0.1.0-linux-x86_64.tar.xz                        bin/, lib/, share/, licenses/
    convoy-0.1.0-py3-none-manylinux_2_36_x86_64.whl         the same without share/doc, in the package convoy

2_36 stands for the oldest glibc that has all symbols that the files need. Needs ldd, readelf and dpkg-query. Times in
both are SOURCE_DATE_EPOCH, so the same build gives the same bytes.
"""

import argparse
import base64
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Libraries of glibc, which must be those of the machine that runs the programs.
SYSTEM = re.compile(r"(ld-linux.*|lib(c|m|mvec|dl|rt|pthread|resolv|anl|util|nss_\w+))\.so\.\d+|linux-vdso\.so\.1")
# Libraries that programs load when they first need them.
LOADED_LATER = ["libcurl.so.4"]
# Debian packages whose code is in the programs and libraries of Convoy themselves.
COMPILED_IN = ["libarchive-dev", "libcli11-dev", "libstb-dev", "node-d3", "nlohmann-json3-dev"]
SUMMARY = "Deep-learning engine: trains networks on one or many processes; the programs and a thin package around them"


class BundleError(Exception):
    """A file or package that is missing."""


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | {"LC_ALL": "C"}).stdout


def libraries_of(file):
    """Returns {soname: path} of the libraries that the loader finds for a program or library."""
    found = {}
    for line in output("ldd", str(file)).splitlines():
        name, _, rest = line.strip().partition(" => ")
        if rest.startswith("not found"):
            raise BundleError(f"{file}: {name} was not found")
        if rest and not SYSTEM.fullmatch(name):
            found[name] = pathlib.Path(rest.split(" (")[0])
    return found


def copy_programs(prefix, target):
    """Copies the programs and libraries of the build, each library under its soname alone, and share/."""
    shutil.copytree(prefix / "bin", target / "bin")
    for library in sorted(prefix.glob("lib/**/*.so.*")):
        soname = re.search(r"\(SONAME\).*\[(.*)\]", output("readelf", "--dynamic", str(library)))
        if soname and library.name == soname[1]:
            copy(library, target / library.relative_to(prefix))
    shutil.copytree(prefix / "share", target / "share")


def copy(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    shutil.copymode(source, target)


def package_of(library):
    """Returns the name of the Debian package that a library belongs to."""
    real = library.resolve()
    for path in (real, pathlib.Path("/", *real.parts[2:])):  # /usr/lib and /lib may be one directory
        owner = subprocess.run(["dpkg-query", "--search", str(path)], capture_output=True, text=True)
        if owner.returncode == 0:
            return owner.stdout.split(":")[0]
    raise BundleError(f"{real}: belongs to no Debian package, so its licence is not known")


def source_of(package):
    """Returns the name and version of the source of a Debian package, or "" if it is not installed."""
    found = subprocess.run(["dpkg-query", "--show", "--showformat", "${source:Package} ${source:Version}\n", package],
                           capture_output=True, text=True)
    return found.stdout.splitlines()[0] if found.returncode == 0 else ""


def copy_dependencies(prefix, target):
    """Copies the libraries of Debian that the programs load, and the licences of their packages."""
    needed = {soname: pathlib.Path(output("g++", f"-print-file-name={soname}").strip()) for soname in LOADED_LATER}
    for file in [*needed.values(), *sorted((prefix / "bin").iterdir())]:
        needed |= libraries_of(file)
    packages = {name: source for name in COMPILED_IN if (source := source_of(name))}
    for soname, path in sorted(needed.items()):
        if prefix in path.parents:
            continue
        copy(path, target / "lib" / soname)
        packages.setdefault(package_of(path), source_of(package_of(path)))
    for name in packages:
        copy(pathlib.Path("/usr/share/doc", name, "copyright"), target / "licenses" / name / "copyright")
    copy(ROOT / "LICENSE", target / "licenses" / "convoy" / "copyright")
    table = "".join(f"{name}: source package {source}\n" for name, source in sorted(packages.items()))
    (target / "licenses" / "README").write_text(
        "Convoy is under the MIT licence. The other libraries in lib/ are those of these Debian packages, unchanged, and code\n"
        f"of {', '.join(COMPILED_IN)} is in Convoy's. The licences are in the\n"
        "directories of the same names, and the sources at https://snapshot.debian.org/package/SOURCE/.\n\n"
        + table)


def oldest_glibc(directory):
    """Returns the version of the oldest glibc that has all symbols of the files, such as (2, 36)."""
    versions = set()
    for file in [*directory.glob("bin/*"), *directory.glob("lib/**/*.so.*")]:
        versions |= set(re.findall(r"Name: GLIBC_(\d+)\.(\d+)", output("readelf", "--version-info", str(file))))
    return max((int(major), int(minor)) for major, minor in versions)


def files_of(directory):
    return sorted(path for path in directory.rglob("*") if path.is_file())


def write_archive(directory, archive, epoch):
    def plain(member):
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        member.mtime = epoch
        return member

    with tarfile.open(archive, "w:xz", preset=6) as tar:
        for path in [directory, *sorted(directory.rglob("*"))]:
            tar.add(path, path.relative_to(directory.parent), recursive=False, filter=plain)


def write_wheel(directory, wheel, version, tag, epoch):
    """Writes a wheel (packaging.python.org, "Binary distribution format") with the files of the archive."""
    info = f"convoy-{version}.dist-info"
    programs = sorted(path.name for path in (directory / "bin").iterdir())
    readme = (ROOT / "apps" / "python" / "README.md").read_text(encoding="utf-8")
    contents = {f"convoy/{path.name}": path for path in (ROOT / "apps" / "python" / "convoy").glob("*.py")}
    for path in files_of(directory):
        part = path.relative_to(directory)
        if part.parts[:2] == ("share", "doc"):
            continue
        contents[f"{info}/{part}" if part.parts[0] == "licenses" else f"convoy/{part}"] = path
    contents |= {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: convoy\nVersion: {version}\nSummary: {SUMMARY}\n"
                            "License: MIT; that of each library in licenses/\n"
                            "Requires-Python: >=3.9\nProvides-Extra: arrays\nRequires-Dist: numpy; extra == 'arrays'\n"
                            "Requires-Dist: pandas; extra == 'arrays'\nDescription-Content-Type: text/markdown\n\n" + readme,
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: bundle.py\nRoot-Is-Purelib: false\nTag: {tag}\n",
        f"{info}/entry_points.txt": "[console_scripts]\n" + "".join(f"{name} = convoy.programs:main\n" for name in programs),
    }
    record = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        def add(name, data, mode):
            member = zipfile.ZipInfo(name, time.gmtime(max(epoch, 315532800))[:6])  # a ZIP file begins with 1980
            member.external_attr, member.compress_type = (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
            archive.writestr(member, data)

        for name, content in sorted(contents.items(), key=lambda item: (".dist-info/" in item[0], item[0])):
            data, mode = (content.encode(), 0o644) if isinstance(content, str) else (content.read_bytes(),
                                                                                       content.stat().st_mode & 0o777)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}\n")
            add(name, data, mode)
        add(f"{info}/RECORD", "".join(record) + f"{info}/RECORD,,\n", 0o644)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prefix", type=pathlib.Path, help="directory of a cmake --install")
    parser.add_argument("--version", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="directory for the two files")
    parser.add_argument("--only", choices=["archive", "wheel"], help="writes one of them")
    arguments = parser.parse_args()
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    try:
        prefix = arguments.prefix.resolve()
        machine = os.uname().machine
        arguments.out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=arguments.out) as work:
            directory = pathlib.Path(work, f"convoy-{arguments.version}-linux-{machine}")
            copy_programs(prefix, directory)
            copy_dependencies(prefix, directory)
            glibc = oldest_glibc(directory)
            print(f"runs with glibc {glibc[0]}.{glibc[1]} or later")
            if arguments.only != "wheel":
                archive = arguments.out / f"{directory.name}.tar.xz"
                write_archive(directory, archive, epoch)
                print(archive)
            if arguments.only != "archive":
                tag = f"py3-none-manylinux_{glibc[0]}_{glibc[1]}_{machine}"
                wheel = arguments.out / f"convoy-{arguments.version}-{tag}.whl"
                write_wheel(directory, wheel, arguments.version, tag, epoch)
                print(wheel)
    except (BundleError, OSError, subprocess.CalledProcessError) as error:
        print(f"bundle.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Checks that the programs start, whether they were built here or on another machine."""

from gpu_validation.work import Failed, last_line


def missing_libraries(listing):
    """Returns the libraries that ldd did not find."""
    return [line.split("=>")[0].strip() for line in listing.splitlines() if "not found" in line]


def run(work):
    build = work.programs.parent
    work.found = {"made": "here" if (build / "CMakeCache.txt").exists() else "elsewhere", "programs": []}
    for program in sorted(work.programs.iterdir()):
        missing = missing_libraries(work.run(["ldd", program]).stdout)
        if missing:
            work.problems.append(
                f"{program.name}: {', '.join(missing)} not found; validate_gpu.sh looks in {build / 'lib'}, "
                "in the wheels of python3 and in LD_LIBRARY_PATH")
        work.found["programs"].append(program.name)
    started = work.run([work.programs / "convoy-train", "--version"], 60)
    if started.returncode != 0:
        raise Failed(f"convoy-train does not start: {last_line(started.stderr)}")
    work.found["version"] = last_line(started.stdout)

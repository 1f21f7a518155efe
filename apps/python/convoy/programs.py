"""The programs of Convoy: where they are, and how they are run."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

DIRECTORY = pathlib.Path(__file__).parent / "bin"  # of an installed wheel; a source tree has none


class ProgramError(RuntimeError):
    """A program that ended with an error.

    program: its name. exit_code: as in the table of the README of Convoy; negative for a signal. message: its error, in
    one line. output: all that it printed.
    """

    def __init__(self, program, exit_code, output):
        self.program, self.exit_code, self.output = program, exit_code, output
        lines = [line for line in output.splitlines() if line.strip()]
        errors = [found[1] for line in lines if (found := re.fullmatch(rf"{re.escape(program)}: error: (.*)", line))]
        last = errors or lines[-1:] or ["it printed nothing"]
        if exit_code < 0 and not errors:
            last = [f"ended by {signal.Signals(-exit_code).name}"]
        self.message = last[-1]
        super().__init__(f"{program}: {self.message} (exit code {exit_code})")


def find_program(name):
    """Returns the path of a program of Convoy: that of this package, else the first on the PATH.

    Raises FileNotFoundError if there is none.
    """
    own = DIRECTORY / name
    path = str(own) if own.is_file() else shutil.which(name)
    if path is None:
        raise FileNotFoundError(f"{name}: found neither in {DIRECTORY} nor on the PATH; install a wheel of Convoy, or "
                                "add the directory of its programs to the PATH")
    return path


def to_arguments(flags):
    """Returns command-line arguments for flags {name: value}: a _ of a name stands for a -. None leaves a flag out, and
    lists and tuples become comma-separated lists."""
    arguments = []
    for name, value in flags.items():
        if value is None:
            continue
        if isinstance(value, bool):
            value = str(value).lower()
        elif isinstance(value, (list, tuple)):
            value = ",".join(map(str, value))
        arguments.append(f"--{name.replace('_', '-')}={os.fspath(value) if isinstance(value, os.PathLike) else value}")
    return arguments


def run_program(name, *arguments, echo=False, **flags):
    """Runs a program of Convoy, such as run_program("convoy-report", "runs/a", out="a.html"), and returns its output.

    echo: prints the output while the program runs; the returned text then includes warnings. Raises ProgramError if the
    program fails. After an interrupt (Ctrl-C), a training has saved a checkpoint when KeyboardInterrupt is raised.
    """
    command = [find_program(name), *map(os.fspath, arguments), *to_arguments(flags)]
    stderr = subprocess.STDOUT if echo else subprocess.PIPE
    # In a session of its own, so that an interrupt reaches it once: a second one would end it before it has saved.
    output, errors = [], ""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, encoding="utf-8",
                          errors="surrogateescape", start_new_session=True) as process:
        try:
            if echo:
                read_lines(process, output)
            else:
                text, errors = process.communicate()
                output.append(text)
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            read_lines(process, output) if echo else process.communicate()
            raise
        finally:
            if process.poll() is None:
                process.terminate()
    if process.returncode != 0:
        raise ProgramError(name, process.returncode, "".join(output) + errors)
    return "".join(output)


def read_lines(process, output):
    """Prints the lines of a program as they come, and appends them to `output`. Waits for its end."""
    for line in process.stdout:
        output.append(line)
        print(line.encode(errors="surrogateescape").decode(errors="replace"), end="", flush=True)
    process.wait()


def main():
    """Becomes the program of the name under which this script was started: the commands of an installed wheel."""
    name = os.path.basename(sys.argv[0])
    os.execv(find_program(name), [name, *sys.argv[1:]])

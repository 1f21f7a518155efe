"""Faults outside of a step, with real programs: each job must end, or go on, within the limit of its wait plus 2 s.

    python3 bench/python/compare.py waits --build build/test

Each row causes one fault, and shows the seconds from it until the last of the other ranks has ended, or the job goes
on; the limit that applies (comm/core/waits.h); and whether the output names who was at fault. With --python, PyTorch
DDP over gloo takes the rows that it has, with the same timeout. "A frozen host" needs root and ip (iproute2), and
"fsync hangs" the library of tests/apps/faults/preload.cpp, which the test build has.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

import generated_images
from comparisons.harness import PYTORCH, Unavailable, at_least, rank_environments, reason, table

PROGRAM = "convoy-train"
MARGIN = 2  # seconds above the limit of a wait
SECRETS = ("0123456789abcdef", "fedcba9876543210")
START = 60  # seconds that a job may take to make its first steps
HANG = 30  # seconds above the limit after which a job counts as one that never ends


class Fault:
    """A job in a directory of its own, the processes that it consists of, and what a row of the table needs."""

    def __init__(self, arguments, side, directory):
        self.arguments, self.side, self.directory = arguments, side, pathlib.Path(directory)
        self.processes, self.logs = [], []
        self.timeout = arguments.timeout

    def program(self, name):
        return str(pathlib.Path(self.arguments.convoy).with_name(name))

    def train(self, *flags, model=("--model", "lenet", "--batch-size", "64"), dataset=("--dataset", "shapes")):
        """Returns the command of a training that goes on for hours."""
        if self.side == "PyTorch":
            return [self.arguments.python, str(PYTORCH / "pytorch_ddp.py"), "--timeout", str(self.timeout)]
        return [str(self.arguments.convoy), *model, *dataset, "--device", "cpu", "--threads", "1",
                "--epochs", "100000", "--eval-every", "0", "--log-every", "10", "--comm-timeout", str(self.timeout),
                "--out", str(self.directory / "out"), *flags]

    def start(self, command, environment=None, output=None):
        """Starts a process. What it prints goes to a log, but for stdout with a file descriptor `output`."""
        self.logs.append(self.directory / f"log-{len(self.logs)}")
        with open(self.logs[-1], "w") as log:
            process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL,
                                       stdout=log if output is None else output, stderr=log,
                                       env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})})
        self.processes.append(process)
        return process

    def start_ranks(self, count, command, environment=None, absent=()):
        for rank, own in enumerate(rank_environments(count)):
            if rank not in absent:
                self.start(command, {**own, **(environment or {})})

    def text(self):
        return "".join(log.read_text(errors="replace") for log in self.logs)

    def wait_for(self, what, seconds=START):
        end = time.monotonic() + seconds
        while not what():
            if time.monotonic() > end:
                raise Unavailable(f"no steps after {seconds} s: {reason(self.text())}")
            time.sleep(0.02)

    def wait_for_step(self, step=30):
        """Waits until the first process has logged a step, of at least this number."""
        self.wait_for(lambda: f"step {step}" in self.logs[0].read_text(errors="replace"))

    def steps(self):
        return self.text().count("step ")

    def goes_on(self, since):
        return self.steps() > since + 2

    def ended(self, but=()):
        return all(process.poll() is not None for process in self.processes if process not in but)

    def close(self):
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
            process.kill()
            process.wait()


def seconds_until(condition, most):
    """Returns the seconds until the condition holds; None if it does not within `most` seconds."""
    begin = time.monotonic()
    while not condition():
        if time.monotonic() > begin + most:
            return None
        time.sleep(0.01)
    return time.monotonic() - begin


# A row is a function of a Fault. It returns the limit in seconds, the seconds that it took (None: it never ended), and
# the text that names who was at fault; "" if no rank was at fault.


def stopped_in_a_save(job):
    model = ("--model", "resnet20", "--image-size", "8", "--batch-size", "2")
    job.start_ranks(2, job.train("--save-every", "1", "--comm-warning", "2", model=model))
    job.wait_for_step(10)
    job.processes[1].send_signal(signal.SIGSTOP)
    took = seconds_until(lambda: job.ended(but=job.processes[1:]), job.timeout + HANG)
    return job.timeout + 1, took, "rank 1 on "


def absent_rank(job):
    job.start_ranks(3, job.train(), absent=(1,))
    return job.timeout, seconds_until(job.ended, job.timeout + HANG), "rank 1 "


def killed_in_the_rendezvous(job):
    job.start_ranks(4, job.train(), absent=(3,))
    time.sleep(1)
    job.processes[1].kill()
    took = seconds_until(lambda: job.ended(but=job.processes[1:2]), job.timeout + HANG)
    return job.timeout, took, "rank 3 "


def image_files(job):
    """Returns the flags of a data set of a few images in files, which it writes."""
    data = job.directory / "images"
    generated_images.write_dataset(data, 32, 512)
    return "--dataset", "folder", "--data", str(data)


def hanging_file_system(job):
    preload = job.arguments.build / "lib/libconvoy_fault_preload.so"
    found = list(job.arguments.build.rglob("libconvoy_fault_preload.so"))
    if not found:
        raise Unavailable(f"needs {preload.name} of the test build")
    faults = job.directory / "faults"
    faults.mkdir()
    # Images from files: a slow machine draws those of the other rows for longer than the limit, and moves no bytes.
    job.start_ranks(3, job.train("--save-every", "20", "--io-timeout", "4", dataset=image_files(job)),
                    {"LD_PRELOAD": str(found[0]), "CONVOY_TEST_FAULTS": str(faults)})
    job.wait_for_step(30)
    (faults / "fsync-hangs-0").write_text("1")
    took = seconds_until(job.ended, 4 + job.timeout + HANG)
    (faults / "fsync-hangs-0").unlink()
    return 4 + job.timeout, took, "rank 0 on "


def suspended_ranks(job):
    job.start_ranks(3, job.train())
    job.wait_for_step(30)
    for process in job.processes:
        process.send_signal(signal.SIGSTOP)
    time.sleep(job.arguments.suspension)
    before = job.steps()
    for process in job.processes:
        process.send_signal(signal.SIGCONT)
    took = seconds_until(lambda: job.goes_on(before), HANG)
    time.sleep(job.timeout + MARGIN)  # a deadline that has not noticed the suspension ends the job now
    return 0, took if not any(process.poll() is not None for process in job.processes) else None, ""


def suspended_mpirun(job):
    mpirun = shutil.which("mpirun")
    if not mpirun:
        raise Unavailable("needs mpirun")
    job.start([mpirun, "--allow-run-as-root", "--oversubscribe", "-n", "3", *job.train()])
    job.wait_for_step(30)
    job.processes[0].send_signal(signal.SIGTSTP)
    time.sleep(job.timeout + 7)
    before = job.steps()
    job.processes[0].send_signal(signal.SIGCONT)
    took = seconds_until(lambda: job.goes_on(before), HANG)
    time.sleep(job.timeout + MARGIN)
    return 0, took if job.processes[0].poll() is None else None, ""


def no_mpi_init(job):
    mpirun = shutil.which("mpirun")
    if not mpirun:
        raise Unavailable("needs mpirun")
    script = f"if [ $OMPI_COMM_WORLD_RANK = 1 ]; then exec sleep 600; fi; exec {' '.join(job.train())}"
    job.start([mpirun, "--allow-run-as-root", "--oversubscribe", "-n", "3", "/bin/sh", "-c", script])
    return job.timeout + 3, seconds_until(job.ended, job.timeout + HANG), "local rank 1 of "


def stopped_launcher(job):
    job.start([job.program("convoy-launch"), "--ranks", "3", *job.train()])
    job.wait_for_step(30)
    before = job.directory.joinpath("out/log.jsonl").stat().st_size
    job.processes[0].send_signal(signal.SIGSTOP)
    time.sleep(25)
    grown = job.directory.joinpath("out/log.jsonl").stat().st_size > before + 1000
    before = job.steps()
    job.processes[0].send_signal(signal.SIGCONT)
    took = seconds_until(lambda: job.goes_on(before), HANG)
    return 0, took if grown and job.processes[0].poll() is None else None, ""


def children(pid):
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def stopped_agent(job):
    job.start([job.program("convoy-launch"), "--ranks", "3", "--max-restarts", "2", "--host-timeout", "5",
               *job.train()])
    job.wait_for_step(30)
    agent = children(job.processes[0].pid)[0]
    rank = children(agent)[1]
    os.kill(agent, signal.SIGSTOP)
    os.kill(rank, signal.SIGKILL)
    try:
        took = seconds_until(lambda: "has not answered for" in job.text() or job.ended(), 5 + HANG)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(agent, signal.SIGKILL)
    return 5, took, "localhost has not answered"


def unread_output(job):
    """Rank 0 prints into a pipe that is full, since nothing reads it."""
    reader, writer = os.pipe()
    log = job.directory / "out/log.jsonl"
    try:
        for rank, environment in enumerate(rank_environments(2)):
            job.start(job.train("--log-every", "1"), environment, output=writer if rank == 0 else None)
        job.wait_for(lambda: log.exists() and log.stat().st_size > 1 << 20)  # the pipe has room for a quarter of this
        before = log.stat().st_size
        took = seconds_until(lambda: log.stat().st_size > before + 10000, HANG)
    finally:
        os.close(reader)
        os.close(writer)
    return 0, took, ""


def killed_while_others_regroup(job):
    job.start([job.program("convoy-launch"), "--ranks", "4", "--max-restarts", "3", "--min-ranks", "2", *job.train()])
    job.wait_for_step(30)
    ranks = children(children(job.processes[0].pid)[0])
    os.kill(ranks[3], signal.SIGKILL)
    time.sleep(0.1)
    os.kill(ranks[0], signal.SIGKILL)
    took = seconds_until(lambda: "continuing after step" in job.text() and "with 2 ranks" in job.text(), HANG)
    if "restart 1 of" in job.text():  # from a checkpoint: the state in memory was lost
        took = None
    return 1, took, "rank 0 on localhost was killed by SIGKILL"


def killed_agent(job):
    job.start([job.program("convoy-launch"), "--ranks", "2", *job.train()])
    job.wait_for_step(30)
    os.kill(children(job.processes[0].pid)[0], signal.SIGKILL)
    return 0, seconds_until(job.ended, HANG), "localhost"


def frozen_host(job):
    """Two network namespaces are the hosts; all processes of the second are stopped, and its cable is cut."""
    ip = shutil.which("ip") or "/usr/sbin/ip"
    if os.geteuid() != 0 or not os.path.exists(ip):
        raise Unavailable("needs root and ip")

    def run(*words):
        if subprocess.run([ip, *words], stderr=subprocess.DEVNULL).returncode != 0:
            raise Unavailable("needs network namespaces")

    names = [f"convoy-waits-{os.getpid()}-{i}" for i in range(2)]
    frozen = []
    try:
        for name in names:
            run("netns", "add", name)
        run("-n", names[0], "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", names[1])
        for i, name in enumerate(names):
            run("-n", name, "addr", "add", f"10.99.77.{i + 1}/24", "dev", "cable")
            run("-n", name, "link", "set", "cable", "up")
            run("-n", name, "link", "set", "lo", "up")
        remote = job.directory / "remote"
        remote.write_text(f"#!/bin/sh\ncase $1 in 10.99.77.1) n={names[0]} ;; *) n={names[1]} ;; esac\nshift\n"
                          f"exec {ip} netns exec $n \"$@\"\n")
        remote.chmod(0o755)
        job.start([ip, "netns", "exec", names[0], job.program("convoy-launch"), "--hosts", "10.99.77.1:2,10.99.77.2:2",
                   "--remote-command", f"{remote} {{host}}", "--max-restarts", "2", "--min-ranks", "2", *job.train()])
        job.wait_for_step(30)
        run("-n", names[1], "link", "set", "cable", "down")
        frozen = [int(pid) for pid in subprocess.run([ip, "netns", "pids", names[1]], capture_output=True,
                                                     text=True).stdout.split()]
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        starts = job.directory / "out/log.jsonl"
        took = seconds_until(lambda: starts.read_text().count('"event":"start"') >= 2, 20 + HANG)
        return 20 + 3, took, "10.99.77.2 has not answered"  # --host-timeout, and another rendezvous
    finally:
        for pid in frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for name in names:
            subprocess.run([ip, "netns", "del", name], stderr=subprocess.DEVNULL)


def killed_after_each_start(job):
    job.start([job.program("convoy-launch"), "--ranks", "3", "--max-restarts", "2", "--backoff", "0.1", *job.train()])

    def kill_ranks():
        while not job.ended():
            time.sleep(2.5)
            with contextlib.suppress(IndexError, FileNotFoundError, ProcessLookupError):
                os.kill(children(children(job.processes[0].pid)[0])[1], signal.SIGKILL)

    thread = threading.Thread(target=kill_ranks)
    thread.start()
    took = seconds_until(job.ended, 3 * 2.5 + HANG)
    thread.join()
    return 3 * (2.5 + 1), took, "was killed by SIGKILL"


def another_secret(job):
    environments = rank_environments(4)
    for rank, environment in enumerate(environments):
        job.start(job.train(), {**environment, "CONVOY_SECRET": SECRETS[rank == 2]})
    return job.timeout, seconds_until(job.ended, job.timeout + HANG), "rank 2 "


def flooded_port(job):
    """One thread connects, sends garbage and closes, for as long as the job starts. Compared with a start without.

    The data are a few images in files: ranks that draw images for seconds are delayed by any other busy thread.
    """
    dataset = image_files(job)

    def start():
        begin = time.monotonic()
        environments = rank_environments(3)
        stop = threading.Event()

        def flood():
            address = ("127.0.0.1", int(environments[0]["MASTER_PORT"]))
            while not stop.is_set():
                with contextlib.suppress(OSError), socket.create_connection(address, timeout=0.5) as stranger:
                    stranger.sendall(os.urandom(300))

        thread = threading.Thread(target=flood)
        if start.floods:
            thread.start()
        first = len(job.logs)
        try:
            for environment in environments:
                job.start(job.train(dataset=dataset),
                          {**environment, "CONVOY_SECRET": SECRETS[0]})
            took = seconds_until(lambda: "step 1" in job.logs[first].read_text(errors="replace"), START)
        finally:
            stop.set()
            if start.floods:
                thread.join()
        for process in job.processes[first:]:
            process.kill()
            process.wait()
        return took and time.monotonic() - begin

    times = {}
    for start.floods in (False, True):
        shutil.rmtree(job.directory / "out", ignore_errors=True)
        times[start.floods] = start()
        if times[False] is None:
            raise Unavailable(f"no start within {START} s, without strangers")
    delay = times[True] - times[False] if None not in times.values() else None
    return -1, delay, ""  # with the margin: less than 1 s


def too_few_descriptors(job):
    job.start_ranks(8, ["/bin/sh", "-c", f"ulimit -n 24; exec {' '.join(job.train('--comm', 'tcp'))}"])
    return job.timeout, seconds_until(job.ended, job.timeout + HANG), "ulimit -n"


ROWS = {
    "rank 1 of 2 is stopped while each step is saved": (stopped_in_a_save, ("Convoy",)),
    "rank 1 of 3 is never started": (absent_rank, ("Convoy", "PyTorch")),
    "a rank is killed in the rendezvous, another is absent": (killed_in_the_rendezvous, ("Convoy",)),
    "fsync of rank 0 hangs in a save": (hanging_file_system, ("Convoy",)),
    "all ranks are suspended, then continued": (suspended_ranks, ("Convoy", "PyTorch")),
    "mpirun gets SIGTSTP, then SIGCONT": (suspended_mpirun, ("Convoy",)),
    "rank 1 of 3 does not call MPI_Init": (no_mpi_init, ("Convoy",)),
    "convoy-launch is stopped for 25 s": (stopped_launcher, ("Convoy",)),
    "the output of rank 0 is not read": (unread_output, ("Convoy",)),
    "a second rank is killed while the others regroup": (killed_while_others_regroup, ("Convoy",)),
    "an agent is stopped, and a rank killed": (stopped_agent, ("Convoy",)),
    "an agent is killed": (killed_agent, ("Convoy",)),
    "a frozen host, --min-ranks 2": (frozen_host, ("Convoy",)),
    "a rank is killed after each start, two restarts": (killed_after_each_start, ("Convoy",)),
    "rank 2 has another secret": (another_secret, ("Convoy",)),
    "a flood of strangers at the start (delay)": (flooded_port, ("Convoy", "PyTorch")),
    "ulimit -n 24, eight ranks by TCP": (too_few_descriptors, ("Convoy",)),
}


def measure(arguments, side, function):
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        job = Fault(arguments, side, directory)
        try:
            limit, seconds, culprit = function(job)
            if arguments.output:
                print(job.text())
            return {"limit": limit, "seconds": seconds, "culprit": culprit, "named": culprit in job.text()}
        except Unavailable as problem:
            return {"left_out": str(problem)}
        finally:
            job.close()


def is_met(row):
    return row["seconds"] is not None and row["seconds"] <= row["limit"] + MARGIN and row["named"]


def compare(arguments, _):
    rows = []
    for name, (function, sides) in ROWS.items():
        if arguments.row and not any(word in name for word in arguments.row):
            continue
        for side in sides:
            if side == "PyTorch" and not arguments.python:
                continue
            for _ in range(arguments.times):
                rows.append({"fault": name, "side": side, **measure(arguments, side, function)})
                print("  " + " | ".join(cells(rows[-1])), flush=True)
    return {"timeout": arguments.timeout, "margin": MARGIN, "suspension": arguments.suspension, "rows": rows}


def cells(row):
    if "left_out" in row:
        return row["fault"], row["side"], "", row["left_out"], "", ""
    took = "never ends" if row["seconds"] is None else f"{row['seconds']:.1f} s"
    named = "-" if not row["culprit"] else "yes" if row["named"] else "no"
    return row["fault"], row["side"], f"{row['limit'] + MARGIN:g} s", took, named, "yes" if is_met(row) else "no"


def print_figures(figures):
    print("\n".join(table(("fault", "side", "at most", "ended or went on after", "names who was at fault", "met"),
                          [cells(row) for row in figures["rows"]])))


def add_flags(flags):
    flags.add_argument("--python", help="a Python with PyTorch; default: Convoy's rows only")
    flags.add_argument("--times", type=at_least(1), default=1, help="faults per row")
    flags.add_argument("--timeout", type=at_least(0.1, float), default=5, help="--comm-timeout, and PyTorch's (seconds)")
    flags.add_argument("--suspension", type=at_least(0, float), default=60, help="how long all ranks are suspended (seconds)")
    flags.add_argument("--output", action="store_true", help="also print what the processes print")
    flags.add_argument("--row", nargs="+", help="only rows with one of these words")


def check(arguments):
    """Refuses words that no row has, and an interpreter that does not exist."""
    if arguments.python and shutil.which(arguments.python) is None:
        arguments.error(f"--python: found no program {arguments.python}")
    for word in arguments.row or []:
        if not any(word in name for name in ROWS):
            arguments.error(f"--row: found '{word}', expected words of: {'; '.join(ROWS)}")

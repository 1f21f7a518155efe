"""Records clocks, power, temperature and the reasons for lower clocks while all stages run."""

import shutil
import subprocess

QUERY = ("timestamp", "clocks.sm", "clocks.mem", "power.draw", "temperature.gpu", "utilization.gpu",
         "clocks_event_reasons.active")


def start(directory):
    """Starts to append a line per second to clocks.csv in the directory. Returns the process, or None without nvidia-smi."""
    if not shutil.which("nvidia-smi"):
        return None
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "clocks.csv").open("a") as file:
        return subprocess.Popen(["nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv", "--loop=1"],
                                stdout=file, stderr=subprocess.DEVNULL)


def stop(process):
    if process is not None:
        process.terminate()
        process.wait()

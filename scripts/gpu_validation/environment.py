"""Records the machine's GPU, driver, libraries and tools."""

import ctypes
import os
import pathlib
import platform
import re
import shutil
import tempfile

from gpu_validation.work import Failed, last_line

# Newest first. The loader finds these names along LD_LIBRARY_PATH, as it does for the programs.
LIBRARIES = {
    "CUDA driver": (("libcuda.so.1",), "cuDriverGetVersion"),
    "CUDA runtime": (("libcudart.so.13", "libcudart.so.12"), "cudaRuntimeGetVersion"),
    "cuDNN": (("libcudnn.so.9",), "cudnnGetVersion"),
    "cuBLASLt": (("libcublasLt.so.13", "libcublasLt.so.12"), "cublasLtGetVersion"),
    "NCCL": (("libnccl.so.2",), "ncclGetVersion"),
}
RETURNED = ("cudnnGetVersion", "cublasLtGetVersion")  # the other functions write the version to a pointer argument


def version_text(library, number):
    """Decodes a version number: CUDA encodes 13.0 as 13000, the other libraries encode 9.19.0 as 91900."""
    if library.startswith("CUDA"):
        return f"{number // 1000}.{number % 1000 // 10}"
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def mapped_file(name):
    """Returns the path from which a library of this name was loaded."""
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if pathlib.PurePath(path).name.startswith(name.split(".so")[0] + ".so"):
            return path
    return "unknown path"


def library_version(library):
    """Returns the version that the library reports and its path, or why it cannot be queried."""
    names, function = LIBRARIES[library]
    problem = ""
    for name in names:
        try:
            ask = getattr(ctypes.CDLL(name), function)
        except (OSError, AttributeError) as error:
            problem = problem or str(error)
            continue
        if function in RETURNED:
            ask.restype = ctypes.c_size_t
            number = ask()
        else:
            value = ctypes.c_int(0)
            code = ask(ctypes.byref(value))
            if code != 0:
                return f"{function} returned {code}"
            number = value.value
        return f"{version_text(library, number)} ({mapped_file(name)})"
    return f"not found: {problem}"


def gpu_name(work):
    """Returns the GPU's name from nvidia-smi, "emulated GPU" in the emulator, or None."""
    if os.environ.get("CONVOY_EMULATED_GPUS", "0") != "0":
        return "emulated GPU"
    try:
        found = work.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], 60)
    except Failed:
        return None
    return found.stdout.splitlines()[0].strip() if found.returncode == 0 and found.stdout.strip() else None


def need_device(work):
    """Raises Failed with convoy-train's error line if it cannot use a GPU."""
    with tempfile.TemporaryDirectory() as directory:
        done = work.run([work.programs / "convoy-train", "--model", "lenet", "--dataset", "shapes", "--device", "cuda",
                         "--batch-size", 1, "--dry-run", "--out", directory], 90)
    if done.returncode != 0:
        raise Failed(last_line(done.stderr))


def sanitizer_problem(work):
    """Returns why compute-sanitizer refuses this machine, as some virtual ones, or "". Raises Failed for an error."""
    tests = work.programs / "cuda_runtime_test"
    if not shutil.which("compute-sanitizer"):
        return "not installed"
    done = work.run(["compute-sanitizer", "--tool", "memcheck", tests, "--gtest_filter=CudaDispatch*:CudaRuntime*"], 90)
    refused = re.search(r"Device not supported|not supported on this|Failed to initialize|Unable to",
                        done.stdout + done.stderr)
    if not refused and "ERROR SUMMARY" not in done.stdout:
        raise Failed(f"compute-sanitizer: {last_line(done.stdout + done.stderr)}")
    return refused.group(0) if refused else ""


def run(work):
    def ask(*command):
        try:
            done = work.run(command, 60)
            return last_line(done.stdout if done.returncode == 0 else done.stderr)
        except Failed as problem:
            return str(problem)

    work.found = {
        "GPU": ask("nvidia-smi", "--query-gpu=name,driver_version,memory.total,compute_cap", "--format=csv,noheader"),
        "processor": processor_name(),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "nvcc": ask("nvcc", "--version"),
        "PyTorch": ask(work.python, "-c", "import torch; print(torch.__version__)"),
        "Convoy": ask(work.programs / "convoy-train", "--version"),
    }
    for library in LIBRARIES:
        work.found[library] = library_version(library)
    need_device(work)
    try:
        work.found["compute-sanitizer"] = sanitizer_problem(work) or "works"
    except Failed as problem:  # fails the stages that use it
        work.found["compute-sanitizer"] = str(problem)


def processor_name():
    match = re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return match.group(1) if match else platform.machine()

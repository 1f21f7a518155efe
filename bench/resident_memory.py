"""What this process has in memory, as the kernel counts it."""


def resident_bytes(field):
    """VmRSS: resident now. VmHWM: the most that was."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    raise ValueError(f"/proc/self/status has no line {field}")

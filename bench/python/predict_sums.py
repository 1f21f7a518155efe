#!/usr/bin/env python3
"""Compares all-reduces between hosts with what the model of comm/core/all_reduce.h predicts.

    sudo python3 bench/python/predict_sums.py --build build/release --ranks 2,4,8,16,32,64 --rate 100mbit

Each rank is a host: a network namespace of this machine, whose link to a switch sends at --rate (tbf of tc, which must be in
the kernel). convoy-bench-allreduce sums --bytes on all ranks with each algorithm. Latency and bandwidth of the model are
fitted to two ranks (direct: a message each way and another one), to a sum of 4 bytes and to one of --bytes; all other
numbers of ranks are predicted. The table has the measured seconds, the predicted ones and their ratio. Needs root, ip and tc.
"""

import argparse
import json
import os
import pathlib
import subprocess
import tempfile

from comparisons.harness import at_least

NETWORK = "10.213.79"
ALGORITHMS = ("tree", "halving-doubling", "ring")


class Hosts:
    """Network namespaces that a bridge connects."""

    def __init__(self, count, rate):
        self.names = [f"sums-{os.getpid()}-{i}" for i in range(count)]
        self.bridge = f"sums{os.getpid()}"[:15]
        self.rate = rate

    def __enter__(self):
        run("ip", "link", "add", self.bridge, "type", "bridge")
        run("ip", "link", "set", self.bridge, "up")
        for i, name in enumerate(self.names):
            outside = f"s{os.getpid()}.{i}"
            run("ip", "netns", "add", name)
            run("ip", "link", "add", outside, "type", "veth", "peer", "name", "cable", "netns", name)
            run("ip", "link", "set", outside, "master", self.bridge, "up")
            run("ip", "-n", name, "addr", "add", f"{NETWORK}.{i + 1}/24", "dev", "cable")
            for device in ("cable", "lo"):
                run("ip", "-n", name, "link", "set", device, "up")
            run("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "cable", "root", "tbf", "rate", self.rate, "burst",
                "64kb", "latency", "500ms")
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False)
        subprocess.run(["ip", "link", "del", self.bridge], check=False)

    def sum_seconds(self, build, size, algorithm, iterations):
        """Returns the seconds of an all-reduce of `size` bytes on all hosts."""
        with tempfile.TemporaryDirectory() as directory:
            figures = pathlib.Path(directory) / "figures.json"
            ranks = []
            for rank, name in enumerate(self.names):
                environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(len(self.names)), "OMP_NUM_THREADS": "1",
                               "MASTER_ADDR": f"{NETWORK}.1", "MASTER_PORT": "29555"}
                ranks.append(subprocess.Popen(
                    ["ip", "netns", "exec", name, str(build / "bin" / "convoy-bench-allreduce"), "--device", "cpu", "--comm",
                     "tcp", "--allreduce", algorithm, "-b", str(size), "-e", str(size), "-n", str(iterations), "-w", "2", "-c",
                     "0", "--json", str(figures)], env=environment, stdout=subprocess.DEVNULL))
            if any([rank.wait() for rank in ranks]):
                raise SystemExit(f"predict_sums: convoy-bench-allreduce failed on {len(self.names)} ranks by {algorithm}")
            return json.loads(figures.read_text())["rows"][0]["in_place"]["time_us"] * 1e-6


def halvings(ranks):
    """Returns the steps of recursive halving."""
    steps = 0
    while ranks > 1:
        ranks = (ranks + 1) // 2
        steps += 1
    return steps


def predicted(algorithm, ranks, size, latency, rate):
    """Returns the seconds that the model gives an all-reduce; rate in bytes/s."""
    whole, shards = size / rate, (ranks - 1) / ranks * size / rate
    if algorithm == "tree":
        return 2 * halvings(ranks) * (latency + whole)
    return 2 * ((halvings(ranks) if algorithm == "halving-doubling" else ranks - 1) * 2 * latency + shards)


def run(*command):
    subprocess.run(command, check=True)


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"))
    flags.add_argument("--ranks", default="4,8,16,32,64", help="numbers of ranks that are predicted")
    flags.add_argument("--bytes", type=at_least(4), default=1 << 20)
    flags.add_argument("--rate", default="100mbit", help="of the link of a rank, in the notation of tc")
    flags.add_argument("--iterations", type=at_least(1), default=5)
    arguments = flags.parse_args()
    with Hosts(2, arguments.rate) as pair:
        small, large = (pair.sum_seconds(arguments.build, size, "halving-doubling", arguments.iterations)
                        for size in (4, arguments.bytes))
    latency = small / 4  # two steps, in which a rank sends and receives
    rate = arguments.bytes / (large - small)
    print(f"fitted to two ranks: {latency * 1e6:.0f} us and {rate / 1e6:.2f} MB/s\n")
    print("| ranks | algorithm | measured, s | predicted, s | ratio |\n|---|---|---|---|---|")
    for count in map(int, arguments.ranks.split(",")):
        with Hosts(count, arguments.rate) as hosts:
            for algorithm in ALGORITHMS:
                measured = hosts.sum_seconds(arguments.build, arguments.bytes, algorithm, arguments.iterations)
                expected = predicted(algorithm, count, arguments.bytes, latency, rate)
                print(f"| {count} | {algorithm} | {measured:.3f} | {expected:.3f} | {measured / expected:.2f} |", flush=True)


if __name__ == "__main__":
    main()

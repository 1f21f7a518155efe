#!/usr/bin/env bash
# bench/speedrun.sh [flags of bench/python/compare.py speedrun]: builds, trains by the speed recipe with several seeds,
# and prints accuracies and times as a table. --json and --plot write files; --help lists the flags.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/lib.sh"
preset=release
device=cpu
if has_gpu && has_nvcc; then
  preset=cuda
  device=cuda
fi
build "$preset" --target convoy-train
exec python3 "$root/bench/python/compare.py" speedrun --build "$root/build/$preset" --device "$device" "$@"

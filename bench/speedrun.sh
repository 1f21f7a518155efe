#!/usr/bin/env bash
# bench/speedrun.sh [flags of bench/python/compare.py speedrun]: builds, trains by the speed recipe with several seeds,
# and prints accuracies and times as a table. --json and --plot write files; --help lists the flags.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/lib.sh"
preset=release
device=cpu
compare=(python3 "$root/bench/python/compare.py" speedrun)
[[ " $* " =~ " "(-h|--help)" " ]] && exec "${compare[@]}" --help
if has_gpu && has_nvcc; then
  preset=cuda
  device=cuda
fi
"${compare[@]}" --check-flags --device "$device" "$@"  # before minutes of building
build "$preset" --target convoy-train
exec "${compare[@]}" --build "$root/build/$preset" --device "$device" "$@"

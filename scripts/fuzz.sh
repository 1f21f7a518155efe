#!/usr/bin/env bash
# fuzz.sh TARGET [MINUTES]: searches for inputs that break a parser (tests/fuzz), with clang's libFuzzer, for 15
# minutes by default. Inputs that reach new code are merged into tests/fuzz/corpus/TARGET.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=${1:-} minutes=${2:-15}
case $target in
  safetensors | manifest | configuration | store_frames | control_messages) ;;
  *)
    echo "fuzz.sh: found target '$target', expected safetensors, manifest, configuration, store_frames or control_messages" >&2
    exit 2
    ;;
esac
if (($# > 2)); then
  echo "fuzz.sh: found ${*:3}, expected TARGET [MINUTES]" >&2
  exit 2
fi
if ! [[ $minutes =~ ^[1-9][0-9]*$ ]]; then
  echo "fuzz.sh: found '$minutes' minutes, expected a whole number from 1" >&2
  exit 2
fi
flags='-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -O1'
cmake -S . -B build/fuzz -G Ninja -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=Debug \
  -DCONVOY_FUZZ=ON -DCONVOY_WERROR=OFF -DCMAKE_CXX_FLAGS="$flags" >/dev/null
cmake --build build/fuzz --target convoy_fuzz
found=build/fuzz/found/$target
corpus=tests/fuzz/corpus/$target
mkdir -p "$found" "$corpus"
export CONVOY_FUZZ_TARGET=$target
program=$(find build/fuzz -name convoy_fuzz -type f)
"$program" "$found" "$corpus" -max_total_time=$((60 * minutes)) -max_len=4096 -timeout=10 -rss_limit_mb=4096 \
  -artifact_prefix="build/fuzz/$target-" -print_final_stats=1
small=$(mktemp -d)
trap 'rm -r "$small"' EXIT
find "$found" -type f -size -513c -print0 | sort -z | xargs -0 cp -t "$small"
"$program" -merge=1 -max_len=512 "$corpus" "$small"
# The corpus stays small: the inputs that were there first are kept.
mapfile -t extra < <(find "$corpus" -type f -printf '%T@ %p\n' | sort -n | tail -n +61 | cut -d' ' -f2)
[[ ${#extra[@]} == 0 ]] || rm "${extra[@]}"

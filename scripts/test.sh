#!/usr/bin/env bash
# scripts/test.sh [PRESET…]: installs what is missing, builds, and runs every test that this machine can run, closing
# with CTest's summary over all builds. Without names: debug (AddressSanitizer, UndefinedBehaviorSanitizer, GPUs emulated
# on the CPU), tsan (ThreadSanitizer, the concurrent parts), and the optimised build: cuda where there is an nvcc, else
# release. `release` and `cuda` differ in the device alone; with a GPU, the tests of cuda run on it.
#
# CONVOY_DATA=DIR: the folder of real data sets (DIR/cifar10, DIR/mnist); tests that need them are skipped without.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/lib.sh"

known=(debug release tsan cuda)
for argument in "$@"; do
  case " ${known[*]} " in
    *" $argument "*) ;;
    *)
      say "usage: scripts/test.sh [PRESET…], of ${known[*]}; found '$argument'"
      [[ $argument == -h || $argument == --help ]] && exit 0
      exit 2
      ;;
  esac
done

"$root/scripts/setup.sh" --quiet
presets=("$@")
if ((${#presets[@]} == 0)); then
  presets=(debug tsan)
  if has_nvcc; then
    presets+=(cuda)
  else
    say "no nvcc: CUDA sources are run by the emulator alone, and not compiled for a GPU"
    presets+=(release)
  fi
fi
if [[ -z ${CONVOY_DATA:-} && -d $root/data ]]; then export CONVOY_DATA=$root/data; fi

for preset in "${presets[@]}"; do
  case $preset in
    tsan) build tsan convoy_tests ;;  # not the programs: nothing here would run them
    *) build "$preset" ;;
  esac
done

# One CTest run over all build folders, so that its summary is the total.
mkdir -p "$root/build/tests"
printf 'subdirs("../%s")\n' "${presets[@]}" >"$root/build/tests/CTestTestfile.cmake"
say "testing ${presets[*]}"
left_out=soak
if [[ " ${presets[*]} " == *" cuda "* ]] && ! has_gpu; then
  say "no GPU: tests that need one run in the debug build alone, on emulated GPUs"
  left_out='soak|gpu'
fi
exec ctest --test-dir "$root/build/tests" --label-exclude "$left_out" --output-on-failure --parallel "$(jobs)"

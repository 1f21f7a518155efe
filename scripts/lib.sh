# shellcheck shell=bash disable=SC2154
# What the scripts share. To be sourced, with root set to the repository's.

say() { printf '%s\n' "$*" >&2; }

die() {
  say "$(basename "$0"): $*"
  exit 1
}

has_gpu() { nvidia-smi --list-gpus >/dev/null 2>&1; }
has_nvcc() { command -v nvcc >/dev/null || [[ -x ${CUDA_HOME:-/usr/local/cuda}/bin/nvcc ]]; }

# Compilers at once: a core each, and 1.5 GiB of free memory each, which the largest sources need.
jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/^MemAvailable:/ {print int($2 / 1572864)}' /proc/meminfo 2>/dev/null || echo "$cores")
  ((memory < 1)) && memory=1
  echo $((cores < memory ? cores : memory))
}

stages=()  # what took how long, for minutes()

# Prints the stages so far with their minutes.
minutes() {
  local stage
  say "minutes:"
  for stage in "${stages[@]}"; do say "$(awk "BEGIN {printf \"%8.1f\", ${stage%% *} / 60}")  ${stage#* }"; done
}

# quietly LOG WHAT COMMAND…: the command's output goes to LOG, and its end to the screen where it fails.
quietly() {
  local log=$1 what=$2 start=$SECONDS
  shift 2
  mkdir -p "$(dirname "$log")"
  say "$what …"
  if ! "$@" >"$log" 2>&1; then
    tail -n 60 "$log" >&2
    die "$what failed; the whole output is in $log"
  fi
  stages+=("$((SECONDS - start)) $what")
  say "$what: done in $((SECONDS - start)) s"
}

# build PRESET [-DNAME=VALUE…] [--target TARGET]: configures and builds into build/PRESET.
build() {
  local preset=$1 settings=()
  shift
  while (($# > 0)) && [[ $1 == -D* ]]; do
    settings+=("$1")
    shift
  done
  quietly "$root/build/$preset.configure.log" "configuring $preset" cmake -S "$root" --preset "$preset" "${settings[@]}"
  quietly "$root/build/$preset.build.log" "building $preset" \
    cmake --build "$root/build/$preset" --parallel "$(jobs)" "$@"
}

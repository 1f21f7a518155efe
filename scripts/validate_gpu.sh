#!/usr/bin/env bash
# scripts/validate_gpu.sh [--build DIR] [--stages LIST] [--again] [--budget SECONDS]: runs the checks that need a real
# GPU and writes bench/results/<gpu>/validation.{json,md}. The stages are: tests on the device, compute-sanitizer,
# whole trainings compared with the CPU and with PyTorch, ranks that share the GPU through NCCL, the bandwidth of each
# kernel, and training rates compared with PyTorch. Installs nothing, and continues after a stage that fails. Stages
# that have passed are not run again, so another call continues where the time ran out.
#
# Without a build it makes one, which needs the packages of scripts/setup.sh. If nothing can be installed, make an
# archive on another machine with scripts/pack_gpu_build.sh and unpack it into build/cuda here.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/lib.sh"

build_dir=$root/build/cuda
python=python3
for ((i = 1; i < $#; ++i)); do
  next=$((i + 1))
  [[ ${!i} == --build ]] && build_dir=${!next}
  [[ ${!i} == --python ]] && python=${!next}
done
if [[ ! -x $build_dir/bin/convoy-train && $build_dir == "$root/build/cuda" && ! " $* " =~ " "(-h|--help)" " ]]; then
  build cuda
fi

# Shared libraries that came with the build, and CUDA's own if they are installed as Python wheels only. cuDNN's first
# library opens the others by name, and they open the compiler's: all of them have to be found.
libraries=$build_dir/lib
for place in $("$python" -c 'import nvidia; print(*nvidia.__path__)' 2>/dev/null || true); do
  for library in "$place"/*/lib; do
    [[ -d $library ]] && libraries+=:$library
  done
done
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
exec python3 "$root/scripts/validate_gpu.py" "$@"

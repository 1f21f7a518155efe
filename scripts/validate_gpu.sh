#!/usr/bin/env bash
# scripts/validate_gpu.sh [--build DIR] [--out DIR] [--resume FILE] [--call 1|2 | --stages LIST] [--again]
# [--budget SECONDS]: runs the checks that need a real GPU and writes validation.json, validation.md and raw output to DIR,
# by default $OUT or bench/results/<gpu>. --call 1 and then --call 2 are what fits into a quarter of an hour of a GPU.
# The stages are: short trainings, whole trainings compared with the CPU and with PyTorch, training rates compared with
# PyTorch, tests on the device, compute-sanitizer, ranks that share the GPU through NCCL, and the bandwidth of each
# kernel. Installs nothing, and continues after a stage that fails. Stages that have passed, in DIR or in the
# validation.json that --resume names, are not run again, so another call continues where the time ran out.
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
  python3 "$root/scripts/validate_gpu.py" --check-flags "$@"  # before minutes of building
  build cuda -DCONVOY_WERROR=OFF -DCMAKE_CUDA_ARCHITECTURES=native
fi

# CUDA's libraries, if they are installed as Python wheels only. cuDNN's first library opens the others by name, and they
# open the compiler's: all of them have to be found. (The programs of a packed build find its own libraries.)
libraries=
for place in $("$python" -c 'import nvidia; print(*nvidia.__path__)' 2>/dev/null || true); do
  for library in "$place"/*/lib; do
    [[ -d $library ]] && libraries+=${libraries:+:}$library
  done
done
[[ -n $libraries ]] && export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# What torch.compile has compiled for one stage is used by the next.
export TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-$(mktemp -d)}
exec python3 "$root/scripts/validate_gpu.py" "$@"

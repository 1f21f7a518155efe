#!/usr/bin/env bash
# scripts/validate_gpu.sh [--build DIR] [--stages LIST] [--again] [--budget SECONDS]: on a machine with a GPU, runs what
# only a GPU can show (tests on the device, compute-sanitizer, whole trainings beside the CPU's and PyTorch's, ranks that
# share the GPU through NCCL, the bandwidth of each kernel, training rates beside PyTorch's) and writes
# bench/results/<gpu>/validation.{json,md}. Installs nothing, and goes on past a stage that fails; stages that passed
# before are not run again, so that another call takes up what the time did not suffice for.
#
# Without a build it makes one, which needs what scripts/setup.sh installs. Where nothing can be installed, bring one:
# scripts/pack_gpu_build.sh makes an archive elsewhere, to be unpacked into build/cuda here.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/lib.sh"

folder=$root/build/cuda
python=python3
for ((i = 1; i < $#; ++i)); do
  next=$((i + 1))
  [[ ${!i} == --build ]] && folder=${!next}
  [[ ${!i} == --python ]] && python=${!next}
done
if [[ ! -x $folder/bin/convoy-train && $folder == "$root/build/cuda" && ! " $* " =~ " "(-h|--help)" " ]]; then
  build cuda
fi

# Shared libraries that came with the build, and CUDA's own where Python wheels are all there is. cuDNN's first library
# opens the others by name, and they the compiler's: all of them have to be found.
libraries=$folder/lib
for place in $("$python" -c 'import nvidia; print(*nvidia.__path__)' 2>/dev/null || true); do
  for library in "$place"/*/lib; do
    [[ -d $library ]] && libraries+=:$library
  done
done
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
exec python3 "$root/scripts/validate_gpu.py" "$@"

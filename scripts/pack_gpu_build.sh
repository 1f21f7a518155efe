#!/usr/bin/env bash
# scripts/pack_gpu_build.sh [ARCHITECTURE] [FILE] [PROGRAM…]: builds the programs and the GPU tests for one architecture
# (default 90, Hopper) and any x86-64 processor with AVX2, and packs them with the shared libraries that a minimal system
# lacks. With names, such as convoy-train cuda_spatial_test, builds and packs these alone.
# On the GPU machine: mkdir -p build/cuda && tar -xJf FILE -C build/cuda && scripts/validate_gpu.sh
# With `emulated` for ARCHITECTURE, the same for a rehearsal: packs the `test` preset, whose GPUs are emulated. Then:
# CONVOY_EMULATED_GPUS=2 scripts/validate_gpu.sh --quick
#
# CUDA's own libraries are not packed: they take gigabytes, and the machine has them from the toolkit or Python wheels.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/lib.sh"
if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '2,/^$/{/^#/!q;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
  exit 0
fi
architecture=${1:-90}
[[ $architecture =~ ^([0-9]+|emulated)$ ]] ||
  die "ARCHITECTURE: found '$architecture', expected a number such as 90 (Hopper) or 80 (Ampere), or emulated"
file=${2:-$root/build/gpu-$architecture.tar.xz}
[[ -z ${2:-} || -d $(dirname "$2") ]] || die "FILE: found no directory $(dirname "$2")"
only=("${@:3}")
build=$root/build/gpu-$architecture

command -v patchelf >/dev/null || die "packing needs patchelf; ask for: apt-get install patchelf"
settings=(--preset test)
# Another compiler may have other warnings, so they are no errors here.
[[ $architecture == emulated ]] || settings=(--preset cuda -DCMAKE_CUDA_ARCHITECTURES="$architecture-real"
  -DCONVOY_NATIVE=OFF -DCONVOY_WERROR=OFF -DCMAKE_CXX_FLAGS=-march=x86-64-v3)
quietly "$build.configure.log" "configuring for GPUs: $architecture" cmake -S "$root" "${settings[@]}" -B "$build"
quietly "$build.build.log" "building" cmake --build "$build" --parallel "$(jobs)" ${only:+--target "${only[@]}"}

# Not packed: the C and C++ runtimes, which every system has, and the libraries of the driver and of CUDA.
excluded='/(libc|libm|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s|ld-linux-x86-64'
excluded+='|libcuda|libcudart|libcudnn[a-z_]*|libcublas|libcublasLt|libnvrtc[a-z0-9_-]*|libnvJitLink|libnccl)\.so'
packed=$(mktemp -d)
trap 'rm -rf "$packed"' EXIT
mkdir -p "$packed/bin" "$packed/lib"
programs=("${only[@]/#/$build/bin/}")
if ((${#only[@]} == 0)); then
  programs=("$build"/bin/convoy-*)
  for program in comm_nccl_ranks hopper_convolution_bench; do
    [[ -x $build/bin/$program ]] && programs+=("$build/bin/$program")
  done
  for test in "$build"/bin/*_test; do
    # The same rule as in gpu_validation/device_tests.py: by the names of suites and tests.
    # Without -q: grep would end at the first match, and the program would fail when it prints the rest.
    "$test" --gtest_list_tests | grep -E 'Cuda|Cudnn|Cublas|Gpu' >/dev/null && programs+=("$test")
  done
fi
for program in "${programs[@]}"; do
  strip -o "$packed/bin/$(basename "$program")" "$program"
  ldd "$program" | awk '$3 ~ /^\// {print $3}' | grep -Ev "$excluded" || true
done | sort -u | while read -r library; do cp -L "$library" "$packed/lib/"; done
# Programs and libraries search for libraries in the packed directory first, then where the system and LD_LIBRARY_PATH
# say. With the packed directory in LD_LIBRARY_PATH, Python would find them too. A RUNPATH, as Debian's Open MPI has one,
# would hide the packed directory from the libraries that this library needs, so it must be an RPATH.
patchelf --force-rpath --set-rpath '$ORIGIN/../lib' "$packed"/bin/* "$packed"/lib/*
for object in "$packed"/bin/* "$packed"/lib/*; do
  for needed in $(patchelf --print-needed "$object"); do
    [[ -e $packed/lib/$needed || /$needed =~ $excluded ]] ||
      die "$(basename "$object") needs $needed, which is neither packed nor part of the system, the driver or CUDA"
  done
done
# The programs contain the same kernels: a dictionary larger than all programs stores them once. (Packing takes about
# 4 GiB of memory, and unpacking 512 MiB.)
tar -C "$packed" --sort=name -cf - . | xz -T1 --lzma2=preset=3,dict=512MiB >"$file"
say "$file: $(du -h "$file" | cut -f1), $((${#programs[@]})) programs"

#!/usr/bin/env bash
# scripts/pack_gpu_build.sh [ARCHITECTURE] [FILE]: builds the programs and the tests of a GPU for one architecture
# (default 90, Hopper) and any x86-64 processor with AVX2, and packs them with the shared libraries that a bare machine
# lacks. There: mkdir -p build/cuda && tar -xJf FILE -C build/cuda && scripts/validate_gpu.sh
#
# CUDA's own libraries are left out: they take gigabytes, and are on the machine, as the toolkit or as Python wheels.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/lib.sh"
architecture=${1:-90}
[[ $architecture =~ ^[0-9]+$ ]] ||
  die "found the architecture '$architecture', expected a number such as 90 (Hopper) or 80 (Ampere)"
file=${2:-$root/build/gpu-$architecture.tar.xz}
folder=$root/build/gpu-$architecture

quietly "$folder.configure.log" "configuring for sm_$architecture" cmake -S "$root" --preset cuda -B "$folder" \
  -DCMAKE_CUDA_ARCHITECTURES="$architecture-real" -DCONVOY_NATIVE=OFF -DCMAKE_CXX_FLAGS=-march=x86-64-v3
quietly "$folder.build.log" "building" cmake --build "$folder" --parallel "$(jobs)"

# What every system has (the C and C++ runtimes), the driver's, and CUDA's.
theirs='/(libc|libm|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s|ld-linux-x86-64'
theirs+='|libcuda|libcudart|libcudnn[a-z_]*|libcublas|libcublasLt|libnvrtc[a-z0-9_-]*|libnvJitLink|libnccl)\.so'
packed=$(mktemp -d)
trap 'rm -rf "$packed"' EXIT
mkdir -p "$packed/bin" "$packed/lib"
programs=("$folder"/bin/convoy-*)
[[ -x $folder/bin/comm_nccl_ranks ]] && programs+=("$folder/bin/comm_nccl_ranks")
for test in "$folder"/bin/*_test; do
  # As validate_gpu.py chooses what it runs: by the names of suites and tests.
  "$test" --gtest_list_tests | grep -qE 'Cuda|Gpu' && programs+=("$test")
done
for program in "${programs[@]}"; do
  strip -o "$packed/bin/$(basename "$program")" "$program"
  ldd "$program" | awk '$3 ~ /^\// {print $3}' | grep -Ev "$theirs" || true
done | sort -u | while read -r library; do cp -L "$library" "$packed/lib/"; done
# The programs hold the same kernels: a dictionary that reaches from one to the next packs them once.
tar -C "$packed" --sort=name -cf - . | xz -T1 -9 >"$file"
say "$file: $(du -h "$file" | cut -f1), $((${#programs[@]})) programs"

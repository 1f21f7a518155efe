#!/usr/bin/env bash
# scripts/pack_gpu_build.sh [ARCHITECTURE] [FILE]: builds the programs and tests for one GPU architecture (default 90, Hopper)
# and any x86-64 processor with AVX2, and packs them with the shared libraries that a bare machine lacks. There:
# mkdir -p build/cuda && tar -xJf FILE -C build/cuda && scripts/validate_gpu.sh
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/lib.sh"
architecture=${1:-90}
[[ $architecture =~ ^[0-9]+$ ]] || die "found the architecture '$architecture', expected a number such as 90 (Hopper) or 80 (Ampere)"
file=${2:-$root/build/gpu-$architecture.tar.xz}
folder=$root/build/gpu-$architecture

quietly "$folder.configure.log" "configuring for sm_$architecture" cmake -S "$root" --preset cuda -B "$folder" \
  -DCMAKE_CUDA_ARCHITECTURES="$architecture-real" -DCONVOY_NATIVE=OFF -DCMAKE_CXX_FLAGS=-march=x86-64-v3
quietly "$folder.build.log" "building" cmake --build "$folder" --parallel "$(jobs)"

packed=$(mktemp -d)
trap 'rm -rf "$packed"' EXIT
mkdir -p "$packed/bin" "$packed/lib"
for program in convoy-train convoy-evaluate convoy-bench-kernels cuda_runtime_test cuda_elementwise_test \
  cuda_spatial_test engine_cuda_test models_cuda_test bench_test; do
  strip -o "$packed/bin/$program" "$folder/bin/$program"
  # All but the C and C++ runtimes, which every system has, and the driver's.
  ldd "$folder/bin/$program" | awk '$3 ~ /^\// {print $3}' |
    grep -Ev '/(libc|libm|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s|ld-linux-x86-64|libcuda)\.so' || true
done | sort -u | while read -r library; do cp -L "$library" "$packed/lib/"; done
tar -C "$packed" -cf - . | xz -T0 -6 >"$file"
say "$file: $(du -h "$file" | cut -f1)"

#!/usr/bin/env bash
# scripts/arm64/test.sh [DIR]: compiles the libraries and convoy-train for 64-bit Arm, runs tests of the kernels, the
# engine and the models in qemu-user, and trains LeNet there. As root, on Debian.
#
# DIR, build/arm64 by default, keeps the build and a root file system with arm64 libraries. The emulator is slow: a second
# run takes as long as the first but for compiling.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
source "$root/scripts/lib.sh"
case ${1:-} in
  -h | --help)
    sed -n '2,/^$/{/^#/!q;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
    sed -n '5,6s/^# //p' "${BASH_SOURCE[0]}"
    exit 0
    ;;
  -*) die "found '$1', expected a directory" ;;
esac
(($# <= 1)) || die "found ${*:2} after the directory, expected nothing"
work=${1:-$root/build/arm64}
system=$work/root

for tool in aarch64-linux-gnu-g++:g++-aarch64-linux-gnu qemu-aarch64:qemu-user mmdebstrap:mmdebstrap; do
  command -v "${tool%%:*}" >/dev/null || missing+=("${tool#*:}")
done
if [[ -n ${missing[*]:-} ]]; then
  ((EUID == 0)) || die "not root; ask for: apt-get install ${missing[*]}"
  say "installing ${missing[*]}"
  DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >"${work%/*}/arm64_packages.log"
fi

# The packages of scripts/setup.sh that are libraries, extracted and not configured: no program of them is run.
libraries=(libc6-dev libstdc++-12-dev libgomp1 libdnnl-dev libopenblas-openmp-dev libcli11-dev nlohmann-json3-dev libfmt-dev
           libxxhash-dev libcurl4-openssl-dev libssl-dev libarchive-dev zlib1g-dev libstb-dev libjpeg-dev
           libwebp-dev libgtest-dev libgmock-dev)
if [[ ! -e $system.complete ]]; then
  say "extracting Debian's libraries for arm64 to $system"
  rm -rf "$system"
  mkdir -p "$work"
  mmdebstrap --quiet --variant=extract --arch=arm64 --include="$(IFS=,; echo "${libraries[*]}")" \
    "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$system"
  # What the packages' scripts would link.
  lib=usr/lib/aarch64-linux-gnu
  ln -sfn openblas-openmp/libopenblas.so "$system/$lib/libopenblas.so"
  ln -sfn openblas-openmp/libopenblas.so.0 "$system/$lib/libopenblas.so.0"
  touch "$system.complete"
fi

say "building for arm64"
cmake -S "$root" -B "$work/build" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$root/scripts/arm64/toolchain.cmake" \
  -DCONVOY_ARM64_ROOT="$system" -DCMAKE_BUILD_TYPE=Release "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG" \
  -DCONVOY_KERNEL_OPTIMIZATION=-O2 -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON >"$work/configure.log"
tests=(kernels_test kernels_nn_test runtime_test engine_test engine_optim_test models_test)
cmake --build "$work/build" --target "${tests[@]}" convoy-train >"$work/build.log" || { tail -30 "$work/build.log"; exit 1; }
file -L "$work/build/bin/convoy-train" | grep -q 'ELF 64-bit.*aarch64' || die "convoy-train is not a program for arm64"
# qemu-user ignores requests for huge pages, and reports other cores of a thread than the kernel does.
count=$(jobs)
filter=-*RequestsHugePagesForLargeBlocks:*MovesASuspendedWorkerToTheCoreOfTheCaller
for test in "${tests[@]}"; do
  say "running $test in the emulator"
  shards=()
  for ((shard = 0; shard < count; ++shard)); do
    OMP_WAIT_POLICY=passive GTEST_TOTAL_SHARDS=$count GTEST_SHARD_INDEX=$shard \
      qemu-aarch64 -L "$system" "$work/build/bin/$test" --gtest_brief=1 "--gtest_filter=$filter" &
    shards+=($!)
  done
  for shard in "${shards[@]}"; do wait "$shard" || die "$test failed"; done
done

say "training LeNet on generated images in the emulator"
rm -rf "$work/run"
qemu-aarch64 -L "$system" "$work/build/bin/convoy-train" --model lenet --dataset shapes --epochs 1 --max-steps 60 \
  --batch-size 64 --eval-every 0 --out "$work/run" >"$work/train.log" 2>&1 || { cat "$work/train.log"; exit 1; }
python3 - "$work/run/log.jsonl" <<'PYTHON'
import json, sys
events = [json.loads(line) for line in open(sys.argv[1])]
losses = [event["loss"] for event in events if event["event"] == "step"]
print(f"kernels for {events[0]['cpu_level']}, losses {losses}, {events[-1]['test_accuracy']:.2%} of the test images")
assert events[0]["cpu_level"] == "aarch64", "expected aarch64"
# The same training on an x86-64 processor. Rounding differs: sums have up to 400 terms, 60 steps in a row.
expected, bound = [2.301414, 2.298974, 2.292118], 60 * 400 / 2 * 2**-23
assert len(losses) == 3 and all(abs(a - b) < bound for a, b in zip(losses, expected)), f"expected {expected}"
PYTHON

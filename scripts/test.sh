#!/usr/bin/env bash
# scripts/test.sh [--all | PRESET…]: installs what is missing, builds, runs the tests, and ends with CTest's summary.
#
#   (no argument)  one optimised build in which an emulator on the CPU replaces the GPU, and its tests but those of
#                  benchmarks, of the emulator itself, of NCCL, of ONNX files, of kills and simulated faults, of jobs on
#                  several hosts and of whole trainings
#   --all          what continuous integration runs: scripts/lint.sh --checks; that build and all its tests; debug
#                  (AddressSanitizer and UndefinedBehaviorSanitizer: the tests of a run without arguments, of the emulator
#                  and of damaged files) and tsan (ThreadSanitizer, the concurrent parts), both without the programs;
#                  package, compiled source by source and without optimization, and installed, for one short training at
#                  each level of CPU instructions and one without the cluster library; and where nvcc is installed, cuda:
#                  all CUDA code compiled and linked with NVIDIA's libraries, and the tests that need no GPU. With a GPU,
#                  the cuda build has everything and runs every test on it.
#   PRESET…        these builds alone: test, debug (with the programs), tsan, cuda, release
#
# CONVOY_DATA=DIR: the directory of real data sets (DIR/cifar10, DIR/mnist). Tests that need them are skipped without.
# A test that skips for a reason other than a capability which this machine lacks fails the run (check_skips.py).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/lib.sh"

usage() { sed -n '2,/^$/{/^#/!q;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }
known=(test debug tsan cuda release)
all=no
presets=()
for argument in "$@"; do
  case $argument in
    -h | --help)
      usage
      exit 0
      ;;
    --all)
      all=yes
      presets+=(test debug tsan)
      if has_nvcc; then
        presets+=(cuda)
      else
        say "no nvcc: the emulator runs the CUDA sources, and nothing compiles them for a GPU"
      fi
      ;;
    *)
      if [[ " ${known[*]} " != *" $argument "* ]]; then
        say "test.sh: found '$argument', expected --all or presets out of: ${known[*]}"
        exit 2
      fi
      presets+=("$argument")
      ;;
  esac
done
((${#presets[@]} == 0)) && presets=(test)

begin=$SECONDS
"$root/scripts/setup.sh" --quiet
stages+=("$((SECONDS - begin)) installing packages")
if [[ -z ${CONVOY_DATA:-} && -d $root/data ]]; then export CONVOY_DATA=$root/data; fi

# compile NAME PRESET [-DNAME=VALUE…] [--target TARGET]: shows that a preset compiles and links, without optimization
# and in build/compiled/NAME.
compile() {
  local name=$1 preset=$2 directory=$root/build/compiled/$1 settings=()
  shift 2
  while (($# > 0)) && [[ $1 == -D* ]]; do
    settings+=("$1")
    shift
  done
  quietly "$directory.configure.log" "configuring $name" cmake -S "$root" -B "$directory" --preset "$preset" \
    "-DCMAKE_CXX_FLAGS_RELEASE=-O0 -DNDEBUG" "${settings[@]}"
  quietly "$directory.build.log" "compiling $name" cmake --build "$directory" --parallel "$(jobs)" "$@"
}
is_clean=yes
if [[ $all == yes ]]; then
  begin=$SECONDS
  (quietly "$root/build/lint.log" "checking style and documentation" "$root/scripts/lint.sh" --checks) || is_clean=no
  stages+=("$((SECONDS - begin)) checking style and documentation")
  # Each source by itself, since the other builds compile several as one; the second build finds most in the compiler cache.
  compile package package -DCMAKE_UNITY_BUILD=OFF
  compile without-cluster package -DCMAKE_UNITY_BUILD=OFF "-DCONVOY_COMPONENTS=engine;comm;models;datasets;train" --target convoy-train
  quietly "$root/build/compiled/without-cluster.train.log" "training without the cluster library" \
    "$root/build/compiled/without-cluster/bin/convoy-train" --model lenet --dataset shapes --devices 2 --device cpu \
    --max-steps 4 --out "$root/build/compiled/without-cluster/run-$$"
  quietly "$root/build/compiled/install.log" "installing package" \
    cmake --install "$root/build/compiled/package" --prefix "$root/build/compiled/prefix"
  quietly "$root/build/compiled/levels.log" "training at each level of CPU instructions" \
    python3 -B "$root/tests/package/check_cpu_levels.py" "$root/build/compiled/prefix/bin/convoy-train"
fi

# cuda first: a test of the other builds compares the kernels that they launched with those that nvcc compiled.
for preset in $(printf '%s\n' "${presets[@]}" | sort -u); do
  case $preset in
    tsan) build tsan --target convoy_tests ;;  # no test of this build runs a program
    debug)
      # The programs double the build. Their tests, and those that take long, run in the test build.
      settings=()
      [[ $all == yes ]] && settings=(-DCONVOY_PROGRAMS=OFF -DCONVOY_LONG_TESTS=OFF
                                     "-DCONVOY_COMPONENTS=engine;comm;cluster;models;datasets")
      build debug "${settings[@]}"
      ;;
    cuda)
      # Without a GPU this code is compiled and hardly run, so its host code is not optimized, and there is one kind of
      # GPU, for which a kernel that spills registers is an error. scripts/compiled_kernels.py reads the PTX, for sm_80 too.
      settings=(-DCMAKE_CUDA_ARCHITECTURES=native)
      has_gpu || settings=(-DCONVOY_TOOLKIT_TESTS=ON -DCONVOY_PROGRAMS=OFF
                           "-DCMAKE_CUDA_ARCHITECTURES=80-virtual;90" "-DCMAKE_CUDA_FLAGS=-Xptxas=-warn-spills --no-compress"
                           "-DCMAKE_CXX_FLAGS_RELEASE=-O0 -DNDEBUG" "-DCMAKE_CUDA_FLAGS_RELEASE=-O0 -DNDEBUG")
      build cuda "${settings[@]}"
      ;;
    test)
      if [[ ${presets[*]} == test ]]; then
        build test -DCONVOY_LONG_TESTS=OFF --target convoy_tests
      else
        build test -DCONVOY_LONG_TESTS=ON
      fi
      ;;
    *) build "$preset" ;;
  esac
done

# One CTest run over all build directories, so that its summary is the total.
mkdir -p "$root/build/tests"
printf 'subdirs("../%s")\n' "${presets[@]}" >"$root/build/tests/CTestTestfile.cmake"
excluded=soak
[[ "${presets[*]}" == test ]] && excluded='soak|full'
if ! has_gpu; then
  [[ " ${presets[*]} " == *" cuda "* ]] && say "no GPU: tests that need one run on emulated GPUs alone"
  excluded+='|gpu'
fi
if [[ "${presets[*]}" == test ]]; then
  say "covers optimised code, with CUDA kernels on emulated GPUs; --all adds longer tests, sanitizers and nvcc"
fi
[[ -n ${CONVOY_DATA:-} ]] || say "does not cover real data sets: CONVOY_DATA is not set"
# Half as many again as cores, since tests of several processes often wait.
parallel=$((($(jobs) * 3 + 1) / 2))
say "testing ${presets[*]}, $parallel tests at a time"
# CTest's summary comes last, after the minutes of each stage.
begin=$SECONDS status=0 summary=$root/build/tests/summary.txt
: >"$summary"
ctest --test-dir "$root/build/tests" --label-exclude "$excluded" --output-on-failure --parallel "$parallel" \
  --output-junit "$root/build/tests/junit.xml" --test-output-size-passed 10000000 |
  awk -v summary="$summary" '/^[0-9]+% tests passed/ {held = 1} held {print >summary; next} {print; fflush()}' || status=$?
stages+=("$((SECONDS - begin)) testing ${presets[*]}")
minutes
skips=0
if [[ -f $root/build/tests/junit.xml ]]; then
  python3 "$root/scripts/slowest.py" --builds
  python3 "$root/scripts/check_skips.py" || skips=1
fi
[[ $is_clean == yes ]] || say "scripts/lint.sh --checks failed: build/lint.log"
cat "$summary"
[[ $is_clean == yes && ($status != 0 || $skips == 0) ]] || exit 1
exit "$status"

#!/usr/bin/env bash
# scripts/train.sh [flags of convoy-train]: installs missing packages, builds the programs, and trains. Without flags it trains
# speedrun-small on CIFAR-10, which takes two CPU cores a few minutes; if that data set is not available, on generated
# shapes. With --dataset folder the network is the default for photographs, ResNet-18. A training that was stopped is
# resumed, and one that is finished prints its result again. --help lists the flags. Uses the GPU if there is one and an
# nvcc to build for it, otherwise the CPU.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/lib.sh"

"$root/scripts/setup.sh" --quiet --train
preset=release
if has_gpu; then
  if has_nvcc; then
    preset=cuda
  else
    say "found a GPU but no nvcc (CUDA Toolkit) to build for it: training on the CPU"
  fi
fi
# What the README and docs/getting-started.md run.
programs=(convoy-train convoy-evaluate convoy-predict convoy-export convoy-report convoy-launch convoy-doctor
          convoy-bench-allreduce minimal_cifar10 minimal_cifar10_ranks custom_op callbacks)
build "$preset" -DCONVOY_TESTS=OFF --target "${programs[@]}"
say "programs: $root/build/$preset/bin"
arguments=(--fallback-shapes "$@")
case " $* " in
  *" --resume"*) ;;
  *) arguments+=(--resume auto) ;;
esac
case " $* " in
  *" --model"* | *" --config"* | *" --dataset folder "* | *" --dataset=folder "*) ;;
  *) arguments+=(--model speedrun-small) ;;
esac
exec "$root/build/$preset/bin/convoy-train" "${arguments[@]}"

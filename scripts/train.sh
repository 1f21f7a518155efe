#!/usr/bin/env bash
# scripts/train.sh [flags of convoy-train]: installs what is missing, builds, and trains: without flags ResNet-20 on
# CIFAR-10. Where that data set cannot be had, on the generated shapes. A training that was stopped is gone on with, and
# one that was finished shows its result again. --help lists the flags. On the GPU where there is one and an nvcc to build
# for it, else on the CPU.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/lib.sh"

"$root/scripts/setup.sh" --quiet
preset=release
if has_gpu; then
  if has_nvcc; then
    preset=cuda
  else
    say "there is a GPU but no nvcc to build for it (the CUDA Toolkit): training on the CPU"
  fi
fi
build "$preset" convoy-train convoy-evaluate convoy-predict minimal_cifar10
arguments=(--fallback-shapes "$@")
case " $* " in
  *" --resume"*) ;;
  *) arguments+=(--resume auto) ;;
esac
exec "$root/build/$preset/bin/convoy-train" "${arguments[@]}"

#!/usr/bin/env bash
# scripts/train.sh [flags of convoy-train]: installs what is missing, builds, and trains: without flags ResNet-20 on
# CIFAR-10. Where that data set cannot be had, on the generated shapes. A training that was stopped is gone on with, and
# one that was finished shows its result again. --help lists the flags.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/lib.sh"

"$root/scripts/setup.sh" --quiet
build release convoy-train convoy-evaluate convoy-predict minimal_cifar10
arguments=(--fallback-shapes "$@")
case " $* " in
  *" --resume"*) ;;
  *) arguments+=(--resume auto) ;;
esac
exec "$root/build/release/bin/convoy-train" "${arguments[@]}"

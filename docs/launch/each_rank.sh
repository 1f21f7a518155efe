#!/usr/bin/env bash
# each_rank.sh COUNT COMMAND…: starts the command COUNT times on this host, with the variables that torchrun sets.
# On several hosts, run it on each, with NODES (their number), NODE (the number of this one, from 0) and
# MASTER_ADDR (the host with NODE=0).
set -euo pipefail
count=$1
shift
export MASTER_ADDR=${MASTER_ADDR:-127.0.0.1} MASTER_PORT=${MASTER_PORT:-29500}
export WORLD_SIZE=$((count * ${NODES:-1})) LOCAL_WORLD_SIZE=$count
ranks=()
for ((local = 0; local < count; ++local)); do
  RANK=$((count * ${NODE:-0} + local)) LOCAL_RANK=$local "$@" &
  ranks+=($!)
done
trap 'kill "${ranks[@]}" 2>/dev/null || true' INT TERM  # the ranks save when they receive the signal
code=0
for rank in "${ranks[@]}"; do wait "$rank" || code=$?; done
exit "$code"

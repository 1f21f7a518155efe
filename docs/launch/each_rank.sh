#!/usr/bin/env bash
# each_rank.sh COUNT COMMAND…: starts the command COUNT times on this host, with the variables that torchrun sets. On several
# hosts: on each the same, with NODES, NODE (this one's number, from 0) and MASTER_ADDR (the host of NODE=0) set.
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
trap 'kill "${ranks[@]}" 2>/dev/null || true' INT TERM  # to the ranks, which then save
code=0
for rank in "${ranks[@]}"; do wait "$rank" || code=$?; done
exit "$code"

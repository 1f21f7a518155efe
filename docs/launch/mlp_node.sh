#!/usr/bin/env bash
# mlp_node.sh COMMAND…: starts the ranks of one node under a scheduler that starts one command on each node. The
# scheduler sets MLP_WORKER_NUM (number of nodes), MLP_WORKER_GPU (ranks per node), MLP_ROLE_INDEX (number of this
# node), and MLP_WORKER_0_HOST and MLP_WORKER_0_PORT (address of rank 0). This script adds LOCAL_RANK for each rank.
set -euo pipefail
ranks=()
for ((local = 0; local < MLP_WORKER_GPU; ++local)); do
  LOCAL_RANK=$local "$@" &
  ranks+=($!)
done
trap 'kill "${ranks[@]}" 2>/dev/null || true' INT TERM
code=0
for rank in "${ranks[@]}"; do wait "$rank" || code=$?; done
wait  # after a signal, for ranks that still save
exit "$code"

#!/usr/bin/env bash
# mlp_node.sh COMMAND…: for a scheduler that starts one command on each node, and says by MLP_WORKER_NUM how many nodes there
# are, by MLP_WORKER_GPU how many ranks each takes, by MLP_ROLE_INDEX which this one is, and by MLP_WORKER_0_HOST and
# MLP_WORKER_0_PORT where they meet. All that is left to say is which rank of its node a process is.
set -euo pipefail
ranks=()
for ((local = 0; local < MLP_WORKER_GPU; ++local)); do
  LOCAL_RANK=$local "$@" &
  ranks+=($!)
done
trap 'kill "${ranks[@]}" 2>/dev/null || true' INT TERM
code=0
for rank in "${ranks[@]}"; do wait "$rank" || code=$?; done
exit "$code"

#!/usr/bin/env bash
# scripts/measure_hosts.sh BUILD [RATE…]: an all-reduce of 44.7 MB between two hosts of two ranks, flat and
# hierarchical, over a cable of each RATE (10gbit, 1gbit, 100mbit …, as tc has it; "none": no limit). The hosts
# are network namespaces of this machine. As root. BUILD has bin/comm_host_rates (target comm_host_rates).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/lib.sh"
(($# >= 1)) || die "which build folder?"
program=$(realpath "$1")/bin/comm_host_rates
[[ -x $program ]] || die "no $program: ninja -C $1 comm_host_rates"
shift
folder=$(mktemp -d)
hosts=("rates-a-$$" "rates-b-$$")
clean_up() {
  for host in "${hosts[@]}"; do ip netns del "$host" 2>/dev/null || true; done
  rm -rf "$folder"
}
trap clean_up EXIT

for host in "${hosts[@]}"; do ip netns add "$host"; done
ip -n "${hosts[0]}" link add cable type veth peer name cable netns "${hosts[1]}"
for i in 0 1; do
  ip -n "${hosts[i]}" addr add "10.213.78.$((i + 1))/24" dev cable
  ip -n "${hosts[i]}" link set cable up
  ip -n "${hosts[i]}" link set lo up
done
# In the place of ssh: it gets a host and a command.
cat >"$folder/agent" <<AGENT
#!/bin/sh
host=\$1
shift
case \$host in 10.213.78.1) name=${hosts[0]} ;; *) name=${hosts[1]} ;; esac
exec ip netns exec \$name sh -c "\$*"
AGENT
chmod +x "$folder/agent"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none TMPDIR=$folder
for rate in "${@:-1gbit}"; do
  for host in "${hosts[@]}"; do
    ip netns exec "$host" tc qdisc del dev cable root 2>/dev/null || true
    [[ $rate == none ]] || ip netns exec "$host" tc qdisc add dev cable root tbf rate "$rate" burst 256kb latency 50ms
  done
  echo "cable: $rate"
  ip netns exec "${hosts[0]}" mpirun --host 10.213.78.1:2,10.213.78.2:2 --mca plm_rsh_agent "$folder/agent" \
    --mca btl tcp,self --mca btl_tcp_if_include 10.213.78.0/24 --mca oob_tcp_if_include 10.213.78.0/24 "$program"
done

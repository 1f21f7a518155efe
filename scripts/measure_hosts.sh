#!/usr/bin/env bash
# scripts/measure_hosts.sh BUILD [RATE…]: measures an all-reduce of 44.7 MB between two hosts of two ranks, flat and
# hierarchical, over a link of each RATE (10gbit, 1gbit, 100mbit …, in the notation of tc; "none": no limit). The
# hosts are network namespaces of this machine. Needs root. BUILD is a build directory with bin/comm_host_rates
# (target comm_host_rates).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/lib.sh"
(($# >= 1)) || die "no build directory given; usage: scripts/measure_hosts.sh BUILD [RATE…]"
program=$(realpath "$1")/bin/comm_host_rates
[[ -x $program ]] || die "$program does not exist; build it with: ninja -C $1 comm_host_rates"
shift
for rate in "$@"; do
  [[ $rate =~ ^(none|[0-9]+(\.[0-9]+)?[kmgt]?bit)$ ]] || die "RATE: found '$rate', expected none or one such as 10gbit or 100mbit"
done
((EUID == 0)) || die "network namespaces need root"
for tool in ip tc mpirun; do command -v "$tool" >/dev/null || die "needs the program $tool"; done
work=$(mktemp -d)
hosts=("rates-a-$$" "rates-b-$$")
clean_up() {
  for host in "${hosts[@]}"; do ip netns del "$host" 2>/dev/null || true; done
  rm -rf "$work"
}
trap clean_up EXIT

for host in "${hosts[@]}"; do ip netns add "$host"; done
ip -n "${hosts[0]}" link add cable type veth peer name cable netns "${hosts[1]}"
for i in 0 1; do
  ip -n "${hosts[i]}" addr add "10.213.78.$((i + 1))/24" dev cable
  ip -n "${hosts[i]}" link set cable up
  ip -n "${hosts[i]}" link set lo up
done
# Replaces ssh: receives a host and a command.
cat >"$work/agent" <<AGENT
#!/bin/sh
host=\$1
shift
case \$host in 10.213.78.1) name=${hosts[0]} ;; *) name=${hosts[1]} ;; esac
exec ip netns exec \$name sh -c "\$*"
AGENT
chmod +x "$work/agent"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none TMPDIR=$work
for rate in "${@:-1gbit}"; do
  for host in "${hosts[@]}"; do
    ip netns exec "$host" tc qdisc del dev cable root 2>/dev/null || true
    [[ $rate == none ]] || ip netns exec "$host" tc qdisc add dev cable root tbf rate "$rate" burst 256kb latency 50ms
  done
  echo "cable: $rate"
  ip netns exec "${hosts[0]}" mpirun --host 10.213.78.1:2,10.213.78.2:2 --mca plm_rsh_agent "$work/agent" \
    --mca btl tcp,self --mca btl_tcp_if_include 10.213.78.0/24 --mca oob_tcp_if_include 10.213.78.0/24 "$program"
done

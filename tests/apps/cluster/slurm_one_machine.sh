#!/usr/bin/env bash
# Usage: slurm_one_machine.sh COMMAND…
# Runs a command on a temporary Slurm cluster that consists of this machine only. Needs root and the Debian packages
# slurmctld, slurmd, slurm-client and munge, but neither systemd nor control groups. Exits with 77 if any is missing.
set -euo pipefail
((EUID == 0)) || exit 77
for program in slurmctld slurmd srun sbatch munged setpriv; do command -v "$program" >/dev/null || exit 77; done
id munge >/dev/null 2>&1 || exit 77
directory=$(mktemp -d)
daemons=()
trap 'kill "${daemons[@]}" 2>/dev/null || true; wait; rm -rf "$directory"' EXIT
mkdir -p "$directory"/{state,spool,munge}
chmod 755 "$directory"  # munged runs as another user
dd if=/dev/urandom of="$directory/munge/key" bs=128 count=1 status=none
chmod 600 "$directory/munge/key"
chown -R munge "$directory/munge"
host=$(hostname -s)
cat >"$directory/slurm.conf" <<CONFIGURATION
ClusterName=one
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$directory/munge/socket
StateSaveLocation=$directory/state
SlurmdSpoolDir=$directory/spool
SlurmctldPidFile=$directory/slurmctld.pid
SlurmdPidFile=$directory/slurmd.pid
SlurmctldLogFile=$directory/slurmctld.log
SlurmdLogFile=$directory/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
CONFIGURATION
export SLURM_CONF=$directory/slurm.conf
setpriv --reuid munge --regid munge --clear-groups munged --foreground --key-file="$directory/munge/key" \
  --socket="$directory/munge/socket" --pid-file="$directory/munge/pid" --log-file="$directory/munge/log" \
  --seed-file="$directory/munge/seed" >/dev/null 2>&1 &
daemons+=($!)
for ((i = 0; i < 300; ++i)); do [[ -S $directory/munge/socket ]] && break; sleep 0.1; done
slurmctld -D >/dev/null 2>&1 &
daemons+=($!)
slurmd -D >/dev/null 2>&1 &
daemons+=($!)
for ((i = 0; i < 300; ++i)); do [[ $(sinfo -h -o %t 2>/dev/null) == idle ]] && break; sleep 0.1; done
if [[ $(sinfo -h -o %t) != idle ]]; then
  tail -n 20 "$directory"/*.log "$directory"/munge/log >&2
  exit 1
fi
"$@"

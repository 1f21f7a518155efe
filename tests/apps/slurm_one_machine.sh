#!/usr/bin/env bash
# slurm_one_machine.sh COMMAND…: a Slurm cluster of this machine alone, for as long as a command runs. Root; Debian's packages slurmctld slurmd slurm-client munge; neither systemd nor control groups. Exits with 77
# where one of them is missing.
set -euo pipefail
((EUID == 0)) || exit 77
for program in slurmctld slurmd srun sbatch munged setpriv; do command -v "$program" >/dev/null || exit 77; done
id munge >/dev/null 2>&1 || exit 77
folder=$(mktemp -d)
daemons=()
trap 'kill "${daemons[@]}" 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
mkdir -p "$folder"/{state,spool,munge}
chmod 755 "$folder"  # munged runs as another user
dd if=/dev/urandom of="$folder/munge/key" bs=128 count=1 status=none
chmod 600 "$folder/munge/key"
chown -R munge "$folder/munge"
host=$(hostname -s)
cat >"$folder/slurm.conf" <<CONFIGURATION
ClusterName=one
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
CONFIGURATION
export SLURM_CONF=$folder/slurm.conf
setpriv --reuid munge --regid munge --clear-groups munged --foreground --key-file="$folder/munge/key" \
  --socket="$folder/munge/socket" --pid-file="$folder/munge/pid" --log-file="$folder/munge/log" \
  --seed-file="$folder/munge/seed" >/dev/null 2>&1 &
daemons+=($!)
for ((i = 0; i < 300; ++i)); do [[ -S $folder/munge/socket ]] && break; sleep 0.1; done
slurmctld -D >/dev/null 2>&1 &
daemons+=($!)
slurmd -D >/dev/null 2>&1 &
daemons+=($!)
for ((i = 0; i < 300; ++i)); do [[ $(sinfo -h -o %t 2>/dev/null) == idle ]] && break; sleep 0.1; done
if [[ $(sinfo -h -o %t) != idle ]]; then
  tail -n 20 "$folder"/*.log "$folder"/munge/log >&2
  exit 1
fi
"$@"

#!/usr/bin/env bash
# A real SLURM of one node on this machine, for the tests: one_node.sh FOLDER COMMAND...
#
# Installs Debian's slurm-wlm and munge if they are absent, writes all of its state to FOLDER, runs COMMAND with SLURM_CONF set,
# and takes everything down again, whatever becomes of COMMAND. Exit status 77, after one line, where SLURM cannot be had.
set -euo pipefail

skip() { echo "one_node.sh: skipped: $*" >&2; exit 77; }

[ $# -ge 2 ] || { echo "usage: one_node.sh FOLDER COMMAND..." >&2; exit 2; }
[ "$(id -u)" = 0 ] || skip "needs root to start SLURM's daemons"
if ! command -v slurmctld >/dev/null || ! command -v slurmd >/dev/null || ! command -v munged >/dev/null; then
    command -v apt-get >/dev/null || skip "slurmctld, slurmd and munged are not installed, and there is no apt-get to install them"
    echo "one_node.sh: installing slurm-wlm and munge" >&2
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends slurm-wlm munge; } \
        >/tmp/nco-bench-slurm-install.log 2>&1 || skip "apt-get could not install slurm-wlm and munge (/tmp/nco-bench-slurm-install.log)"
fi

mkdir -p "$1"
here=$(cd "$1" && pwd)
shift
node=$(hostname -s)
export NCO_BENCH_SLURM_NODE=$here SLURM_CONF=$here/slurm.conf
ports=$(python3 - <<'PY'
import socket
taken = [socket.socket() for _ in range(2)]
for one in taken:
    one.bind(("127.0.0.1", 0))
print(*(one.getsockname()[1] for one in taken))
PY
)
control_port=${ports% *} node_port=${ports#* }

daemons=()
command_pid= keeper=
alive() {  # by read: $(<FILE) of a process that ends meanwhile would end this script
    local line
    { read -r line <"/proc/$1/stat"; } 2>/dev/null && [[ $line != *") Z "* ]]
}
end() {  # end SIGNAL-TARGET ID HALF-SECONDS: ask, wait, kill
    kill -TERM -- "$1" 2>/dev/null || return 0
    for ((i = 0; i < $3; i++)); do alive "$2" || break; sleep 0.5; done
    kill -KILL -- "$1" 2>/dev/null || true
}
take_down() {  # the command, what SLURM still runs, then its daemons and munge, the last one first
    [ -z "$command_pid" ] || end "-$command_pid" "$command_pid" 20
    timeout 5 scancel --quiet --state=PENDING,RUNNING,SUSPENDED 2>/dev/null || true
    for ((i = 0; i < 20; i++)); do [ -z "$(timeout 5 squeue -h 2>/dev/null)" ] && break; sleep 0.5; done
    again=$(cat "$here/slurmd.pid" 2>/dev/null || true)  # a test kills slurmd and starts another
    [ -z "$again" ] || [[ "$(tr '\0' ' ' <"/proc/$again/cmdline" 2>/dev/null)" != *slurmd* ]] || end "$again" "$again" 20
    for ((k = ${#daemons[@]} - 1; k >= 0; k--)); do end "${daemons[k]}" "${daemons[k]}" 20; done
    local one  # jobs and their keepers whose daemons died before they could end them
    for one in /proc/[0-9]*; do
        [ "${one#/proc/}" != "$$" ] && [ "${one#/proc/}" != "$BASHPID" ] && [ "${one#/proc/}" != "${keeper:-}" ] || continue
        grep -qzxF "SLURM_CONF=$here/slurm.conf" "$one/environ" 2>/dev/null || continue
        kill -KILL "${one#/proc/}" 2>/dev/null || true
    done
}
down() {
    trap '' HUP INT QUIT TERM
    trap - EXIT
    take_down
    [ -z "$keeper" ] || kill "$keeper" 2>/dev/null || true
}
trap down EXIT
trap 'exit 130' HUP INT QUIT TERM  # bash takes a signal while it waits, not while a command holds its foreground

rm -rf "$here"/{state,spool}
mkdir -p "$here"/{state,spool,gpus}
chmod 755 "$here"
gpus="File=$here/gpus/gpu[0-1]"  # a GRES of type gpu wants devices; nothing opens these
for k in 0 1; do [ -e "$here/gpus/gpu$k" ] || mknod "$here/gpus/gpu$k" c 1 3 || gpus=Count=2; done
echo "NodeName=$node Name=gpu $gpus" >"$here/gres.conf"
cat >"$here/slurm.conf" <<END
ClusterName=nco
SlurmctldHost=$node(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$here/munge.socket,cred_expire=6
CredType=cred/munge
SlurmctldPort=$control_port
SlurmdPort=$node_port
SlurmctldPidFile=$here/slurmctld.pid
SlurmdPidFile=$here/slurmd.pid
SlurmctldLogFile=$here/slurmctld.log
SlurmdLogFile=$here/slurmd.log
StateSaveLocation=$here/state
SlurmdSpoolDir=$here/spool
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=2,batch_sched_delay=0,sched_min_interval=0
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
GresTypes=gpu
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
PreemptMode=REQUEUE
PreemptType=preempt/partition_prio
JobRequeue=1
KillWait=2
InactiveLimit=0
MinJobAge=300
SlurmctldTimeout=30
SlurmdTimeout=8
SlurmdParameters=config_overrides
ReturnToService=2
FirstJobId=1
NodeName=$node NodeAddr=127.0.0.1 CPUs=4 RealMemory=4000 Gres=gpu:2 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=60 State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=60 State=UP PriorityTier=9
END
dd if=/dev/urandom of="$here/munge.key" bs=128 count=1 status=none
chmod 400 "$here/munge.key"
start() {  # in a session of its own, so that no Ctrl-C reaches it, and by an id that is known without a file
    setsid "$@" >>"$here/daemons.log" 2>&1 </dev/null &
    daemons+=($!)
}
start munged --foreground --force --key-file="$here/munge.key" --socket="$here/munge.socket" --pid-file="$here/munged.pid" \
    --log-file="$here/munged.log" --seed-file="$here/munged.seed"
for ((i = 0; i < 40; i++)); do [ -S "$here/munge.socket" ] && break; sleep 0.25; done
start slurmctld -D -f "$SLURM_CONF"
start slurmd -D -f "$SLURM_CONF"

for ((i = 0; i < 60; i++)); do
    [ "$(sinfo -h -o %T 2>/dev/null | head -1)" = idle ] && break
    sleep 0.5
done
[ "$(sinfo -h -o %T 2>/dev/null | head -1)" = idle ] || {
    tail -n 5 "$here/slurmctld.log" "$here/slurmd.log" >&2
    echo "one_node.sh: the node did not come up" >&2
    exit 1
}
set -m  # a process group of its own for the command
"$@" &
command_pid=$!
set +m

# Where this script is killed outright, its keeper takes everything down.
export -f alive end take_down
setsid bash -c "here=$here; command_pid=$command_pid; daemons=(${daemons[*]}); while kill -0 $$; do sleep 1; done; take_down" \
    >/dev/null 2>&1 </dev/null &
keeper=$!
status=0
wait "$command_pid" || status=$?
exit "$status"

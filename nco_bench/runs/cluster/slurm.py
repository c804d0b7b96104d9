"""What is asked of SLURM itself: submissions through submitit, the queue, the GPUs of its nodes."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nco_bench.errors import BadInputError, MissingDependencyError, NcoBenchError
from nco_bench.runs.cluster.profile import Profile, python_command

ALIVE = frozenset(
    [
        "PENDING",
        "CONFIGURING",
        "RUNNING",
        "COMPLETING",
        "SUSPENDED",
        "REQUEUED",
        "REQUEUE_HOLD",
        "REQUEUE_FED",
        "RESIZING",
        "SIGNALING",
        "STAGE_OUT",
        "STOPPED",
        "SPECIAL_EXIT",
        "RESV_DEL_HOLD",
        "PREEMPTED_REQUEUE",
    ]
)
"""States of jobs that may still do something."""
WAITING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"})
HOPELESS = frozenset(
    [
        "PartitionTimeLimit",
        "PartitionNodeLimit",
        "BadConstraints",
        "InvalidAccount",
        "InvalidQOS",
        "AccountNotAllowed",
        "QOSNotAllowed",
        "QOSTimeLimit",
        "AssociationTimeLimit",
    ]
)
"""Reasons for which a job may wait for ever."""
ARRAY_MOST = 1000
"""Jobs per array; SLURM's own default allows 1,001."""
OUT_OF_MEMORY = re.compile(r"exceeded (job )?memory limit|oom[_-]kill|out of memory", re.IGNORECASE)
ANSWER_SECONDS = 60


class SlurmSilentError(NcoBenchError):
    """SLURM's controller does not answer; it may later."""


@dataclass(frozen=True)
class Job:
    """A job as SLURM knows it: id with the array's index, state, reason, node."""

    job: str
    state: str
    reason: str
    node: str
    name: str


def require() -> None:
    """Refuse to go on without submitit or without SLURM.

    Raises
    ------
    MissingDependencyError
        With the remedy; submitit would run locally without a word.
    """
    try:
        import submitit  # noqa: F401
    except ImportError:
        raise MissingDependencyError(
            "--executor slurm needs submitit: pip install 'nco-bench[slurm]'"
        ) from None
    for program in ("sbatch", "srun", "squeue"):
        if shutil.which(program) is None:
            raise MissingDependencyError(
                f"--executor slurm: there is no '{program}' here; log in to a node that submits to SLURM, or leave "
                "--executor slurm out."
            )


def queue() -> dict[str, Job]:
    """Return the user's jobs by id, those that ended lately too.

    Raises
    ------
    SlurmSilentError
        When SLURM does not answer: then nothing is known, least of all that a job is gone.
    """
    jobs = {}
    for line in _ask(["squeue", "-h", "-r", "--me", "-t", "all", "-o", "%i|%T|%r|%N|%j"]).splitlines():
        job, state, reason, node, name = line.split("|", 4)
        jobs[job] = Job(job, state, reason, node, name)
    return jobs


def cancel(jobs: Sequence[str]) -> None:
    """Cancel jobs; those that are gone already do not matter."""
    if jobs:
        subprocess.run(["scancel", "--quiet", *jobs], check=False, capture_output=True)


def gpus_per_node(partition: str | None) -> int | None:
    """Return how many GPUs the best node of a partition has, or None where SLURM does not say."""
    command = ["sinfo", "-h", "-o", "%G", *(["-p", partition] if partition else [])]
    try:
        answer = _ask(command)
    except NcoBenchError:
        return None
    counts = [
        sum(int(n) for n in re.findall(r"(?:^|,)gpu(?::[^:,()]+)*?:(\d+)", line))
        for line in answer.splitlines()
    ]
    return max(counts, default=None)


def submit(
    profile: Profile, folder: Path, name: str, work: Sequence[Callable[[], Any]], *, gpu: bool, parallel: int,
    nodes: int = 1, directory: str = "",
) -> list[str]:  # fmt: skip
    """Submit jobs that call `work`, once per node, as arrays, and return their ids in its order.

    Raises
    ------
    BadInputError
        When sbatch refuses, with SLURM's own words.
    """
    import submitit

    executor = submitit.SlurmExecutor(
        folder=folder, max_num_timeout=profile.retries, python=python_command(profile, gpu)
    )
    known = {
        "job_name": name,
        "time": profile.time,
        "nodes": nodes,
        "ntasks_per_node": 1,
        "cpus_per_task": profile.cpus,
        "signal_delay_s": profile.warning,
        "array_parallelism": parallel,
        "partition": profile.partition,
        "account": profile.account,
        "qos": profile.qos,
        "mem": profile.memory,
        "gpus_per_node": profile.gpus if gpu and profile.gpus else None,
        "setup": [*profile.setup, *THREADS],
        "additional_parameters": {**({"chdir": directory} if directory else {}), **profile.extra},
    }
    executor.update_parameters(**{key: value for key, value in known.items() if value is not None})
    jobs: list[str] = []
    for start in range(0, len(work), ARRAY_MOST):
        try:
            made = executor.submit_array(list(work[start : start + ARRAY_MOST]))
        except (submitit.core.utils.FailedJobError, subprocess.CalledProcessError) as error:
            cancel(jobs)
            raise BadInputError(f"SLURM refused the job: {_words(error)}") from None
        jobs += [job.job_id for job in made]
    return jobs


THREADS = (
    "export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}",  # newer srun does not take it from sbatch
    "export OMP_NUM_THREADS=${OMP_NUM_THREADS:-${SLURM_CPUS_PER_TASK:-1}}",
)


def log_tail(folder: Path, job: str) -> str:
    """Return the last lines that a job wrote to its stderr."""
    lines: list[str] = []
    for path in sorted(folder.glob(f"{job}_*log.err")):
        lines += path.read_text(errors="replace").splitlines()[-200:]
    return "\n".join(lines)


def _words(error: Exception) -> str:
    """Return what sbatch said, without its name before each sentence."""
    said = getattr(error, "stderr", None) or str(error)
    text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    sentences = re.findall(r"(?:sbatch|srun): (?:error: )?(.*)", text) or [text]
    return "; ".join(dict.fromkeys(" ".join(one.split()) for one in sentences if one.strip()))


def _ask(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SlurmSilentError(f"{command[0]}: no answer from SLURM ({error}).") from None
    if done.returncode:
        raise SlurmSilentError(f"{command[0]}: {' '.join(done.stderr.split()) or 'no answer from SLURM'}.")
    return done.stdout

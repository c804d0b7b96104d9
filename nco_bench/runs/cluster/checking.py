"""Whether a cluster runs our jobs: one job of a minute, and what is wrong in one line."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from nco_bench import __version__
from nco_bench.errors import BadInputError
from nco_bench.files import write
from nco_bench.nn.device import CUDA, count, installed
from nco_bench.runs.cluster import slurm
from nco_bench.runs.cluster.profile import Profile
from nco_bench.runs.cluster.state import root_of
from nco_bench.runs.cluster.submitting import refuse_too_many

LOOK_SECONDS = 1.0
LAG_SECONDS = 5.0
"""How long a file may take to be seen here after its job has ended."""


@dataclass(frozen=True)
class Checked:
    """What a job found where it ran."""

    job: str
    node: str
    seconds: float
    python: str
    version: str
    cpus: int
    gpus: int
    torch_gpus: int | None

    def sentence(self) -> str:
        """Return it in a line."""
        seen = "" if self.torch_gpus is None else f" (torch sees {self.torch_gpus})"
        return (
            f"ok: job {self.job} ran on {self.node} after {self.seconds:.0f} s: Python {self.python}, nco-bench "
            f"{self.version}, {self.cpus} CPUs, {self.gpus} GPUs{seen}; the results folder is seen from there"
        )


class Probe:
    """What the job does: write what it finds to a file in the results folder."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self) -> None:
        """Find out, and write."""
        import platform

        facts = {
            "node": socket.gethostname(),
            "python": platform.python_version(),
            "version": __version__,
            "cpus": int(os.environ.get("SLURM_CPUS_PER_TASK") or 1),
            "gpus": len([one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]),
            "torch_gpus": _torch_gpus(),
        }
        write(Path(self.path), orjson.dumps(facts))


def check(profile: Profile, results: Path, patience: float = 120.0) -> Checked:
    """Submit a job of a minute and return what it found.

    Parameters
    ----------
    profile
        Whose jobs are checked; only the time is another.
    results
        Folder that the node must see.
    patience
        Seconds to wait for the job to begin and end; then it is cancelled.

    Raises
    ------
    MissingDependencyError, BadInputError
        With what is wrong, in a line.
    """
    slurm.require()
    refuse_too_many(profile)
    folder = (root_of(results) / f".check-{secrets.token_hex(3)}").resolve()
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise BadInputError(
            f"{folder}: cannot be made ({error.strerror}); choose another --results."
        ) from error
    began = time.monotonic()
    job = ""
    try:
        short = replace(profile, time=1, warning=10)
        (job,) = slurm.submit(
            short, folder, "nco-check", [Probe(str(folder / "found.json"))], gpu=profile.gpus > 0, parallel=1
        )
        facts = _await(job, folder, began + patience)
        return Checked(job=job, seconds=time.monotonic() - began, **facts)
    finally:
        slurm.cancel([job] if job else [])
        shutil.rmtree(folder, ignore_errors=True)


def _await(job: str, folder: Path, deadline: float) -> dict[str, Any]:
    found, ended = folder / "found.json", 0.0
    known: slurm.Job | None = None
    while True:
        if found.exists():
            return dict(orjson.loads(found.read_bytes()))
        known = slurm.queue().get(job, known)
        now = time.monotonic()
        over = known is None or known.state not in slurm.ALIVE
        ended = (ended or now) if over else 0.0
        if over and now > ended + LAG_SECONDS:
            raise BadInputError(_why(job, known, folder))
        if known is not None and known.reason in slurm.HOPELESS:
            raise BadInputError(f"job {job} would never start: {known.reason}; change the profile.")
        if now > deadline:
            state = f"{known.state}, {known.reason}" if known else "unknown"
            raise BadInputError(
                f"job {job} did not finish in time ({state}); it was cancelled. {_hint(known)}".rstrip()
            )
        time.sleep(LOOK_SECONDS)


def _hint(job: slurm.Job | None) -> str:
    """Return what SLURM's reason means where that is not plain."""
    if job is not None and job.reason in ("Resources", "Priority"):
        return "The cluster is busy; --patience waits longer."
    return "See 'squeue' and the profile."


def _why(job: str, known: slurm.Job | None, folder: Path) -> str:
    if known is not None and not known.node:
        return f"job {job} never ran: {known.state}, {known.reason}."
    node = known.node if known else "a node"
    log = [line for line in slurm.log_tail(folder, job).splitlines() if line.strip()]
    if not log:
        detail = _exit_code(job)
        return (
            f"job {job} ran on {node} and left nothing in {folder.parent.parent}{detail}: that node does not see the "
            "folder. Choose one that all nodes share with --results."
        )
    said = next(
        (line for line in reversed(log) if "Error" in line or "error" in line or "not found" in line), log[-1]
    )
    return f"job {job} failed on {node}: {' '.join(said.split())}"


def _exit_code(job: str) -> str:
    done = subprocess.run(["scontrol", "-o", "show", "job", job], capture_output=True, text=True, check=False)
    code = next((word for word in done.stdout.split() if word.startswith("ExitCode=")), "")
    return f" ({code})" if code else ""


def _torch_gpus() -> int | None:
    return count(CUDA) if installed() else None

"""Where a run happens: here, in several processes, or as a SLURM job array. What comes out is the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from nco_bench.errors import BadInputError
from nco_bench.isolation import guard
from nco_bench.runs.display import Display
from nco_bench.runs.request import RunRequest, worker_devices
from nco_bench.runs.runner import RunOutcome, run

EXECUTORS = ("local", "slurm")


def execute(request: RunRequest, display: Display) -> RunOutcome:
    """Run a request with its executor and number of jobs.

    With several jobs, or GPUs, each dataset is cut into shards of neighbouring instances, and every shard writes a run
    folder of its own; reading the results folder merges them. A process that is done with a shard takes the next; each GPU
    has a process of its own. Their times are not those of an idle machine, so the cells say how many jobs ran at once.

    Raises
    ------
    BadInputError
        For an unknown executor, fewer than one job, or jobs that would share a GPU.
    """
    if request.executor not in EXECUTORS:
        raise BadInputError(f"--executor {request.executor!r}: expected {' or '.join(EXECUTORS)}.")
    if request.jobs < 1:
        raise BadInputError(f"--jobs {request.jobs}: expected at least 1.")
    if request.executor == "slurm":
        return on_slurm([request], display)
    guard(request.results, request.places.instances)  # before a user's file is asked what it registers
    devices = worker_devices(request)
    if len(devices) == 1:
        return run(request, display)
    from nco_bench.runs.processes import in_processes

    return in_processes(replace(request, jobs=len(devices)), devices, display)


def execute_all(requests: Sequence[RunRequest], display: Display) -> Iterator[RunOutcome]:
    """Run requests that differ in nothing but their seed; SLURM gets all of them as one submission."""
    if requests[0].executor == "slurm":
        yield on_slurm(requests, display)
        return
    for request in requests:
        yield execute(request, display)


def on_slurm(requests: Sequence[RunRequest], display: Display) -> RunOutcome:
    """Run requests as SLURM jobs, see `nco_bench.runs.cluster`."""
    from nco_bench.runs.cluster.running import on_slurm as run_on_slurm

    return run_on_slurm(requests, display)

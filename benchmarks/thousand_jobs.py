"""
A thousand jobs on paper: one results folder as many jobs write to it, and what reading it takes then.

No cluster is needed. One run solves everything; then its records are written again as that many jobs would have, by so many
workers at once as there are processors, all into one folder: each looks at what is stored (which is what grows with the
number of jobs), opens a run of its own, writes its records and closes it. The submission's files are made as `run --executor
slurm` makes them. It says how long a job's files take as the folder fills, how many files, bytes and fsyncs there are, and
how long `runs status`, `report` and `verify` take in the end. What a job computes and imports is left out.

Pairs are seconds on the clock and of the processor; on a busy machine the second counts.

    python benchmarks/thousand_jobs.py [--jobs 1000] [--each 10] [--workers 2]
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.load import Places
from nco_bench.reports.frame.load import load_frame
from nco_bench.reports.tables.table import build_table
from nco_bench.runs.cluster.profile import Profile
from nco_bench.runs.cluster.state import TaskState, create, read, write_task
from nco_bench.runs.cluster.status import summed
from nco_bench.runs.cluster.submitting import look
from nco_bench.runs.cluster.work import Share, Task
from nco_bench.runs.display import QuietDisplay
from nco_bench.runs.finding import find_runs
from nco_bench.runs.records import Cell, Record
from nco_bench.runs.request import RunRequest, load_datasets
from nco_bench.runs.runner import run
from nco_bench.runs.store import RunWriter, done
from nco_bench.runs.stored_run import Run
from nco_bench.runs.verify import verify

known: Known


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--each", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        print(json.dumps(measured(Path(place), options.jobs, options.each, options.workers), indent=1))


def measured(folder: Path, jobs: int, each: int, workers: int) -> dict[str, Any]:
    places = Places(folder / "instances")
    results = folder / "results"
    data = f"tsp20:count={jobs * each}"
    request = RunRequest(("nearest-neighbor",), (data,), results, places, command="thousand_jobs.py")
    load_datasets(request)  # makes and stores it
    bounds = range(0, jobs * each + 1, each)
    shares = [
        Share(replace(request, limit=(first, last)), "claim", "share", first, last)
        for first, last in itertools.pairwise(bounds)
    ]
    tasks = tuple(Task((share,)) for share in shares)
    submission, making = timed(lambda: create(results, "", Profile(), workers, tasks))
    run(request, QuietDisplay())
    (whole,) = find_runs(results)
    whole.folder.rename(folder / "whole")
    began = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(workers, initializer=begin, initargs=(request,)) as pool:
        taken = pool.starmap(one_job, [(submission.folder, k, each) for k in range(jobs)], chunksize=1)
    wall = time.perf_counter() - began
    files = [path for path in results.rglob("*") if path.is_file()]
    _, status = timed(lambda: summed(submission, look(read(submission.folder), {})))
    frame, loading = timed(lambda: load_frame(results, places.instances))
    _, table = timed(lambda: build_table("main", frame))
    found, verifying = timed(lambda: verify(results, (), places))
    looks, writes = [one[0] for one in taken], [one[1] for one in taken]
    tenths = slice(0, max(1, jobs // 10)), slice(-max(1, jobs // 10), None)
    return {
        "jobs": jobs, "instances each": each, "workers": workers, "load": os.getloadavg(),
        "files": len(files), "files per job": len(files) / jobs, "MB": sum(p.stat().st_size for p in files) / 1e6,
        "submission.json MB": (submission.folder / "submission.json").stat().st_size / 1e6,
        "fsyncs per job": sum(one[2] for one in taken) / jobs,
        "records per second, all workers": jobs * each / wall, "wall seconds": wall,
        "look at what is stored, first tenth": medians(looks[tenths[0]]),
        "look at what is stored, last tenth": medians(looks[tenths[1]]),
        "write a run, first tenth": medians(writes[tenths[0]]),
        "write a run, last tenth": medians(writes[tenths[1]]),
        "make the submission's files": making, "runs status": status, "load for a report": loading,
        "main table": table, "verify": verifying, "verified": str(found)[:200],
    }  # fmt: skip


def timed(call: Callable[[], Any]) -> tuple[Any, list[float]]:
    """Call; returns what came of it, and seconds on the clock and of the processor (of this process and its children)."""
    began, spent = time.perf_counter(), cpu()
    found = call()
    return found, [round(time.perf_counter() - began, 3), round(cpu() - spent, 3)]


def cpu() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def medians(parts: Sequence[Sequence[float]]) -> list[float]:
    return [round(statistics.median(part), 4) for part in zip(*parts, strict=True)]


def begin(request: RunRequest) -> None:
    """Read what was solved, once per worker."""
    global known
    whole = Run(request.results.parent / "whole")
    records = list(whole.records())
    solutions = [whole.solution(one) for one in records]
    known = Known(request, load_datasets(request)[0], whole.cells()[0], records, solutions)


@dataclass(frozen=True)
class Known:
    """What a worker writes again."""

    request: RunRequest
    dataset: Dataset
    cell: Cell
    records: list[Record]
    solutions: list[NDArray[np.int32]]


def one_job(submission: Path, index: int, each: int) -> tuple[list[float], list[float], int]:
    """Write what a job writes; returns seconds, as `timed`, of looking at what is stored and of the rest, and its fsyncs."""
    real, count = os.fsync, 0

    def counted(file: int) -> None:
        nonlocal count
        count += 1
        real(file)

    request, dataset = known.request, known.dataset.slice(index * each, (index + 1) * each)
    os.fsync = counted

    def write() -> None:
        with RunWriter(request.results, {"command": "", "environment": {}}) as writer:
            writer.cell(replace(known.cell, dataset=dataset.name))
            mine = range(index * each, (index + 1) * each)
            records = [replace(known.records[k]) for k in mine]
            for record, k in zip(records, mine, strict=True):
                record.solution, record.solution_sha256 = writer.store(known.solutions[k])
            writer.append(records)
        write_task(submission, index, TaskState(state="done", solved=each))

    try:
        write_task(submission, index, TaskState(state="running"))
        _, looking = timed(lambda: done(request.results, known.cell.config_sha256, request.seed, dataset))
        _, writing = timed(write)
    finally:
        os.fsync = real
    return looking, writing, count


if __name__ == "__main__":
    main()

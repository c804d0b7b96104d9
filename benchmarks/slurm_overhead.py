"""
What submission and shards cost: one solver on the same instances in one process, and as jobs of a SLURM cluster.

The commands are those of a user, from an empty results folder; the instances are made before. Of the jobs it says when they
were submitted, how long the first waited in the queue, what each took beyond its solver, and when the command returned.
Needs `sbatch`; on one machine, as root:

    tools/cluster/one_node.sh /tmp/node python benchmarks/slurm_overhead.py [--count 10000] [--jobs 2] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from nco_bench.runs.cluster.state import read, submissions, task_state
from nco_bench.runs.finding import find_runs

SOLVER = "random-insertion"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    data = f"tsp{options.n}:count={options.count}"
    rounds = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        command(folder, "first", data, "--limit", "1")
        for number in range(options.rounds):
            alone, alone_cpu = command(folder, f"alone-{number}", data)
            jobs = ("--executor", "slurm", "--slurm", f"shards={options.jobs}", "--slurm", "memory=1G")
            began = time.time()
            whole, whole_cpu = command(folder, f"jobs-{number}", data, *jobs)
            parts = of_jobs(folder / f"jobs-{number}", began)
            spent = {"one process, cpu": alone_cpu, "submitting and waiting, cpu": whole_cpu}
            rounds.append({"one process": alone, "jobs": whole, **spent, **parts})
    medians = {key: round(statistics.median(one[key] for one in rounds), 2) for key in rounds[0]}
    print(json.dumps({"data": data, "load": os.getloadavg(), "median": medians, "rounds": rounds}, indent=1))


def command(folder: Path, results: str, data: str, *options: str) -> tuple[float, float]:
    """Run the solver to its end; returns wall seconds and processor seconds, without those of jobs."""
    words = [sys.executable, "-m", "nco_bench", "run", SOLVER, "--data", data, "--results", results, "--json"]
    began, spent = time.perf_counter(), cpu()
    subprocess.run([*words, *options], cwd=folder, check=True, capture_output=True)
    return time.perf_counter() - began, cpu() - spent


def cpu() -> float:
    """Return processor seconds of the children that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def of_jobs(results: Path, began: float) -> dict[str, float]:
    """Return seconds of the parts of a submission."""
    (folder,) = submissions(results)
    submission = read(folder)
    states = [task_state(folder, index) for index in range(len(submission.tasks))]
    solving = sum(record.seconds or 0.0 for run in find_runs(results) for record in run.records())
    taken = [state.seen - state.started for state in states]
    return {
        "until submitted": submission.created - began,
        "first job begins after": min(state.started for state in states) - submission.created,
        "solving, all jobs": solving,
        "jobs beyond solving, each": (sum(taken) - solving) / len(taken),
        "longest job": max(taken),
        "last job ends, since the command": max(state.seen for state in states) - began,
    }


if __name__ == "__main__":
    main()

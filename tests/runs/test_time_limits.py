"""Which clock a time limit means: measured beside a process that takes half of the one processor."""

from __future__ import annotations

import importlib
import os
import signal
import time
from pathlib import Path

import pytest

from nco_bench.cards import cards
from nco_bench.datasets.generate import generate
from nco_bench.datasets.load import Places
from nco_bench.runs.display import QuietDisplay
from nco_bench.runs.finding import find_runs
from nco_bench.runs.request import RunRequest
from nco_bench.runs.runner import run
from nco_bench.solvers.availability import find_backend

LIMIT = 1.0


def processor_seconds(name: str, problem: str, n: int, folder: Path) -> float:
    """Solve one instance in a fork that shares one processor with a busy loop; return the processor time it took."""
    info = cards()[name]
    module = importlib.import_module(info.target.partition(":")[0])
    params = {
        key: default for key, (_, default) in getattr(module, info.target.partition(":")[2]).PARAMS.items()
    }
    (instance,) = generate(problem, n, 1, "uniform", 1).instances
    processor = min(os.sched_getaffinity(0))
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        os.sched_setaffinity(0, {processor})
        busy = os.fork()
        if busy == 0:
            while True:
                pass
        try:
            start = time.process_time()
            module.solve(instance, 1, LIMIT, {**params, "backend": find_backend(info, problem)})
            os.write(write, str(time.process_time() - start).encode())
        finally:
            os.kill(busy, signal.SIGKILL)
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with open(read) as file:
        return float(file.read())


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs to pin processes to a processor")
@pytest.mark.parametrize(
    ("name", "package", "problem", "n"),
    [("hgs", "hygese", "cvrp", 200), ("lkh3", "LKHpy", "cvrp", 200), ("pyvrp", "pyvrp", "cvrp", 200)],
)
def test_the_clock_in_the_table_is_the_one_the_program_looks_at(
    name: str, package: str, problem: str, n: int, tmp_path: Path
) -> None:
    pytest.importorskip(package)
    spent = processor_seconds(name, problem, n, tmp_path)
    assert ("processor" if spent > 0.8 * LIMIT else "wall") == cards()[name].clock


def test_records_under_a_limit_say_when_it_counts_processor_time(tmp_path: Path) -> None:
    pytest.importorskip("hygese")
    request = RunRequest(
        ("hgs", "nearest-neighbor"), ("cvrp20:count=1",), tmp_path, Places(tmp_path), time_limit=0.1
    )
    run(request, QuietDisplay())
    (stored,) = find_runs(tmp_path)
    notes = {cell.solver: cell.notes for cell in stored.cells()}
    assert notes["hgs"] == ["the time limit of 0.1 s counts processor time, not wall time"]
    assert notes["nearest-neighbor"] == []

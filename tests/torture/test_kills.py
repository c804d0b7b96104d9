"""Commands killed at random: nothing is lost, nothing is there twice, the end is that of an uninterrupted one."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest
from amounts import FULL, amount
from starter import Starter

from nco_bench import table
from nco_bench.datasets.generate import generate
from nco_bench.datasets.ledger_file import faults
from nco_bench.datasets.load import Places, load_dataset
from nco_bench.datasets.storage import load_saved, save_dataset
from nco_bench.runs.finding import find_runs
from nco_bench.runs.verify import verify

RUN_KILLS = amount(2, 50)
"""For each of four kinds of run: 200 together."""
KILLS = amount(2, 50)
SLOW = """
import time
import numpy as np
from nco_bench.solvers import register

@register("slow", problems=("tsp",))
class Slow:
    def __init__(self, options): pass
    def unsupported(self, dataset): return None
    def prepare(self, dataset): pass
    def batch_size(self, dataset): return 2
    def solve(self, batch, *, seed, time_limit, progress):
        time.sleep(0.01 * len(batch))
        return [np.random.default_rng(seed + j).permutation(i.n) for j, i in enumerate(batch)]
"""
Results = dict[tuple[str, int, int], tuple[str, float | None, bytes]]


def stored(results: Path) -> Results:
    """All records; fails where one stands twice, or `verify` finds anything."""
    out: Results = {}
    for run in find_runs(results):
        cells = {cell.cell: cell.label for cell in run.cells()}
        for record in run.records():
            key = (cells[record.cell], record.instance, record.repeat)
            assert key not in out, f"{key} is there twice"
            solution = run.solution(record).tobytes() if record.solution else b""
            out[key] = (record.status, record.cost, solution)
    if out:
        assert [str(f) for f in verify(results, (), Places(results.parent)).findings] == []
    return out


def printed(results: Path) -> str:
    """The table of costs and gaps, as a reader sees it."""
    return str(table("gaps", results=results, instances=results.parent))


def timed(starter: Starter, *arguments: object) -> float:
    began = time.monotonic()
    assert starter(*arguments) == 0
    return time.monotonic() - began


@pytest.mark.parametrize("kind", ["own-file", "native", "network", "jobs"])
def test_a_run_killed_again_and_again_ends_as_an_uninterrupted_one(
    kind: str, tmp_path: Path, starter: Starter
) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    data = save_dataset(generate("tsp", 10, 24, "uniform", 7), tmp_path / "set.npz")
    solver = {"native": "lkh3:runs=1", "network": "decoder-6x128"}.get(kind, tmp_path / "slow.py")
    more = ["--jobs", "2"] if kind == "jobs" else ["--batch-size", "2"] if kind == "network" else []
    command = ["run", solver, "--data", data, "--instances", tmp_path, *more, "--results"]
    longest = timed(starter, *command, tmp_path / "whole")
    expected = stored(tmp_path / "whole")
    assert len(expected) == 24
    rng, before, turn = random.Random(kind), Results(), 0
    for _ in range(RUN_KILLS):
        starter.killed(rng, longest, *command, tmp_path / f"runs-{turn}")
        after = stored(tmp_path / f"runs-{turn}")
        assert before.items() <= after.items(), "a record was lost or changed"
        before = after
        if len(after) == len(expected):
            assert after == expected
            before, turn = Results(), turn + 1
    assert starter(*command, tmp_path / f"runs-{turn}") == 0
    assert stored(tmp_path / f"runs-{turn}") == expected
    assert printed(tmp_path / f"runs-{turn}") == printed(tmp_path / "whole")


@pytest.mark.parametrize("processes", [2, 4] if FULL else [2])
def test_killed_processes_that_share_a_folder_lose_nothing(processes: int, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    data = save_dataset(generate("tsp", 10, 24, "uniform", 7), tmp_path / "set.npz")
    command = [
        "run",
        tmp_path / "slow.py",
        "--data",
        data,
        "--instances",
        tmp_path,
        "--results",
        tmp_path / "runs",
    ]
    starters = [Starter() for _ in range(processes)]
    for one in starters:
        one.environment = {"STARTER_ERRORS": str(tmp_path / "errors.txt")}
    rng = random.Random(processes)
    seen: set[tuple[int, bytes]] = set()

    def solved() -> set[tuple[int, bytes]]:
        return {
            (r.instance, run.solution(r).tobytes())
            for run in find_runs(tmp_path / "runs")
            for r in run.records()
        }

    try:
        for _ in range(amount(1, 15)):
            threads = [
                threading.Thread(target=one.killed, args=(random.Random(rng.random()), 0.6, *command))
                for one in starters
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert seen <= solved()
            seen = solved()
        assert [one(*command) for one in starters] == [0] * processes
    finally:
        for one in starters:
            one.close()
    assert "Traceback" not in (tmp_path / "errors.txt").read_text()
    found = solved()
    assert sorted(index for index, _ in found) == list(range(24))  # the same tour, whoever found it
    assert [str(f) for f in verify(tmp_path / "runs", (), Places(tmp_path)).findings] == []


def test_two_versions_of_one_dataset_name_keep_apart(tmp_path: Path, starter: Starter) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    command = ["run", tmp_path / "slow.py", "--data", tmp_path / "set.npz", "--results", tmp_path / "runs"]
    hashes = []
    for seed in (7, 8):
        hashes.append(
            load_saved(save_dataset(generate("tsp", 10, 6, "uniform", seed), tmp_path / "set.npz")).sha256
        )
        assert starter(*command) == 0
    assert [cell.dataset_sha256 for run in find_runs(tmp_path / "runs") for cell in run.cells()] == hashes
    findings = verify(tmp_path / "runs", (), Places(tmp_path)).findings
    assert findings, "the first run's dataset is gone, and nothing says so"
    assert {finding.run for finding in findings} == {find_runs(tmp_path / "runs")[0].run_id}


def jobs(turn: int) -> list[str]:
    """Worker processes take seconds to start: every fifth time."""
    return ["--jobs", "2" if turn % 5 == 4 else "1"]


def test_a_killed_generation_leaves_a_whole_file_or_none(tmp_path: Path, starter: Starter) -> None:
    command = ["generate", "tsp", "--n", "12", "--count", "12", "--reference", "two-opt", "--instances"]
    longest = timed(starter, *command, tmp_path / "whole", "--out", tmp_path / "whole.npz", *jobs(0))
    expected = load_saved(tmp_path / "whole.npz")
    costs = [r.cost for r in expected.references if r]
    assert len(costs) == 12
    rng, out = random.Random(3), tmp_path / "set.npz"
    for turn in range(KILLS):
        if turn % 4 == 0:
            fresh = tmp_path / f"parts-{turn}"
            for path in (out, out.with_suffix(".json")):
                path.unlink(missing_ok=True)
        starter.killed(rng, longest * (1 + turn % 5 // 4), *command, fresh, "--out", out, *jobs(turn))
        if out.with_suffix(".json").exists():
            assert load_saved(out).sha256 == expected.sha256
        stored(fresh / "references")
    assert starter(*command, fresh, "--out", out, *jobs(0)) == 0
    assert [r.cost for r in load_saved(out).references if r] == costs
    assert list(faults(fresh)) == []


def test_a_killed_search_for_references_leaves_a_sound_ledger(tmp_path: Path, starter: Starter) -> None:
    data = save_dataset(generate("tsp", 12, 16, "uniform", 7), tmp_path / "set.npz")
    command = ["reference", data, "--solver", "two-opt", "--instances"]
    longest = timed(starter, *command, tmp_path / "whole", *jobs(0))
    expected = [r and r.cost for r in load_dataset(str(data), Places(tmp_path / "whole")).references]
    assert sum(map(bool, expected)) == 15  # one tour is refused: random insertion has a shorter one
    rng = random.Random(4)
    for turn in range(KILLS):
        fresh = tmp_path / f"parts-{turn // 4}"
        starter.killed(rng, longest * (1 + turn % 5 // 4), *command, fresh, *jobs(turn))
        known = load_dataset(str(data), Places(fresh)).references
        assert {r.cost for r in known if r} <= {*expected}
        assert list(faults(fresh)) == []
        stored(fresh / "references")
    assert starter(*command, fresh, *jobs(0)) == 0
    assert [r and r.cost for r in load_dataset(str(data), Places(fresh)).references] == expected

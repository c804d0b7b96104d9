"""What a network takes alone is measured before the set, and a long answer is not found twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nco_bench.cli.app import run
from nco_bench.runs import solving
from nco_bench.runs.finding import find_runs
from nco_bench.solvers.network import NetworkSolver

COMMAND = ["run", "am", "--weights", "random", "--data", "tsp20:count=2"]


def calls_and_solutions(
    budget: float, folder: Path, monkeypatch: pytest.MonkeyPatch, *more: str, batch: int = 1
) -> tuple[int, list[str]]:
    """Run with a budget for the warm-up; return how often the network was asked, and what it found."""
    asked = []
    solve = NetworkSolver.solve

    def counted(self: NetworkSolver, *args: Any, **options: Any) -> Any:
        asked.append(args)
        return solve(self, *args, **options)

    monkeypatch.setattr(solving, "ALONE_SECONDS", budget)
    with monkeypatch.context() as patched:
        patched.setattr(NetworkSolver, "solve", counted)
        assert run([*COMMAND, *more, "--batch-size", str(batch), "--results", str(folder)]) == 0
    found = sorted(
        (r for one in find_runs(folder) for r in one.records()), key=lambda record: record.instance
    )
    return len(asked), [record.solution_sha256 for record in found]


def test_a_long_first_answer_is_the_first_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCO_BENCH_INSTANCES", str(tmp_path / "instances"))
    usual, solutions = calls_and_solutions(60.0, tmp_path / "usual", monkeypatch)
    assert usual == 1 + solving.ALONE_REPEATS + 2
    assert calls_and_solutions(0.0, tmp_path / "long", monkeypatch) == (2, solutions)


def test_it_answers_no_other_instance_and_no_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCO_BENCH_INSTANCES", str(tmp_path / "instances"))
    _, solutions = calls_and_solutions(60.0, tmp_path / "usual", monkeypatch)
    second = calls_and_solutions(0.0, tmp_path / "second", monkeypatch, "--limit", "2-2")
    assert second == (2, solutions[1:])
    both = calls_and_solutions(0.0, tmp_path / "both", monkeypatch, batch=2)
    assert both == (2, solutions)


def test_a_long_first_answer_has_the_seed_of_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeds are kept in 31 bits, the one that the command names as well."""
    monkeypatch.setenv("NCO_BENCH_INSTANCES", str(tmp_path / "instances"))
    sampled = ("--decoding", "sample:2", "--seed", "3000000000")
    _, solutions = calls_and_solutions(60.0, tmp_path / "usual", monkeypatch, *sampled)
    assert calls_and_solutions(0.0, tmp_path / "long", monkeypatch, *sampled) == (2, solutions)

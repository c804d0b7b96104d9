"""What beats the references becomes one: the best of all repeats, of stored records too; and files may improve."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import nco_bench
from nco_bench.cli.app import run
from nco_bench.datasets.load import Places, load_dataset
from nco_bench.reports.frame.load import load_frame


def solve(folder: Path, solver: str, data: str, **options: object) -> None:
    nco_bench.run(solver, data, results=folder / "runs", instances=folder / "instances", **options)  # type: ignore[arg-type]


def costs(folder: Path, solver: str) -> dict[int, float]:
    """The best cost of each instance that a solver has in the records."""
    frame = load_frame(folder / "runs", folder / "instances").select(solvers=[solver])
    return frame.records.groupby("instance")["cost"].min().to_dict()  # type: ignore[no-any-return]


def references(folder: Path, data: str) -> list[float | None]:
    known = load_dataset(data, Places(folder / "instances")).references
    return [None if one is None else one.cost for one in known]


def test_the_best_of_all_repeats_becomes_the_reference(tmp_path: Path) -> None:
    solve(tmp_path, "random-insertion", "tsp50:count=4", repeats=6, update_references=True)
    best = costs(tmp_path, "random-insertion")
    assert references(tmp_path, "tsp50:count=4") == pytest.approx([best[i] for i in range(4)])


@pytest.mark.parametrize("stored", [4, 2])
def test_stored_solutions_become_references_when_that_is_asked_for_later(tmp_path: Path, stored: int) -> None:
    data = "tsp50:count=4"
    solve(tmp_path, "random-insertion", data, repeats=2, limit=stored)
    assert references(tmp_path, data) == [None] * 4
    solve(tmp_path, "random-insertion", data, repeats=2, update_references=True)
    best = costs(tmp_path, "random-insertion")
    assert references(tmp_path, data) == pytest.approx([best[i] for i in range(4)])


def test_references_that_another_solver_has_just_stored_are_no_new_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = ["--results", str(tmp_path / "runs"), "--instances", str(tmp_path / "instances")]
    solvers = ["random-insertion", "two-opt"]
    assert run(["run", *solvers, "--data", "tsp50:count=4", "--update-references", *folders]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if " of tsp50:count=4" in line]
    assert said == [
        "random-insertion finds 4 new references of tsp50:count=4",
        "two-opt beats 4 references of tsp50:count=4",
    ]


def test_better_tours_in_a_file_move_later_reports(tmp_path: Path) -> None:
    """A file in the order of its nodes first, then with nearest neighbour's own tours: the gap to those is 0."""
    points = np.random.default_rng(5).random((3, 12, 2))
    file = tmp_path / "own.txt"

    def write(tours: list[list[int]]) -> None:
        lines = []
        for nodes, tour in zip(points, tours, strict=True):
            numbers = " ".join(f"{x:.17g} {y:.17g}" for x, y in nodes)
            lines.append(f"{numbers} output {' '.join(str(node + 1) for node in [*tour, tour[0]])}")
        file.write_text("\n".join(lines) + "\n")

    write([list(range(12))] * 3)
    solve(tmp_path, "nearest-neighbor", str(file))
    frame = load_frame(tmp_path / "runs", tmp_path / "instances")
    assert (frame.records["gap_percent"] < 0).all()
    (run,) = frame.runs
    write([run.solution(record).tolist() for record in run.records()])
    os.utime(file, (file.stat().st_mtime + 60,) * 2)  # clocks of files may be coarse
    later = load_frame(tmp_path / "runs", tmp_path / "instances")
    assert later.records["gap_percent"].to_numpy() == pytest.approx(0.0, abs=1e-9)

"""Numbers that a function computes by running networks: kept with their weights, read again, and stale with other ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from nco_bench.datasets.load import Places
from nco_bench.errors import ResultsError
from nco_bench.papers.filling import fill
from nco_bench.papers.judging import Verdict
from nco_bench.papers.kept import RUNS_NETWORKS, keep, kept, place
from nco_bench.papers.published import load_table
from nco_bench.papers.reproducing import tables_of
from nco_bench.papers.running import Runner
from nco_bench.papers.standing import Standing, standings
from nco_bench.papers.stored import stored_in
from nco_bench.papers.tropical import cells as tropical
from nco_bench.runs.display import QuietDisplay
from nco_bench.solvers.sequences.task_scores import training_seeds
from nco_bench.weights.shelf import list_weights

TARGET = RUNS_NETWORKS[1] + "over_training_seeds"
TABLE = load_table("tropical", "1")
CELL = ("ConvexHull", "Vanilla | Mean")
COMPUTED = {CELL: (48.18, Verdict("other weights", "3 training seeds"))}


def of_the_cell(folder: Path) -> Standing:
    found = standings(tables_of("tropical", "1"), stored_in([folder], None))
    return next(one for one in found if (one.entry.cell.row, one.entry.cell.column) == CELL)


def test_a_kept_number_answers_its_cell_until_its_weights_change(tmp_path: Path) -> None:
    before = of_the_cell(tmp_path)
    assert (before.entry.verdict.status, before.entry.value) == ("not run", None)

    path = keep(tmp_path, TARGET, TABLE, "cpu", COMPUTED, "a command")
    after = of_the_cell(tmp_path)
    assert (after.entry.verdict.status, after.entry.value) == ("other weights", 48.18)

    document = json.loads(path.read_text(encoding="utf-8"))
    name = next(iter(document["weights"]))
    document["weights"][name] = "0" * 64
    path.write_text(json.dumps(document), encoding="utf-8")
    assert of_the_cell(tmp_path).entry.verdict.status == "not run"


def test_the_weights_that_are_named_are_those_that_the_function_takes() -> None:
    seeds = training_seeds("vanilla", tropical.TASKS["convex-hull"])
    assert seeds is not None
    named = tropical.weights_behind(TABLE)
    shipped = {file.path.stem: file.sha256 for file in list_weights()}
    ours = {f"vanilla-convex-hull-seed{seed}" for seed in seeds.seeds}
    assert ours <= set(named)
    assert all(shipped[name] == sha256 for name, sha256 in named.items())


def test_a_damaged_file_says_so_and_where(tmp_path: Path) -> None:
    path = place(tmp_path, TABLE, "cpu")
    path.parent.mkdir()
    path.write_text("{", encoding="utf-8")
    with pytest.raises(ResultsError, match=r"tropical-table-1-cpu\.json: not readable"):
        kept([tmp_path], TARGET, TABLE, "cpu")


def test_a_runner_computes_once_and_fill_answers_the_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def compute(*arguments: object) -> dict[tuple[str, str], tuple[float, Verdict]]:
        calls.append(arguments)
        return COMPUTED

    monkeypatch.setattr("nco_bench.papers.running.compute_numbers", compute)
    runner = Runner(tmp_path, Places(tmp_path / "none"), QuietDisplay())
    cell = of_the_cell(tmp_path)
    done = fill([cell, replace(cell)], runner, 60.0, lambda _: None)
    assert (done.answered, done.left, done.stopped, len(calls)) == (2, 0, False, 1)
    assert of_the_cell(tmp_path).entry.value == 48.18
    assert runner.compute(TARGET, None, TABLE, "cpu") == COMPUTED  # type: ignore[arg-type]
    assert len(calls) == 1

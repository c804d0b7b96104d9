"""Means and deviations over training seeds, in the layout of the published tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nco_bench.errors import BadWeightsError
from nco_bench.papers.judging import Verdict
from nco_bench.papers.published import load_table
from nco_bench.papers.tropical.cells import COUNTS, NETWORKS, ROWS, over_training_seeds
from nco_bench.problems.tasks import TASKS, generate
from nco_bench.solvers.sequences.task_scores import score_network, training_seeds
from nco_bench.training.task_campaign import Member, train_member
from nco_bench.weights import store


@pytest.mark.parametrize("number", [1, 3])
def test_every_row_of_the_tables_is_a_task(number: int) -> None:
    table = load_table("tropical", number)
    assert set(table.rows) == set(ROWS)
    assert set(ROWS.values()) == set(TASKS)
    networks = {c.column.removesuffix(" | Mean").removesuffix(" | Std").split(" | ")[-1] for c in table.cells}
    assert networks <= set(NETWORKS)


def test_a_single_seed_has_no_deviation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train_member(Member("three-sum", "vanilla", 0), 500, tmp_path, float("inf"))
    monkeypatch.setattr(store, "SHIPPED", tmp_path / "round-500")
    monkeypatch.setattr("nco_bench.weights.store.cache_folder", lambda: tmp_path / "none")
    with pytest.raises(BadWeightsError, match="one training seed only"):
        over_training_seeds(load_table("tropical", 1), "smoke")


@pytest.mark.parametrize(
    ("row", "task", "metric"), [("3SUM", "three-sum", "accuracy"), ("SubsetSum", "subset-sum", "f1")]
)
def test_cells_are_means_and_deviations_over_seeds(
    row: str, task: str, metric: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3SUM's printed numbers are accuracies, as the public script's of one answer per instance."""
    for seed in (0, 1):
        train_member(Member(task, "vanilla", seed), 500, tmp_path, float("inf"))
    monkeypatch.setattr(store, "SHIPPED", tmp_path / "round-500")
    monkeypatch.setattr("nco_bench.weights.store.cache_folder", lambda: tmp_path / "none")
    monkeypatch.setitem(COUNTS, "smoke", 50)
    cells = over_training_seeds(load_table("tropical", 1), "smoke")
    batch = generate(task, "length-ood", count=50, variant=TASKS[task].variant)
    values = [getattr(score_network("vanilla", TASKS[task], batch, f"seed{s}"), metric) for s in (0, 1)]
    numbers = {key: cell[0] for key, cell in cells.items() if isinstance(cell, tuple)}
    assert numbers == {
        (row, "Vanilla | Mean"): pytest.approx(np.mean(values)),
        (row, "Vanilla | Std"): pytest.approx(np.std(values, ddof=1)),
    }
    _, verdict = cells[row, "Vanilla | Mean"]  # type: ignore[misc]
    assert verdict.reason == "2 training seeds, each on 500 samples, 0.005 % of the paper's"
    assert cells[row, "Tropical | Std"] == Verdict("weights missing", "one training seed only")
    assert (row, "Tropical | Mean") not in cells  # a run measures it


def test_trainings_of_different_length_are_not_pooled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed, samples in ((0, 1000), (1, 1000), (2, 500)):
        train_member(Member("three-sum", "vanilla", seed), samples, tmp_path, float("inf"))
    for file in (tmp_path / "round-500").iterdir():
        file.rename(tmp_path / "round-1000" / file.name)
    monkeypatch.setattr(store, "SHIPPED", tmp_path / "round-1000")
    monkeypatch.setattr("nco_bench.weights.store.cache_folder", lambda: tmp_path / "none")
    found = training_seeds("vanilla", TASKS["three-sum"])
    assert found is not None
    assert (found.seeds, found.samples) == ((0, 1), 1000)

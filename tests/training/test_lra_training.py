"""Training on Long Range Arena: the loss falls, runs resume, weights come back, bad input is one line."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

import numpy as np
import pytest

from nco_bench.datasets.load import Places, load_dataset
from nco_bench.errors import BadInputError, BadWeightsError, UnknownNameError
from nco_bench.problems import problem
from nco_bench.problems.lra import pathfinder
from nco_bench.problems.lra.listops import expressions
from nco_bench.solvers.protocol import SolverOptions
from nco_bench.solvers.sequences.lra_solver import LRASolver
from nco_bench.training.learners.lra import _symmetric
from nco_bench.training.run import train

SMALL = {"width": "16", "layers": "1", "heads": "2", "batch": "16", "validation_instances": "20"}


def trained(folder: Path, steps: int, data: str = "lra-listops16", **more: str) -> Path:
    out = folder / "w.safetensors"
    config = {**SMALL, "steps": str(steps), "lr": "3e-3", **more}
    train("lra-tropical", [data], config, out=out, progress="silent")
    return out


def test_it_learns_to_tell_the_largest_from_the_smallest(tmp_path: Path) -> None:
    # No constant answer has a cross-entropy below the entropy of the values; what falls below has read the expression.
    trained(tmp_path, 150, batch="32", log_every="10", warmup="10")
    with (tmp_path / "w.csv").open() as log:
        losses = [float(row["loss"]) for row in csv.DictReader(log) if row["loss"]]
    values = np.bincount([v for _, v in itertools.islice(expressions(16, 99), 4000)], minlength=10) / 4000
    assert losses[-1] < -(values * np.log(values)).sum() - 0.02


def test_weights_answer_as_a_solver_and_belong_to_their_task(tmp_path: Path) -> None:
    weights = trained(tmp_path, 3)
    dataset = load_dataset("lra-listops16:count=8", Places(tmp_path))
    solver = LRASolver(SolverOptions("lra-tropical", weights=str(weights)))
    solver.prepare(dataset)
    together = solver.solve(dataset.instances, seed=0, time_limit=None, progress=lambda k: None)
    alone = [
        solver.solve([i], seed=0, time_limit=None, progress=lambda k: None)[0] for i in dataset.instances
    ]
    for a, b, instance in zip(together, alone, dataset.instances, strict=True):
        np.testing.assert_array_equal(a, b)
        assert not problem("lra").violations(instance, a)
    other = load_dataset("lra-pathfinder:count=1", Places(tmp_path))
    with pytest.raises(BadWeightsError, match="for lra-listops, not for lra-pathfinder"):
        LRASolver(SolverOptions("lra-tropical", weights=str(weights))).prepare(other)
    with pytest.raises(BadWeightsError, match="not of lra-vanilla"):
        LRASolver(SolverOptions("lra-vanilla", weights=str(weights))).prepare(dataset)
    with pytest.raises(BadWeightsError, match="no weights are shipped"):
        LRASolver(SolverOptions("lra-tropical")).prepare(dataset)


def test_a_run_resumes_with_new_expressions(tmp_path: Path) -> None:
    out = trained(tmp_path, 2)
    config = {**SMALL, "steps": "4", "lr": "3e-3"}
    done = train(
        "lra-tropical", ["lra-listops16"], config, out=out, progress="silent", resume=True, adopt=True
    )
    assert (done.steps, done.samples) == (4, 64)


def test_symmetries_show_one_drawing_eight_times() -> None:
    first = pathfinder.render(next(pathfinder.drawings(3, 1)))
    shown = [tokens[0].reshape(32, 32) - 1 for tokens, _ in itertools.islice(_symmetric(3, 1), 8)]
    np.testing.assert_array_equal(shown[0], first)
    assert len({image.tobytes() for image in shown}) == 8
    assert {int(image.sum()) for image in shown} == {int(first.sum())}


def test_the_public_tasks_train_on_files_of_their_layout(tmp_path: Path) -> None:
    folder = tmp_path / "lra"
    folder.mkdir()
    lines = [f"{k % 2}\ta\tb\ttext {k}\tother {'x' * k}" for k in range(20)]
    (folder / "new_aan_pairs.train.tsv").write_text("\n".join(lines) + "\n")
    out = tmp_path / "r.safetensors"
    config = {**SMALL, "steps": "2", "batch": "4"}
    done = train(
        "lra-tropical", ["lra-retrieval"], config, out=out, progress="silent", places=Places(tmp_path)
    )
    assert done.samples == 8


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ([], BadInputError, "learns one task: name it"),
        (["lra-listop"], UnknownNameError, "lra-listops"),
        (["lra-listops64:count=5"], BadInputError, "without end; give lra-listops64 alone"),
        (["lra-text"], BadInputError, r"aclImdb_v1\.tar\.gz"),
        (["knapsack"], UnknownNameError, "Long Range Arena task"),
    ],
)
def test_wrong_data_are_named(tmp_path: Path, data: list[str], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        train(
            "lra-tropical", data, {**SMALL, "steps": "1"}, out=tmp_path / "w", progress="silent",
            places=Places(tmp_path),
        )  # fmt: skip


def test_wrong_sizes_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="multiple of twice the heads"):
        trained(tmp_path, 1, width="10", heads="4")

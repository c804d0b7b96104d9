"""Validation at several sizes while one model is trained (PENS, Figure 5b)."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from nco_bench.errors import BadInputError
from nco_bench.nn.build import build_path_policy
from nco_bench.solvers.path.construct import greedy
from nco_bench.solvers.path.problem import tsp_problem
from nco_bench.training.run import train
from nco_bench.weights.store import load_into, verify

SMALL = {
    "steps": "6", "batch": "8", "shortest": "3", "longest": "11", "longest_start": "11", "log_every": "2",
    "validation_instances": "12", "validate_every": "0", "model.width": "16", "model.layers": "1", "model.heads": "2",
}  # fmt: skip


@pytest.fixture
def sets(tmp_path: Path) -> list[Path]:
    paths = []
    for nodes in (10, 17, 24):
        angles = np.random.default_rng(nodes).random((12, nodes)) * 2 * np.pi
        coords = 0.5 + 0.5 * np.stack([np.cos(angles), np.sin(angles)], axis=-1)
        paths.append(tmp_path / f"judges-{nodes}.npz")
        np.savez(paths[-1], coords=coords, tours=np.argsort(angles, axis=1))  # the boundary is the best tour
    return paths


def gap_of(weights: Path, judges: Path) -> float:
    """Mean greedy gap of the written weights, lengths by NumPy."""
    file = verify(weights)
    policy = build_path_policy("pens-r", "tsp", **file.manifest.config)
    load_into(policy, file)
    arrays = np.load(judges)
    coords = np.take_along_axis(arrays["coords"], arrays["tours"][:, :, None], axis=1)
    with torch.inference_mode():
        order = greedy(policy.eval(), tsp_problem(torch.from_numpy(coords.astype(np.float32)))).order.numpy()
    found = np.take_along_axis(coords, np.insert(order, 0, 0, axis=1)[:, :, None], axis=1)

    def lengths(path: np.ndarray) -> np.ndarray:
        return np.linalg.norm(path - np.roll(path, -1, axis=1), axis=2).sum(axis=1)

    return float((100 * (lengths(found) / lengths(coords) - 1)).mean())


def test_each_size_has_a_column_of_the_log_with_the_gap_of_the_weights(
    shards: list[Path], sets: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "p.safetensors"
    result = train("pens-r", shards, SMALL, out=out, validation=sets, progress="silent", seed=3)
    with result.log.open(newline="") as file:
        judged = [row for row in csv.DictReader(file) if row["validation_gap"]]
    columns = ["validation_gap", "validation_gap_tsp17", "validation_gap_tsp24"]
    assert len(judged) > 2
    assert [c for c in judged[0] if c.startswith("validation")] == columns
    expected = [gap_of(out, path) for path in sets]
    assert [float(judged[-1][c]) for c in columns] == pytest.approx(expected, rel=1e-4)
    assert len({round(gap, 3) for gap in expected}) == 3
    written = json.loads(result.manifest.read_text())["validation"]
    assert [entry["gap_percent"] for entry in written] == pytest.approx(expected, abs=1e-3)
    assert [entry["on"].split()[1] for entry in written] == ["tsp10", "tsp17", "tsp24"]
    assert "validation gap tsp24" in result.describe()


def test_the_plot_of_a_training_draws_every_size(
    shards: list[Path], sets: list[Path], tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    from nco_bench.reports.figures.training_curves import training

    result = train("pens-r", shards, SMALL, out=tmp_path / "p", validation=sets, progress="silent")
    drawn = training([result.log], tmp_path / "t.svg").read_text()
    assert [f">p, {size}<" in drawn for size in ("tsp17", "tsp24")] == [True, True]


def test_a_resumed_run_keeps_its_sizes_and_two_files_of_one_size_are_refused(
    shards: list[Path], sets: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "p.safetensors"
    first = train("pens-r", shards, SMALL, out=out, validation=sets[:2], progress="silent")
    again = train("pens-r", shards, SMALL, out=out, validation=sets[:2], progress="silent", resume=True)
    assert again.validation == first.validation
    with pytest.raises(BadInputError, match=r"judges-10.*two files are of one size"):
        train("pens-r", shards, SMALL, out=tmp_path / "q", validation=[sets[0], sets[0]], progress="silent")

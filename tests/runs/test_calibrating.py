"""The coordinate scale: vertex of a parabola where it is a minimum inside the grid, linear in between, clamped outside."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from nco_bench.models.registry import build_path_policy, count_parameters, model_config
from nco_bench.runs.calibrating import calibrate, vertex
from nco_bench.weights.calibration import Calibrated, factor_at, read_calibration, write_calibration
from nco_bench.weights.manifest import Manifest, TrainingData
from nco_bench.weights.store import WeightsFile, export


def made(n: int, factor: float) -> Calibrated:
    return Calibrated(n, factor, True, (0.8, 1.0, 1.2), (3.0, 2.0, 3.0), 4, 4321)


def test_the_vertex_of_a_parabola_is_found() -> None:
    grid = [0.8, 1.0, 1.2, 1.4]
    assert vertex(grid, [(x - 1.13) ** 2 + 7.0 for x in grid]) == (pytest.approx(1.13), True)


@pytest.mark.parametrize(
    "lengths",
    [
        [4.0, 3.0, 2.5, 2.2],  # falls throughout: the vertex lies outside
        [1.0, 2.0, 2.5, 1.5],  # opens downwards
    ],
)
def test_without_a_minimum_inside_the_best_grid_point_counts(lengths: list[float]) -> None:
    grid = [0.8, 1.0, 1.2, 1.4]
    assert vertex(grid, lengths) == (grid[lengths.index(min(lengths))], False)


def test_factors_are_interpolated_linearly_and_clamped() -> None:
    # PENS-A's published factors; 1.46 at n = 3162 is its own example of linear interpolation.
    table = [made(1000, 1.27), made(10_000, 2.08)]
    assert factor_at(table, 3162) == pytest.approx(1.27 + (3162 - 1000) / 9000 * 0.81)
    assert factor_at(table, 10) == 1.27
    assert factor_at(table, 99_999) == 2.08


@pytest.fixture
def weights(tmp_path: Path) -> WeightsFile:
    """Untrained weights of a two-layer pens-a with a manifest."""
    config = dataclasses.replace(model_config("pens-a"), layers=2)
    torch.manual_seed(0)
    policy = build_path_policy("pens-a", **dataclasses.asdict(config))
    manifest = Manifest(
        "pens-a", "pens-a", dataclasses.asdict(config), "tsp", count_parameters(policy), "", 0, 0,
        TrainingData("uniform", 100, 0), {}, 0, 0.0, {}, "test",
    )  # fmt: skip
    return export(policy.state_dict(), manifest, tmp_path / "pens-a.safetensors")


def test_a_calibration_is_kept_beside_its_weights_and_dropped_with_them(weights: WeightsFile) -> None:
    write_calibration(weights, [made(100, 1.1)])
    write_calibration(weights, [made(50, 1.0)])
    assert [(c.n, c.factor) for c in read_calibration(weights)] == [(50, 1.0), (100, 1.1)]
    other = dataclasses.replace(weights, manifest=dataclasses.replace(weights.manifest, sha256="changed"))
    assert read_calibration(other) == []


def test_a_model_is_calibrated_by_solving_held_out_instances(weights: WeightsFile) -> None:
    (found,) = calibrate("pens-a", [12], weights=str(weights.path), instances=4, grid=(0.8, 1.0, 1.2))
    assert found.n == 12
    assert 0.8 <= found.factor <= 1.2
    assert all(length > 2.0 for length in found.mean_lengths)

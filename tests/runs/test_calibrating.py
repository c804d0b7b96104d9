"""The coordinate scale: minimum of a parabola around the best factor, never worse than that; linear between sizes."""

from __future__ import annotations

import dataclasses
import itertools
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nco_bench.datasets.generate import generate
from nco_bench.datasets.places import Places
from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.nn.build import build_path_policy, count_parameters, model_config
from nco_bench.runs.calibrating import HELD_OUT_SEED, _gained, _MeanLength, calibrate, search
from nco_bench.runs.display import QuietDisplay
from nco_bench.runs.executors import execute
from nco_bench.runs.request import RunRequest
from nco_bench.solvers.protocol import SolverOptions
from nco_bench.solvers.registry import choose, create
from nco_bench.weights.calibration import Calibrated, factor_at, read_calibration, write_calibration
from nco_bench.weights.manifest import Manifest, TrainingData
from nco_bench.weights.shelf import export
from nco_bench.weights.store import WeightsFile


def made(n: int, factor: float, seed: int = 5678) -> Calibrated:
    return Calibrated(n, factor, 2.0, True, (0.8, 1.2), (0.8, 1.0, 1.2), (3.0, 2.0, 3.0), 4, seed)


def bowl(at: float) -> Callable[[float], float]:
    """Tours that are shortest at a factor and soon random beyond it."""
    return lambda f: 7.0 + 5.0 * np.tanh((f - at) ** 2)


def test_the_fit_is_to_factors_around_the_best_one() -> None:
    """A parabola over the whole range would have its vertex 0.3 from the minimum."""
    grid = [round(0.8 + 0.05 * k, 2) for k in range(45)]
    a, b, _ = np.polyfit(grid, [bowl(1.13)(f) for f in grid], 2)
    assert abs(-b / (2 * a) - 1.13) > 0.3
    found = search(bowl(1.13), grid)
    assert (found.factor, found.fitted) == (1.13, True)
    assert found.length == pytest.approx(7.0)


@pytest.mark.parametrize("at", [0.7, 1.0, 1.13, 2.08, 3.37])
def test_without_a_grid_the_search_finds_the_minimum_to_the_papers_hundredth(at: float) -> None:
    calls: list[float] = []

    def measure(factor: float) -> float:
        calls.append(factor)
        return bowl(at)(factor)

    found = search(measure)
    assert (found.factor, found.fitted) == (at, True)
    assert len(calls) == len(set(calls)) <= 27
    near = [f for f in found.tried if abs(f - at) < 0.15]
    assert max(b - a for a, b in itertools.pairwise(sorted(near))) == pytest.approx(0.05)


@pytest.mark.parametrize("seed", range(20))
def test_a_vertex_is_never_worse_than_the_best_factor_tried(seed: int) -> None:
    """Noise puts vertices where tours are longer; the answer is then the best factor of the grid."""
    noise = np.random.default_rng(seed)
    seen: dict[float, float] = {}

    def measure(factor: float) -> float:
        return seen.setdefault(factor, bowl(1.3)(factor) + 0.2 * noise.normal())

    found = search(measure, [0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6])
    assert found.length == seen[found.factor] == min(*found.tried.values(), found.length)
    assert found.fitted or found.factor in found.tried


@pytest.mark.parametrize(
    "lengths",
    [
        [4.0, 3.0, 2.5, 2.2],  # falls throughout: no minimum inside
        [1.0, 2.0, 2.5, 1.5],  # opens downwards
    ],
)
def test_without_a_minimum_inside_the_best_grid_point_counts(lengths: list[float]) -> None:
    grid = [0.8, 1.0, 1.2, 1.4]
    found = search(dict(zip(grid, lengths, strict=True)).__getitem__, grid)
    assert (found.factor, found.fitted) == (grid[lengths.index(min(lengths))], False)


def test_factors_are_interpolated_linearly_between_calibrated_sizes() -> None:
    # PENS-A's published factors; 1.46 at n = 3162 is its own example of linear interpolation.
    table = [made(1000, 1.27), made(10_000, 2.08)]
    assert factor_at(table, 3162, "pens-a") == pytest.approx(1.27 + (3162 - 1000) / 9000 * 0.81)
    assert factor_at(table, 10_000, "pens-a") == 2.08


def test_beyond_the_calibrated_sizes_the_factor_is_refused_unless_asked_for() -> None:
    """The factor of 1,000 nodes (1.27) was silently used for 10,000, where the paper has 2.08."""
    table = [made(500, 1.23), made(1000, 1.27)]
    with pytest.raises(BadInputError, match=r"500 to 1,000 nodes.*10,000; .*--sizes 10000.*extrapolate"):
        factor_at(table, 10_000, "pens-a")
    with pytest.raises(BadInputError, match="extrapolate"):
        factor_at(table, 100, "pens-a")
    assert factor_at(table, 10_000, "pens-a", extrapolate=True) == pytest.approx(1.27 + 9000 * 0.04 / 500)
    assert factor_at(table, 400, "pens-a", extrapolate=True) == pytest.approx(1.23 - 100 * 0.04 / 500)
    with pytest.raises(BadInputError, match="two sizes"):
        factor_at(table[:1], 600, "pens-a", extrapolate=True)
    with pytest.raises(BadInputError, match="line is at -"):
        factor_at([made(500, 1.5), made(1000, 0.8)], 10_000, "pens-a", extrapolate=True)


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


def test_a_calibration_by_an_earlier_procedure_is_not_read(weights: WeightsFile) -> None:
    path = write_calibration(weights, [made(100, 1.1)])
    path.write_text(path.read_text().replace('"procedure": 2', '"procedure": 1'))
    assert read_calibration(weights) == []


def test_a_run_takes_the_calibrated_scale_and_refuses_sizes_beyond_it(weights: WeightsFile) -> None:
    write_calibration(weights, [made(12, 1.1), made(20, 1.3)])

    def prepared(scale: str, n: int) -> Any:
        options = SolverOptions(weights=str(weights.path), coordinate_scale=scale)
        solver: Any = create(choose("pens-a", options))
        solver.prepare(generate("tsp", n, 2))
        return solver

    facts = prepared("auto", 16).weights_facts()
    assert facts["calibration"] == {"12": 1.1, "20": 1.3}
    assert facts["calibration_seeds"] == {"12": 5678, "20": 5678}
    with pytest.raises(BadInputError, match="12 to 20 nodes, and an instance has 30"):
        prepared("auto", 30)
    assert prepared("extrapolate", 30)._factor(30) == pytest.approx(1.55)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_size_without_calibration_is_refused_before_another_set_is_solved(
    weights: WeightsFile, jobs: int, tmp_path: Path
) -> None:
    """The first set was solved for nothing, and its records said nothing of the second."""
    write_calibration(weights, [made(12, 1.1), made(20, 1.3)])
    asked = RunRequest(
        (f"pens-a:weights={weights.path}",), ("tsp12:count=2", "tsp30:count=2"), tmp_path / "runs",
        Places(tmp_path), coordinate_scale="auto", jobs=jobs,
    )  # fmt: skip
    with pytest.raises(BadInputError, match="12 to 20 nodes, and an instance has 30"):
        execute(asked, QuietDisplay())
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("calibrated", [False, True])
def test_what_is_advised_calibrates_the_weights_that_were_named(
    weights: WeightsFile, calibrated: bool
) -> None:
    """Without --weights the command would calibrate the model's own."""
    if calibrated:
        write_calibration(weights, [made(10, 1.0), made(12, 1.1)])
    solver: Any = create(choose("pens-a", SolverOptions(weights=str(weights.path), coordinate_scale="auto")))
    sizes = " --sizes 20" if calibrated else ""
    with pytest.raises(BadInputError) as error:
        solver.prepare(generate("tsp", 20, 1))
    assert f"'nco-bench calibrate pens-a --weights {shlex.quote(str(weights.path))}{sizes}'" in str(
        error.value
    )


def test_an_untrained_network_is_not_advised_to_be_calibrated() -> None:
    solver: Any = create(choose("pens-a", SolverOptions(weights="random", coordinate_scale="auto")))
    with pytest.raises(BadInputError, match="untrained networks have no calibration; give a factor"):
        solver.prepare(generate("tsp", 20, 1))


def test_a_model_is_calibrated_by_solving_held_out_instances(weights: WeightsFile) -> None:
    kept: list[Calibrated] = []
    (found,) = calibrate(
        "pens-a", [12], weights=str(weights.path), instances=4, grid=(0.8, 1.0, 1.2), keep=kept.append
    )
    assert kept == [found]  # at once, so that Ctrl-C during the next size leaves it
    assert found.n == 12
    assert 0.8 <= found.factor <= 1.2
    assert all(length > 2.0 for length in found.mean_lengths)
    assert (
        found.seed == HELD_OUT_SEED not in (1234, 4321)
    )  # test set; what the shipped weights were measured on
    assert found.length <= min(found.mean_lengths)
    (again,) = calibrate("pens-a", [12], weights=str(weights.path), instances=4, grid=(0.8, 1.0, 1.2), seed=7)
    assert again.seed == 7
    assert again.mean_lengths != found.mean_lengths


def test_a_calibration_says_what_it_gains_and_whether_that_is_chance(weights: WeightsFile) -> None:
    """By one instance, where it follows from the two lengths; by several, with the interval of paired differences."""
    said: list[str] = []
    given: dict[str, Any] = {"weights": str(weights.path), "say": said.append}
    (one,) = calibrate("pens-a", [12], instances=1, grid=(0.6, 1.0, 1.4), **given)
    unscaled = one.mean_lengths[one.grid.index(1.0)]
    assert one.gain_percent == pytest.approx(100 * (1 - one.length / unscaled), abs=1e-4)
    assert one.gain_ci95_percent is None
    (few,) = calibrate("pens-a", [12], instances=6, grid=(2.0, 2.5, 3.0), **given)  # 1 is solved for it
    assert 1.0 not in few.grid
    assert few.gain_ci95_percent is not None
    assert few.differs_from_1 == (few.gain_percent >= few.gain_ci95_percent)
    assert few.differs_from_1 == ("not told apart from 1" not in said[-1])
    assert f"{few.gain_percent:.2f} ± {few.gain_ci95_percent:.2f} % shorter than with 1" in said[-1]
    assert read_calibration(weights) == []  # it was asked to keep none


def test_the_interval_of_two_instances_is_students() -> None:
    """Gains of 1 and 3 %: 2 ± 12.706 (t with one degree of freedom), which 1.96 made 2 ± 1.96, and no chance."""
    lengths = _MeanLength("pens-a", 12, None, "cpu", 2, 1)
    lengths.each = {1.0: np.array([1.0, 1.0]), 1.4: np.array([0.99, 0.97])}
    assert lengths.shorter_percent(1.4) == (pytest.approx(2.0), pytest.approx(12.7062))
    assert not dataclasses.replace(made(12, 1.4), gain_percent=2.0, gain_ci95_percent=12.7062).differs_from_1
    assert dataclasses.replace(made(12, 1.4), gain_percent=2.0, gain_ci95_percent=1.9).differs_from_1
    assert not dataclasses.replace(made(12, 1.4), gain_percent=2.0).differs_from_1  # of one instance


def test_a_gain_is_of_the_mean_lengths_that_chose_the_factor() -> None:
    """A long tour gains 5 %, a short one loses 5.1: 1.6 % in the mean tour, while the mean of the ratios is negative."""
    lengths = _MeanLength("pens-a", 12, None, "cpu", 2, 1)
    lengths.each = {1.0: np.array([2.0, 1.0]), 1.4: np.array([1.9, 1.051])}
    gain, _ = lengths.shorter_percent(1.4)
    assert gain == pytest.approx(100 * (1 - 2.951 / 3), abs=1e-4)
    assert "tours 1.50 ± 2.00 % longer than with 1" in _gained(
        dataclasses.replace(made(12, 1.4), gain_percent=-1.5, gain_ci95_percent=2.0)
    )


@pytest.mark.parametrize(("name", "what"), [("lkh3", "a solver"), ("am", "a model")])
def test_what_has_no_coordinates_to_scale_is_told_what_has(name: str, what: str) -> None:
    """LKH3 was "Unknown model"; AM was told to pull weights, and then that its option is not for it."""
    with pytest.raises(BadInputError, match=rf"{what} without coordinates.*decoder-\*, .*pens-a, pens-ar"):
        calibrate(name, [12])
    with pytest.raises(UnknownNameError, match=r"Unknown model 'pens'\. Did you mean 'pens-r'"):
        calibrate("pens", [12])


def test_a_calibration_that_ships_counts_until_one_makes_ones_own(
    weights: WeightsFile, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_calibration(weights, [made(50, 1.0), made(100, 1.1)])
    monkeypatch.setattr("nco_bench.weights.calibration.SHIPPED", weights.path.parent)
    monkeypatch.setenv("NCO_BENCH_CACHE", str(tmp_path / "cache"))
    assert [(c.n, c.factor) for c in read_calibration(weights)] == [(50, 1.0), (100, 1.1)]
    own = write_calibration(weights, [made(100, 1.5)])
    assert own.parent == tmp_path / "cache" / "weights"
    assert [(c.n, c.factor) for c in read_calibration(weights)] == [(50, 1.0), (100, 1.5)]

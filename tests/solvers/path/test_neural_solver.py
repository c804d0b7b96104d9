"""The shipped neural solver keeps the rules that every solver must keep."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from nco_bench.datasets.dataset import Dataset, Origin
from nco_bench.datasets.generate import generate
from nco_bench.errors import BadInputError, BadWeightsError
from nco_bench.nn.build import build_path_policy, count_parameters, model_config
from nco_bench.nn.logit_scale import esf
from nco_bench.problems.tsp import TSPInstance, violations
from nco_bench.runs.conformance import check_solver
from nco_bench.solvers.network import to_unit_square_by_one_range
from nco_bench.solvers.path.solver import PathSolver
from nco_bench.solvers.protocol import SolverOptions
from nco_bench.solvers.registry import choose, create
from nco_bench.weights.choice import default_weights
from nco_bench.weights.manifest import Manifest, TrainingData
from nco_bench.weights.shelf import export
from nco_bench.weights.store import cache_folder


def test_decoder_6x128_is_feasible_deterministic_and_independent_of_batches() -> None:
    broken = [check for check in check_solver(choose("decoder-6x128", SolverOptions())) if not check.ok]
    assert broken == []


def test_bq_esf_runs_with_weights_of_bq_and_its_own_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PENS, Table 2: BQ-NCO + ESF is BQ-NCO's network, scaled at test time."""
    monkeypatch.setenv("NCO_BENCH_CACHE", str(tmp_path))
    assert default_weights("bq-esf", "tsp", 100) == "bq-official-tsp100"
    config = dataclasses.asdict(dataclasses.replace(model_config("bq"), layers=1))
    policy = build_path_policy("bq", **config)
    manifest = Manifest(
        "bq", "bq", config, "tsp", count_parameters(policy), "", 0, 0, TrainingData("uniform", 100, 0), {}, 0, 0.0, {},
        "test",
    )  # fmt: skip
    file = export(policy.state_dict(), manifest, cache_folder() / "bq.safetensors")
    assert default_weights("bq-esf", "tsp", 100) == "bq"
    solver = PathSolver(SolverOptions(solver="bq-esf", weights=str(file.path)))
    solver.prepare(generate("tsp", 8, 1, "uniform", 3))
    assert solver.policy is not None
    assert solver.policy.logit_scale is esf
    with pytest.raises(BadWeightsError, match="weights of bq, not of lehd"):
        PathSolver(SolverOptions(solver="lehd", weights=str(file.path))).prepare(
            generate("tsp", 8, 1, "uniform", 3)
        )


@pytest.mark.parametrize(
    ("axes", "seen"),
    [
        ("together", [[0, 0], [1, 0.25], [0.5, 1]]),  # each axis by its own least value, over the longer side
        ("common", [[0, 1 / 3], [2 / 3, 1 / 2], [1 / 3, 1]]),  # all less 10, over 160 - 10
    ],
)
def test_axes_say_how_a_library_instance_comes_into_the_unit_square(
    axes: str, seen: list[list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sides of 100, least 10 and 60; the codes have `(problems - min) / (max - min)` over both coordinates at once."""
    points = np.array([[10.0, 60.0], [110.0, 85.0], [60.0, 160.0]])
    got = []
    monkeypatch.setattr(
        "nco_bench.solvers.path.solver.decode_path",
        lambda policy, coords, *rest, **named: got.append(coords) or [np.arange(3)],
    )
    solver = PathSolver(SolverOptions(solver="sit", params={"axes": axes}))
    solver.policy = object()  # type: ignore[assignment]
    solver.decode([TSPInstance("three", points)], 1, None)
    assert got[0][0].tolist() == [pytest.approx(row) for row in seen]


def test_axes_of_another_name_are_refused_and_the_unit_square_is_left_alone() -> None:
    with pytest.raises(BadInputError, match="axes=apart: expected one of together, common"):
        PathSolver(SolverOptions(solver="sit", params={"axes": "apart"}))
    inside = np.array([[0.2, 0.3], [0.9, 0.4]])
    assert to_unit_square_by_one_range(inside) is inside


@pytest.mark.parametrize(
    ("name", "decoding"),
    [("lehd", "greedy"), ("lehd", "prc:3"), ("am", "greedy"), ("invit", "greedy"), ("h-tsp", "greedy")],
)
def test_tours_of_networks_hold_the_edges_that_an_instance_fixes(name: str, decoding: str) -> None:
    """Only those of h-tsp, glop and difusco did, so that linhp318 had no feasible tour of any other."""
    instance = TSPInstance("fixed", np.random.default_rng(3).random((12, 2)), fixed_edges=((2, 9), (4, 11)))
    dataset = Dataset("fixed", "tsp", (instance,), (None,), Origin("test", "1", "", 0, {}))
    solver = create(choose(name, SolverOptions(decoding=decoding, weights="random")))
    solver.prepare(dataset)
    (outcome,) = solver.solve(dataset.instances, seed=1, time_limit=None, progress=lambda _: None)
    assert violations(instance, getattr(outcome, "solution", outcome)) == ()

"""AM, POMO and ELG as solvers: weights by name, seeds per instance, options refused in one line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from nco_bench.datasets.kool import kool_tsp, kool_vrp
from nco_bench.datasets.load import load_path
from nco_bench.errors import BadInputError, BadWeightsError, UnknownNameError
from nco_bench.problems import problem
from nco_bench.problems.tsp import TSPInstance
from nco_bench.solvers.protocol import SolverOptions
from nco_bench.solvers.stepwise.solver import EncodeOnceSolver
from nco_bench.weights.choice import default_weights


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCO_BENCH_CACHE", str(tmp_path))
    monkeypatch.delenv("NCO_BENCH_MIRROR", raising=False)


def solve(solver: EncodeOnceSolver, instances: Sequence, seed: int = 1) -> list:
    return solver.solve(instances, seed=seed, time_limit=None, progress=lambda _: None)


def test_official_weights_come_from_the_mirror_and_give_the_official_costs(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCO_BENCH_MIRROR", str(shared))
    dataset = kool_tsp(100, count=5)
    solver = EncodeOnceSolver(SolverOptions(solver="am", weights="official-tsp100"))
    solver.prepare(dataset)
    assert solver.weights_facts()["name"] == "am-official-tsp100"
    costs = [
        problem("tsp").score(i, s)
        for i, s in zip(dataset.instances, solve(solver, dataset.instances), strict=True)
    ]
    # Measured with the official code and weights.
    assert costs == pytest.approx([7.612543, 8.537844, 8.047481, 8.469753, 8.495128], abs=1e-4)


def test_missing_weights_name_the_command_that_gets_them() -> None:
    solver = EncodeOnceSolver(SolverOptions(solver="pomo"))
    with pytest.raises(BadWeightsError, match="nco-bench weights pull pomo-official-cvrp100"):
        solver.prepare(kool_vrp(20, count=1))


@pytest.mark.parametrize(("size", "expected"), [(20, 20), (30, 20), (40, 50), (1000, 100)])
def test_weights_of_the_nearest_training_size_are_the_default(size: int, expected: int) -> None:
    assert default_weights("am", "tsp", size) == f"am-official-tsp{expected}"


@pytest.mark.parametrize("name", ["am", "pomo", "elg"])
def test_solutions_depend_on_the_seed_of_their_instance_only(name: str) -> None:
    dataset = kool_vrp(10, count=4)
    solver = EncodeOnceSolver(SolverOptions(solver=name, weights="random", decoding="sample:3"))
    solver.prepare(dataset)
    together = solve(solver, dataset.instances)
    again = [solve(solver, [instance], seed=1 + j)[0] for j, instance in enumerate(dataset.instances)]
    for instance, a, b in zip(dataset.instances, together, again, strict=True):
        assert np.array_equal(a, b)
        assert problem("cvrp").violations(instance, a) == ()


def test_library_instances_of_different_sizes_are_solved_one_by_one(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    for size in (5, 8):
        rows = "\n".join(f"{i + 1} {i * 37 % 100 * 10} {i * 61 % 90 * 10}" for i in range(size))
        head = (
            f"NAME : t{size}\nTYPE : TSP\nDIMENSION : {size}\nEDGE_WEIGHT_TYPE : EUC_2D\nNODE_COORD_SECTION"
        )
        (folder / f"t{size}.tsp").write_text(f"{head}\n{rows}\nEOF\n")
    instances = [load_path(folder / f"t{size}.tsp").instances[0] for size in (5, 8)]
    solver = EncodeOnceSolver(SolverOptions(solver="elg", weights="random"))
    solver.prepare(kool_tsp(10, count=1))
    tours = solve(solver, instances)
    assert [sorted(t.tolist()) for t in tours] == [list(range(5)), list(range(8))]


def test_wrong_options_are_refused() -> None:
    with pytest.raises(UnknownNameError, match=r"parameter loads of am 'exac'.*'exact'"):
        EncodeOnceSolver(SolverOptions(solver="am", params={"loads": "exac"}))
    with pytest.raises(UnknownNameError, match=r"parameter of am 'axis'.*'axes'"):
        EncodeOnceSolver(SolverOptions(solver="am", params={"axis": "apart"}))
    with pytest.raises(BadInputError, match=r"prc.*path problems"):
        EncodeOnceSolver(SolverOptions(solver="pomo", decoding="prc:10"))
    with pytest.raises(BadInputError, match="--coordinate-scale"):
        EncodeOnceSolver(SolverOptions(solver="pomo", coordinate_scale="2"))


@pytest.mark.parametrize(
    ("axes", "seen"),
    [
        ("together", [[0, 0], [1, 0.25], [0.5, 1]]),
        (
            "common",
            [[0, 1 / 3], [2 / 3, 1 / 2], [1 / 3, 1]],
        ),  # all less 10, over 160 - 10: ELG's code for TSPLIB
        ("apart", [[0, 0], [1, 0.25], [0.5, 1]]),  # the sides are alike
    ],
)
def test_axes_say_how_a_library_instance_comes_into_the_unit_square(
    axes: str, seen: list[list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    points, got = np.array([[10.0, 60.0], [110.0, 85.0], [60.0, 160.0]]), []
    monkeypatch.setattr(
        "nco_bench.solvers.stepwise.solver.decode_encode_once",
        lambda policy, coords, *rest, **named: got.append(coords) or [np.arange(3)],
    )
    EncodeOnceSolver(SolverOptions(solver="elg", params={"axes": axes})).decode(
        [TSPInstance("three", points)], 1, None
    )
    assert got[0][0].tolist() == [pytest.approx(row) for row in seen]

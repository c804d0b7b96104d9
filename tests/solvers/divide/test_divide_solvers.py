"""GLOP and H-TSP as solvers: weights from folders, settings by size, options refused in one line, seeds, odd instances."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from nco_bench.datasets.kool import kool_tsp, kool_vrp
from nco_bench.errors import BadInputError, BadWeightsError, UnknownNameError
from nco_bench.problems import problem
from nco_bench.problems.cvrp import CVRPInstance
from nco_bench.problems.tsp import TSPInstance
from nco_bench.solvers.decoding.insertion import insert_tsp
from nco_bench.solvers.divide.glop import GlopConfig, build
from nco_bench.solvers.divide.glop_routes import partition_graph
from nco_bench.solvers.divide.glop_solver import GlopSolver, insertion_tours, preset
from nco_bench.solvers.divide.htsp import HtspConfig
from nco_bench.solvers.divide.htsp import build as build_htsp
from nco_bench.solvers.divide.htsp_solver import HtspSolver
from nco_bench.solvers.protocol import Solver, SolverOptions
from nco_bench.weights.importing import import_checkpoint

pytest.importorskip("random_insertion")
QUICK = {"lengths": "8,5", "iterations": "3,2"}


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCO_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("NCO_BENCH_MIRROR", raising=False)


def glop(kind: str = "tsp", **params: str) -> GlopSolver:
    """GLOP with small untrained networks."""
    solver = GlopSolver(SolverOptions(solver="glop", params={**QUICK, **params}))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        solver.policy = build(GlopConfig(kind, "8,5", 16, 2, 16, 2, units=8, depth=2)).eval()
    return solver


def htsp(**params: str) -> HtspSolver:
    """H-TSP with small untrained networks."""
    solver = HtspSolver(SolverOptions(solver="h-tsp", params={"fragment": "12", **params}))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        solver.policy = build_htsp(HtspConfig("tsp", 8, 8, 8, 16, 2, 16, 1)).eval()
    return solver


def solutions(solver: Solver, instances: list, seed: int = 5) -> list[np.ndarray]:
    found = solver.solve(instances, seed=seed, time_limit=None, progress=lambda _: None)
    return [np.asarray(getattr(outcome, "solution", outcome)) for outcome in found]


def scattered(n: int, seed: int = 0) -> TSPInstance:
    return TSPInstance(f"r{n}", np.random.default_rng(seed).random((n, 2)))


@pytest.mark.parametrize("make", [glop, htsp])
def test_tours_are_valid_for_odd_instances(make: object) -> None:
    """Fewer nodes than a segment or fragment, all nodes at one point, pairs of equal nodes, far from the unit square."""
    instances = [scattered(n) for n in (2, 3, 4, 5, 9, 30)]
    instances.append(TSPInstance("point", np.ones((12, 2))))
    instances.append(TSPInstance("pairs", np.repeat(np.random.default_rng(1).random((15, 2)), 2, axis=0)))
    instances.append(TSPInstance("far", np.random.default_rng(1).random((25, 2)) * 900 - 5000, "tsplib-nint"))
    solver = make(width="2") if make is glop else make()  # type: ignore[operator]
    for instance, tour in zip(instances, solutions(solver, instances), strict=True):
        assert problem("tsp").violations(instance, tour) == (), instance.name


def test_glop_leaves_the_routes_of_its_partition_to_lkh3() -> None:
    """The routes visit what the partition gives them, in an order that no other of them beats: all are tried."""
    pytest.importorskip("elkai")
    dataset = kool_vrp(20, count=2)
    params = {"lengths": "5", "iterations": "1", "subsolver": "lkh3"}
    solver = GlopSolver(SolverOptions(solver="glop", weights="random", params=params))
    assert solver.unsupported(dataset) is None
    assert "parameters for the CVRP" in str(solver.unsupported(kool_tsp(20, count=1)))
    solver.prepare(dataset)
    found = solutions(solver, list(dataset.instances))
    partition = solutions(_revising(solver), list(dataset.instances))
    solver.close()
    for instance, sequence, other in zip(dataset.instances, found, partition, strict=True):
        assert problem("cvrp").violations(instance, sequence) == ()
        assert {frozenset(r) for r in _routes(sequence)} == {frozenset(r) for r in _routes(other)}
        points = np.concatenate([instance.arrays()["depot"].reshape(1, 2), instance.arrays()["customers"]])
        for route in _routes(sequence):
            if len(route) <= 6:
                best = min(_length(points, list(order)) for order in itertools.permutations(route))
                assert _length(points, route) == pytest.approx(best, rel=1e-6)


def _revising(solver: GlopSolver) -> GlopSolver:
    """The same networks, whose revisers improve the routes."""
    other = GlopSolver(SolverOptions(solver="glop", params={"lengths": "5", "iterations": "1"}))
    other.policy = solver.policy
    return other


def _routes(sequence: np.ndarray) -> list[list[int]]:
    """The customers of each route; no test's sequence ends without a return to the depot."""
    stops = np.flatnonzero(sequence == 0)
    return [sequence[a + 1 : b].tolist() for a, b in itertools.pairwise(stops) if b > a + 1]


def _length(points: np.ndarray, route: list[int]) -> float:
    stops = points[[0, *route, 0]]
    return float(np.linalg.norm(np.diff(stops, axis=0), axis=1).sum())


def test_glop_finds_feasible_routes_for_odd_instances() -> None:
    generator = np.random.default_rng(0)
    instances = [kool_vrp(20, count=1).instances[0]]
    for n, high in ((1, 9), (2, 9), (30, 1), (30, 10)):
        demand = generator.integers(1, high + 1, n)
        instances.append(
            CVRPInstance(f"c{n}-{high}", generator.random(2), generator.random((n, 2)), demand, 10)
        )
    instances.append(CVRPInstance("depot", np.zeros(2), np.zeros((5, 2)), np.full(5, 4), 10))
    zero = CVRPInstance("zero", np.zeros(2), generator.random((8, 2)) * 700, np.zeros(8, dtype=int), 10)
    instances.append(zero)
    for params in ({"partitions": "1"}, {"partitions": "3"}, {"cvrplib": "true"}):
        solver = glop("cvrp", **params)
        for instance, sequence in zip(instances, solutions(solver, instances), strict=True):
            assert problem("cvrp").violations(instance, sequence) == (), instance.name


def test_the_seed_of_an_instance_and_nothing_else_decides() -> None:
    instances = [scattered(30, k) for k in range(3)]
    for solver in (glop(width="2", sample="true"), htsp(improve="2")):
        together = solutions(solver, instances)
        again = solutions(solver, instances)
        assert all(np.array_equal(a, b) for a, b in zip(together, again, strict=True))
    # Another seed: another insertion order.
    a, b = (solutions(glop(width="1"), instances[:1], seed)[0] for seed in (5, 6))
    assert not np.array_equal(a, b)


def test_the_best_of_eight_symmetries_is_not_longer_than_the_first() -> None:
    instances = [scattered(30, k) for k in range(2)]
    plain = htsp()
    eight = HtspSolver(SolverOptions(solver="h-tsp", decoding="x8", params={"fragment": "12"}))
    eight.policy = plain.policy
    costs = [
        [problem("tsp").score(i, t) for i, t in zip(instances, solutions(solver, instances), strict=True)]
        for solver in (plain, eight)
    ]
    assert all(b <= a + 1e-6 for a, b in zip(*costs, strict=True))
    assert costs[0] != costs[1]


def test_the_package_inserts_as_our_own_code_does() -> None:
    generator = torch.Generator().manual_seed(0)
    coords, order = torch.rand(4, 60, 2, generator=generator), torch.randperm(60, generator=generator)
    assert np.array_equal(insertion_tours(coords.numpy(), order.numpy()), insert_tsp(coords, order).numpy())


def test_settings_are_those_of_the_official_readme() -> None:
    large = preset("tsp", 1000)
    assert (large.rounds, large.width, large.augment, large.prune) == (
        ((100, 20), (50, 25), (20, 5)),
        10,
        True,
        True,
    )
    assert preset("tsp", 500) == large
    assert preset("tsp", 100_000) == preset("tsp", 10_000)
    assert (preset("tsp", 10_000).rounds[0], preset("tsp", 10_000).width) == ((100, 50), 1)
    small = preset("tsp", 100)
    assert (small.rounds, small.width) == (((100, 20), (50, 10), (20, 10), (10, 5)), 140)
    assert (small.sample, small.augment, small.prune) == (True, False, False)
    rounds = {n: preset("tsp", n, library=True).rounds for n in (49, 50, 100, 150)}
    assert rounds == {
        49: ((20, 10), (10, 5)),
        50: ((50, 10), (20, 5)),
        100: ((100, 10), (50, 5), (20, 5)),
        150: ((100, 10), (50, 10), (20, 5)),
    }
    assert [preset("tsp", n, library=True).augment for n in (100, 150)] == [False, True]
    assert [preset("cvrp", n).rounds for n in (1000, 2000, 7000)] == [
        ((20, 5),), ((50, 5), (20, 5)), ((20, 5),),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"lengths": "100,50"}, "needs as many iterations"),
        ({"iterations": "5"}, "needs lengths"),
        ({"lengths": "100,x", "iterations": "5,5"}, "lengths='100,x'"),
        ({"lengths": "20", "iterations": "0"}, "iterations='0'"),
        ({"width": "0"}, "width=0"),
        ({"augment": "perhaps"}, "augment is 'perhaps'"),
        ({"widths": "3"}, r"parameter of glop 'widths'.*'width'"),
    ],
)
def test_wrong_parameters_of_glop_are_refused(params: dict[str, str], message: str) -> None:
    with pytest.raises((BadInputError, UnknownNameError), match=message):
        GlopSolver(SolverOptions(solver="glop", params=params))


def test_wrong_options_of_htsp_are_refused() -> None:
    for params in ({"fragment": "3"}, {"fragment": "50", "new": "49"}, {"improve": "-1"}):
        with pytest.raises(BadInputError, match="expected"):
            HtspSolver(SolverOptions(solver="h-tsp", params=params))
    with pytest.raises(BadInputError, match="greedy or x8"):
        HtspSolver(SolverOptions(solver="h-tsp", decoding="sample:8"))


def test_missing_weights_name_the_command_that_imports_them() -> None:
    with pytest.raises(BadWeightsError, match=r"henry-yeh/GLOP.*weights import glop FOLDER'"):
        GlopSolver(SolverOptions(solver="glop")).prepare(kool_tsp(20, count=1))
    with pytest.raises(BadWeightsError, match="import glop FOLDER --problem cvrp"):
        GlopSolver(SolverOptions(solver="glop")).prepare(kool_vrp(20, count=1))
    with pytest.raises(BadWeightsError, match="import h-tsp FILE"):
        HtspSolver(SolverOptions(solver="h-tsp")).prepare(kool_tsp(20, count=1))


def parts(shared: Path, fixture: str) -> dict[str, torch.Tensor]:
    tensors = load_file(shared / "parity" / f"{fixture}.safetensors")
    prefix = "state_dict."
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def folder_of(shared: Path, fixture: str, place: Path) -> Path:
    """Write official weights as the authors do: a folder per reviser, ``{"model": ...}``, the partition network beside."""
    state = parts(shared, fixture)
    for length in (20, 10):
        own = {k.partition(".")[2]: v for k, v in state.items() if k.startswith(f"reviser{length}.")}
        if own:
            path = place / f"reviser_{length}" / "epoch-299.pt"
            path.parent.mkdir(parents=True)
            torch.save({"model": own, "optimizer": {}}, path)
    rest = {k: v for k, v in state.items() if not k.startswith("reviser")}
    if rest:
        torch.save({"model_state_dict": rest}, place / "cvrp1000.pt")
    return place


def test_revisers_of_a_folder_become_one_file_that_runs(shared: Path, tmp_path: Path) -> None:
    made = import_checkpoint("glop", folder_of(shared, "glop-tsp", tmp_path / "official"))
    assert (made.manifest.name, made.manifest.config["lengths"]) == ("glop", "20,10")
    state = parts(shared, "glop-tsp")
    kept = load_file(made.path)
    assert torch.equal(kept["revisers.10.placeholder"], state["reviser10.W_placeholder"])
    dataset = kool_tsp(50, count=1)
    with pytest.raises(BadInputError, match="hold revisers of length 20,10, not 50,100"):
        GlopSolver(SolverOptions(solver="glop")).prepare(dataset)
    params = {"lengths": "20,10", "iterations": "5,3", "width": "2"}
    solver = GlopSolver(SolverOptions(solver="glop", params=params))
    solver.prepare(dataset)
    assert solver.weights_facts()["name"] == "glop"
    (tour,) = solutions(solver, dataset.instances)
    assert problem("tsp").violations(dataset.instances[0], tour) == ()


def test_the_solver_finds_routes_of_the_official_cost(shared: Path, tmp_path: Path) -> None:
    """The fixture's instances and weights through import and solver."""
    made = import_checkpoint("glop", folder_of(shared, "glop-cvrp", tmp_path / "official"), "cvrp")
    assert (made.manifest.name, made.manifest.config["depth"]) == ("glop-cvrp", 12)
    tensors = load_file(shared / "parity" / "glop-cvrp.safetensors")
    coords, demand = tensors["input.coords"].double().numpy(), tensors["input.demand"].long().numpy()
    instances = [CVRPInstance(f"f{i}", coords[i, 0], coords[i, 1:], demand[i, 1:], 30) for i in range(3)]
    for nodes, amount, edges in zip(
        tensors["input.coords"], demand, tensors["input.edge_index"], strict=True
    ):
        own = partition_graph(nodes, torch.from_numpy(amount), 30, 30).neighbours[0]
        if set(own.tolist()) != set(edges[1, :30].tolist()):
            pytest.skip(
                "this torch breaks ties among the depot's neighbours, all equally similar, in another way"
            )
    solver = GlopSolver(SolverOptions(solver="glop", params={"edges": "30"}))
    solver.prepare(kool_vrp(20, count=1))
    found = solutions(solver, instances)
    costs = [problem("cvrp").score(i, s) for i, s in zip(instances, found, strict=True)]
    assert costs == pytest.approx(tensors["expected.total_cost"].tolist(), rel=1e-4)


def test_the_cvrplib_settings_are_those_of_the_official_evaluation() -> None:
    """eval_cvrplib_neural.py: revisers 50 and 20, five iterations each, whatever the size."""
    library = GlopSolver(SolverOptions(solver="glop", params={"cvrplib": "true"}))
    plain = GlopSolver(SolverOptions(solver="glop"))
    for size in (3000, 16_000):
        assert library.revision("cvrp", size).rounds == ((50, 5), (20, 5))
    assert plain.revision("cvrp", 16_000).rounds == ((20, 5),)
    reason = library.unsupported(kool_tsp(20, count=1))
    assert reason == "edges, partitions, cvrplib and subsolver are parameters for the CVRP"


def test_folders_that_are_not_clear_are_refused(shared: Path, tmp_path: Path) -> None:
    place = folder_of(shared, "glop-tsp", tmp_path / "official")
    with pytest.raises(BadWeightsError, match="the partition network; found none"):
        import_checkpoint("glop", place, "cvrp")
    save_file(parts(shared, "htsp-tsp"), place / "reviser_20" / "epoch-300.safetensors")
    with pytest.raises(BadWeightsError, match="both revisers of length 20"):
        import_checkpoint("glop", place)
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadWeightsError, match="holds no revisers"):
        import_checkpoint("glop", tmp_path / "empty")
    with pytest.raises(BadWeightsError, match="is a folder"):
        import_checkpoint("lehd", tmp_path / "empty")
    save_file(parts(shared, "htsp-tsp"), tmp_path / "a.safetensors")
    with pytest.raises(BadWeightsError, match="no revisers found"):
        import_checkpoint("glop", tmp_path / "a.safetensors")
    save_file({"encoder.x": torch.zeros(1)}, tmp_path / "b.safetensors")
    with pytest.raises(
        BadWeightsError, match=r"not official weights of h-tsp, encoder.cnn.fc.weight is missing"
    ):
        import_checkpoint("h-tsp", tmp_path / "b.safetensors")

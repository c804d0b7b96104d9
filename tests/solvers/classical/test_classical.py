"""Classical solvers: published optima, valid answers at the edges, the same seed gives the same solution."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from nco_bench.cards import cards
from nco_bench.datasets.dataset import Dataset, Origin
from nco_bench.datasets.formats import cvrplib, testset, tsplib
from nco_bench.datasets.generate import generate
from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.problems import problem
from nco_bench.problems.cvrp import CVRPInstance
from nco_bench.problems.distances import CONVENTIONS
from nco_bench.problems.tsp import TSPInstance
from nco_bench.solvers.availability import find_backend
from nco_bench.solvers.protocol import Solved, SolverOptions
from nco_bench.solvers.registry import choose, create

CLASSICAL = [c for c in cards().values() if c.family in ("classical", "packing") and c.kind != "neural"]
QUICK = {
    "lkh3": {"max_trials": "10"},
    "hgs": {"iterations": "300"},
    "pyvrp": {"iterations": "100"},
    "ortools": {"solutions": "20"},
    "fast-tsp": {"seconds": "0.02"},
}
"""Settings that make a test short."""


def pairs(kind, deterministic_only=False):
    return [
        info.name
        for info in CLASSICAL
        if kind in info.problems and (info.deterministic or not deterministic_only)
    ]


def dataset(kind, instances):
    return Dataset("test", kind, instances, [None] * len(instances), Origin("test"))


def solver_for(name, kind, **params):
    info = next(info for info in CLASSICAL if info.name == name)
    if find_backend(info, kind) is None:
        pytest.skip(f"{name} is not installed: {info.install}")
    return create(choose(name, SolverOptions(params={**QUICK.get(name, {}), **params})))


def solve(name, instances, *, seed=7, time_limit=None, **params):
    kind = instances[0].problem
    solver = solver_for(name, kind, **params)
    solver.prepare(dataset(kind, instances))
    try:
        return list(solver.solve(instances, seed=seed, time_limit=time_limit, progress=lambda done: None))
    finally:
        solver.close()


def costs(instances, outcomes):
    """Judge each outcome by the referee."""
    judge = problem(instances[0].problem)
    for instance, outcome in zip(instances, outcomes, strict=True):
        assert isinstance(outcome, Solved), f"{instance.name}: {outcome}"
        assert judge.violations(instance, outcome.solution) == (), instance.name
    return [judge.score(i, o.solution) for i, o in zip(instances, outcomes, strict=True)]


def random_tsp(n, seed, convention="euclidean"):
    scale = 1.0 if convention == "euclidean" else 100.0
    return TSPInstance(f"{convention}{n}", np.random.default_rng(seed).random((n, 2)) * scale, convention)


def random_cvrp(n, seed, capacity=30, convention="euclidean"):
    rng = np.random.default_rng(seed)
    points = rng.random((n + 1, 2)) * (1.0 if convention == "euclidean" else 100.0)
    return CVRPInstance(
        f"{convention}{n}", points[0], points[1:], rng.integers(1, 10, n), capacity, convention
    )


def odd_tsp():
    """Instances at the edges: tiny, equal points, a line, every convention, a matrix, huge and tiny scales."""
    rng = np.random.default_rng(3)
    square = rng.integers(0, 50, (12, 12)).astype(float)
    matrix = square + square.T
    np.fill_diagonal(matrix, 0.0)
    repeated = rng.random((6, 2)).repeat(5, axis=0)
    return [
        *(random_tsp(n, n) for n in (2, 3, 4, 5, 6, 7, 8, 9)),
        TSPInstance("one point", np.full((30, 2), 0.5)),
        TSPInstance("two places", np.repeat([[0.0, 0.0], [1.0, 1.0]], 10, axis=0)),
        TSPInstance("repeated", repeated),
        TSPInstance("line", np.stack([rng.random(30), np.zeros(30)], axis=1)),
        TSPInstance("one point, rounded", np.full((12, 2), 3.0), "tsplib-nint"),
        TSPInstance("negative", rng.random((20, 2)) * 2 - 1),
        TSPInstance("huge", rng.random((20, 2)) * 1e9 + 1e9),
        TSPInstance("small", rng.random((20, 2)) * 1e-9),
        *(random_tsp(25, 1, c) for c in ("tsplib-nint", "ceil", "att", "geo", "manhattan", "maximum")),
        TSPInstance("matrix", None, "explicit", matrix),
        TSPInstance("fixed", rng.random((25, 2)), fixed_edges=((3, 17),)),
    ]


def odd_cvrp():
    rng = np.random.default_rng(4)
    points = rng.random((13, 2))
    square = rng.integers(1, 50, (13, 13)).astype(float)
    matrix = square + square.T
    np.fill_diagonal(matrix, 0.0)
    ones = np.ones(12, dtype=np.int64)
    return [
        *(random_cvrp(n, n) for n in (1, 2, 3, 5)),
        CVRPInstance("one point", np.full(2, 0.5), np.full((12, 2), 0.5), ones, 5),
        CVRPInstance("customers at one point", np.zeros(2), np.ones((12, 2)), ones, 5),
        CVRPInstance("one route", points[0], points[1:], ones, 100),
        CVRPInstance("a route each", points[0], points[1:], 5 * ones, 5),
        CVRPInstance("no demand", points[0], points[1:], np.arange(12) % 3, 4),
        CVRPInstance("real demand", points[0], points[1:], rng.random(12), 2.0),
        random_cvrp(20, 5, convention="cvrplib-nint"),
        CVRPInstance("huge", points[0] * 1e8, points[1:] * 1e8, ones, 4),
    ]


@pytest.mark.parametrize("name", pairs("tsp"))
def test_every_tsp_solver_answers_every_odd_instance_with_a_tour(name):
    instances = odd_tsp()
    costs(instances, solve(name, instances))


@pytest.mark.parametrize("name", pairs("cvrp"))
def test_every_cvrp_solver_answers_every_odd_instance_with_feasible_routes(name):
    instances = odd_cvrp()
    costs(instances, solve(name, instances))


@pytest.mark.parametrize("name", pairs("tsp", deterministic_only=True))
def test_the_same_seed_gives_the_same_tour_whatever_the_batch(name):
    instances = [random_tsp(40, k) for k in range(3)]
    together = solve(name, instances, seed=5)
    alone = solve(name, instances[2:], seed=7)
    again = solve(name, instances[:1], seed=5)
    assert together[0].solution.tobytes() == again[0].solution.tobytes()
    assert together[2].solution.tobytes() == alone[0].solution.tobytes()


@pytest.mark.parametrize("name", pairs("cvrp", deterministic_only=True))
def test_the_same_seed_gives_the_same_routes_whatever_the_batch(name):
    instances = [random_cvrp(30, k) for k in range(2)]
    together = solve(name, instances, seed=6)
    alone = solve(name, instances[1:], seed=7)
    assert together[1].solution.tobytes() == alone[0].solution.tobytes()


def test_the_seed_moves_random_insertion():
    instances = [random_tsp(60, 0)]
    assert solve("random-insertion", instances, seed=1)[0].solution.tolist() != (
        solve("random-insertion", instances, seed=2)[0].solution.tolist()
    )


def library(shared, *names):
    return [tsplib.read_instance(shared / "instances" / "tsplib" / f"{n}.tsp.gz") for n in names]


OPTIMA = {
    "burma14": 3323, "ulysses16": 6859, "gr17": 2085, "gr21": 2707, "ulysses22": 7013, "bayg29": 1610, "att48": 10628,
    "eil51": 426, "berlin52": 7542, "st70": 675, "gr96": 55209, "rat99": 1211,
}  # fmt: skip
"""Published by TSPLIB; GEO, ATT, EUC_2D and explicit matrices."""


def test_concorde_proves_the_published_optima(shared):
    instances = library(shared, *OPTIMA)
    outcomes = solve("concorde", instances)
    assert costs(instances, outcomes) == list(OPTIMA.values())
    assert all(outcome.optimal for outcome in outcomes)


def test_lkh_reaches_the_published_optima(shared):
    instances = library(shared, *OPTIMA)
    assert costs(instances, solve("lkh3", instances, max_trials="30", runs="2")) == list(OPTIMA.values())


def best_of_all_tours(instance):
    """Compare all 7! tours that start with nodes 0 and k, by the rule's matrix."""
    rule = CONVENTIONS[instance.convention]
    matrix = np.stack([rule(instance.coords, p) for p in instance.coords])
    tours = np.array([(0, *rest) for rest in permutations(range(1, instance.n))])
    return matrix[tours, np.roll(tours, -1, axis=1)].sum(1).min()


@pytest.mark.parametrize("name", ["concorde", "lkh3", "pyvrp"])
def test_small_instances_are_optimal_under_every_convention(name):
    """Coordinates below 10 make the roundings differ in the optimal tour, so the right rule must be used."""
    instances = [
        TSPInstance(c, np.random.default_rng(k).random((8, 2)) * 10, c) for k, c in enumerate(CONVENTIONS)
    ]
    expected = [best_of_all_tours(instance) for instance in instances]
    assert costs(instances, solve(name, instances)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["concorde", "lkh3"])
def test_the_fixed_edge_of_linhp318_is_kept_and_the_path_between_its_ends_is_optimal(shared, name):
    """TSPLIB's 41345 is the length of the Hamiltonian path: the fixed edge (nint length 3869) is not counted."""
    (instance,) = library(shared, "linhp318")
    (outcome,) = solve(name, [instance], **({"max_trials": "300"} if name == "lkh3" else {}))
    costs([instance], [outcome])
    points = instance.coords[outcome.solution]
    closed = np.floor(np.hypot(*(points - np.roll(points, -1, axis=0)).T) + 0.5).sum()
    assert closed - 3869 == 41345


@pytest.mark.parametrize(
    ("name", "at_most"),
    [("nearest-neighbor", 1.30), ("random-insertion", 1.15), ("farthest-insertion", 1.12), ("two-opt", 1.07)],
)
def test_heuristics_are_as_good_as_the_literature_says(name, at_most):
    """Johnson and McGeoch (1997), table 1, above the Held-Karp bound 0.7080 sqrt(nA)(1 + 0.551/n): NN 25 %, farthest
    insertion and random insertion 10-14 %, 2-opt with neighbour lists 4.9 %, here with Or-opt."""
    instances = [random_tsp(1000, k) for k in range(2)]
    bound = 0.7080 * np.sqrt(1000) * (1 + 0.551 / 1000) * 1.04
    assert np.mean(costs(instances, solve(name, instances))) < at_most * bound


def test_sits_insertion_gives_the_lengths_of_its_own_code(shared):
    """Lengths of LEHD's instances by SIT's C++ module, compiled and called as its code does; the last has close ties."""
    small = testset.read(shared / "instances" / "testsets" / "lehd_cvrp200.npz").instances[:3]
    large = testset.read(shared / "instances" / "testsets" / "lehd_cvrp1000.npz").instances
    instances = [*small, large[4], large[15]]
    lengths = costs(instances, solve("random-insertion", instances, order="sit"))
    assert lengths == pytest.approx(
        [27.382813245, 30.284122915, 21.574327550, 69.6857513604, 52.1149752685], rel=1e-9
    )


def test_two_opt_leaves_no_crossing_edges():
    instance = random_tsp(200, 1)
    tour = solve("two-opt", [instance])[0].solution
    points = instance.coords[tour]
    a, b = points, np.roll(points, -1, axis=0)

    def side(p, q, r):
        return np.sign(
            (q[..., 0] - p[..., 0]) * (r[..., 1] - p[..., 1])
            - (q[..., 1] - p[..., 1]) * (r[..., 0] - p[..., 0])
        )

    i, j = np.triu_indices(len(a), 2)
    crossing = (side(a[i], b[i], a[j]) * side(a[i], b[i], b[j]) < 0) & (
        side(a[j], b[j], a[i]) * side(a[j], b[j], b[i]) < 0
    )
    assert crossing.sum() == 0


@pytest.mark.parametrize("name", ["hgs", "pyvrp", "lkh3"])
def test_a_small_x_instance_is_near_its_best_known_cost(shared, name):
    """X-n101-k25 has the proven optimum 27591."""
    instances = [cvrplib.read_instance(shared / "instances" / "cvrplib" / "X" / "X-n101-k25.vrp.gz")]
    effort = {"hgs": {"iterations": "300"}, "pyvrp": {"iterations": "500"}, "lkh3": {"max_trials": "50"}}
    cost = costs(instances, solve(name, instances, **effort[name]))[0]
    assert 27591 <= cost <= 1.04 * 27591


def test_hgs_with_a_time_limit_stops_by_itself():
    instances = [random_cvrp(40, 1)]
    outcome = solve("hgs", instances, time_limit=0.5, iterations="1000000000")[0]
    costs(instances, [outcome])  # it was not killed, and a billion iterations would take days
    assert outcome.seconds > 0.4


@pytest.mark.parametrize(
    ("convention", "memory", "refused"),
    [("euclidean", 4, ""), ("euclidean", 3, "20,000 customers of test need 3 GiB of memory, this machine has 3"),
     ("ceil", 4, "20,000 customers of test need 13 GiB of memory, this machine has 4")],
)  # fmt: skip
def test_hgs_is_refused_where_its_distances_do_not_fit_into_memory(convention, memory, refused, monkeypatch):
    """Nine bytes a pair: 20,000 customers need 3.4 GiB, and four times that where a matrix goes in."""
    many = replace(random_cvrp(20_000, 1, 500), convention=convention)
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=memory * 2**30))
    said = solver_for("hgs", "cvrp").unsupported(dataset("cvrp", [many]))
    assert (refused in said) if refused else said is None


def test_concorde_is_killed_at_the_time_limit():
    outcome = solve("concorde", [random_tsp(2000, 1)], time_limit=0.2)[0]
    assert isinstance(outcome, Solved) or outcome.status == "timeout"
    assert not getattr(outcome, "optimal", False)


def test_route_length_limits_are_kept_or_refused():
    base = random_cvrp(20, 2)
    reach = 2 * np.hypot(*(base.customers - base.depot).T).max()
    instance = CVRPInstance(
        "limited", base.depot, base.customers, base.demand, 1000, max_route_length=1.2 * reach
    )
    kept = []
    for name in pairs("cvrp"):
        reason = solver_for(name, "cvrp").unsupported(dataset("cvrp", [instance]))
        if reason is None:
            kept.append(name)
            costs([instance], solve(name, [instance]))
        else:
            assert "limit" in reason
    assert "hgs" in kept
    assert "pyvrp" in kept


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr("nco_bench.solvers.availability.find_spec", lambda module: None)
    monkeypatch.setenv("PATH", "")
    for name, command in (
        ("lkh3", "pip install elkai LKHpy"),
        ("concorde", "ml4co-kit"),
        ("hgs", "pip install hygese"),
    ):
        solver = create(choose(name, SolverOptions()))
        kind = "cvrp" if name == "hgs" else "tsp"
        made = random_cvrp(5, 1) if name == "hgs" else random_tsp(5, 1)
        assert command in solver.unsupported(dataset(kind, [made]))


def test_too_many_nodes_are_refused_before_anything_runs():
    """LKHpy overruns its memory where customers and vehicles are more than 5,000."""
    few = random_cvrp(4900, 1, 500)
    few.demand[:] = 5
    solver = solver_for("lkh3", "cvrp")
    assert solver.unsupported(dataset("cvrp", [few])) is None
    few.demand[:] = 12
    reason = solver.unsupported(dataset("cvrp", [few]))
    assert "at most 5,000 customers and vehicles together" in reason
    assert "NCO_BENCH_LKH" in reason
    asked = create(choose("lkh3", SolverOptions(params={"vehicles": "60"})))
    assert asked.unsupported(dataset("cvrp", [few])) is None


@pytest.mark.parametrize(
    ("name", "params", "error"),
    [
        ("lkh3", {"trials": "5"}, UnknownNameError),
        ("lkh3", {"runs": "0"}, BadInputError),
        ("lkh3", {"candidates": "best"}, BadInputError),
        ("two-opt", {"neighbors": "many"}, BadInputError),
        ("random-insertion", {"order": "spiral"}, BadInputError),
    ],
)
def test_bad_parameters_are_refused(name, params, error):
    with pytest.raises(error):
        create(choose(name, SolverOptions(params=params)))


def script(path: Path, body: str) -> Path:
    path.write_text(f"#!{sys.executable}\n{body}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


LKH_PROGRAM = """
import sys, elkai._elkai
lines = dict(line.split(" = ") for line in open(sys.argv[1]).read().split("\\n") if " = " in line)
problem = open(lines.pop("PROBLEM_FILE")).read()
out = lines.pop("TOUR_FILE")
text = "PROBLEM_FILE = :stdin:\\n" + "".join(f"{k} = {v}\\n" for k, v in lines.items())
tour = elkai._elkai.solve_problem(text, problem)
open(out, "w").write("NAME : x\\nTOUR_SECTION\\n" + "\\n".join(map(str, tour)) + "\\n-1\\nEOF\\n")
"""


def test_an_lkh_executable_comes_first_and_gives_the_same_tour(tmp_path, monkeypatch):
    """The program here drives elkai as LKH itself is driven: a parameter file in, a TSPLIB tour out."""
    instances = [random_tsp(40, k) for k in range(2)]
    by_package = solve("lkh3", instances)
    monkeypatch.setenv("NCO_BENCH_LKH", str(script(tmp_path / "my-lkh", LKH_PROGRAM)))
    solver = solver_for("lkh3", "tsp")
    assert str(solver.backend("tsp")) == f"executable {tmp_path / 'my-lkh'}"
    by_program = solve("lkh3", instances)
    assert [o.solution.tolist() for o in by_program] == [o.solution.tolist() for o in by_package]


def test_records_name_the_executable_that_solved(tmp_path, monkeypatch):
    solver = solver_for("lkh3", "tsp")
    assert solver.backend("tsp").kind == "package"
    solver.prepare(dataset("tsp", [random_tsp(10, 1)]))
    assert solver.notes() == []
    solver.close()
    program = script(tmp_path / "my-lkh", LKH_PROGRAM)
    monkeypatch.setenv("NCO_BENCH_LKH", str(program))
    solver.prepare(dataset("tsp", [random_tsp(10, 1)]))
    digest = hashlib.sha256(program.read_bytes()).hexdigest()
    assert solver.notes() == [f"solved by an executable LKH, sha256 {digest[:16]}"]
    solver.close()


CONCORDE_PROGRAM = """
import sys
sys.path.insert(0, {path!r})
from concorde._concorde import _CCtsp_solve_dat, _CCutil_gettsplib
seed, out, problem = int(sys.argv[sys.argv.index("-s") + 1]), sys.argv[sys.argv.index("-o") + 1], sys.argv[-1]
n, data = _CCutil_gettsplib(problem)
tour, value, success, *_ = _CCtsp_solve_dat(n, data, "p", -1.0, 1, seed)
open(out, "w").write(str(n) + "\\n" + " ".join(map(str, tour)) + "\\n")
print("Optimal Solution: %.2f" % value, flush=True)
"""


def test_a_concorde_executable_comes_first_and_gives_the_same_tour(tmp_path, monkeypatch):
    instances = [random_tsp(30, k) for k in range(2)]
    by_package = solve("concorde", instances)
    folder = solver_for("concorde", "tsp").backend("tsp").path
    program = script(tmp_path / "my-concorde", CONCORDE_PROGRAM.format(path=folder))
    monkeypatch.setenv("NCO_BENCH_CONCORDE", str(program))
    by_program = solve("concorde", instances)
    assert all(outcome.optimal for outcome in by_program)
    assert [o.solution.tolist() for o in by_program] == [o.solution.tolist() for o in by_package]


def test_a_variable_that_names_no_program_is_a_clear_error(monkeypatch):
    monkeypatch.setenv("NCO_BENCH_LKH", f"{os.sep}nowhere{os.sep}LKH")
    with pytest.raises(BadInputError, match=r"NCO_BENCH_LKH=.*no such program"):
        create(choose("lkh3", SolverOptions())).unsupported(dataset("tsp", [random_tsp(5, 1)]))


@pytest.mark.parametrize(("n", "expected"), [(20, 10), (100, 128), (1000, 19), (15_000, 1)])
def test_a_batch_of_fast_tsp_takes_ten_seconds_at_most(n: int, expected: int) -> None:
    """What a killed command loses: 0.01 + n / 2000 seconds each, a second where it looks for the optimum."""
    solver = create(choose("fast-tsp", SolverOptions()))
    assert solver.batch_size(generate("tsp", n, 1)) == expected

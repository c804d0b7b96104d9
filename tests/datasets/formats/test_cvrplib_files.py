"""CVRPLIB files: published costs, vrplib, and every kind of bad input."""

from __future__ import annotations

import csv
import gzip
import warnings
from pathlib import Path

import numpy as np
import pytest

from nco_bench.datasets.formats import FileWarning, read_file, write_file
from nco_bench.datasets.formats.cvrplib import convention_of, read_instance, read_solution
from nco_bench.errors import BadInputError
from nco_bench.problems.cvrp import score, violations

TINY = (
    "NAME : tiny\nTYPE : CVRP\nDIMENSION : 4\nEDGE_WEIGHT_TYPE : EUC_2D\nCAPACITY : 10\n"
    "NODE_COORD_SECTION\n1 0 0\n2 3 4\n3 6 8\n4 0 5\n"
    "DEMAND_SECTION\n1 0\n2 4\n3 6\n4 10\nDEPOT_SECTION\n1\n-1\nEOF\n"
)
SOLUTION = np.array([0, 1, 2, 0, 3, 0])  # 5 + 5 + 10 and 5 + 5


def write(folder: Path, text: str | bytes, name: str = "x.vrp") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_every_instance_is_read_and_every_solution_costs_its_published_value(shared: Path) -> None:
    rules = {"nint": "cvrplib-nint", "real": "euclidean", "matrix": "explicit"}
    folder = shared / "instances" / "cvrplib"
    scored = 0
    for row in csv.DictReader((folder / "index.csv").open()):
        base = folder / row["set"] / row["name"]
        instance = read_instance(base.with_name(base.name + ".vrp.gz"))
        limit = float(row["max_route_length"]) if row["max_route_length"] else None
        found = (instance.n, instance.convention, instance.capacity, instance.max_route_length)
        assert found == (int(row["n_customers"]), rules[row["rounding"]], float(row["capacity"]), limit), row[
            "name"
        ]
        if row["sol_cost"]:
            solution, _ = read_solution(base.with_name(base.name + ".sol.gz"))
            assert violations(instance, solution) == (), row["name"]
            # Unrounded costs are published with two decimals.
            slack = 0.0051 if row["rounding"] == "real" else 0.0
            assert abs(score(instance, solution) - float(row["sol_cost"])) <= slack, row["name"]
            scored += 1
    assert scored == 275


@pytest.mark.parametrize(
    "name", ["A/A-n32-k5", "E/E-n13-k4", "X/X-n101-k25", "Golden/Golden_1", "F/F-n45-k4"]
)
def test_contents_agree_with_vrplib(shared: Path, tmp_path: Path, name: str) -> None:
    vrplib = pytest.importorskip("vrplib")
    packed = shared / "instances" / "cvrplib" / f"{name}.vrp.gz"
    plain = write(tmp_path, gzip.decompress(packed.read_bytes()), Path(name).name + ".vrp")
    theirs, ours = vrplib.read_instance(plain), read_instance(plain)
    np.testing.assert_array_equal(theirs["demand"][1:], ours.demand)
    assert theirs["capacity"] == ours.capacity
    if ours.matrix is not None:
        np.testing.assert_array_equal(theirs["edge_weight"], ours.matrix)
    else:
        assert ours.depot is not None
        assert ours.customers is not None
        np.testing.assert_array_equal(theirs["node_coord"], np.vstack([ours.depot, ours.customers]))


@pytest.mark.parametrize(
    ("name", "convention"),
    [
        ("Golden_1", "euclidean"),
        ("Li_21", "euclidean"),
        ("tai75a", "euclidean"),
        ("Tai385", "euclidean"),
        ("CMT1", "euclidean"),
        ("X-n101-k25", "cvrplib-nint"),
        ("Leuven1", "cvrplib-nint"),
        ("M-n101-k10", "cvrplib-nint"),
        ("Liechtenstein", "cvrplib-nint"),
    ],
)
def test_the_set_decides_about_rounding(name: str, convention: str) -> None:
    assert convention_of(name) == convention


@pytest.mark.parametrize(
    "text",
    [TINY, TINY.replace("\n", "\r\n"), TINY.removesuffix("EOF\n"), TINY.split("DEPOT_SECTION")[0]],
    ids=["plain", "crlf", "no-eof", "no-depot-section"],
)
def test_harmless_variants_are_accepted(tmp_path: Path, text: str) -> None:
    instance = read_instance(write(tmp_path, text))
    assert violations(instance, SOLUTION) == ()
    assert score(instance, SOLUTION) == 30


def test_nodes_and_depot_may_count_from_0(tmp_path: Path) -> None:
    rows = "NODE_COORD_SECTION\n0 0 0\n1 3 4\n2 6 8\n3 0 5\nDEMAND_SECTION\n0 0\n1 4\n2 6\n3 10\nDEPOT_SECTION\n0\n-1\n"
    instance = read_instance(write(tmp_path, TINY.split("NODE_COORD_SECTION")[0] + rows))
    assert score(instance, SOLUTION) == 30
    with pytest.raises(BadInputError, match=r"x\.vrp:17: the depot is node 0; expected one of 1\.\.4"):
        read_instance(write(tmp_path, TINY.replace("\n1\n-1", "\n0\n-1")))


def test_a_depot_that_is_not_node_one_is_moved_to_the_front(tmp_path: Path) -> None:
    text = (
        TINY.replace("1 0 0\n2 3 4", "1 3 4\n2 0 0")
        .replace("1 0\n2 4\n", "1 4\n2 0\n")
        .replace("\n1\n-1", "\n2\n-1")
    )
    instance = read_instance(write(tmp_path, text))
    assert instance.depot is not None
    assert instance.depot.tolist() == [0, 0]
    assert instance.demand.tolist() == [4, 6, 10]
    assert score(instance, SOLUTION) == 30


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TINY.replace("4 10\n", "4 11\n"), r"x\.vrp:15: customer 3 demands 11, more than the capacity 10"),
        (TINY.replace("3 6\n4 10", "3 -6\n4 10"), r"x\.vrp:14: the demand of customer 2 is -6"),
        (TINY.replace("1 0\n2 4\n", "1 2\n2 4\n"), r"x\.vrp:12: the depot has demand 2; expected 0"),
        (TINY.replace("4 10\n", "3 10\n"), r"x\.vrp:15: node 3 appears twice in DEMAND_SECTION"),
        (TINY.replace("4 0 5\n", "3 0 5\n"), r"x\.vrp:10: node 3 appears twice in NODE_COORD_SECTION"),
        (TINY.replace("4 10\n", ""), r"x\.vrp:11: DEMAND_SECTION has 3 rows, DIMENSION says 4"),
        (TINY.replace("4 10\n", "4 ten\n"), r"x\.vrp:15: .*TEN|'ten'"),
        (TINY.replace("CAPACITY : 10\n", ""), "CAPACITY is missing"),
        (TINY.replace("CAPACITY : 10", "CAPACITY : 0"), r"x\.vrp:5: the capacity is 0"),
        (TINY.replace("CAPACITY : 10", "CAPACITY : much"), r"x\.vrp:5: CAPACITY is 'much'"),
        (TINY.split("DEMAND_SECTION")[0], "DEMAND_SECTION is missing"),
        (TINY.replace("\n1\n-1", "\n1\n3\n-1"), r"x\.vrp:16: 2 depots"),
        (TINY.replace("\n1\n-1", "\n9\n-1"), r"x\.vrp:17: the depot is node 9"),
        (TINY.replace("EUC_2D", "EUC_3D"), r"x\.vrp:4: EDGE_WEIGHT_TYPE 'EUC_3D' is not supported"),
        (TINY.replace("TYPE : CVRP", "TYPE : VRPTW"), r"x\.vrp:2: TYPE is 'VRPTW'"),
        (
            TINY.replace("CAPACITY", "SERVICE_TIME : 10\nCAPACITY"),
            r"x\.vrp:5: service times are not supported",
        ),
        (
            TINY.replace("EOF", "TIME_WINDOW_SECTION\n1 0 9\n2 0 9\n3 0 9\n4 0 9\nEOF"),
            r"x\.vrp:19: TIME_WINDOW_SECTION belongs to another problem",
        ),
        (TINY.replace("CAPACITY", "DISTANCE : -1\nCAPACITY"), r"x\.vrp:5: the route length limit is -1"),
    ],
)
def test_bad_input_names_file_line_and_cause(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadInputError, match=message) as caught:
        read_instance(write(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_solutions_say_what_does_not_fit(tmp_path: Path) -> None:
    good = write(tmp_path, "Route #1: 1 2\r\nRoute #2: 3\r\ncost 30\r\nTime 1.5\r\n", "x.sol")
    nodes, cost = read_solution(good)
    assert nodes.tolist() == SOLUTION.tolist()
    assert cost == 30
    with pytest.raises(BadInputError, match=r"x\.sol:2: a route is"):
        read_solution(write(tmp_path, "Route #1: 1 2\nRoute #2: three\n", "x.sol"))
    with pytest.raises(BadInputError, match="no line 'Route"):
        read_solution(write(tmp_path, "Cost 3\n", "x.sol"))
    with pytest.raises(BadInputError, match="the cost is 'unknown'"):
        read_solution(write(tmp_path, "Route #1: 1\nCost unknown\n", "x.sol"))


@pytest.mark.parametrize(
    "name", ["A/A-n32-k5", "E/E-n13-k4", "Golden/Golden_1", "Taillard/tai75a", "XXL/Leuven1"]
)
def test_real_instances_survive_a_round_trip(shared: Path, tmp_path: Path, name: str) -> None:
    first = read_file(shared / "instances" / "cvrplib" / f"{name}.vrp.gz")
    write_file(first, tmp_path / "again.vrp")
    second = read_file(tmp_path / "again.vrp")
    assert second.sha256 == first.sha256


def test_a_dimension_beyond_all_memory_is_refused_before_anything_is_allocated(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="DIMENSION says 1000000000000000"):
        read_instance(write(tmp_path, TINY.replace("DIMENSION : 4", "DIMENSION : 1000000000000000")))


def test_a_fleet_that_is_not_heeded_is_told(tmp_path: Path) -> None:
    """Three customers: two vehicles are a limit, three are none."""
    limited = write(tmp_path, TINY.replace("CAPACITY", "VEHICLES : 2\nCAPACITY"))
    with pytest.warns(FileWarning, match=r"x\.vrp:5: VEHICLES is '2', but the number of routes has no limit"):
        instance = read_instance(limited)
    assert violations(instance, np.array([0, 1, 0, 2, 0, 3, 0])) == ()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_instance(write(tmp_path, TINY.replace("CAPACITY", "VEHICLES : 3\nCAPACITY")))

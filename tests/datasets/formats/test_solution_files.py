"""One solution for one instance, in the notations that people use."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nco_bench.datasets.dataset import Dataset, Origin, Reference
from nco_bench.datasets.formats import read_solution, write_file
from nco_bench.errors import BadInputError
from nco_bench.problems.bpp3d import BPP3DInstance
from nco_bench.problems.cvrp import CVRPInstance
from nco_bench.problems.tsp import TSPInstance

SQUARE = TSPInstance("square", np.array([[0.0, 0], [1, 0], [1, 1], [0, 1]]))
LOAD = BPP3DInstance("load", np.array([[1, 2, 3], [3, 3, 3]]), np.array([9, 9]))
STAR = CVRPInstance("star", np.zeros(2), np.array([[1.0, 0], [2, 0], [-3, 0]]), np.array([1, 1, 2]), 2)


@pytest.mark.parametrize(
    "text",
    [
        "[0, 2, 1, 3]",
        "[0, 2, 1, 3, 0]",
        '{"tour": [0, 2, 1, 3]}',
        "[[0, 2, 1, 3]]",
        "0 2 1 3",
        "0\n2\n1\n3\n0\n",
        "0,2,1,3 4.83 0.01",
        "TYPE: TOUR\nTOUR_SECTION\n1\n3\n2\n4\n-1\nEOF\n",
        "TOUR_SECTION\n1 3 2 4 1 -1",
    ],
)
def test_tours(tmp_path: Path, text: str) -> None:
    (tmp_path / "s").write_text(text)
    assert read_solution(tmp_path / "s", SQUARE).tolist() == [0, 2, 1, 3]


@pytest.mark.parametrize(
    "text",
    [
        "[0, 1, 2, 0, 3, 0]",
        "[1, 2, 0, 3]",
        "[[1, 2], [3]]",
        "[[0, 1, 2, 0], [0, 3, 0]]",
        "[[0, 1, 2, 0, 0, 3, 0]]",
        '{"routes": [[1, 2], [3]], "cost": 10}',
        "0 1 2 0 3 0",
        "Route #1: 1 2\nRoute #2: 3\nCost 10\n",
        "Route 1: 1 2\nRoute 2: 3\n",
    ],
)
def test_routes(tmp_path: Path, text: str) -> None:
    (tmp_path / "s").write_text(text)
    assert read_solution(tmp_path / "s", STAR).tolist() == [0, 1, 2, 0, 3, 0]


@pytest.mark.parametrize("text", ["[0, 0, 0, 5, 3, 3, 0, 0]", "[[0, 0, 0, 5], [3, 3, 0, 0]]"])
def test_packings_may_have_a_row_per_box(tmp_path: Path, text: str) -> None:
    (tmp_path / "s").write_text(text)
    assert read_solution(tmp_path / "s", LOAD).tolist() == [0, 0, 0, 5, 3, 3, 0, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("[0, 1.5, 2]", "no list of whole numbers"),
        ("[0, 1, ", "not valid JSON"),
        ("[[0, 1], [2, 3]]", "a list of routes, but square is a tsp instance"),
        (f"[[{10**30}]]", "no list of whole numbers"),
        ('{"cost": 3}', "no list of whole numbers"),
        ("0 1\n2 x\n", r"s:2: 'x' is not a node number"),
        ("Route #1: 1 2", "CVRPLIB routes, but square is a tsp instance"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_bad_solution_files(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "s").write_text(text)
    with pytest.raises(BadInputError, match=message):
        read_solution(tmp_path / "s", SQUARE)


def test_lines_of_customers_are_no_single_route(tmp_path: Path) -> None:
    """They were read as one, whose cost was another; one route, or a node per line, is what it says."""
    (tmp_path / "s").write_text("1 2\n3\n2 1\n")
    with pytest.raises(
        BadInputError, match="lines of nodes without a depot; begin each route with 'Route #1:'"
    ):
        read_solution(tmp_path / "s", STAR)
    for text in ("1 2 3", "1\n2\n3\n"):
        (tmp_path / "s").write_text(text)
        assert read_solution(tmp_path / "s", STAR).tolist() == [0, 1, 2, 3, 0]


def test_a_tour_file_without_some_cities_is_read_and_left_to_the_score(tmp_path: Path) -> None:
    """As the same nodes in any other notation."""
    (tmp_path / "s").write_text("TYPE: TOUR\nTOUR_SECTION\n1\n3\n-1\n")
    assert read_solution(tmp_path / "s", SQUARE).tolist() == [0, 2]


def test_a_tour_in_a_list_may_begin_anywhere(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("[[2, 0, 1, 3]]")
    assert read_solution(tmp_path / "s", SQUARE).tolist() == [2, 0, 1, 3]


def test_tour_and_sol_files_that_we_write_read_back(tmp_path: Path) -> None:
    tour, nodes = np.array([2, 0, 1, 3]), np.array([0, 1, 2, 0, 3, 0])
    for instance, solution, name in ((SQUARE, tour, "a.tour"), (STAR, nodes, "a.sol.gz")):
        dataset = Dataset(
            "d", instance.problem, (instance,), (Reference(1.0, "test", solution),), Origin("test")
        )
        write_file(dataset, tmp_path / name)
        np.testing.assert_array_equal(read_solution(tmp_path / name, instance), solution)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[0,0,0,0,1],[0,0,0],[1,0,0,0]]", "box 0 has 5 numbers; expected x, y, z, orientation"),
        ("[[0,0,0,0],[1,0,0]]", "box 1 has 3 numbers"),
        ('{"cost": 3}', "no list of whole numbers; .* an object that has one as solution, tour or routes"),
    ],
)
def test_a_row_that_is_no_box_is_named(tmp_path: Path, text: str, said: str) -> None:
    """Rows of other lengths were read on as one list, and scored as boxes that nobody had written."""
    (tmp_path / "s").write_text(text)
    with pytest.raises(BadInputError, match=said):
        read_solution(tmp_path / "s", LOAD)

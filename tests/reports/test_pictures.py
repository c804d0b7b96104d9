"""Pictures: what is drawn is what is there, files are whole and of the type asked for, nonsense is refused."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from nco_bench.datasets.dataset import Reference
from nco_bench.datasets.generate import generate
from nco_bench.errors import BadInputError
from nco_bench.problems.cvrp import CVRPInstance
from nco_bench.problems.tsp import TSPInstance
from nco_bench.reports.figures.routes import ROUTE_COLOURS, display_coordinates, draw

pytest.importorskip("matplotlib")

TSP = TSPInstance("square", np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 0.0]]))
CVRP = CVRPInstance(
    "plus", np.zeros(2), np.array([[1.0, 1], [-1, 1], [-1, -1], [1, -1]]), np.array([3, 3, 3, 3]), 6
)
MAGIC = {".png": b"\x89PNG\r\n\x1a\n", ".pdf": b"%PDF-", ".svg": b"<?xml"}


def svg_paths(path: Path, colour: str) -> list[str]:
    """The paths drawn in `colour`."""
    root = ElementTree.parse(path).getroot()
    elements = root.iter("{http://www.w3.org/2000/svg}path")
    return [e.get("d", "") for e in elements if f"stroke: {colour.lower()}" in e.get("style", "")]


def title(path: Path) -> str:
    """The text of an SVG, which matplotlib keeps as a comment beside its outlines."""
    return " ".join(re.findall(r"<!-- (.*?) -->", path.read_text()))


@pytest.mark.parametrize("suffix", MAGIC)
@pytest.mark.parametrize(
    ("instance", "solution"), [(TSP, [0, 1, 2, 3]), (CVRP, [0, 1, 2, 0, 3, 4, 0]), (TSP, None)]
)
def test_file_is_of_the_type_that_its_ending_says(tmp_path, suffix, instance, solution):
    path = draw(instance, tmp_path / f"picture{suffix}", None if solution is None else np.array(solution))
    assert path.read_bytes().startswith(MAGIC[suffix])
    assert [p.name for p in tmp_path.iterdir()] == [f"picture{suffix}"]


def test_tour_is_one_closed_line_through_all_nodes(tmp_path):
    path = draw(TSP, tmp_path / "tour.svg", np.array([2, 0, 1, 3]))
    (line,) = svg_paths(path, ROUTE_COLOURS[0])
    points = re.findall(r"[ML] ([\d.]+) ([\d.]+)", line)
    assert len(points) == 5
    assert points[0] == points[-1]
    assert len(set(points)) == 4


def test_each_route_has_its_own_colour(tmp_path):
    path = draw(CVRP, tmp_path / "routes.svg", np.array([0, 1, 2, 0, 0, 3, 4, 0]))
    # Each route: its path, and its two legs to the depot.
    assert [len(svg_paths(path, colour)) for colour in ROUTE_COLOURS[:3]] == [3, 3, 0]


def test_title_states_cost_and_convention_or_why_the_solution_is_infeasible(tmp_path):
    assert "square, n = 4, cost 4 (euclidean)" in title(draw(TSP, tmp_path / "a.svg", np.array([0, 1, 2, 3])))
    assert "infeasible: 3 visits for 4 nodes" in title(draw(TSP, tmp_path / "b.svg", np.array([0, 1, 2])))
    assert "C = 6, infeasible: route 1 carries 12" in title(
        draw(CVRP, tmp_path / "c.svg", np.array([0, 1, 2, 3, 4, 0]))
    )
    assert "own words" in title(draw(TSP, tmp_path / "d.svg", title="own words"))


def test_a_gap_that_is_rounding_has_no_sign(tmp_path):
    known = Reference(4.0 * (1 + 1e-12), "lkh3")
    assert "gap 0.000 % to lkh3" in title(
        draw(TSP, tmp_path / "a.svg", np.array([0, 1, 2, 3]), reference=known)
    )


def test_equal_pictures_are_equal_files(tmp_path):
    for suffix in MAGIC:
        a, b = (
            draw(CVRP, tmp_path / f"{k}{suffix}", np.array([0, 1, 2, 0, 3, 4, 0])).read_bytes() for k in "ab"
        )
        assert a == b


def test_many_nodes_are_one_image_inside_a_vector_file(tmp_path):
    instance = generate("tsp", 20_000, 1).instances[0]
    strip = np.floor(instance.coords[:, 0] * 140)
    order = np.lexsort((np.where(strip % 2, 1 - instance.coords[:, 1], instance.coords[:, 1]), strip))
    path = draw(instance, tmp_path / "large.pdf", order)
    assert b"/Subtype /Image" in path.read_bytes()
    # As paths, 20,000 edges and dots take more than 1 MB.
    assert path.stat().st_size < 700_000


def test_geo_instances_are_drawn_with_north_up():
    # Latitude comes first in the file and belongs on the vertical axis.
    instance = TSPInstance("geo", np.array([[60.0, 10.0], [40.0, 20.0]]), "geo")
    assert display_coordinates(instance).tolist() == [[10.0, 60.0], [20.0, 40.0]]


def test_global_state_of_matplotlib_is_left_alone(tmp_path):
    import matplotlib

    before = dict(matplotlib.rcParams), matplotlib.get_backend(auto_select=False)
    draw(TSP, tmp_path / "a.svg")
    assert (dict(matplotlib.rcParams), matplotlib.get_backend(auto_select=False)) == before


@pytest.mark.parametrize(
    ("solution", "message"),
    [
        ([0, 1, 2, 4], r"node 4 is outside 0\.\.3"),
        ([0, -1], "cannot be drawn"),
        ([], "flat array"),
        ([0.5, 1.0], "flat array"),
    ],
)
def test_solution_that_is_no_sequence_of_nodes_is_refused(tmp_path, solution, message):
    with pytest.raises(BadInputError, match=message):
        draw(TSP, tmp_path / "a.png", np.array(solution))
    assert not list(tmp_path.iterdir())


def test_matrix_instance_without_display_coordinates_is_refused(tmp_path):
    instance = TSPInstance("matrix", None, "explicit", np.zeros((3, 3)))
    with pytest.raises(BadInputError, match="without coordinates to draw at"):
        draw(instance, tmp_path / "a.png")


def test_other_file_types_and_impossible_places_are_refused(tmp_path):
    with pytest.raises(BadInputError, match=r"\.png, \.pdf, \.svg"):
        draw(TSP, tmp_path / "a.gif")
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInputError, match="cannot be written"):
        draw(TSP, tmp_path / "file" / "a.png")

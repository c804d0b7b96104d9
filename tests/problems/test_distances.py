"""Distance conventions against hand calculations and against the package tsplib95."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nco_bench.errors import UnknownNameError
from nco_bench.problems.distances import CONVENTIONS, cycle_length, edge_rule


def edge(convention: str, a: tuple[float, float], b: tuple[float, float]) -> float:
    return float(edge_rule(convention)(np.array(a, dtype=float), np.array(b, dtype=float)))


@pytest.mark.parametrize(
    ("convention", "a", "b", "expected"),
    [
        ("euclidean", (0, 0), (3, 4), 5.0),
        ("euclidean", (0, 0), (1, 1), 2**0.5),
        # sqrt(2) = 1.414 rounds down, sqrt(8) = 2.828 up; 0.5 goes up, also where half-to-even would go down.
        ("tsplib-nint", (0, 0), (1, 1), 1),
        ("tsplib-nint", (0, 0), (2, 2), 3),
        ("tsplib-nint", (0, 0), (0.5, 0), 1),
        ("tsplib-nint", (0, 0), (2.5, 0), 3),
        ("cvrplib-nint", (0, 0), (4.5, 0), 5),
        ("ceil", (0, 0), (1, 1), 2),
        ("ceil", (0, 0), (3, 4), 5),
        # sqrt(200 / 10) = 4.472, nearest 4 lies below it: 5. sqrt(250 / 10) = 5 exactly: 5. sqrt(8 / 10) = 0.894: 1.
        ("att", (0, 0), (10, 10), 5),
        ("att", (0, 0), (15, 5), 5),
        ("att", (0, 0), (2, 2), 1),
        # 0.4 + 2.5 = 2.9 rounds to 3; the differences rounded singly are 0 and 3 (not 2).
        ("manhattan", (0, 0), (0.4, 2.5), 3),
        ("maximum", (0, 0), (0.4, 2.5), 3),
        ("maximum", (0, 0), (7.5, 2.5), 8),
        # A quarter of a great circle: pi / 2 * 6378.388 = 10019.148 km, plus 1, truncated (with pi = 3.141592).
        ("geo", (0, 0), (0, 90), 10020),
        ("geo", (0, 0), (90, 0), 10020),
        # One degree of latitude: 3.141592 / 180 * 6378.388 = 111.32 km, plus 1, truncated.
        ("geo", (0, 0), (1, 0), 112),
        # 0.30 means 30 minutes, half a degree: 55.66 km, plus 1, truncated.
        ("geo", (0, 0), (0.30, 0), 56),
    ],
)
def test_edge_has_the_length_worked_out_by_hand(convention, a, b, expected):
    assert edge(convention, a, b) == pytest.approx(expected, abs=1e-12)


def test_ulysses_first_edge_is_the_one_of_tsplib():
    # ulysses16: nodes 1 (38.24, 20.42) and 2 (39.57, 26.15); TSPLIB's documentation has 509 km.
    assert edge("geo", (38.24, 20.42), (39.57, 26.15)) == 509


def test_geo_of_a_place_with_itself_is_1_as_the_formula_says():
    assert edge("geo", (38.24, 20.42), (38.24, 20.42)) == 1


integers = st.integers(-10_000, 10_000)


@pytest.mark.parametrize(
    ("convention", "name"),
    [
        ("tsplib-nint", "euclidean"),
        ("ceil", "euclidean_ceil"),
        ("att", "pseudo_euclidean"),
        ("manhattan", "manhattan"),
        ("maximum", "maximum"),
    ],
)
@settings(deadline=None)
@given(a=st.tuples(integers, integers), b=st.tuples(integers, integers))
def test_planar_rules_agree_with_tsplib95(convention, name, a, b):
    distances = pytest.importorskip("tsplib95.distances")
    rule = (
        partial(distances.euclidean, round=np.ceil) if name == "euclidean_ceil" else getattr(distances, name)
    )
    expected = rule(a, b)
    assert edge(convention, a, b) == expected


@settings(deadline=None)
@given(
    st.tuples(st.integers(-89, 89), st.integers(0, 59)),
    st.tuples(st.integers(-179, 179), st.integers(0, 59)),
    st.tuples(st.integers(-89, 89), st.integers(0, 59)),
    st.tuples(st.integers(-179, 179), st.integers(0, 59)),
)
def test_geo_agrees_with_the_c_text_of_tsplib(lat_a, lon_a, lat_b, lon_b):
    # Written out from Reinelt's text: deg = (int) x; min = x - deg; rad = PI * (deg + 5.0 * min / 3.0) / 180.0.
    def read(degrees: int, minutes: int) -> float:
        return math.copysign(abs(degrees) + minutes / 100, degrees)

    def radians(x: float) -> float:
        return 3.141592 * (int(x) + 5.0 * (x - int(x)) / 3.0) / 180.0

    a, b = (read(*lat_a), read(*lon_a)), (read(*lat_b), read(*lon_b))
    q1 = math.cos(radians(a[1]) - radians(b[1]))
    q2 = math.cos(radians(a[0]) - radians(b[0]))
    q3 = math.cos(radians(a[0]) + radians(b[0]))
    cosine = max(-1.0, min(1.0, 0.5 * ((1.0 + q1) * q2 - (1.0 - q1) * q3)))
    value = 6378.388 * math.acos(cosine) + 1.0
    # Where the two cosines differ in the last bit next to a whole number, either neighbour is right.
    assert edge("geo", a, b) in {int(value - 1e-4), int(value), int(value + 1e-4)}


@settings(deadline=None)
@given(
    st.sampled_from(sorted(CONVENTIONS)),
    st.lists(st.tuples(integers, integers), min_size=2, max_size=12),
    st.data(),
)
def test_length_does_not_depend_on_start_or_direction(convention, points, data):
    if convention == "geo":
        points = [(x / 120, y / 60) for x, y in points]
    coords = np.array(points, dtype=float)
    order = np.array(data.draw(st.permutations(range(len(points)))))
    shift = data.draw(st.integers(0, len(points)))
    length = cycle_length(coords, order, convention)
    assert cycle_length(coords, np.roll(order, shift)[::-1], convention) == pytest.approx(length, rel=1e-12)


def test_unknown_convention_is_refused_with_the_nearest_name():
    with pytest.raises(UnknownNameError, match="Did you mean 'euclidean'"):
        edge_rule("euclidian")

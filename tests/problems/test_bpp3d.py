"""Packing: the referee against brute force over unit cells, load rates by hand, and every way to be infeasible."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nco_bench.errors import BadInputError
from nco_bench.problems import bpp3d, problem
from nco_bench.problems.bpp3d import ORIENTATIONS, BPP3DInstance


def instance(boxes, base=(4, 4)):
    return BPP3DInstance("test", np.array(boxes), np.array(base))


WORKED = instance([(3, 2, 2), (1, 2, 2), (2, 2, 4), (1, 4, 2)])
"""The worked example of attend2pack (W = H = 4, open length), with its length up: utility 40 / 48."""

# Open length, width and height there are z, y and x here, so sides (2, 1, 0) lie along x, y, z: orientation 5.
WORKED_PACKING = np.array([0, 0, 0, 5, 2, 0, 0, 5, 0, 2, 0, 5, 2, 0, 2, 5])


def extents(box, orientation):
    return [box[side] for side in ORIENTATIONS[orientation]]


def test_worked_example_has_the_published_utility():
    assert [extents(b, 5) for b in WORKED.boxes] == [[2, 2, 3], [2, 2, 1], [4, 2, 2], [2, 4, 1]]
    assert bpp3d.violations(WORKED, WORKED_PACKING) == ()
    assert bpp3d.height(WORKED, WORKED_PACKING) == 3
    assert bpp3d.score(WORKED, WORKED_PACKING) == pytest.approx(100 * 40 / 48, rel=1e-15)


def test_higher_is_better():
    assert problem("bpp3d").OBJECTIVE == "max"


def test_a_perfect_packing_loads_all_of_the_bin():
    cubes = instance([(2, 2, 2)] * 8)
    corners = [(x, y, z, 0) for x in (0, 2) for y in (0, 2) for z in (0, 2)]
    packing = np.array(corners).ravel()
    assert bpp3d.violations(cubes, packing) == ()
    assert bpp3d.score(cubes, packing) == 100.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p[:-1], "expected 4 per box"),
        (lambda p: p.reshape(-1, 4), "flat array"),
        (lambda p: p.astype(float), "flat array of integers"),
        (lambda p: np.r_[p[:3], 6, p[4:]], "box 0 has orientation 6"),
        (lambda p: np.r_[p[:3], -1, p[4:]], "box 0 has orientation -1"),
        (lambda p: np.r_[-1, p[1:]], "box 0 reaches out of the bin"),
        (lambda p: np.r_[p[:2], -1, p[3:]], "box 0 reaches out of the bin"),
        (lambda p: np.r_[p[:4], 3, p[5:]], "box 1 reaches out of the bin"),
        (lambda p: np.r_[p[:4], 1, p[5:]], "boxes 0 and 1 overlap"),
        (lambda p: np.r_[p[:2], 2**40, p[3:]], "beyond"),
    ],
)
def test_infeasible_packings_are_named(change, message):
    packing = np.array([0, 0, 0, 0, 2, 0, 0, 0])
    two = instance([(2, 2, 2), (2, 2, 2)])
    assert bpp3d.violations(two, packing) == ()
    (found,) = bpp3d.violations(two, change(packing))
    assert message in found


def test_touching_faces_do_not_overlap_and_one_shared_cell_does():
    pair = instance([(2, 2, 2), (2, 2, 2)], (5, 5))
    assert bpp3d.violations(pair, np.array([0, 0, 0, 0, 0, 0, 2, 0])) == ()
    assert bpp3d.violations(pair, np.array([0, 0, 0, 0, 1, 1, 1, 0])) == ("boxes 0 and 1 overlap",)


@st.composite
def small_packings(draw):
    count = draw(st.integers(2, 7))
    boxes = draw(st.lists(st.tuples(*[st.integers(1, 4)] * 3), min_size=count, max_size=count))
    rows = [
        (draw(st.integers(0, 6)), draw(st.integers(0, 6)), draw(st.integers(0, 6)), draw(st.integers(0, 5)))
        for _ in boxes
    ]
    return instance(boxes, (8, 8)), np.array(rows)


@settings(max_examples=200, deadline=None)
@given(small_packings())
def test_the_verdict_is_that_of_counting_unit_cells(drawn):
    boxes, rows = drawn
    cells = np.zeros((12, 12, 16), dtype=int)
    inside = True
    for box, (x, y, z, turn) in zip(boxes.boxes, rows, strict=True):
        a, b, c = extents(box, turn)
        inside &= x + a <= 8 and y + b <= 8
        cells[x : x + a, y : y + b, z : z + c] += 1
    valid = bool(inside) and cells.max() == 1
    found = bpp3d.violations(boxes, rows.ravel())
    assert (found == ()) == valid, found
    if valid:
        top = int(np.flatnonzero(cells.any((0, 1))).max()) + 1
        assert bpp3d.score(boxes, rows.ravel()) == pytest.approx(100 * cells.sum() / (64 * top), rel=1e-12)


def test_an_overlap_among_many_boxes_is_found_across_blocks():
    # 2,000 unit columns in a row, the last one pushed into the first.
    many = instance([(1, 1, 1)] * 2000, (2000, 1))
    rows = np.zeros((2000, 4), dtype=np.int64)
    rows[:, 0] = np.arange(2000)
    assert bpp3d.violations(many, rows.ravel()) == ()
    rows[-1, 0] = 0
    assert bpp3d.violations(many, rows.ravel()) == ("boxes 0 and 1999 overlap",)


@pytest.mark.parametrize(
    ("boxes", "base", "message"),
    [
        ([(1, 1, 1), (5, 6, 5)], (4, 9), "box 1 with sides 5 x 6 x 5 does not fit the bin of base 4 x 9"),
        ([(1, 0, 2)], (4, 4), "box 0 has sides 1 x 0 x 2"),
        ([(1, 1, 1), (1, -3, 2)], (4, 4), "box 1 has sides 1 x -3 x 2"),
        ([(1.5, 1, 1)], (4, 4), "whole numbers"),
        ([(float("nan"), 1, 1)], (4, 4), "whole numbers"),
        ([(1, 1)], (4, 4), "expected (N, 3)"),
        (np.zeros((0, 3), dtype=int), (4, 4), "expected (N, 3)"),
        ([(1, 1, 1)], (0, 4), "both must be positive"),
        ([(1, 1, 1)], (4, 4, 4), "expected (2,)"),
    ],
)
def test_instances_that_make_no_sense_are_refused(boxes, base, message):
    with pytest.raises(BadInputError) as caught:
        instance(boxes, base)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_box_that_fits_lying_down_is_accepted():
    assert instance([(9, 3, 4)], (4, 4)).n == 1  # upright: 3 x 4 on the floor, 9 high

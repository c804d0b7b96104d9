"""Packing solvers: valid packings for random boxes and orders, by an overlap check of this file's own."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nco_bench.datasets.dataset import Dataset, Origin
from nco_bench.datasets.generate import generate
from nco_bench.errors import BadInputError, BadWeightsError, UnknownNameError
from nco_bench.problems import bpp3d
from nco_bench.problems.bpp3d import BPP3DInstance
from nco_bench.solvers.packing.extreme_points import pack_at_extreme_points
from nco_bench.solvers.packing.greedy import best_of
from nco_bench.solvers.packing.height_map import pack_deepest_bottom_left, sliding_max
from nco_bench.solvers.protocol import Failure, SolverOptions
from nco_bench.solvers.registry import choose, create

RULES = {"extreme-point": pack_at_extreme_points, "deepest-bottom-left": pack_deepest_bottom_left}
TURNS = ["lwh", "lhw", "wlh", "whl", "hlw", "hwl"]
"""What lies along x, y and z."""


def assert_valid(boxes, base, packing):
    """Check a packing pair by pair, in plain Python, and return its load rate."""
    placed = []
    for (length, width, height), (x, y, z, turn) in zip(boxes, packing, strict=True):
        side = {"l": length, "w": width, "h": height}
        a, b, c = (side[axis] for axis in TURNS[turn])
        assert min(x, y, z) >= 0
        assert x + a <= base[0]
        assert y + b <= base[1]
        placed.append(((x, x + a), (y, y + b), (z, z + c)))
    for one, other in combinations(placed, 2):
        assert any(s[1] <= t[0] or t[1] <= s[0] for s, t in zip(one, other, strict=True)), (one, other)
    volume = sum(a * b * c for a, b, c in boxes)
    return 100 * volume / (base[0] * base[1] * max(z[1] for *_, z in placed))


@st.composite
def loads(draw):
    base = draw(st.tuples(st.integers(5, 20), st.integers(5, 20)))
    side = st.integers(1, min(base))
    boxes = draw(st.lists(st.tuples(side, side, side), min_size=1, max_size=20))
    return base, boxes, draw(st.permutations(range(len(boxes))))


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=60, deadline=None)
@given(drawn=loads())
def test_any_boxes_in_any_order_are_packed_validly(rule, drawn):
    base, boxes, order = drawn
    rows = RULES[rule](np.array(boxes), np.array(base), np.array(order))
    rate = assert_valid(boxes, base, rows.tolist())
    instance = BPP3DInstance("drawn", np.array(boxes), np.array(base))
    assert bpp3d.violations(instance, rows.ravel()) == ()
    assert bpp3d.score(instance, rows.ravel()) == pytest.approx(rate, rel=1e-12)


@settings(max_examples=100, deadline=None)
@given(
    values=st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=1, max_size=12),
    data=st.data(),
)
def test_sliding_maxima_are_those_of_every_window(values, data):
    table = np.array(values, dtype=np.int32)
    window = data.draw(st.integers(1, len(table)))
    expected = [table[i : i + window].max(0) for i in range(len(table) - window + 1)]
    assert (sliding_max(table, window) == expected).all()


def test_extreme_points_use_the_hole_under_a_bridge():
    # Two pillars and a plank over them leave a 2 x 2 x 2 hole; from above it cannot be reached.
    boxes, base = np.array([(2, 2, 2), (2, 2, 2), (6, 2, 1), (2, 2, 2)]), np.array([6, 2])
    rows = pack_at_extreme_points(boxes, base, np.array([0, 1, 3, 2]))
    assert assert_valid(boxes.tolist(), (6, 2), rows.tolist()) == 100.0
    assert rows[2, 2] == 2


def test_eight_cubes_fill_their_bin():
    cubes = np.full((8, 3), 5)
    for rule in RULES.values():
        rows = rule(cubes, np.array([10, 10]), np.arange(8))
        assert assert_valid(cubes.tolist(), (10, 10), rows.tolist()) == 100.0


def test_more_tries_are_never_worse_and_a_seed_repeats():
    gained = 0.0
    for seed, instance in enumerate(generate("bpp3d", 12, 4)):
        rates = []
        for tries in (1, 3, 9):
            params = {"order": "volume", "noise": 0.3, "tries": tries}
            found, again = (best_of(pack_at_extreme_points, instance, seed, None, params) for _ in range(2))
            assert (found == again).all()
            rates.append(bpp3d.score(instance, found))
        assert rates == sorted(rates)
        gained += rates[-1] - rates[0]
    assert gained > 0


@pytest.mark.parametrize("name", [*RULES, "attend2pack"])
def test_solvers_pack_what_the_registry_offers(name):
    weights = "random" if name == "attend2pack" else None
    choice = choose(name, SolverOptions(weights=weights))
    data = generate("bpp3d", 8, 3)
    solver = create(choice)
    assert solver.unsupported(data) is None
    solver.prepare(data)
    try:
        outcomes = solver.solve(data.instances, seed=1, time_limit=None, progress=lambda _: None)
    finally:
        solver.close()
    for instance, outcome in zip(data, outcomes, strict=True):
        packing = np.asarray(getattr(outcome, "solution", outcome))
        rate = assert_valid(instance.boxes.tolist(), tuple(instance.base), packing.reshape(-1, 4).tolist())
        assert bpp3d.score(instance, packing) == pytest.approx(rate, rel=1e-12)


def test_attend2pack_gets_ready_where_a_scale_refuses_few_boxes():
    """It warms up on two boxes; those of the data are still refused where the scale does not hold for so few."""
    data = generate("bpp3d", 8, 1)
    solver = create(choose("attend2pack", SolverOptions(weights="random", logit_scale="eie-exact")))
    solver.prepare(data)
    with pytest.raises(BadInputError, match="asked for n=8"):
        solver.check_sizes(data)
    (outcome,) = solver.solve(data.instances, seed=1, time_limit=None, progress=lambda _: None)
    assert isinstance(outcome, Failure)
    assert "asked for n=8" in outcome.message


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("extreme-point:tries=0", BadInputError),
        ("extreme-point:order=weight", UnknownNameError),
        ("deepest-bottom-left:noise=-1", BadInputError),
        ("extreme-point:tris=3", UnknownNameError),
        ("attend2pack:decoding=beam:4", BadInputError),
        ("attend2pack:decoding=x8", BadInputError),
    ],
)
def test_settings_that_make_no_sense_are_refused(name, error):
    with pytest.raises(error):
        create(choose(name, SolverOptions()))


def test_attend2pack_refuses_several_bases():
    instances = [BPP3DInstance(str(k), np.array([[1, 1, 1]]), np.array([9, 9 + k])) for k in range(2)]
    data = Dataset("two", "bpp3d", tuple(instances), (None, None), Origin("test"))
    reason = create(choose("attend2pack", SolverOptions(weights="random"))).unsupported(data)
    assert reason is not None
    assert "several" in reason


@pytest.mark.parametrize("own", [None, "attend2pack-120x100"], ids=["none", "another base's"])
def test_what_attend2pack_advises_trains_for_the_base_at_hand(tmp_path, monkeypatch, own):
    """A network is made for one base; the default recipe's would be refused again."""
    monkeypatch.setenv("NCO_BENCH_CACHE", str(tmp_path))
    solver = create(choose("attend2pack", SolverOptions(weights=own)))
    with pytest.raises(BadWeightsError, match=r"config bin=140x110 .*attend2pack-140x110\.safetensors"):
        solver.prepare(generate("bpp3d", 5, 1, "140x110", 1))

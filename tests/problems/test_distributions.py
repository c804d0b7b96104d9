"""Distributions: range and finiteness at every size, and the shape that each definition implies."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.problems.distributions import DISTRIBUTIONS, parse_distribution

NAMES = sorted(DISTRIBUTIONS)


def draw(name: str, seed: int = 1, n: int = 4000) -> np.ndarray:
    return parse_distribution(name)(np.random.default_rng(seed), n)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 400), seed=st.integers(0, 2**32 - 1))
def test_all_points_are_finite_and_in_the_unit_square(name, n, seed):
    points = draw(name, seed, n)
    assert points.dtype == np.float64
    assert points.shape == (n, 2)
    assert np.isfinite(points).all()
    assert ((points >= 0) & (points <= 1)).all()


@pytest.mark.parametrize("name", NAMES)
def test_100000_points_stay_in_range_and_hardly_any_coincide(name):
    points = draw(name, 3, 100_000)
    assert np.isfinite(points).all()
    assert points.min() >= 0
    assert points.max() <= 1
    assert len(np.unique(points, axis=0)) > 99_900


@pytest.mark.parametrize("name", NAMES)
def test_equal_seeds_give_equal_points_and_other_seeds_other_ones(name):
    assert np.array_equal(draw(name, 5, 50), draw(name, 5, 50))
    assert not np.intersect1d(draw(name, 5, 50).ravel(), draw(name, 6, 50).ravel()).size > 2


@pytest.mark.parametrize("name", NAMES)
def test_order_of_the_nodes_tells_nothing_about_where_they_are(name):
    # Neighbours in the list are no nearer to each other than any two nodes; a list sorted by cluster fails.
    points = draw(name, 2, 3000)
    neighbours = np.linalg.norm(np.diff(points, axis=0), axis=1).mean()
    shuffled = points[np.random.default_rng(0).permutation(len(points))]
    anyone = np.linalg.norm(np.diff(shuffled, axis=0), axis=1).mean()
    # The grid's points keep rows together; they are under a tenth of all.
    assert neighbours == pytest.approx(anyone, rel=0.06)


def test_uniform_coordinates_have_the_moments_of_u01():
    points = draw("uniform", 0, 100_000)
    assert points.mean() == pytest.approx(1 / 2, abs=0.003)
    assert points.var() == pytest.approx(1 / 12, abs=0.001)


def test_clusters_have_the_stated_spread():
    # With one cluster nothing but its spread is left; its centre is at least 0.2 = 2.86 std from the border.
    points = draw("clustered:clusters=1", 4, 20_000)
    assert np.median(np.abs(points - np.median(points, axis=0))) == pytest.approx(0.6745 * 0.07, rel=0.03)
    assert ((np.median(points, axis=0) > 0.2) & (np.median(points, axis=0) < 0.8)).all()


def test_three_clusters_are_of_equal_size():
    from scipy.cluster.vq import kmeans2

    points = draw("clustered:std=0.001", 11, 3000)
    _, member = kmeans2(points, 3, minit="++", rng=np.random.default_rng(0))
    assert sorted(np.bincount(member)) == [1000, 1000, 1000]


def test_mixed_is_half_uniform_and_half_one_cluster():
    points = draw("mixed:std=0.001", 3, 4000)
    centre = np.median(points, axis=0)
    near = np.linalg.norm(points - centre, axis=1) < 0.01
    # 2,000 in the cluster, and of 2,000 uniform ones a share of pi 0.01^2.
    assert 1995 <= near.sum() <= 2010


def largest_hole(points: np.ndarray, radius: float) -> float:
    """Smallest number of points in a disc of `radius` inside the square, as a share of a uniform set's."""
    from scipy.spatial import cKDTree

    ticks = np.linspace(radius, 1 - radius, 41)
    grid = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    counts = cKDTree(points).query_ball_point(grid, radius, return_length=True)
    return counts.min() / (len(points) * np.pi * radius**2)


def seed_with_centre_inside(name: str, low: float = 0.35) -> int:
    """A seed whose centre (the first draw after the points) is well inside the square."""
    for seed in range(200):
        rng = np.random.default_rng(seed)
        rng.random((4000, 2))
        centre = rng.random(2)
        if (np.abs(centre - 0.5) < 0.5 - low).all():
            return seed
    raise AssertionError("no such seed")


def test_explosion_leaves_a_hole_of_its_radius():
    seed = seed_with_centre_inside("explosion")
    assert largest_hole(draw("uniform", seed), 0.25) > 0.8
    # Only what left the square and was placed anew may lie inside.
    assert largest_hole(draw("explosion", seed), 0.25) < 0.1


def test_explosion_throws_points_an_exponential_distance_beyond_its_radius():
    # A small radius in the middle: hardly anything leaves the square, and the ring can be told apart.
    seed = seed_with_centre_inside("explosion")
    rng = np.random.default_rng(seed)
    before = rng.random((4000, 2))
    centre = rng.random(2)
    after = draw("explosion:radius=0.1", seed)
    moved = (before != after).any(axis=1)
    assert np.array_equal(moved, np.linalg.norm(before - centre, axis=1) < 0.1)
    distance = np.linalg.norm(after[moved] - centre, axis=1)
    assert distance.min() >= 0.1
    assert np.median(distance) - 0.1 == pytest.approx(0.1 * np.log(2), rel=0.25)
    # Through the centre to the other side.
    inner, outer = before[moved] - centre, after[moved] - centre
    cosine = (inner * outer).sum(1) / np.linalg.norm(inner, axis=1) / distance
    assert (cosine < -0.999).mean() > 0.95


def test_implosion_gathers_the_disc_within_the_square_of_its_radius():
    seed = seed_with_centre_inside("implosion")
    rng = np.random.default_rng(seed)
    before = rng.random((4000, 2))
    centre = rng.random(2)
    after = draw("implosion", seed)
    disc = np.linalg.norm(before - centre, axis=1) < 0.3
    assert np.array_equal(before[~disc], after[~disc])
    # |p - c| < 0.3 shrinks by a factor of at most min(|w|, 0.3).
    assert np.linalg.norm(after[disc] - centre, axis=1).max() <= 0.09
    # Most factors are capped: P(|w| < 0.3) = 0.236.
    shrunk = np.linalg.norm(after[disc] - centre, axis=1) / np.linalg.norm(before[disc] - centre, axis=1)
    assert (shrunk > 0.2999).mean() == pytest.approx(1 - 0.2358, abs=0.05)


def test_expansion_empties_a_strip_of_its_width():
    moved_share = [
        (draw("uniform", s) != draw("expansion:width=0.2", s)).any(axis=1).mean() for s in range(10)
    ]
    # A line through the left border crosses the square; the strip of 0.4 covers a good part of it.
    assert 0.1 < np.mean(moved_share) < 0.6
    assert min(largest_hole(draw("expansion:width=0.2", s), 0.15) for s in range(10)) < 0.1


def test_grid_aligns_a_box_of_points():
    points = draw("grid", 7)
    values, counts = np.unique(points[:, 0], return_counts=True)
    columns = values[counts > 5]
    inside = round(4000 * 0.09)
    assert len(columns) == pytest.approx(np.sqrt(inside), abs=3)
    assert np.ptp(columns) == pytest.approx(0.3, abs=1e-12)
    assert np.diff(columns) == pytest.approx(np.diff(columns)[0], abs=1e-12)


def test_rotation_moves_its_share_and_keeps_distances_within_it():
    before, after = draw("uniform", 9), draw("rotation", 9)
    moved = (before != after).any(axis=1)
    assert moved.mean() == pytest.approx(0.4, abs=0.03)
    # Between two points that were rotated and not placed anew, the distance stays.
    d_before = np.linalg.norm(np.diff(before[moved], axis=0), axis=1)
    d_after = np.linalg.norm(np.diff(after[moved], axis=0), axis=1)
    assert np.isclose(d_before, d_after, atol=1e-12).sum() > 10


def test_gaussian_mixture_touches_all_four_sides():
    points = draw("gaussian-mixture:c=2:l=5")
    assert points.min(axis=0).tolist() == [0.0, 0.0]
    assert points.max(axis=0).tolist() == [1.0, 1.0]


def test_published_cluster_and_mixed_sets_look_like_ours(shared):
    # Mean distance to the nearest neighbour, against the sets that ELG and AMDKD published (1,000 x TSP-100).
    from scipy.spatial import cKDTree

    def nearest(points: np.ndarray) -> float:
        return float(cKDTree(points).query(points, 2)[0][:, 1].mean())

    for ours, theirs in (("clustered", "amdkd_tsp100_cluster"), ("mixed", "amdkd_tsp100_mixed")):
        with np.load(shared / "instances" / "testsets" / f"{theirs}.npz") as file:
            published = np.mean([nearest(coords) for coords in file["coords"]])
        made = np.mean([nearest(draw(ours, seed, 100)) for seed in range(1000)])
        assert made == pytest.approx(published, rel=0.02)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("uniform", "uniform"),
        ("explosion:radius=0.30", "explosion"),
        ("explosion:radius=.25", "explosion:radius=0.25"),
        ("gaussian-mixture:l=5:c=2", "gaussian-mixture:c=2:l=5"),
        ("clustered:std=0.07:clusters=7", "clustered:clusters=7"),
    ],
)
def test_names_have_one_canonical_form(text, canonical):
    assert parse_distribution(text).name == canonical
    assert parse_distribution(canonical).name == canonical


@pytest.mark.parametrize("name", NAMES)
def test_a_default_that_a_name_leaves_out_is_the_one_that_is_drawn_with(name):
    """A canonical name says what differs from the table's defaults; the functions have their own."""
    known = DISTRIBUTIONS[name].parameters
    drawn = inspect.signature(DISTRIBUTIONS[name].function).parameters
    given = {key: one.default for key, one in drawn.items() if one.kind is one.KEYWORD_ONLY}
    assert given == {key: parameter.default for key, parameter in known.items()}


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("clusterd", UnknownNameError, "Did you mean 'clustered'"),
        ("explosion:radios=0.2", UnknownNameError, "Did you mean 'radius'"),
        ("uniform:radius=0.2", BadInputError, "'uniform' has no parameters, got 'radius=0.2'"),
        (
            "explosion:radius=2",
            BadInputError,
            r"radius of distribution 'explosion' is '2'; expected a number in \[0.001, 1\]",
        ),
        ("explosion:radius=nan", BadInputError, "is 'nan'"),
        ("clustered:clusters=2.5", BadInputError, "expected a whole number"),
        ("explosion:radius", BadInputError, "expected KEY=VALUE, got 'radius'"),
        ("explosion:radius=0.1:radius=0.2", BadInputError, "given twice"),
    ],
)
def test_nonsense_is_refused_in_one_line(text, error, message):
    with pytest.raises(error, match=message):
        parse_distribution(text)

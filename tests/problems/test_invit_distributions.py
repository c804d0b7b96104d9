"""INViT's cluster, explosion and implosion: expected points are those of its official generator for these draws."""

from __future__ import annotations

import numpy as np
import pytest

from nco_bench.problems.distributions import DISTRIBUTIONS
from nco_bench.problems.invit_distributions import invit_clustered, invit_explosion, invit_implosion

POINTS = np.array([[0.1, 0.2], [0.45, 0.5], [0.6, 0.4], [0.5, 0.75], [0.9, 0.9]])
CENTRE = np.array([0.5, 0.5])
HALF = 0.5  # of 0.1 .. 0.5: the radius is 0.3, so all but the first and the last point are inside


class Written:
    """A generator whose draws are written down, in the order of the official code."""

    def __init__(self, **draws: list[object]) -> None:
        self.draws = {
            kind: [np.asarray(value, dtype=float) for value in values] for kind, values in draws.items()
        }

    def random(self, shape: object = None) -> np.ndarray:
        return self.draws["uniform"].pop(0).copy()

    def uniform(self, low: float, high: float, shape: object = None) -> np.ndarray:
        return low + (high - low) * self.random()

    def standard_normal(self, shape: object = None) -> np.ndarray:
        return self.draws["normal"].pop(0)

    def integers(self, low: int, high: int, n: int) -> np.ndarray:
        return self.draws["integer"].pop(0).astype(int)

    def exponential(self, mean: float, shape: object) -> np.ndarray:
        assert mean == 0.1
        return self.draws["exponential"].pop(0)


def test_explosion_throws_outwards_and_fills_the_box() -> None:
    throws = [[0.01], [0.2], [0.05], [0.1], [0.3]]
    found = invit_explosion(Written(uniform=[POINTS, CENTRE, HALF], exponential=[throws]), 5)  # type: ignore[arg-type]
    expected = [
        [1 / 9, 0.0], [0.0, 1 / 3], [0.8305415260169906, 0.05834736287189816], [5 / 9, 7 / 9], [1.0, 7 / 9]
    ]  # fmt: skip
    np.testing.assert_allclose(found, expected, atol=1e-15)


@pytest.mark.parametrize(
    ("normal", "expected"),
    [
        (0.2, [[0.0, 0.0], [0.4875, 0.375], [0.525, 0.35], [0.5, 0.4375], [1.0, 0.875]]),
        (
            0.9,
            [[0.0, 0.0], [0.48125, 0.375], [0.5375, 0.3375], [0.5, 0.46875], [1.0, 0.875]],
        ),  # the radius caps it
        (
            -1.5,
            [[0.0, 0.09375], [0.59375, 0.46875], [0.3125, 0.65625], [0.5, 0.0], [1.0, 0.96875]],
        ),  # through it
    ],
)
def test_implosion_uses_one_signed_factor(normal: float, expected: list[list[float]]) -> None:
    found = invit_implosion(Written(uniform=[POINTS, CENTRE, HALF], normal=[normal]), 5)  # type: ignore[arg-type]
    np.testing.assert_allclose(found, expected, atol=1e-15)


def test_clusters_are_scaled_alike_along_both_axes() -> None:
    rng = Written(
        uniform=[[[0.1, 0.2], [0.7, 0.3], [0.4, 0.9]]],
        normal=[[[1.0, -0.5], [0.3, 0.2], [-1.2, 0.4], [0.0, 0.1], [0.6, -2.0]]],
        integer=[[0, 1, 2, 1, 0]],
    )
    found = invit_clustered(rng, 5)  # type: ignore[arg-type]
    expected = [
        [0.042553191489361694, 0.15957446808510636], [0.6063829787234042, 0.3404255319148936],
        [0.12765957446808507, 1.0], [0.574468085106383, 0.32978723404255317], [0.0, 0.0],
    ]  # fmt: skip
    np.testing.assert_allclose(found, expected, atol=1e-15)


@pytest.mark.parametrize("name", ["invit-clustered", "invit-explosion", "invit-implosion"])
def test_the_longer_side_of_every_instance_is_one_and_both_sides_begin_at_zero(name: str) -> None:
    for seed in range(50):
        points = DISTRIBUTIONS[name].function(np.random.default_rng(seed), 200)
        assert points.min(axis=0).tolist() == [0.0, 0.0]
        assert points.max() == 1.0


def test_presets_of_the_out_of_distribution_tables_ask_for_invits_instances() -> None:
    """Appendix D.2: 'Explosion, Implosion, and Cluster similar to (Fang et al., 2024)', Tables 14, 15 and 16."""
    from nco_bench.papers.preset import load_preset
    from nco_bench.papers.published import load_table

    for number, name in ((14, "invit-explosion"), (15, "invit-implosion"), (16, "invit-clustered")):
        cell = load_table("decoder-scaling", number).cell("D=6, W=128 greedy", "TSP200 | Gap")
        assert load_preset("decoder-scaling", number).cell(cell, "full").data == (f"tsp200:{name}",)
        assert f"decoder-scaling (Table {number})" in DISTRIBUTIONS[name].used_by

"""Draws: uniform, apart from each other, the same in any batch."""

from __future__ import annotations

import torch
from scipy import stats

from nco_bench.solvers.decoding.draws import drawn_draws, instance_draws, scaled

SEEDS = torch.arange(1234, 1234 + 4000)


def test_an_instance_draws_the_same_in_any_batch() -> None:
    together, alone = instance_draws(SEEDS), instance_draws(SEEDS[17:18])
    bounds = torch.arange(1, 4001)
    assert together.uniform(3, 1, 5)[17].tolist() == alone.uniform(3, 1, 5)[0].tolist()
    assert int(together.below(2, 0, bounds)[17]) == int(alone.below(2, 0, bounds[17:18])[0])
    assert together.permutations(0, 4, 9)[17].tolist() == alone.permutations(0, 4, 9)[0].tolist()
    lengths = [together.shared_between(step, 4, 100) for step in range(50)]
    assert lengths == [alone.shared_between(step, 4, 100) for step in range(50)]


def test_draws_are_uniform_over_instances_and_shared_ones_over_steps() -> None:
    draws = instance_draws(SEEDS)
    assert stats.chisquare(torch.bincount(draws.below(5, 1, 20), minlength=20).numpy()).pvalue > 0.001
    assert stats.kstest(draws.uniform(0, 3, 2).flatten().numpy(), "uniform").pvalue > 0.001
    lengths = torch.tensor([draws.shared_between(step, 4, 23) for step in range(2000)])
    assert int(lengths.min()) == 4
    assert stats.chisquare(torch.bincount(lengths - 4, minlength=20).numpy()).pvalue > 0.001


def test_steps_kinds_and_positions_draw_apart() -> None:
    draws = instance_draws(SEEDS)
    columns = [draws.uniform(step, kind, 2) for step in (0, 1, 2) for kind in (0, 1, 7)]
    correlation = torch.corrcoef(torch.cat(columns, dim=1).T).fill_diagonal_(0)
    # 153 correlations of 4,000 numbers each, with a standard deviation of 1 / sqrt(4000) = 0.0158.
    assert float(correlation.abs().max()) < 5 * 0.0158


def test_bounds_hold_even_for_the_largest_fraction() -> None:
    largest = torch.tensor(1 - 2.0**-53, dtype=torch.float64)
    assert [int(scaled(largest, high)) for high in (1, 3, 5, 7, 10**6)] == [0, 2, 4, 6, 10**6 - 1]


def test_a_generator_draws_other_streams_each_time() -> None:
    generator = torch.Generator().manual_seed(0)
    one, two = (drawn_draws(3, generator, torch.device("cpu")) for _ in range(2))
    keys = [*one.stream.tolist(), *two.stream.tolist(), one.shared, two.shared]
    assert len(set(keys)) == 8
    assert [one.shared_between(k, 4, 100) for k in range(5)] != [
        two.shared_between(k, 4, 100) for k in range(5)
    ]

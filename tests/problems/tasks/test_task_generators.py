"""Distributions, settings and streams of the tasks; the base rates are the specification's."""

from itertools import islice

import numpy as np
import pytest

from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.problems.tasks import SETTINGS, TASKS, VARIANTS, generate, stream

ALL = [(name, variant) for name, variants in VARIANTS.items() for variant in variants]

# Positive rate in id / length-ood / value-ood of the public generators (2,000 instances; 300-400 for graphs).
BASE_RATES = {
    "subset-sum": (0.49, 0.51, 0.49),
    "knapsack": (0.47, 0.15, 0.50),
    "min-coin-change": (0.28, 0.03, 0.06),
    "quickselect": (0.22, 0.11, 0.21),
    "balanced-partition": (0.59, 0.68, 0.52),
    "bin-packing": (0.37, 0.31, 0.996),
    "convex-hull": (0.67, 0.14, 0.67),
    "three-sum": (0.23, 0.79, 0.05),
    "scc": (0.13, 0.07, 0.14),
}


@pytest.mark.parametrize("name", BASE_RATES)
def test_positive_rates_are_those_of_the_public_generators(name):
    for setting, rate in zip(SETTINGS, BASE_RATES[name], strict=False):
        batch = generate(name, setting, count=400 if setting == "length-ood" else 2000)
        per_instance = batch.targets.reshape(len(batch), -1).mean(axis=1)
        # Both rates are samples; the published one has two digits.
        error = 2 * per_instance.std() / np.sqrt(len(batch))
        assert per_instance.mean() == pytest.approx(rate, abs=4 * error + 0.01)


def test_regression_targets_have_the_published_spread():
    value = generate("fractional-knapsack", count=4000).targets
    assert value.var() == pytest.approx(0.071, abs=0.01)
    longer = generate("fractional-knapsack", "length-ood", count=500).targets
    assert ((longer - value.mean()) ** 2).mean() == pytest.approx(0.886, abs=0.05)
    distances = generate("floyd-warshall", count=1000).targets
    assert distances.var() == pytest.approx(4.2, abs=0.4)
    other = generate("floyd-warshall", "value-ood", count=1000).targets
    assert ((other - distances.mean()) ** 2).mean() == pytest.approx(279, rel=0.05)


@pytest.mark.parametrize(("name", "variant"), ALL)
def test_smaller_set_is_the_beginning_of_a_larger_one(name, variant):
    for setting in SETTINGS:
        few, many = (generate(name, setting, 6, count, 7, variant) for count in (5, 40))
        assert (few.inputs == many.inputs[:5]).all()
        assert (few.targets == many.targets[:5]).all()


def test_blocks_do_not_show():
    """A set of several blocks continues where the first block ends."""
    n = 256  # 45 instances to a block
    whole, first = generate("knapsack", n=n, count=100), generate("knapsack", n=n, count=60)
    assert (whole.inputs[:60] == first.inputs).all()
    assert len(np.unique(whole.inputs.reshape(100, -1), axis=0)) == 100


@pytest.mark.parametrize(("name", "variant"), ALL)
def test_noise_moves_about_half_the_tokens_and_no_label(name, variant):
    clean, noisy = (generate(name, setting, None, 300, 1, variant) for setting in ("id", "noise-ood"))
    assert (clean.targets == noisy.targets).all()
    moved = (clean.inputs != noisy.inputs).any(axis=2)
    if TASKS[name].graph:
        n = 8
        diagonal = np.arange(n) * (n + 1)
        assert not moved[:, diagonal].any()
        moved = np.delete(moved, diagonal, axis=1)
    # Clamping to the capacity hides some of bin packing's perturbations.
    assert moved.mean() == pytest.approx(0.5, abs=0.25 if name == "bin-packing" else 0.04)


def test_noise_stays_in_the_range_of_the_paper():
    for name, low, high in (("convex-hull", 1, 5), ("balanced-partition", 10, 30), ("three-sum", 40, 60)):
        clean, noisy = generate(name, "id", count=500), generate(name, "noise-ood", count=500)
        step = (noisy.inputs - clean.inputs)[..., 0]
        assert {step[step != 0].min(), step.max()} == {low, high}


def test_value_ranges_are_those_of_the_paper():
    for name, setting, low, high in (
        ("subset-sum", "id", -5, 5), ("subset-sum", "value-ood", -20, 20), ("knapsack", "value-ood", 11, 21),
        ("convex-hull", "id", 0, 10), ("three-sum", "value-ood", -375, 375), ("floyd-warshall", "id", 0, 15),
    ):  # fmt: skip
        values = generate(name, setting, count=3000).inputs[..., 0]
        assert (values.min(), values.max()) == (low, high)


def test_stream_draws_no_instance_of_a_set():
    seen = {row.tobytes() for row in generate("balanced-partition", n=64, count=2000, seed=0).inputs}
    batches = list(islice(stream("balanced-partition", n=64, batch=300, seed=0), 4))
    fed = [row.tobytes() for batch in batches for row in batch.inputs]
    assert len(set(fed)) == len(fed) == 1200
    assert not seen & set(fed)


def test_stream_repeats_with_its_seed():
    first, again, other = (next(stream("scc", batch=20, seed=s)).inputs for s in (4, 4, 5))
    assert (first == again).all()
    assert (first != other).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("knapsack", "id", 1), "n=1 is not supported; give 2 to 2048 tokens"),
        (("scc", "id", 65), "n=65 is not supported; give 2 to 64 nodes"),
        (("knapsack", "id", 8, 0), "count is 0"),
    ],
)
def test_refuses_lengths_and_counts(arguments, message):
    with pytest.raises(BadInputError, match=message):
        generate(*arguments)


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (("knapsack", "lenght-ood"), "length-ood"),
        (("knapsak",), "knapsack"),
        (("scc", "id", 8, 1, 1, "dens"), "dense"),
    ],
)
def test_unknown_names_bring_near_ones(arguments, near):
    with pytest.raises(UnknownNameError, match=near):
        generate(*arguments)

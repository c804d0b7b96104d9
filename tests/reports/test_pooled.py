"""Pooled metrics against hand calculations; intervals against each other."""

import numpy as np
import pytest

from nco_bench.reports.frame.pooled import pool, ratio_interval


def counts(**columns):
    return {name: np.array(values, dtype=np.float64) for name, values in columns.items()}


def test_f1_is_pooled_not_averaged():
    """F1 of the instances is 2/3 and 0; pooled it is 2 * 1 / (2 * 1 + 2 + 1) = 40 %. Right are 6 of 9."""
    found = pool(counts(tp=[1, 0], fp=[1, 1], fn=[0, 1], tn=[2, 3]))
    assert found["f1"].value == pytest.approx(40.0)
    assert found["accuracy"].value == pytest.approx(100 * 6 / 9)
    assert (found["f1"].better, found["accuracy"].better) == ("max", "max")


def test_f1_of_all_positives_is_that_of_the_base_rate():
    """2 p / (1 + p) at p = 0.25."""
    assert pool(counts(tp=[1], fp=[3], fn=[0], tn=[0]))["f1"].value == pytest.approx(40.0)


def test_squared_errors_are_pooled_over_answers():
    found = pool(counts(squared_error=[8.0, 1.0], tokens=[2, 1]))
    assert (found["mse"].value, found["mse"].better) == (3.0, "min")


def test_f1_without_any_positive_is_left_out():
    assert set(pool(counts(tp=[0, 0], fp=[0, 0], fn=[0, 0], tn=[4, 4]))) == {"accuracy"}


def test_one_instance_has_no_interval():
    found = pool(counts(correct=[3], tokens=[4]))["accuracy"]
    assert (found.value, found.low, found.high) == (75.0, None, None)


@pytest.mark.parametrize("n", [1500, 2500])
def test_interval_has_the_width_of_the_delta_method(n):
    """Both the resampled interval and the linearised one are 2 * 1.96 standard errors of a ratio wide."""
    generator = np.random.default_rng(0)
    below = generator.integers(1, 9, n).astype(np.float64)
    above = generator.binomial(below.astype(int), 0.3).astype(np.float64)
    ratio = above.sum() / below.sum()
    error = np.std(above - ratio * below) / below.mean() / np.sqrt(n)
    low, high = ratio_interval(above, below)
    assert low < ratio < high
    # The ends of 2,000 resamples scatter by about 3 % of the width.
    assert high - low == pytest.approx(2 * 1.96 * error, rel=0.1)

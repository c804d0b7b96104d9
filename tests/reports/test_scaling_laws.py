"""Power laws against the numbers printed in the decoder-scaling paper (Luo et al., 2026)."""

from __future__ import annotations

import numpy as np
import pytest

from nco_bench.errors import BadInputError
from nco_bench.papers.decoder_scaling.scaling_laws import (
    bivariate_law,
    power_law,
    power_laws_by,
    shape_law,
    shifted_law,
)

DEPTH = [6, 6, 6, 12, 12, 12, 24, 24, 24, 42, 42, 42]
WIDTH = [128, 256, 512] * 4
PARAMETERS = [
    1.32,
    5.26,
    21.00,
    2.60,
    10.38,
    41.46,
    5.17,
    20.62,
    82.40,
    9.02,
    36.00,
    143.80,
]  # Table 1, millions
GAPS = [
    0.464,
    0.264,
    0.190,
    0.225,
    0.115,
    0.083,
    0.106,
    0.075,
    0.052,
    0.070,
    0.052,
    0.035,
]  # Table 12, percent


def test_global_fit_gives_the_published_r2_and_error() -> None:
    """Figure 2 a: R2 = 0.794, error 34.39 %."""
    fit = power_law(PARAMETERS, GAPS)
    assert fit.r2 == pytest.approx(0.794, abs=5e-4)
    assert fit.error_percent == pytest.approx(34.39, abs=5e-3)


def test_scaling_width_at_fixed_depth_gives_the_published_numbers() -> None:
    """Figure 2 b and section 4.1: mean R2 0.989, mean error 4.09 %, exponents 0.24 to 0.40."""
    fits = power_laws_by(DEPTH, PARAMETERS, GAPS)
    exponents = [f.parameters["alpha"] for f in fits.values()]
    assert np.mean([f.r2 for f in fits.values()]) == pytest.approx(0.989, abs=5e-4)
    assert np.mean([f.error_percent for f in fits.values()]) == pytest.approx(4.09, abs=5e-3)
    assert (min(exponents), max(exponents)) == pytest.approx((0.24, 0.40), abs=5e-3)


def test_scaling_depth_at_fixed_width_gives_the_published_numbers() -> None:
    """Figure 2 c and section 4.1: mean R2 0.988, mean error 9.68 %, exponents 0.98 to 1.05."""
    fits = power_laws_by(WIDTH, PARAMETERS, GAPS)
    exponents = [f.parameters["alpha"] for f in fits.values()]
    assert np.mean([f.r2 for f in fits.values()]) == pytest.approx(0.988, abs=5e-4)
    assert np.mean([f.error_percent for f in fits.values()]) == pytest.approx(9.68, abs=5e-3)
    assert (min(exponents), max(exponents)) == pytest.approx((0.98, 1.05), abs=5e-3)


def test_shape_law_gives_the_published_exponents_on_logarithms_only() -> None:
    """Section 5.1: exponents 0.5 for N and 0.4 for A. On the gaps themselves they would be 0.58 and 0.45."""
    ratio = np.array(DEPTH) / np.array(WIDTH)
    fit = shape_law(PARAMETERS, ratio, GAPS)
    assert (fit.parameters["beta_n"], fit.parameters["beta_a"]) == pytest.approx((0.5, 0.4), abs=0.01)
    linear = shape_law(PARAMETERS, ratio, GAPS, space="linear")
    assert (linear.parameters["beta_n"], linear.parameters["beta_a"]) == pytest.approx((0.58, 0.45), abs=0.01)


def test_bivariate_law_finds_known_exponents() -> None:
    depth, width = np.array(DEPTH, float), np.array(WIDTH, float)
    gaps = 7.0 * depth**-0.9 * width**-0.6
    fit = bivariate_law(depth, width, gaps)
    assert fit.parameters == pytest.approx({"scale": 7.0, "beta_d": 0.9, "beta_w": 0.6}, rel=1e-6)
    assert fit.r2 == pytest.approx(1.0)


def test_bivariate_law_agrees_with_the_shape_law_through_the_parameter_count() -> None:
    """N = c D W^2 and A = D / W give beta_d = beta_n + beta_a and beta_w = 2 beta_n - beta_a, exactly."""
    depth, width = np.array(DEPTH, float), np.array(WIDTH, float)
    one = bivariate_law(depth, width, GAPS).parameters
    two = shape_law(depth * width**2, depth / width, GAPS).parameters
    assert one["beta_d"] == pytest.approx(two["beta_n"] + two["beta_a"])
    assert one["beta_w"] == pytest.approx(2 * two["beta_n"] - two["beta_a"])


def test_equation_5_gives_the_published_exponents_of_equation_6_which_follows_from_it() -> None:
    """Section 5.1: 0.5 and 0.4, so 0.5 + 0.4 of depth and 2 x 0.5 - 0.4 of width; on the gaps 1.01 and 0.70."""
    fit = bivariate_law(DEPTH, WIDTH, GAPS)
    assert (fit.parameters["beta_d"], fit.parameters["beta_w"]) == pytest.approx((0.9, 0.6), abs=0.02)


def test_shifted_law_finds_its_floor() -> None:
    time = np.array([0.3, 1.0, 3.0, 10.0, 30.0, 100.0])
    fit = shifted_law(time, 0.2 * time**-1.5 + 0.004)
    assert fit.parameters == pytest.approx({"alpha": 0.2, "beta": 1.5, "gamma": 0.004}, rel=1e-4)


@pytest.mark.parametrize(
    ("x", "gaps"),
    [
        ([1.0], [1.0]),
        ([1.0, 2.0], [1.0]),
        ([1.0, 2.0], [1.0, 0.0]),
        ([0.0, 2.0], [1.0, 1.0]),
        ([1.0, 2.0], [1.0, np.nan]),
    ],
)
def test_points_that_no_power_law_can_fit_are_refused(x: list[float], gaps: list[float]) -> None:
    with pytest.raises(BadInputError, match="power law needs"):
        power_law(x, gaps)


def test_points_on_a_line_cannot_give_two_exponents() -> None:
    with pytest.raises(BadInputError, match="both directions"):
        bivariate_law([6.0, 12.0, 24.0], [128.0, 128.0, 128.0], [3.0, 2.0, 1.0])

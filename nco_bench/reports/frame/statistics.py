"""Statistics of a benchmark: intervals of mean gaps, paired comparison of two solvers, outliers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
RESAMPLES = 2000
SEED = 1234
EXACT_UP_TO = 2000
"""Largest sample that is resampled; beyond it the bootstrap's percentiles come from its own cumulants."""
BOOTSTRAP_FROM = 30
"""Below this many instances the percentile bootstrap is too narrow, and Student's t is used."""
SIGNS_UP_TO = 50
"""Differences whose signs are all gone through for the Wilcoxon test, as SciPy does where none is 0 and none are equal."""

FloatArray = NDArray[np.float64]


def bootstrap_interval(
    values: FloatArray, *, level: float = LEVEL, resamples: int = RESAMPLES, seed: int = SEED
) -> tuple[float, float] | None:
    """Percentile bootstrap interval of the mean.

    Up to `EXACT_UP_TO` values are resampled. For more, the percentiles of the ideal bootstrap distribution (that
    of infinitely many resamples) are computed from its exact cumulants by the Cornish-Fisher expansion to order 1/n:
    at that size its error is below the Monte-Carlo noise of 2,000 resamples, and a million values take milliseconds.

    Parameters
    ----------
    values
        One value per instance, ``(n,)``, without NaN.

    Returns
    -------
    (low, high), or None for fewer than two values, where no interval exists.

    References
    ----------
    .. [1] Efron, Tibshirani (1993). *An Introduction to the Bootstrap*, chapter 13.
    .. [2] Hall (1992). *The Bootstrap and Edgeworth Expansion*, section 2.5.
    """
    n = len(values)
    if n < 2:
        return None
    tails = np.array([(1 - level) / 2, (1 + level) / 2])
    if n > EXACT_UP_TO:
        return _cornish_fisher(values, tails)
    generator = np.random.default_rng(seed)
    means = np.empty(resamples)
    step = max(1, 1_000_000 // n)
    for start in range(0, resamples, step):
        count = min(step, resamples - start)
        means[start : start + count] = values[generator.integers(0, n, (count, n))].mean(axis=1)
    low, high = np.quantile(means, tails)
    return float(low), float(high)


def interval_of_mean(values: FloatArray) -> tuple[float, float] | None:
    """95 % interval of the mean of instances: `bootstrap_interval` from `BOOTSTRAP_FROM` on, Student's t below."""
    n = len(values)
    if n < 2 or n >= BOOTSTRAP_FROM:
        return bootstrap_interval(values)
    from scipy.special import stdtrit

    mean, reach = (
        float(values.mean()),
        float(stdtrit(n - 1, (1 + LEVEL) / 2) * values.std(ddof=1) / np.sqrt(n)),
    )
    return mean - reach, mean + reach


def _cornish_fisher(values: FloatArray, tails: FloatArray) -> tuple[float, float]:
    """Percentiles of a bootstrap mean; its cumulants are those of the sample, divided by powers of n."""
    from scipy.special import ndtri

    n = len(values)
    centre = values.mean()
    centred = values - centre
    squares = centred * centred  # powers of whole arrays take ten times as long as products
    variance = np.mean(squares)
    if variance == 0:
        return float(centre), float(centre)
    skewness = np.mean(squares * centred) / variance**1.5 / np.sqrt(n)
    kurtosis = (np.mean(squares * squares) / variance**2 - 3.0) / n
    z = ndtri(tails)
    shift = (z**2 - 1) * skewness / 6 + (z**3 - 3 * z) * kurtosis / 24 - (2 * z**3 - 5 * z) * skewness**2 / 36
    low, high = centre + np.sqrt(variance / n) * (z + shift)
    return float(low), float(high)


@dataclass(frozen=True)
class Comparison:
    """Two solvers on the same instances.

    Attributes
    ----------
    solver_a, solver_b, dataset
        Labels.
    unit
        What is compared: ``gap percent`` where every instance has a reference, else ``cost``, or ``score`` where higher
        is better.
    instances
        How many both solved.
    only_a, only_b
        Instances that only one of them solved; not compared.
    mean_a, mean_b, difference
        Means and mean of (a - b); negative where a is better, for a ``score`` positive.
    low, high
        95 % interval of the difference (`interval_of_mean`); None for one instance.
    wins, ties, losses
        Instances where a is better, equal (within a relative 1e-9), worse.
    p_value
        Wilcoxon signed-rank test, two-sided; None where all differences are 0 or fewer than two instances.
    """

    solver_a: str
    solver_b: str
    dataset: str
    unit: str
    instances: int
    only_a: int
    only_b: int
    mean_a: float
    mean_b: float
    difference: float
    low: float | None
    high: float | None
    wins: int
    ties: int
    losses: int
    p_value: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for ``compare --json``."""
        return asdict(self)


def wilcoxon_p(differences: FloatArray) -> float | None:
    """Two-sided Wilcoxon signed-rank p-value; zeros are ranked, then dropped (Pratt's treatment).

    Up to `SIGNS_UP_TO` differences that are not 0 it is exact, over all signs they could have had: many instances that tie
    leave few that count, where the normal approximation goes below what so few can show. Beyond that it is SciPy's.

    None where the test is undefined: fewer than two values, or all zero.

    References
    ----------
    .. [1] Pratt (1959). Remarks on zeros and ties in the Wilcoxon signed rank procedures. *JASA* 54(287).
    """
    if len(differences) < 2 or not np.any(differences):
        return None
    from scipy.stats import rankdata, wilcoxon

    if np.count_nonzero(differences) > SIGNS_UP_TO:
        return float(wilcoxon(differences, zero_method="pratt").pvalue)
    doubled = np.rint(2 * rankdata(np.abs(differences))).astype(np.int64)  # means of ties are whole, too
    ranks = doubled[differences != 0]
    chances = np.zeros(1 + int(ranks.sum()))  # of each sum of the ranks of positive differences
    chances[0] = 1.0
    for rank in ranks.tolist():
        chances[rank:] += chances[:-rank].copy()
        chances /= 2
    seen = int(doubled[differences > 0].sum())
    return float(min(1.0, 2 * min(chances[: seen + 1].sum(), chances[seen:].sum())))


def outliers(values: FloatArray, *, fences: float = 3.0, least: float = 0.0) -> NDArray[np.int64]:
    """Return indices of values beyond Tukey's outer fences (quartiles -+ 3 interquartile ranges), worst first.

    Parameters
    ----------
    values
        ``(M,)``.
    fences
        Interquartile ranges between quartile and fence.
    least
        How far from the median a value must be besides: where most values are equal up to rounding, the fences are too.

    References
    ----------
    .. [1] Tukey (1977). *Exploratory Data Analysis*, section 2D.
    """
    if len(values) < 4:
        return np.array([], dtype=np.int64)
    low, high = np.quantile(values, [0.25, 0.75])
    spread = fences * (high - low)
    distance = np.abs(values - np.median(values))
    far = np.flatnonzero(((values < low - spread) | (values > high + spread)) & (distance > least))
    return far[np.argsort(-distance[far], kind="stable")]

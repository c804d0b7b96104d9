"""Metrics pooled over instances: F1 of the positive class, accuracy, mean squared error.

They are ratios of sums over instances, not means of per-instance ratios, so they are computed from records' counts. For 0/1
labels the micro average of both classes' F1 is the accuracy (every wrong answer is one class's false positive and the
other's false negative), so "micro-F1" in the literature may mean either; both are computed, each under its own name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.reports.frame.statistics import EXACT_UP_TO, LEVEL, RESAMPLES, SEED, bootstrap_interval

Counts = Mapping[str, NDArray[np.float64]]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Metric:
    """A ratio of two sums of counts.

    Attributes
    ----------
    header, unit, better
        As a table prints it; ``max`` or ``min``.
    scale
        100 for percent.
    needs
        Counts it is made of.
    parts
        Counts to numerator and denominator of each instance.
    """

    header: str
    unit: str
    better: str
    scale: float
    needs: tuple[str, ...]
    parts: Callable[[Counts], tuple[FloatArray, FloatArray]]


_TABLE = ("tp", "fp", "fn", "tn")
_METRICS: tuple[tuple[str, Metric], ...] = (
    ("f1", Metric("F1", "%", "max", 100.0, _TABLE, lambda c: (2 * c["tp"], 2 * c["tp"] + c["fp"] + c["fn"]))),
    (
        "accuracy",
        Metric("Acc.", "%", "max", 100.0, _TABLE, lambda c: (c["tp"] + c["tn"], sum(c[k] for k in _TABLE))),  # type: ignore[arg-type,return-value]
    ),
    (
        "accuracy",
        Metric("Acc.", "%", "max", 100.0, ("correct", "tokens"), lambda c: (c["correct"], c["tokens"])),
    ),
    (
        "mse",
        Metric(
            "MSE", "", "min", 1.0, ("squared_error", "tokens"), lambda c: (c["squared_error"], c["tokens"])
        ),
    ),
)
METRICS: dict[str, Metric] = dict(_METRICS)
"""Name to what a table prints."""

MEANING = {
    "f1": "F1: of the positive class, over all answers of the set, higher is better",
    "accuracy": "Acc.: fraction of right answers, which is the micro average of F1 over both classes, higher is better",
    "mse": "MSE: mean squared error over all answers of the set, lower is better",
}


@dataclass(frozen=True)
class Pooled:
    """One pooled metric.

    Attributes
    ----------
    value
        In the metric's unit.
    low, high
        95 % bootstrap interval over instances; None for fewer than two.
    unit, better
        ``%`` or empty; ``max`` or ``min``.
    """

    value: float
    low: float | None
    high: float | None
    unit: str
    better: str

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def pool(counts: Counts, *, intervals: bool = True) -> dict[str, Pooled]:
    """Compute all metrics that the counts allow.

    Parameters
    ----------
    counts
        Name to ``(I,)``, one entry per instance.
    intervals
        Whether to compute bootstrap intervals.

    Returns
    -------
    dict
        A metric with an empty denominator (F1 without any positive label or answer) is left out.
    """
    found = {}
    for name, metric in _METRICS:
        if not all(key in counts for key in metric.needs):
            continue
        above, below = metric.parts(counts)
        if below.sum() == 0:
            continue
        interval = ratio_interval(above, below) if intervals else None
        low, high = (
            (None, None) if interval is None else (metric.scale * interval[0], metric.scale * interval[1])
        )
        value = metric.scale * float(above.sum() / below.sum())
        found[name] = Pooled(value, low, high, metric.unit, metric.better)
    return found


def ratio_interval(above: FloatArray, below: FloatArray) -> tuple[float, float] | None:
    """Percentile bootstrap interval of sum(above) / sum(below), instances resampled together.

    Beyond 2,000 instances the ratio is linearised: its deviation is the mean of (above - ratio * below) / mean(below) up
    to order 1/n, and the interval of that mean is the one of `bootstrap_interval`.
    """
    n = len(above)
    if n < 2:
        return None
    if n > EXACT_UP_TO:
        ratio = above.sum() / below.sum()
        return bootstrap_interval(ratio + (above - ratio * below) / below.mean())
    generator = np.random.default_rng(SEED)
    ratios = np.empty(RESAMPLES)
    step = max(1, 1_000_000 // n)
    for start in range(0, RESAMPLES, step):
        chosen = generator.integers(0, n, (min(step, RESAMPLES - start), n))
        sums = below[chosen].sum(axis=1)
        with np.errstate(invalid="ignore"):
            ratios[start : start + step] = np.where(sums == 0, np.nan, above[chosen].sum(axis=1) / sums)
    low, high = np.nanquantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)

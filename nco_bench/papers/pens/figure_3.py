"""PENS Figure 3: the measurements that ``nco-bench calibrate`` left beside the weights, drawn."""

from __future__ import annotations

from pathlib import Path

from nco_bench.reports.figures.networks import ScaleCurve, coordinate_scales
from nco_bench.reports.figures.style import checked_target
from nco_bench.runs.calibrating import refuse_unscaled
from nco_bench.weights.calibration import read_calibration
from nco_bench.weights.choice import find


def draw_calibration(model: str, weights: str | None, out: Path) -> Path:
    """Draw mean tour length against coordinate scale of a calibrated model, a panel per size.

    Raises
    ------
    BadWeightsError
        When the weights are missing.
    BadInputError
        When they were never calibrated, for a model without a coordinate scale, or for a suffix that is no picture's.
    """
    checked_target(out)
    refuse_unscaled(model)
    found = read_calibration(find(weights or model, model, "tsp"))
    curves = [
        ScaleCurve(c.n, tuple(c.grid), tuple(c.mean_lengths), c.factor, c.fitted, c.window) for c in found
    ]
    return coordinate_scales(model, curves, out)

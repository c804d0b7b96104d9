"""Coordinate scales of PENS: by how much coordinates are stretched at each size (PENS, section 4.2).

The factors belong to a weights file and stand beside it as ``NAME.calibration.json``. Those of weights that ship with the
package, whose folder may be read-only, are written to the user's cache; what is found there goes before what ships.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from nco_bench.errors import BadInputError, BadWeightsError
from nco_bench.files import write
from nco_bench.weights.store import SHIPPED, WeightsFile, cache_folder, data_folder

PROCEDURE = 2
"""Of `runs.calibrating`; factors that were found by another are not read. 1: a parabola over the whole grid, unchecked."""


@dataclass(frozen=True)
class Calibrated:
    """The factor of one size, and how it was found.

    Attributes
    ----------
    n
        Nodes.
    factor, length
        What coordinates are multiplied by, and the mean tour length with it on the instances of the calibration.
    fitted
        True for the vertex of the parabola, False for the best point of the grid.
    window
        First and last factor of the grid that the parabola was fitted to.
    grid, mean_lengths
        Factors tried, and the mean tour length with each.
    instances, seed
        Held-out uniform instances that were solved, and their seed.
    gain_percent, gain_ci95_percent
        By how much the mean tour is shorter than with factor 1 (in files of earlier versions the mean over the instances of
        how much each is), and the half width of its 95 % interval (None for one instance; both None in still earlier
        files). The factor was chosen on these instances, so that the gain on others is rather less.
    """

    n: int
    factor: float
    length: float
    fitted: bool
    window: tuple[float, float]
    grid: tuple[float, ...]
    mean_lengths: tuple[float, ...]
    instances: int
    seed: int
    gain_percent: float | None = None
    gain_ci95_percent: float | None = None

    @property
    def differs_from_1(self) -> bool:
        """Whether tours are shorter than with factor 1 by more than the half width of the interval."""
        gain, width = self.gain_percent, self.gain_ci95_percent
        return self.factor != 1.0 and gain is not None and width is not None and gain >= width


def calibration_path(weights: WeightsFile) -> Path:
    """Return where the factors of a weights file are written."""
    folder = cache_folder() if weights.path.parent in (SHIPPED, data_folder()) else weights.path.parent
    return folder / f"{weights.path.stem}.calibration.json"


def shipped_calibration(weights: WeightsFile) -> Path:
    """Return where the factors of a weights file are that came with it."""
    return weights.path.with_name(f"{weights.path.stem}.calibration.json")


def write_calibration(weights: WeightsFile, found: list[Calibrated]) -> Path:
    """Store factors; sizes that were calibrated before and are not in `found` are kept.

    Raises
    ------
    ResultsError
        When the place cannot be written.
    """
    path = calibration_path(weights)
    known = {c.n: c for c in read_calibration(weights)} | {c.n: c for c in found}
    document = {
        "weights_sha256": weights.sha256,
        "procedure": PROCEDURE,
        "sizes": [asdict(known[n]) for n in sorted(known)],
    }
    write(path, json.dumps(document, indent=1) + "\n")
    return path


def read_calibration(weights: WeightsFile) -> list[Calibrated]:
    """Return the factors of a weights file by size; none if it was never calibrated, or has changed since.

    Raises
    ------
    BadWeightsError
        When the file is damaged.
    """
    for path in (calibration_path(weights), shipped_calibration(weights)):
        found = _read(path, weights.sha256)
        if found:
            return found
    return []


def _read(path: Path, sha256: str) -> list[Calibrated]:
    if not path.is_file():
        return []
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["weights_sha256"] != sha256 or document.get("procedure", 1) != PROCEDURE:
            return []
        rows = [Calibrated(**row) for row in document["sizes"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadWeightsError(
            f"{path}: damaged calibration ({error}); run 'nco-bench calibrate' again."
        ) from error
    return sorted(rows, key=lambda c: c.n)


def calibrate_command(model: str, weights: str | None) -> str:
    """Return the command that calibrates the weights that a run named, or the model's own."""
    return f"nco-bench calibrate {model}{f' --weights {shlex.quote(weights)}' if weights else ''}"


def factor_at(
    calibration: list[Calibrated],
    n: int,
    model: str,
    *,
    extrapolate: bool = False,
    weights: str | None = None,
) -> float:
    """Interpolate linearly in n between calibrated sizes (PENS, Table 3: "estimated by linear interpolation").

    Parameters
    ----------
    calibration
        By size, at least one.
    n
        Nodes of the instance.
    model
        For the message.
    extrapolate
        Beyond the calibrated sizes, continue the line through the two that are nearest.
    weights
        As they were named, for the message; None for the model's own.

    Raises
    ------
    BadInputError
        Beyond the calibrated sizes: without `extrapolate`, with a single size, or where the line has fallen to 0.
    """
    low, high = calibration[0].n, calibration[-1].n
    if low <= n <= high:
        return float(np.interp(n, [c.n for c in calibration], [c.factor for c in calibration]))
    place = f"{model} is calibrated for {low:,} to {high:,} nodes, and an instance has {n:,}"
    remedy = f"calibrate that size too ('{calibrate_command(model, weights)} --sizes {n}')"
    if not extrapolate:
        raise BadInputError(
            f"--coordinate-scale auto: {place}; {remedy}, or give --coordinate-scale extrapolate or a factor."
        )
    if low == high:
        raise BadInputError(f"--coordinate-scale extrapolate: {place}; a line needs two sizes: {remedy}.")
    first, second = calibration[:2] if n < low else calibration[-2:]
    factor = first.factor + (second.factor - first.factor) * (n - first.n) / (second.n - first.n)
    if factor <= 0:
        raise BadInputError(
            f"--coordinate-scale extrapolate: {place}, where the line is at {factor:.2f}; {remedy}."
        )
    return factor

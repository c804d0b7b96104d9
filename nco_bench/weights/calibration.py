"""Coordinate scales of PENS: by how much coordinates are stretched at each size (PENS, section 5).

The factors belong to a weights file and stand beside it as ``NAME.calibration.json``; for weights that ship with
the package, whose folder may be read-only, in the user's cache.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from nco_bench.errors import BadWeightsError
from nco_bench.weights.store import SHIPPED, WeightsFile, cache_folder
from nco_bench.weights.writing import write_atomically


@dataclass(frozen=True)
class Calibrated:
    """The factor of one size, and how it was found.

    Attributes
    ----------
    n
        Nodes.
    factor
        What coordinates are multiplied by.
    fitted
        True for the vertex of the parabola, False for the best point of the grid.
    grid, mean_lengths
        Factors tried, and the mean tour length with each.
    instances, seed
        Held-out instances that were solved, and their seed.
    """

    n: int
    factor: float
    fitted: bool
    grid: tuple[float, ...]
    mean_lengths: tuple[float, ...]
    instances: int
    seed: int


def calibration_path(weights: WeightsFile) -> Path:
    """Return where the factors of a weights file are kept."""
    folder = cache_folder() if weights.path.parent == SHIPPED else weights.path.parent
    return folder / f"{weights.path.stem}.calibration.json"


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
        "sizes": [asdict(known[n]) for n in sorted(known)],
    }
    write_atomically(path, (json.dumps(document, indent=1) + "\n").encode())
    return path


def read_calibration(weights: WeightsFile) -> list[Calibrated]:
    """Return the factors of a weights file by size; none if it was never calibrated, or has changed since.

    Raises
    ------
    BadWeightsError
        When the file is damaged.
    """
    path = calibration_path(weights)
    if not path.is_file():
        return []
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["weights_sha256"] != weights.sha256:
            return []
        rows = [Calibrated(**row) for row in document["sizes"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadWeightsError(
            f"{path}: damaged calibration ({error}); run 'nco-bench calibrate' again."
        ) from error
    return sorted(rows, key=lambda c: c.n)


def factor_at(calibration: list[Calibrated], n: int) -> float:
    """Interpolate linearly in n between calibrated sizes, and clamp outside of them (PENS, section 5.2).

    Parameters
    ----------
    calibration
        At least one size.
    n
        Nodes of the instance.
    """
    return float(np.interp(n, [c.n for c in calibration], [c.factor for c in calibration]))

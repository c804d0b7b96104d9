"""Training logs and their curves: loss and validation against steps, as PNG, PDF or SVG."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nco_bench.errors import BadInputError
from nco_bench.reports.figures.style import checked_target, figure, gap_scale, legend, look

Columns = dict[str, NDArray[np.float64]]


class Curve(NamedTuple):
    """A training run as a plot draws it, and the file that holds it."""

    path: Path
    columns: Columns


class NoTrainingLogError(BadInputError):
    """A CSV file without the columns of a training log, or without rows."""


def training(
    logs: Sequence[Path] | Mapping[str, Path],
    out: Path | str,
    levels: Mapping[str, float] | None = None,
    tell: Callable[[str], None] | None = None,
) -> Path:
    """Draw loss and validation against training steps.

    Parameters
    ----------
    logs
        CSV files with at least the columns step, loss and a measure (validation_gap, or another by its name; empty
        where not measured), by label or named by their file. Columns before step name the runs of a file of several.
    out
        File; its suffix says the format.
    levels
        Values of the measure to draw as horizontal lines, by their label, such as a paper's.
    tell
        Called with a line for each file that is no training log, which is left out where another is one; without it, such
        a file is an error.

    Raises
    ------
    BadInputError
        For a log without these columns or without rows, or logs of different measures.
    """
    target = checked_target(out)
    named = dict(logs) if isinstance(logs, Mapping) else _named_logs(logs)
    curves = _read_all(named, tell)
    measure = _measure_of(curves)
    data = {name: curve.columns for name, curve in curves.items()}
    with figure(2, target) as (fig, axes):
        for index, (name, log) in enumerate(data.items()):
            style = look(index)
            counted = ~np.isnan(log["loss"])  # validation rows have none
            steps, loss = log["step"][counted], log["loss"][counted]
            axes[0].plot(steps, loss, color=style.colour, linewidth=0.5, alpha=0.35)
            axes[0].plot(steps, smoothed(loss), color=style.colour, linestyle=style.dash, label=name)
            for column in list(log)[len(TRAINING_COLUMNS) :]:
                known, own = ~np.isnan(log[column]), column == measure
                axes[1].plot(
                    log["step"][known], log[column][known], color=style.colour, marker=style.marker if own else ".",
                    linestyle=style.dash if own else ":", markersize=3.0,
                    label=name if own else f"{name}, {column.removeprefix(f'{measure}_')}",
                )  # fmt: skip
        for label, value in (levels or {}).items():
            axes[1].axhline(
                value, color="0.4", linewidth=0.8, linestyle=(0, (5, 3)), label=f"{label}: {value:g}"
            )
        axes[0].set(xlabel="step", ylabel="training loss")
        axes[1].set(xlabel="step", ylabel=MEASURES.get(measure, measure.replace("_", " ")))
        for axis in axes:
            axis.locator_params(axis="x", nbins=5)
            axis.xaxis.set_major_formatter("{x:,.0f}")
        if measure == GAP:
            gaps = np.concatenate([log[c] for log in data.values() for c in log if c.startswith(measure)])
            gap_scale(axes[1], [*gaps[~np.isnan(gaps)].tolist(), *(levels or {}).values()])
        legend(fig, axes)
    return target


FILES_TOLD = 3
"""Of each measure, where logs have different ones."""

TRAINING_COLUMNS = ("step", "loss")
"""What a plot needs of a training log, beside a measure."""

OTHER_COLUMNS = ("samples", "seconds", "grad_norm", "samples_per_s", "lr")
"""What a training log holds besides; any further column is a measure."""

GAP = "validation_gap"
MEASURES = {
    GAP: "validation gap (%)",
    "validation_f1": "validation F1 (%)",
    "validation_mse": "validation MSE",
    "greedy_cost": "greedy cost",
}
"""Measures of training logs as an axis names them; others by the name of their column."""


def _read_all(logs: Mapping[str, Path], tell: Callable[[str], None] | None) -> dict[str, Curve]:
    """Read the runs of all files by their label."""
    curves: dict[str, Curve] = {}
    skipped: list[NoTrainingLogError] = []
    for label, path in logs.items():
        try:
            runs = read_training_logs(path)
        except NoTrainingLogError as error:
            if tell is None:
                raise
            skipped.append(error)
            continue
        for run, columns in runs.items():
            name = ": ".join(filter(None, (label if len(logs) > 1 or not run else "", run)))
            curves[name] = Curve(path, columns)
    if not curves:
        raise skipped[0]
    if tell is not None:
        for no_log in skipped:
            tell(f"skipped {no_log}")
    return curves


def _measure_of(curves: Mapping[str, Curve]) -> str:
    """Return the measure that all logs share; it follows step and loss."""
    files: dict[str, list[Path]] = {}
    for curve in curves.values():
        of_measure = files.setdefault(list(curve.columns)[len(TRAINING_COLUMNS)], [])
        if curve.path not in of_measure:
            of_measure.append(curve.path)
    if len(files) > 1:
        told = "; ".join(f"{measure}: {_some(paths)}" for measure, paths in files.items())
        raise BadInputError(f"The logs have different measures; plot each on its own. {told}.")
    return next(iter(files))


def _some(paths: Sequence[Path]) -> str:
    """Name the first files of many."""
    more = len(paths) - FILES_TOLD
    return ", ".join([*map(str, paths[:FILES_TOLD]), *([f"{more} more"] if more > 0 else [])])


def _measure_column(path: Path, rows: Sequence[Mapping[str, str | None]], naming: Sequence[str]) -> str:
    """Find the measure of a log: the column that is no other; the one with most values where there are several.

    Older logs have an empty column for gaps beside another measure.
    """
    others = (*TRAINING_COLUMNS, *OTHER_COLUMNS, *naming)
    found = [name for name in rows[0] if name and name not in others]
    if not found:
        raise NoTrainingLogError(
            f"{path}:1: column {GAP} is missing, or another measure's; expected a training log."
        )
    return max(found, key=lambda name: sum(bool((row.get(name) or "").strip()) for row in rows))


def read_training_logs(path: Path) -> dict[str, Columns]:
    """Read step, loss and measure of each run in a training log into columns, in this order; empty fields become NaN.

    The same measure at further sizes (``validation_gap_tsp100``) follows. A run is called by what stands before its step,
    which is nothing in the log of one run.

    Raises
    ------
    NoTrainingLogError
        Without these columns, or without rows.
    BadInputError
        For what is no CSV file, or a field that is no number.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read ({error.strerror}).") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInputError(f"{path}: is no CSV file ({error}); expected a training log.") from error
    if not rows:
        raise NoTrainingLogError(
            f"{path}: holds no rows; expected a training log with {', '.join(TRAINING_COLUMNS)} and a measure."
        )
    missing = [name for name in TRAINING_COLUMNS if name not in rows[0]]
    if missing:
        raise NoTrainingLogError(
            f"{path}:1: column {missing[0]} is missing; expected {', '.join(TRAINING_COLUMNS)} and a measure."
        )
    header = [name for name in rows[0] if name]
    known = (*TRAINING_COLUMNS, *OTHER_COLUMNS, *MEASURES)
    naming = [name for name in header[: header.index("step")] if name not in known]
    measure = _measure_column(path, rows, naming)
    read = (*TRAINING_COLUMNS, measure, *(name for name in header if name.startswith(f"{measure}_")))
    runs: dict[str, list[list[float]]] = {}
    for number, row in enumerate(rows, start=2):
        run = ", ".join(row[name] or "" for name in naming)
        runs.setdefault(run, []).append([_number(path, number, name, row.get(name) or "") for name in read])
    return {run: dict(zip(read, np.array(values).T, strict=True)) for run, values in runs.items()}


def _number(path: Path, line: int, name: str, text: str) -> float:
    try:
        return float(text) if text.strip() else math.nan
    except ValueError as error:
        raise BadInputError(f"{path}:{line}: {name} is {text!r}; expected a number.") from error


def smoothed(values: NDArray[np.float64], share: float = 0.02) -> NDArray[np.float64]:
    """Moving mean over a share of the points, shorter at the ends so that it starts and stops with the data."""
    half = max(0, int(len(values) * share / 2))
    sums = np.concatenate([[0.0], np.cumsum(values)])
    index = np.arange(len(values))
    reach = np.minimum(half, np.minimum(index, len(values) - 1 - index))
    return (sums[index + reach + 1] - sums[index - reach]) / (2 * reach + 1)


def _named_logs(logs: Sequence[Path]) -> dict[str, Path]:
    """Name logs by their file, or by folder and file where files are called alike."""
    paths = [Path(p) for p in logs]
    stems = [p.stem for p in paths]
    return {(p.stem if stems.count(p.stem) == 1 else f"{p.resolve().parent.name}/{p.stem}"): p for p in paths}

"""Training logs and their curves: loss and validation against steps, as PNG, PDF or SVG."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nco_bench.errors import BadInputError
from nco_bench.reports.figures.style import checked_target, figure, gap_scale, legend, look


def training(
    logs: Sequence[Path] | Mapping[str, Path], out: Path | str, levels: Mapping[str, float] | None = None
) -> Path:
    """Draw loss and validation against training steps.

    Parameters
    ----------
    logs
        CSV files with at least the columns step, loss and a measure (validation_gap, or another by its name; empty
        where not measured), by label or named by their file.
    out
        File; its suffix says the format.
    levels
        Values of the measure to draw as horizontal lines, by their label, such as a paper's.

    Raises
    ------
    BadInputError
        For a log without these columns or without rows, or logs of different measures.
    """
    target = checked_target(out)
    named = dict(logs) if isinstance(logs, Mapping) else _named_logs(logs)
    data = {name: read_training_log(path) for name, path in named.items()}
    measure = _measure_of(named, data)
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


def _measure_of(paths: Mapping[str, Path], data: Mapping[str, Mapping[str, NDArray[np.float64]]]) -> str:
    """Return the measure that all logs share; it follows step and loss."""
    first = next(iter(data))
    measure = list(data[first])[len(TRAINING_COLUMNS)]
    for name, log in data.items():
        other = list(log)[len(TRAINING_COLUMNS)]
        if other != measure:
            raise BadInputError(
                f"{paths[name]}: measures {other}, {paths[first]} measures {measure}; plot them apart."
            )
    return measure


def _measure_column(path: Path, rows: Sequence[Mapping[str, str | None]]) -> str:
    """Find the measure of a log: the column that is no other; the one with most values where there are several.

    Older logs have an empty column for gaps beside another measure.
    """
    found = [name for name in rows[0] if name and name not in (*TRAINING_COLUMNS, *OTHER_COLUMNS)]
    if not found:
        raise BadInputError(
            f"{path}:1: column {GAP} is missing, or another measure's; expected a training log."
        )
    return max(found, key=lambda name: sum(bool((row.get(name) or "").strip()) for row in rows))


def read_training_log(path: Path) -> dict[str, NDArray[np.float64]]:
    """Read step, loss and measure of a training log into columns, in this order; empty fields become NaN.

    The same measure at further sizes (``validation_gap_tsp100``) follows.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read ({error.strerror}).") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInputError(f"{path}: is no CSV file ({error}); expected a training log.") from error
    if not rows:
        raise BadInputError(
            f"{path}: holds no rows; expected a training log with {', '.join(TRAINING_COLUMNS)} and a measure."
        )
    missing = [name for name in TRAINING_COLUMNS if name not in rows[0]]
    if missing:
        raise BadInputError(
            f"{path}:1: column {missing[0]} is missing; expected {', '.join(TRAINING_COLUMNS)} and a measure."
        )
    columns = {}
    measure = _measure_column(path, rows)
    further = [name for name in rows[0] if name.startswith(f"{measure}_")]
    for name in (*TRAINING_COLUMNS, measure, *further):
        values = []
        for number, row in enumerate(rows, start=2):
            text = row.get(name) or ""
            try:
                values.append(float(text) if text.strip() else np.nan)
            except ValueError as error:
                raise BadInputError(f"{path}:{number}: {name} is {text!r}; expected a number.") from error
        columns[name] = np.array(values)
    return columns


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

"""Plots for papers, as PNG, PDF or SVG: Pareto, scaling, anytime, training curves, per-instance scatter, power laws."""

from __future__ import annotations

import csv
import textwrap
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nco_bench.errors import BadInputError, ResultsError
from nco_bench.reports.aggregate import CellSummary, summarise
from nco_bench.reports.compare import compare, dataset_rows, instance_values, of_dataset, pick_row
from nco_bench.reports.figures import (
    COLOURS,
    Look,
    checked_target,
    figure,
    gap_scale,
    legend,
    look,
    wide_log_scale,
)
from nco_bench.reports.load import ResultFrame
from nco_bench.reports.rows import arrange
from nco_bench.reports.scaling_laws import Fit

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def pareto(frame: ResultFrame, out: Path | str) -> Path:
    """Draw gap against time per instance, both logarithmic, a panel per dataset; a line joins what nothing beats.

    What lacks instances that others have, or failed on some, is hollow, says so beside its name, and is not joined.

    Raises
    ------
    ResultsError
        When no cell has a gap.
    BadInputError
        For a suffix other than .png, .pdf, .svg.
    """
    target = checked_target(out)
    columns = _columns_with_gaps(frame)
    names = list(dict.fromkeys(name for cells in columns.values() for name in cells))
    with figure(len(columns), target) as (fig, axes):
        for axis, (title, cells) in zip(axes, columns.items(), strict=True):
            points = [(s.seconds_per_instance, s.mean_gap_percent or 0.0, name) for name, s in cells.items()]
            for seconds, gap, name in points:
                style = look(names.index(name))
                filled = style.colour if cells[name].complete else "white"
                axis.plot(
                    seconds, gap, style.marker, color=style.colour, label=f"{name}{partly(cells[name])}",
                    linestyle="none", markerfacecolor=filled, zorder=3,
                )  # fmt: skip
            front = pareto_front([(x, gap) for x, gap, name in points if cells[name].complete])
            if front:
                axis.step(*zip(*front, strict=True), where="post", color="#888888", linewidth=0.9, zorder=1)
            wide_log_scale(axis, [seconds for seconds, _, _ in points])
            gap_scale(axis, [gap for _, gap, _ in points])
            axis.set(title=title, xlabel="time per instance (s)", ylabel="gap (%)")
        legend(fig, axes)
    return target


def partly(summary: CellSummary) -> str:
    """Return what a legend adds to the name of a cell that cannot be ranked: over how many instances its mean is."""
    if summary.complete:
        return ""
    solved = summary.instances - summary.failed
    return f" ({solved:,} of {summary.instances_of_column:,} instances)"


def pareto_front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that no other beats in time and gap, fastest first."""
    front: list[tuple[float, float]] = []
    for seconds, gap in sorted(points):
        if not front or gap < front[-1][1]:
            front.append((seconds, gap))
    return front


def scaling(frame: ResultFrame, out: Path | str) -> Path:
    """Draw gap against instance size per solver, a panel per distribution; bars are 95 % bootstrap intervals."""
    target = checked_target(out)
    panels: dict[str, dict[str, list[CellSummary]]] = defaultdict(lambda: defaultdict(list))
    for _, column in _arranged(frame, intervals=True):
        for name, summary in column.items():
            if summary.mean_gap_percent is not None and summary.sizes[0] == summary.sizes[1]:
                panels[panel_title(summary)][name].append(summary)
    if not panels:
        raise ResultsError("No cell has a gap on instances of one size; the scaling plot needs references.")
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    with figure(len(panels), target) as (fig, axes):
        for axis, (title, lines) in zip(axes, panels.items(), strict=True):
            for name, cells in lines.items():
                _scaling_line(axis, name, sorted(cells, key=lambda s: s.sizes), look(names.index(name)))
            axis.set_xscale("log")
            sizes = sorted({s.sizes[0] for cells in lines.values() for s in cells})
            axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
            axis.minorticks_off()
            gap_scale(axis, [s.mean_gap_percent or 0.0 for cells in lines.values() for s in cells])
            axis.set(title=title, xlabel="instance size n", ylabel="gap (%)")
        legend(fig, axes)
    return target


def panel_title(summary: CellSummary) -> str:
    """Problem and distribution of a cell's dataset."""
    cell = summary.group.cell
    source = cell.origin.get("distribution") or cell.origin.get("generator") or ""
    return f"{cell.problem.upper()} {source}".strip()


def _scaling_line(axis: Axes, name: str, cells: list[CellSummary], style: Look) -> None:
    gaps = [s.mean_gap_percent or 0.0 for s in cells]
    below = [g - (g if s.gap_low is None else s.gap_low) for g, s in zip(gaps, cells, strict=True)]
    above = [(g if s.gap_high is None else s.gap_high) - g for g, s in zip(gaps, cells, strict=True)]
    axis.errorbar(
        [s.sizes[0] for s in cells], gaps, yerr=np.maximum([below, above], 0.0), label=name, color=style.colour,
        marker=style.marker, linestyle=style.dash, capsize=2.0, elinewidth=0.8,
    )  # fmt: skip


def anytime(curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], out: Path | str) -> Path:
    """Draw how the best gap falls with time.

    Parameters
    ----------
    curves
        By label: seconds (rising) and mean gap in percent reached by then.
    out
        File; its suffix says the format.
    """
    target = checked_target(out)
    with figure(1, target) as (fig, axes):
        for index, (name, (seconds, gaps)) in enumerate(curves.items()):
            style = look(index)
            axes[0].step(seconds, gaps, where="post", label=name, color=style.colour, linestyle=style.dash)
            axes[0].plot(seconds, gaps, style.marker, color=style.colour, markersize=3.0)
        wide_log_scale(axes[0], [s for seconds, _ in curves.values() for s in seconds])
        gap_scale(axes[0], [g for _, gaps in curves.values() for g in gaps])
        axes[0].set(xlabel="time (s)", ylabel="mean gap (%)")
        legend(fig, axes)
    return target


def scatter(frame: ResultFrame, solver_a: str, solver_b: str, dataset: str, out: Path | str) -> Path:
    """Draw the gaps of two solvers against each other, a point per instance; below the line a is better.

    Raises
    ------
    As `nco_bench.reports.compare.compare`.
    """
    target = checked_target(out)
    result = compare(frame, solver_a, solver_b, dataset)
    frame = of_dataset(frame, dataset)
    rows = dataset_rows(frame)
    a, b = (instance_values(frame, rows[pick_row(rows, name)]) for name in (solver_a, solver_b))
    _, at, bt = np.intersect1d(a.instance, b.instance, return_indices=True)
    use_gap = result.unit == "gap percent"
    y, x = (a.gap_percent[at], b.gap_percent[bt]) if use_gap else (a.cost[at], b.cost[bt])
    with figure(1, target, square=True) as (_, axes):
        low, high = float(min(x.min(), y.min())), float(max(x.max(), y.max()))
        margin = 0.04 * (high - low or 1.0)
        axes[0].plot(
            [low - margin, high + margin], [low - margin, high + margin], color="#888888", linewidth=0.9
        )
        many = len(x) > 5000
        axes[0].plot(
            x, y, "o", color=COLOURS[0], markersize=2.0 if many else 3.5, alpha=0.3 if many else 0.6,
            markeredgewidth=0, rasterized=many,
        )  # fmt: skip
        unit = "gap (%)" if use_gap else "cost"
        axes[0].set(xlabel=f"{result.solver_b}, {unit}", ylabel=f"{result.solver_a}, {unit}", aspect="equal")
        axes[0].set_title(f"{dataset}: {result.wins} wins, {result.ties} ties, {result.losses} losses")
    return target


def training(logs: Sequence[Path] | Mapping[str, Path], out: Path | str) -> Path:
    """Draw loss and validation against training steps.

    Parameters
    ----------
    logs
        CSV files with at least the columns step, loss and a measure (validation_gap, or another by its name; empty
        where not measured), by label or named by their file.
    out
        File; its suffix says the format.

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
        axes[0].set(xlabel="step", ylabel="training loss")
        axes[1].set(xlabel="step", ylabel=MEASURES.get(measure, measure.replace("_", " ")))
        for axis in axes:
            axis.locator_params(axis="x", nbins=5)
        if measure == GAP:
            gaps = np.concatenate([log[c] for log in data.values() for c in log if c.startswith(measure)])
            gap_scale(axes[1], gaps[~np.isnan(gaps)].tolist())
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


def power_laws(
    lines: Mapping[str, tuple[Sequence[float], Sequence[float], Fit | None]],
    out: Path | str,
    *,
    xlabel: str,
    note: str = "",
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]] | None = None,
    joined: bool = False,
) -> Path:
    """Draw measured gaps with their fitted laws, both axes logarithmic (Figures 1 to 6 of decoder scaling).

    Parameters
    ----------
    lines
        By label: x values, gaps in percent, and the fit at these x, or None.
    out
        File; its suffix says the format.
    xlabel
        What x is, with unit.
    note
        A sentence above the plot: where the numbers are from.
    curves
        By label: x and gaps of lines without points.
    joined
        Whether points without a fit are joined by a thin line.
    """
    target = checked_target(out)
    qualities = [
        f"$R^2$ = {f.r2:.3f}, error {f.error_percent:.2f} %" for *_, f in lines.values() if f is not None
    ]
    shared = len(qualities) > 1 and len(set(qualities)) == 1  # one law, drawn as several lines
    curves = curves or {}
    with figure(1, target) as (fig, axes):
        if shared or note:
            title = [*(qualities[:1] if shared else ()), *([textwrap.fill(note, 95)] if note else ())]
            axes[0].set_title("\n".join(title), fontsize=7 if note else None)
        remaining = iter(qualities)
        for index, (name, (x, gaps, fit)) in enumerate(lines.items()):
            style = look(index)
            quality = "" if fit is None else next(remaining)
            label = name if fit is None or shared else f"{name}: {quality}"
            thin = (
                {"linestyle": style.dash, "linewidth": 0.7}
                if joined and fit is None
                else {"linestyle": "none"}
            )
            axes[0].plot(x, gaps, marker=style.marker, color=style.colour, label=label, **thin)
            if fit is not None:
                order = np.argsort(x)
                axes[0].plot(
                    np.asarray(x)[order],
                    np.asarray(fit.fitted)[order],
                    color=style.colour,
                    linestyle=style.dash,
                )
        for index, (name, (x, gaps)) in enumerate(curves.items(), start=len(lines)):
            style = look(index)
            axes[0].plot(x, gaps, color=style.colour, linestyle=style.dash, label=name)
        drawn = [*((x, gaps) for x, gaps, _ in lines.values()), *curves.values()]
        wide_log_scale(axes[0], [float(v) for x, _ in drawn for v in x])
        gap_scale(axes[0], [g for _, gaps in drawn for g in gaps])
        axes[0].set(xlabel=xlabel, ylabel="gap (%)")
        legend(fig, axes)
    return target


def _arranged(frame: ResultFrame, *, intervals: bool) -> list[tuple[str, dict[str, CellSummary]]]:
    rows, columns = arrange(summarise(frame, intervals=intervals))
    return [(c.title, {r.name: c.cells[r.key] for r in rows if r.key in c.cells}) for c in columns]


def _columns_with_gaps(frame: ResultFrame) -> dict[str, dict[str, CellSummary]]:
    found = {}
    for title, cells in _arranged(frame, intervals=False):
        known = {
            name: s for name, s in cells.items() if s.mean_gap_percent is not None and s.seconds_total > 0
        }
        if known:
            found[title] = known
    if not found:
        raise ResultsError("No cell has a gap; plots of gaps need datasets with references.")
    return found


def _named_logs(logs: Sequence[Path]) -> dict[str, Path]:
    """Name logs by their file, or by folder and file where files are called alike."""
    paths = [Path(p) for p in logs]
    stems = [p.stem for p in paths]
    return {(p.stem if stems.count(p.stem) == 1 else f"{p.resolve().parent.name}/{p.stem}"): p for p in paths}

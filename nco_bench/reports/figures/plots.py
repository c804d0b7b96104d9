"""Plots for papers, as PNG, PDF or SVG: Pareto, scaling, anytime, per-instance scatter."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nco_bench.errors import ResultsError, counted
from nco_bench.reports.figures.anytime import Curve
from nco_bench.reports.figures.style import (
    NOISE_PERCENT,
    Look,
    apart,
    checked_target,
    figure,
    gap_scale,
    legend,
    size_ticks,
    solver_look,
    solver_looks,
    wide_log_scale,
)
from nco_bench.reports.frame.aggregate import summarise
from nco_bench.reports.frame.compare import compare, dataset_rows, instance_values, of_dataset, winners
from nco_bench.reports.frame.result_frame import ResultFrame
from nco_bench.reports.frame.rows import DatasetColumn, MethodRow, arrange
from nco_bench.reports.frame.summary import CellSummary

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
    rows, columns = arrange(summarise(frame, intervals=False))
    panels = {c.title: cells for c in columns if (cells := timed_gaps(c))}
    if not panels:
        raise ResultsError("No cell has a gap; plots of gaps need datasets with references.")
    looks = looks_of(frame, rows)
    with figure(len(panels), target) as (fig, axes):
        for axis, (title, cells) in zip(axes, panels.items(), strict=True):
            points = {
                r.name: (cells[r.key].seconds_per_instance, cells[r.key].mean_gap_percent or 0.0)
                for r in rows
                if r.key in cells
            }
            for name, (seconds, gap) in points.items():
                style = looks[name]
                filled = style.colour if cells[name].complete else "white"
                axis.plot(
                    seconds, gap, style.marker, color=style.colour, label=f"{name}{partly(cells[name])}",
                    linestyle="none", fillstyle=style.fill, markerfacecolor=filled, markerfacecoloralt="white", zorder=3,
                )  # fmt: skip
            front = pareto_front([point for name, point in points.items() if cells[name].complete])
            if len(front) > 1:
                axis.step(*zip(*front, strict=True), where="post", color="#888888", linewidth=0.9, zorder=1)
            wide_log_scale(axis, [seconds for seconds, _ in points.values()])
            gap_scale(axis, [gap for _, gap in points.values()])
            axis.set(title=title, xlabel="time per instance (s)", ylabel="gap (%)")
        legend(fig, axes)
    return target


def looks_of(frame: ResultFrame, rows: Sequence[MethodRow]) -> dict[str, Look]:
    """Return the look of every row by its key: the colour of its solver, the same in all plots of these results."""
    numbered = solver_looks({row.key: row.solver for row in rows}, frame.solvers)
    return {key: solver_look(*number) for key, number in numbered.items()}


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
    """Draw gap against instance size, a panel per distribution that a solver has at two sizes; bars are 95 % intervals.

    Means over a part of the instances are hollow.

    Raises
    ------
    ResultsError
        When no solver has gaps at two sizes of one distribution.
    """
    target = checked_target(out)
    rows, columns = arrange(summarise(frame, intervals=True))
    panels = scaling_panels(rows, columns)
    if not panels:
        have = {panel_title(s): s.sizes[0] for c in columns for s in c.cells.values() if _of_one_size(s)}
        known = ", ".join(f"{title} with n = {n}" for title, n in have.items()) or "none at any size"
        raise ResultsError(
            f"No solver has gaps at two sizes of one distribution (there is {known}); solve instances of another size."
        )
    looks = looks_of(frame, rows)
    with figure(len(panels), target) as (fig, axes):
        for axis, (title, lines) in zip(axes, panels.items(), strict=True):
            for name, cells in lines.items():
                _scaling_line(axis, name, cells, looks[name])
            cells = [s for line in lines.values() for s in line]
            size_ticks(axis, [s.sizes[0] for s in cells])
            gap_scale(axis, [gap for s in cells for gap in _gap_interval(s)])
            axis.set(title=title, xlabel="instance size n", ylabel="gap (%)")
            if not all(s.complete for s in cells):
                axis.plot(
                    [], [], "o", color="#555555", markerfacecolor="white", label="hollow: not all instances"
                )
        missing = only_of_one_size(rows, columns, panels)
        if missing:
            axes[0].plot([], [], linestyle="none", label=missing)
        legend(fig, axes)
    return target


def scaling_panels(
    rows: Sequence[MethodRow], columns: Sequence[DatasetColumn]
) -> dict[str, dict[str, list[CellSummary]]]:
    """Return the cells of solvers that have gaps at two sizes or more, by distribution and row key, smallest first."""
    panels: dict[str, dict[str, list[CellSummary]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        for column in columns:
            summary = column.cells.get(row.key)
            if summary is not None and _of_one_size(summary):
                panels[panel_title(summary)][row.key].append(summary)
    several = {
        title: {
            key: sorted(cells, key=lambda s: s.sizes)
            for key, cells in lines.items()
            if len({s.sizes for s in cells}) > 1
        }
        for title, lines in panels.items()
    }
    return {title: lines for title, lines in several.items() if lines}


def _of_one_size(summary: CellSummary) -> bool:
    """Whether a cell has a gap, over instances of one size."""
    return summary.mean_gap_percent is not None and summary.sizes[0] == summary.sizes[1]


def only_of_one_size(
    rows: Sequence[MethodRow], columns: Sequence[DatasetColumn], panels: Mapping[str, Mapping[str, object]]
) -> str:
    """Name the rows with gaps that no panel of `scaling_panels` shows; empty where there are none."""
    drawn = {key for lines in panels.values() for key in lines}
    with_gaps = {key for c in columns for key, s in c.cells.items() if s.mean_gap_percent is not None}
    missing = ", ".join(row.name for row in rows if row.key in with_gaps - drawn)
    return f"not drawn, of one size only: {missing}" if missing else ""


def panel_title(summary: CellSummary) -> str:
    """Problem and distribution of a cell's dataset, with what sets its instances apart from the usual ones."""
    cell = summary.group.cell
    params = cell.origin.get("params") or {}
    parts = [cell.problem.upper(), cell.origin.get("distribution") or cell.origin.get("generator") or ""]
    if params.get("demand", "integer") != "integer":
        parts.append(f"{params['demand']} demand, capacity {params.get('capacity')}")
    if params.get("range", "0..1") != "0..1":
        parts.append(f"in {params['range']}")
    return " ".join(filter(None, parts))


def _gap_interval(summary: CellSummary) -> tuple[float, float, float]:
    """The mean gap and the ends of its interval; the mean again where there is none."""
    gap = summary.mean_gap_percent or 0.0
    low, high = summary.gap_low, summary.gap_high
    return gap, gap if low is None else low, gap if high is None else high


def _scaling_line(axis: Axes, name: str, cells: list[CellSummary], style: Look) -> None:
    gaps, low, high = zip(*map(_gap_interval, cells), strict=True)
    sizes = [s.sizes[0] for s in cells]
    reach = np.maximum([np.subtract(gaps, low), np.subtract(high, gaps)], 0.0)
    axis.errorbar(sizes, gaps, yerr=reach, fmt="none", ecolor=style.colour, capsize=2.0, elinewidth=0.8)
    axis.plot(sizes, gaps, color=style.colour, marker=style.marker, linestyle=style.dash, label=name)
    hollow = [(n, gap) for n, gap, s in zip(sizes, gaps, cells, strict=True) if not s.complete]
    for n, gap in hollow:
        axis.plot(n, gap, style.marker, color=style.colour, markerfacecolor="white", zorder=3)


def anytime(curves: Mapping[str, Curve], out: Path | str, solvers: Sequence[str] = ()) -> Path:
    """Draw how the best gap falls with time, a panel per dataset.

    Parameters
    ----------
    curves
        By label.
    out
        File; its suffix says the format.
    solvers
        All solvers of the results, which decide the colours.
    """
    target = checked_target(out)
    looks = apart(solver_looks({c.method or name: c.solver for name, c in curves.items()}, solvers))
    panels: dict[str, dict[str, Curve]] = defaultdict(dict)
    for name, curve in curves.items():
        panels[curve.dataset][curve.method or name] = curve
    with figure(max(1, len(panels)), target) as (fig, axes):
        for axis, (dataset, lines) in zip(axes, panels.items(), strict=False):
            for name, curve in lines.items():
                style = solver_look(*looks[name])
                axis.step(
                    curve.seconds, curve.gaps, where="post", color=style.colour, linestyle=style.dash,
                    marker=style.marker, markersize=3.0, markevery=_turns(curve.gaps), label=f"{name} ({curve.told})",
                )  # fmt: skip
            wide_log_scale(axis, [s for curve in lines.values() for s in curve.seconds])
            gap_scale(axis, [g for curve in lines.values() for g in curve.gaps])
            together = any(curve.batch[1] > 1 for curve in lines.values())
            clock = "time since the batch began (s)" if together else "time of one instance (s)"
            axis.set(title=dataset, xlabel=clock, ylabel="mean gap (%)")
        legend(fig, axes)
    return target


ROUNDING_PERCENT = 1e-4
"""By how much gaps of one tour differ, which its network summed in float32."""


def _turns(gaps: Sequence[float]) -> list[int]:
    """Where a gap is below the last one marked by more than rounding, and both ends; all iterations make one thick bar."""
    turns = [0]
    for i, gap in enumerate(gaps):
        if abs(gap - gaps[turns[-1]]) > ROUNDING_PERCENT or (i == len(gaps) - 1 > 0):
            turns.append(i)
    return turns


def scatter(frame: ResultFrame, solver_a: str, solver_b: str, dataset: str, out: Path | str) -> Path:
    """Draw the gaps of two solvers against each other, a point per instance in the colour of who is better there.

    Raises
    ------
    As `nco_bench.reports.frame.compare.compare`.
    """
    target = checked_target(out)
    result = compare(frame, solver_a, solver_b, dataset)
    frame = of_dataset(frame, dataset)
    cells = dataset_rows(frame)
    one, two = cells[result.solver_a], cells[result.solver_b]
    a, b = instance_values(frame, one), instance_values(frame, two)
    _, at, bt = np.intersect1d(a.instance, b.instance, return_indices=True)
    use_gap = result.unit == "gap percent"
    y, x = (a.gap_percent[at], b.gap_percent[bt]) if use_gap else (a.cost[at], b.cost[bt])
    sign = -1.0 if one.group.cell.objective == "max" else 1.0
    winner = winners(sign * a.cost[at], sign * b.cost[bt])
    looks = looks_of(frame, arrange(summarise(frame, intervals=False))[0])
    better = [
        (result.solver_a, 1, looks[result.solver_a]),
        (result.solver_b, -1, looks[result.solver_b]),
        ("neither", 0, Look("#888888", ".", "-")),
    ]
    same = better[0][2].colour == better[1][2].colour
    with figure(1, target, square=True) as (fig, axes):
        low, high = float(min(x.min(), y.min())), float(max(x.max(), y.max()))
        margin = 0.04 * max(high - low, NOISE_PERCENT if use_gap else 0.0) or 0.04
        span = [low - margin, high + margin]
        axes[0].plot(span, span, color="#888888", linewidth=0.9)
        many = len(x) > 5000
        for name, won, style in better:
            here = winner == won
            if not won and not here.any():
                continue
            axes[0].plot(
                x[here], y[here], style.marker, color=style.colour, markersize=2.0 if many else 3.5, linestyle="none",
                alpha=0.3 if many else 0.6, markeredgewidth=0.7, rasterized=many,
                markerfacecolor="none" if same and won == -1 else style.colour,
                label=f"{name} better: {int(here.sum()):,}",
            )  # fmt: skip
        unit = "gap (%)" if use_gap else result.unit
        axes[0].set(xlabel=f"{result.solver_b}, {unit}", ylabel=f"{result.solver_a}, {unit}", aspect="equal")
        axes[0].set(xlim=span, ylim=span, title=f"{result.dataset}, {counted(len(x), 'instance')}")
        legend(fig, axes)
    return target


def timed_gaps(column: DatasetColumn) -> dict[str, CellSummary]:
    """Cells with a gap and a time, by row key."""
    return {k: s for k, s in column.cells.items() if s.mean_gap_percent is not None and s.seconds_total > 0}

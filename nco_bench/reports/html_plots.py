"""Interactive plots of the HTML report, by Bokeh.

Why Bokeh: its script is 1.3 MB inside the page (Plotly's 4.5 MB would fill the page's 5 MB alone; Vega needs three
scripts and mpld3 is hardly kept up), it hovers, zooms and pans, draws 100,000 points on a canvas, and works
from disk without network.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from nco_bench.errors import MissingDependencyError
from nco_bench.reports.aggregate import CellSummary
from nco_bench.reports.compare import instance_values
from nco_bench.reports.figures import COLOURS
from nco_bench.reports.load import ResultFrame
from nco_bench.reports.plots import panel_title, pareto_front, partly
from nco_bench.reports.rows import DatasetColumn, MethodRow

if TYPE_CHECKING:
    from bokeh.plotting import figure as Figure

MARKERS = (
    ("circle", "●"), ("square", "■"), ("triangle", "▲"), ("diamond", "◆"), ("inverted_triangle", "▼"), ("star", "★"),
    ("hex", "⬢"), ("plus", "✚"), ("square_pin", "✦"),
)  # fmt: skip
"""Bokeh's marker, and the letter that stands for it in the legend."""

POINTS_OF_PAGE = 250_000
"""Gaps embedded for the scatter plot: 4 bytes each, so that the page stays below 5 MB."""


def looks(rows: Sequence[MethodRow]) -> dict[str, tuple[str, str, str]]:
    """Colour, marker and its letter by row key; grey stands for black, so that it shows on dark paper too."""
    found = {}
    for index, row in enumerate(rows):
        marker, letter = MARKERS[index % len(MARKERS)]
        colour = COLOURS[index % len(COLOURS)]
        found[row.key] = ("#8c8c8c" if colour == "#000000" else colour, marker, letter)
    return found


def bokeh_script() -> str:
    """Return Bokeh's own JavaScript, to stand inside the page.

    Raises
    ------
    MissingDependencyError
        Without Bokeh.
    """
    try:
        from bokeh.resources import Resources
    except ImportError as error:
        raise MissingDependencyError(
            "The HTML report needs bokeh; install it with: pip install 'nco-bench[html]'"
        ) from error
    return str(Resources(mode="inline", components=["bokeh"]).render_js())


def pareto_figures(
    columns: Sequence[DatasetColumn], rows: Sequence[MethodRow], styles: dict[str, tuple[str, str, str]]
) -> list[Figure]:
    """Gap against time per instance, a figure per dataset."""
    figures = []
    for column in columns:
        cells = {r.key: column.cells[r.key] for r in rows if r.key in column.cells}
        known = {k: s for k, s in cells.items() if s.mean_gap_percent is not None and s.seconds_total > 0}
        if not known:
            continue
        floor = _floor([s.mean_gap_percent or 0.0 for s in known.values()])
        shown = [s.mean_gap_percent or 0.0 for s in known.values()]
        plot = _figure(
            column.title, "time per instance (s)", "gap (%)", "@name: gap @gap{0.0000} %, @x{0.000000} s",
            y_log=max(shown) > 0,
        )  # fmt: skip
        if max(shown) <= 0:
            floor = min(shown)
        points = [(s.seconds_per_instance, max(s.mean_gap_percent or 0.0, floor)) for s in known.values()]
        front = pareto_front([point for point, s in zip(points, known.values(), strict=True) if s.complete])
        steps = [p for a, b in pairwise(front) for p in (a, (b[0], a[1]))] + front[-1:]
        plot.line(
            [x for x, _ in steps], [y for _, y in steps], line_width=1, line_color="#888888", name="guide"
        )
        gaps = [s.mean_gap_percent or 0.0 for s in known.values()]
        partial = {key: partly(s) for key, s in known.items()}
        _marks(
            plot, [(x, y, gap, key) for (x, y), gap, key in zip(points, gaps, known, strict=True)], styles, partial
        )  # fmt: skip
        figures.append(plot)
    return figures


def scaling_figures(
    columns: Sequence[DatasetColumn], rows: Sequence[MethodRow], styles: dict[str, tuple[str, str, str]]
) -> list[Figure]:
    """Gap against instance size, a figure per problem and distribution that has more than one size."""
    panels: dict[str, dict[str, list[CellSummary]]] = defaultdict(lambda: defaultdict(list))
    for column in columns:
        for row in rows:
            summary = column.cells.get(row.key)
            if (
                summary is not None
                and summary.mean_gap_percent is not None
                and summary.sizes[0] == summary.sizes[1]
            ):
                panels[panel_title(summary)][row.key].append(summary)
    figures = []
    for title, lines in panels.items():
        if len({s.sizes for cells in lines.values() for s in cells}) < 2:
            continue
        floor = _floor([s.mean_gap_percent or 0.0 for cells in lines.values() for s in cells])
        plot = _figure(title, "instance size n", "gap (%)", "@name, n = @x: gap @gap{0.0000} %")
        ordered = {key: sorted(cells, key=lambda s: s.sizes) for key, cells in lines.items()}
        gaps = {key: [s.mean_gap_percent or 0.0 for s in cells] for key, cells in ordered.items()}
        plot.multi_line(
            [[float(s.sizes[0]) for s in cells] for cells in ordered.values()],
            [[max(gap, floor) for gap in gaps[key]] for key in ordered],
            line_color=[styles[key][0] for key in ordered],
            line_width=1.5,
        )
        points = [
            (float(s.sizes[0]), max(gap, floor), gap, key)
            for key, cells in ordered.items()
            for s, gap in zip(cells, gaps[key], strict=True)
        ]
        _marks(plot, points, styles)
        figures.append(plot)
    return figures


def scatter_figure() -> Figure:
    """An empty scatter plot, filled by the page's script for the two methods that are chosen."""
    from bokeh.models import ColumnDataSource, Range1d

    plot = _figure("", "", "", "@name: @x{0.0000} %, @y{0.0000} %", log=False)
    plot.name, plot.match_aspect = "scatter", True
    plot.x_range, plot.y_range = Range1d(start=0, end=1), Range1d(start=0, end=1)
    line = ColumnDataSource({"x": [0, 1], "y": [0, 1]}, name="scatter-line")
    points = ColumnDataSource({"x": [], "y": [], "name": []}, name="scatter-points")
    plot.line("x", "y", source=line, line_color="#888888", name="guide")
    drawn = plot.scatter(
        "x", "y", source=points, size=6, fill_alpha=0.5, line_color=None, fill_color=COLOURS[0], name="points"
    )
    plot.hover[0].renderers = [drawn]
    return plot


def scatter_data(
    frame: ResultFrame, columns: Sequence[DatasetColumn], rows: Sequence[MethodRow]
) -> tuple[list[dict[str, Any]], str]:
    """Gaps per instance of all methods, as base64 of float32, and a remark where only a sample is embedded.

    Returns
    -------
    data
        Per dataset: methods, their gaps (NaN where unsolved), the instances' names, and the pair shown first.
    remark
        Empty where all instances are there.
    """
    wanted = [(c, {r: c.cells[r.key] for r in rows if _has_gaps(c, r)}) for c in columns]
    wanted = [(c, cells) for c, cells in wanted if len(cells) > 1]
    total = sum(s.instances for _, cells in wanted for s in cells.values())
    keep = min(1.0, POINTS_OF_PAGE / total) if total else 1.0
    data = [_scatter_of(frame, column, cells, keep) for column, cells in wanted]
    remark = f"Every {1 / keep:.0f}th instance is shown, to keep the page small." if keep < 1 else ""
    return data, remark


def _has_gaps(column: DatasetColumn, row: MethodRow) -> bool:
    summary = column.cells.get(row.key)
    return summary is not None and summary.gap_instances > 0


def _scatter_of(
    frame: ResultFrame, column: DatasetColumn, cells: dict[MethodRow, CellSummary], keep: float
) -> dict[str, Any]:
    values = {row: instance_values(frame, summary) for row, summary in cells.items()}
    every = np.unique(np.concatenate([v.instance for v in values.values()]))
    shown = every[np.unique(np.linspace(0, len(every) - 1, max(1, round(keep * len(every)))).astype(int))]
    names: dict[int, int] = {}
    gaps = []
    for found in values.values():
        inside = np.isin(found.instance, shown)
        line = np.full(len(shown), np.nan, dtype="<f4")
        line[np.searchsorted(shown, found.instance[inside])] = found.gap_percent[inside]
        gaps.append(base64.b64encode(line.tobytes()).decode())
        names.update(zip(found.instance[inside].tolist(), found.name[inside].tolist(), strict=True))
    by_gap = sorted(range(len(cells)), key=lambda i: list(cells.values())[i].mean_gap_percent or 0.0)
    spread = [i for i in by_gap if (list(cells.values())[i].gap_std_percent or 0.0) > 1e-6]
    pair = (spread + [i for i in by_gap if i not in spread])[:2]
    return {
        "dataset": column.title,
        "methods": [row.name for row in cells],
        "gaps": gaps,
        "names": "\n".join(frame.names[names[i]].replace("\n", " ") for i in shown.tolist()),
        "pair": [pair[1], pair[0]],
    }


def _floor(gaps: Sequence[float]) -> float:
    """Where a gap of 0 or less is drawn on a logarithmic axis: a third of the smallest positive one."""
    return min((g for g in gaps if g > 0), default=1.0) / 3.0


def _marks(
    plot: Figure, points: Sequence[tuple[float, float, float, str]], styles: dict[str, tuple[str, str, str]],
    partial: Mapping[str, str] | None = None,
) -> None:  # fmt: skip
    """Draw (x, y, gap, row key) as one glyph: a renderer per method would cost seconds of serialising.

    What `partial` names is hollow, and its words are added to the name.
    """
    from bokeh.models import ColumnDataSource

    keys = [key for *_, key in points]
    columns: dict[str, Any] = {
        "x": [x for x, *_ in points],
        "y": [y for _, y, *_ in points],
        "gap": [gap for _, _, gap, _ in points],
        "name": [f"{key}{(partial or {}).get(key, '')}" for key in keys],
        "colour": [styles[key][0] for key in keys],
        "marker": [styles[key][1] for key in keys],
        "fill": [0.0 if (partial or {}).get(key) else 1.0 for key in keys],
    }
    source = ColumnDataSource(columns)
    drawn = plot.scatter("x", "y", source=source, marker="marker", size=9, color="colour", fill_alpha="fill")
    plot.hover[0].renderers = [drawn]


def _figure(
    title: str, xlabel: str, ylabel: str, tip: str, *, log: bool = True, y_log: bool = True
) -> Figure:
    """Return an empty plot that hovers; `log`: both axes logarithmic, the upward one only with `y_log`."""
    from bokeh.models import DataRange1d, HoverTool
    from bokeh.plotting import figure

    kind: Literal["log", "linear"] = "log" if log else "linear"
    upward: Literal["log", "linear"] = "log" if log and y_log else "linear"
    plot = figure(
        title=title, x_axis_label=xlabel, y_axis_label=ylabel, x_axis_type=kind, y_axis_type=upward, height=320,
        sizing_mode="stretch_width", tools="pan,box_zoom,reset,save", toolbar_location="above",
        background_fill_alpha=0, border_fill_alpha=0, outline_line_color=None,
    )  # fmt: skip
    plot.toolbar.logo = None
    if log:
        plot.x_range = DataRange1d(range_padding=0.2)
        plot.y_range = DataRange1d(range_padding=0.25)
    plot.add_tools(HoverTool(tooltips=tip, renderers=[]))
    return plot

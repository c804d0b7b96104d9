"""Interactive plots of the HTML report, by Bokeh.

Why Bokeh: its script is 1.3 MB inside the page (Plotly's 4.5 MB would fill the page's 5 MB alone; Vega needs three
scripts and mpld3 is hardly kept up), it hovers, zooms and pans, draws 100,000 points on a canvas, and works
from disk without network.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from nco_bench.errors import MissingDependencyError
from nco_bench.reports.figures.plots import pareto_front, partly, scaling_panels, timed_gaps
from nco_bench.reports.figures.style import LEAST_RATIO, NOISE_PERCENT, decade_ticks, solver_looks
from nco_bench.reports.frame.compare import instance_values
from nco_bench.reports.frame.result_frame import ResultFrame
from nco_bench.reports.frame.rows import DatasetColumn, MethodRow
from nco_bench.reports.frame.summary import CellSummary

if TYPE_CHECKING:
    from bokeh.plotting import figure as Figure

MARKERS = (
    ("circle", "●"), ("square", "■"), ("triangle", "▲"), ("diamond", "◆"), ("inverted_triangle", "▼"), ("star", "★"),
    ("hex", "⬢"), ("plus", "✚"), ("square_pin", "✦"), ("circle_cross", "⊕"), ("square_cross", "⊞"), ("circle_x", "⊗"),
    ("square_x", "⊠"), ("circle_dot", "⊙"), ("square_dot", "⊡"),
)  # fmt: skip
"""Bokeh's marker, and the letter that stands for it in the legend."""

CROSSED = ("_cross", "_x", "_dot")
"""Ends of the names of markers with lines inside, which in the marker's own colour would not show where it is filled."""

DASHES = ("solid", "dashed", "dotted", "dotdash")
"""By marker, so that two lines of one colour differ between their points too."""

Look = tuple[str, str, str]

FREE_ABOVE = 1.3
"""Ratio of the lowest tick to where gaps within noise are drawn."""

LOADED = re.compile(r"https://(?:cdn\.jsdelivr\.net|maps\.googleapis\.com)/[^\"`]*")
"""Addresses in Bokeh's script of what it loads: MathJax, icons, maps."""

POINTS_OF_PAGE = 250_000
"""Gaps embedded for the scatter plot: 4 bytes each, so that 100,000 records of ten datasets stay below 5 MB."""


def looks(frame: ResultFrame, rows: Sequence[MethodRow]) -> dict[str, Look]:
    """Colour, marker and its letter by row key; grey stands for black, so that it shows on dark paper too."""
    numbered = solver_looks({row.key: row.solver for row in rows}, frame.solvers)
    return {
        key: ("#8c8c8c" if colour == "#000000" else colour, *MARKERS[number % len(MARKERS)])
        for key, (colour, number) in numbered.items()
    }


def bokeh_script() -> str:
    """Return Bokeh's own JavaScript, to stand inside the page, without the addresses that it would load more from.

    A name between dollar signs would else be asked MathJax for, from a server; it stands there as it is.

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
    return LOADED.sub("", str(Resources(mode="inline", components=["bokeh"]).render_js()))


def pareto_figures(
    columns: Sequence[DatasetColumn], rows: Sequence[MethodRow], styles: dict[str, Look]
) -> list[Figure]:
    """Gap against time per instance, a figure per dataset."""
    from bokeh.models import FixedTicker

    figures = []
    for column in columns:
        timed = timed_gaps(column)
        known = {r.key: timed[r.key] for r in rows if r.key in timed}
        if not known:
            continue
        gaps = [s.mean_gap_percent or 0.0 for s in known.values()]
        floor = _floor(gaps)
        plot = _figure(
            column.title, "time per instance (s)", "gap (%)", "@name: gap @gap{0.0000} %, @x{0.000000} s",
            gaps=[_drawn(gap, floor) for gap in gaps], log_gaps=floor is not None, floor=_shown(gaps, floor),
        )  # fmt: skip
        times = [s.seconds_per_instance for s in known.values()]
        plot.xaxis.ticker = plot.xgrid.ticker = FixedTicker(
            ticks=decade_ticks(min(times), max(times)), tags=["times"]
        )  # the page's script sets them, as those of gaps
        points = [
            (s.seconds_per_instance, _drawn(gap, floor)) for s, gap in zip(known.values(), gaps, strict=True)
        ]
        front = pareto_front([point for point, s in zip(points, known.values(), strict=True) if s.complete])
        steps = [p for a, b in pairwise(front) for p in (a, (b[0], a[1]))] + front[-1:]
        plot.line(
            [x for x, _ in steps], [y for _, y in steps], line_width=1, line_color="#888888", name="guide"
        )
        marks = [(x, y, gap, key) for (x, y), gap, key in zip(points, gaps, known, strict=True)]
        _marks(plot, marks, styles, [partly(s) for s in known.values()])
        figures.append(plot)
    return figures


def scaling_figures(
    columns: Sequence[DatasetColumn], rows: Sequence[MethodRow], styles: dict[str, Look]
) -> list[Figure]:
    """Gap against instance size, a figure per problem and distribution that has more than one size."""
    from bokeh.models import FixedTicker

    figures = []
    for title, ordered in scaling_panels(rows, columns).items():
        gaps = {key: [s.mean_gap_percent or 0.0 for s in cells] for key, cells in ordered.items()}
        every = [gap for line in gaps.values() for gap in line]
        floor = _floor(every)
        plot = _figure(
            title, "instance size n", "gap (%)", "@name, n = @x{0,0}: gap @gap{0.0000} %",
            gaps=[_drawn(gap, floor) for gap in every], log_gaps=floor is not None, floor=_shown(every, floor),
        )  # fmt: skip
        sizes = sorted({s.sizes[0] for cells in ordered.values() for s in cells})
        plot.xaxis.ticker = FixedTicker(ticks=sizes)
        plot.xgrid.ticker = FixedTicker(ticks=sizes)
        plot.multi_line(
            [[float(s.sizes[0]) for s in cells] for cells in ordered.values()],
            [[_drawn(gap, floor) for gap in gaps[key]] for key in ordered],
            line_color=[styles[key][0] for key in ordered],
            line_dash=[
                DASHES[[name for name, _ in MARKERS].index(styles[key][1]) % len(DASHES)] for key in ordered
            ],
            line_width=1.5,
        )
        points = [
            (float(s.sizes[0]), _drawn(gap, floor), gap, key)
            for key, cells in ordered.items()
            for s, gap in zip(cells, gaps[key], strict=True)
        ]
        _marks(plot, points, styles, [partly(s) for cells in ordered.values() for s in cells])
        figures.append(plot)
    return figures


def title_of(plot: Figure) -> str:
    """Return the title above a figure."""
    return str(getattr(plot.title, "text", ""))


def scatter_figure() -> Figure:
    """An empty scatter plot, filled by the page's script for the two methods that are chosen."""
    from bokeh.models import ColumnDataSource, Range1d

    plot = _figure("", "", "", "@name: @x{0.0000} %, @y{0.0000} %")
    plot.name, plot.height = "scatter", 380
    plot.x_range, plot.y_range = Range1d(start=0, end=1), Range1d(start=0, end=1)
    line = ColumnDataSource({"x": [0, 1], "y": [0, 1]}, name="scatter-line")
    points = ColumnDataSource({"x": [], "y": [], "name": [], "colour": [], "fill": []}, name="scatter-points")
    plot.line("x", "y", source=line, line_color="#888888", name="guide")
    drawn = plot.scatter(
        "x", "y", source=points, size=6, fill_alpha="fill", line_color="colour", line_alpha=0.7, fill_color="colour",
        name="points",
    )  # fmt: skip
    plot.hover[0].renderers = [drawn]
    return plot


def scatter_data(
    frame: ResultFrame,
    columns: Sequence[DatasetColumn],
    rows: Sequence[MethodRow],
    styles: dict[str, Look],
) -> tuple[list[dict[str, Any]], str]:
    """Gaps per instance of all methods, as base64 of float32, and a remark where only a sample is embedded.

    Returns
    -------
    data
        Per dataset: methods, their colours, their gaps (NaN where unsolved), the instances' names, and the pair shown first.
    remark
        Empty where all instances are there.
    """
    wanted = [(c, {r: c.cells[r.key] for r in rows if _has_gaps(c, r)}) for c in columns]
    wanted = [(c, cells) for c, cells in wanted if len(cells) > 1]
    total = sum(s.instances for _, cells in wanted for s in cells.values())
    keep = min(1.0, POINTS_OF_PAGE / total) if total else 1.0
    data = [
        _scatter_of(frame, column, cells, keep) | {"colours": [styles[row.key][0] for row in cells]}
        for column, cells in wanted
    ]
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


def _floor(gaps: Sequence[float]) -> float | None:
    """Where small gaps are drawn on a logarithmic axis: at a third of the smallest above noise; None without any."""
    low = min((g for g in gaps if g > NOISE_PERCENT), default=None)
    return None if low is None else low / 3.0


def _drawn(gap: float, floor: float | None) -> float:
    return gap if floor is None else max(gap, floor)


def _shown(gaps: Sequence[float], floor: float | None) -> float | None:
    """Return the floor where a gap is drawn on it, which the axis then names: it is no place on the scale."""
    return None if floor is None or min(gaps) >= floor else floor


def _marks(
    plot: Figure,
    points: Sequence[tuple[float, float, float, str]],
    styles: dict[str, Look],
    partial: Sequence[str],
) -> None:
    """Draw (x, y, gap, row key) as one glyph: a renderer per method would cost seconds of serialising.

    Where `partial` holds words the point is hollow, and they are added to its name.
    """
    from bokeh.models import ColumnDataSource

    keys = [key for *_, key in points]
    columns: dict[str, Any] = {
        "x": [x for x, *_ in points],
        "y": [y for _, y, *_ in points],
        "gap": [gap for _, _, gap, _ in points],
        "name": [f"{key}{words}" for key, words in zip(keys, partial, strict=True)],
        "colour": [styles[key][0] for key in keys],
        "marker": [styles[key][1] for key in keys],
        "edge": [
            "#ffffff" if not words and styles[key][1].endswith(CROSSED) else styles[key][0]
            for key, words in zip(keys, partial, strict=True)
        ],
        "fill": [0.0 if words else 1.0 for words in partial],
    }
    drawn = plot.scatter(
        "x", "y", source=ColumnDataSource(columns), marker="marker", size=9, fill_color="colour", line_color="edge",
        fill_alpha="fill",
    )  # fmt: skip
    plot.hover[0].renderers = [drawn]


def _figure(
    title: str,
    xlabel: str,
    ylabel: str,
    tip: str,
    *,
    gaps: Sequence[float] = (),
    log_gaps: bool = False,
    floor: float | None = None,
) -> Figure:
    """Return an empty plot that hovers; with `gaps` the axis across is logarithmic, and with `log_gaps` the upward one.

    At `floor`, where gaps too small for a logarithm are drawn, the upward axis says so, and has no ticks about it.
    """
    from bokeh.models import DataRange1d, FixedTicker, HoverTool, PrintfTickFormatter, Range1d
    from bokeh.plotting import figure

    across: Literal["log", "linear"] = "log" if gaps else "linear"
    upward: Literal["log", "linear"] = "log" if log_gaps else "linear"
    plot = figure(
        title=title, x_axis_label=xlabel, y_axis_label=ylabel, x_axis_type=across, y_axis_type=upward, height=320,
        sizing_mode="stretch_width", tools="pan,box_zoom,reset,save", toolbar_location="above",
        background_fill_alpha=0, border_fill_alpha=0, outline_line_color=None,
    )  # fmt: skip
    plot.toolbar.logo = None
    if gaps:
        plot.x_range = DataRange1d(range_padding=0.2)
        low, high = _gap_range(gaps, log_gaps)
        plot.y_range = Range1d(start=low, end=high)
        plot.axis.formatter = PrintfTickFormatter(format="%.6g")
        if log_gaps:  # the page's script sets them, where the pointer zooms too
            floors = [] if floor is None else [floor]
            ticks = [
                *floors,
                *(t for t in decade_ticks(low, high) if floor is None or t > FREE_ABOVE * floor),
            ]
            plot.yaxis.ticker = plot.ygrid.ticker = FixedTicker(ticks=ticks, tags=["gaps", *floors])
            plot.yaxis.major_label_overrides = {at: f"≤ {NOISE_PERCENT:g}" for at in floors}
    plot.add_tools(
        HoverTool(tooltips=tip, renderers=[], visible=False)
    )  # its button would stand half outside
    return plot


def _gap_range(gaps: Sequence[float], log: bool) -> tuple[float, float]:
    """Ends of an axis of gaps, `LEAST_RATIO` apart or more, so that a difference looks as large as it is."""
    low, high = min(gaps), max(gaps)
    if not log:
        return min(-0.05, 1.2 * low), 1.0
    margin = max(1.5, (LEAST_RATIO * low / high) ** 0.5)
    return low / margin, high * margin

"""The HTML report: one page that holds everything, opens from disk, and needs no network.

Sortable tables, gap against time, gap against size, per-instance scatter of any two methods, pictures of best and worst
solutions, environments and hashes. Style and script of the page are files in ``page/``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape
from importlib.resources import files
from string import ascii_uppercase
from typing import TYPE_CHECKING

import orjson

from nco_bench import __version__
from nco_bench.datasets.places import Places
from nco_bench.reports.figures.plots import only_of_one_size, scaling_panels, timed_gaps
from nco_bench.reports.figures.style import NOISE_PERCENT
from nco_bench.reports.frame.aggregate import summarise
from nco_bench.reports.frame.blocks import COUNT_PREFIX
from nco_bench.reports.frame.compare import outlying_instances
from nco_bench.reports.frame.result_frame import ResultFrame
from nco_bench.reports.frame.rows import MethodRow, arrange, row_names
from nco_bench.reports.frame.summary import CellSummary
from nco_bench.reports.html.pictures import Picture, best_and_worst
from nco_bench.reports.html.plots import (
    Look,
    bokeh_script,
    looks,
    pareto_figures,
    scaling_figures,
    scatter_data,
    scatter_figure,
    title_of,
)
from nco_bench.reports.html.tables import plain_table, table_html
from nco_bench.reports.tables.table import build_table

if TYPE_CHECKING:
    from bokeh.plotting import figure as Figure

MAX_PLOTS = 12
MAX_OUTLIERS = 200
MAX_OPEN = 20
"""Rows of a table of runs or hashes that is not folded."""
SECTIONS = (
    ("tables", "Tables"), ("pareto", "Gap against time"), ("scaling", "Gap against size"),
    ("scatter", "Instance by instance"), ("outliers", "Outliers"), ("pictures", "Best and worst solutions"),
    ("environment", "Environment and hashes"),
)  # fmt: skip


def render(frame: ResultFrame, *, gap: str = "mean-of-gaps", places: Places | None = None) -> str:
    """Return the page.

    Parameters
    ----------
    frame
        From `load_frame`.
    gap
        Gap definition of the main table.
    places
        Where the datasets of the pictures are; by default as the command line finds them.

    Raises
    ------
    MissingDependencyError
        Without Bokeh.
    ResultsError
        As `build_table`.
    """
    script = bokeh_script()
    summaries = summarise(frame, intervals=False)
    rows, columns = arrange(summaries)
    named = list(zip(row_names(summaries), summaries, strict=True))
    styles = looks(frame, rows)
    scatter, remark = scatter_data(frame, columns, rows, styles)
    pareto = pareto_figures(columns, rows, styles)
    scaling = scaling_figures(columns, rows, styles)
    code, divs = _components(
        [*pareto[:MAX_PLOTS], *scaling[:MAX_PLOTS], *([scatter_figure()] if scatter else [])]
    )
    pareto_divs, scaling_divs = divs[: len(pareto[:MAX_PLOTS])], divs[len(pareto[:MAX_PLOTS]) :]
    scatter_div = scaling_divs.pop() if scatter else ""
    colours = {row.solver: styles[row.key][0] for row in rows}
    pictures, missing = best_and_worst(frame, columns, places or Places.from_environment(), colours)
    timed = {key for column in columns for key in timed_gaps(column)}
    panels = scaling_panels(rows, columns)
    scaled = {key for lines in panels.values() for key in lines}
    parts = {
        "tables": _tables(frame, gap),
        "pareto": _plots(
            _named("Gap against time", pareto, pareto_divs),
            [r for r in rows if r.key in timed],
            styles,
            len(pareto),
        ),
        "scaling": _plots(
            _named("Gap against instance size", scaling, scaling_divs),
            [r for r in rows if r.key in scaled],
            styles,
            len(scaling),
            only_of_one_size(rows, columns, panels),
        )
        if scaling_divs
        else _nothing("a solver with gaps at two sizes of one distribution"),
        "scatter": _scatter(scatter_div, remark) if scatter else _nothing("two methods with references"),
        "outliers": _outliers(frame, named),
        "pictures": _pictures(pictures, missing),
        "environment": _environment(frame, named),
    }
    embedded = orjson.dumps(scatter).decode().replace("<", "\\u003c")
    return _page(parts, script + code, embedded, len(frame.records))


def _page(parts: dict[str, str], scripts: str, data: str, records: int) -> str:
    style, script = (
        files("nco_bench.reports.html").joinpath("page_files", n).read_text("utf-8")
        for n in ("style.css", "script.js")
    )
    links = "".join(f'<li><a href="#{key}">{title}</a></li>' for key, title in SECTIONS)
    body = "".join(
        f'<section aria-labelledby="{key}"><h2 id="{key}">{title}</h2>{parts[key]}</section>'
        for key, title in SECTIONS
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>nco-bench report</title><style>{style}</style>{scripts}</head><body>"
        '<a class="skip" href="#tables">Skip to the tables</a>'
        f'<header><h1>nco-bench report</h1><p class="soft">{records:,} records, nco-bench {escape(__version__)}</p></header>'
        f'<nav aria-label="Sections"><ul>{links}</ul></nav><main>{body}</main>'
        f'<script type="application/json" id="scatter-data">{data}</script><script>{script}</script></body></html>\n'
    )


def _components(figures: Sequence[Figure]) -> tuple[str, list[str]]:
    if not figures:
        return "", []
    from bokeh.embed import components

    script, divs = components(list(figures))
    return script, list(divs)


def _named(kind: str, figures: Sequence[Figure], divs: Sequence[str]) -> list[str]:
    """Say in words what a plot is, which is but a canvas to who hears the page."""
    return [
        f'<div role="figure" aria-label="{escape(f"{kind}, {title_of(plot)}; the tables hold its numbers")}">{div}</div>'
        for plot, div in zip(figures, divs, strict=False)
    ]


def _nothing(need: str) -> str:
    return f'<p class="soft">Nothing to draw: this needs {need}.</p>'


def _tables(frame: ResultFrame, gap: str) -> str:
    titles = {"main": "Cost, gap, time", "gaps": "Gaps with intervals", "times": "Times and memory"}
    if frame.records["gap_percent"].isna().all():
        del titles["gaps"]
    counts = [name for name in frame.records.columns if name.startswith(COUNT_PREFIX)]
    if frame.records[counts].notna().any(axis=None):  # the columns stay where a choice leaves out all tasks
        titles["tasks"] = "Algorithmic tasks"
    return "".join(
        f"<h3>{title}</h3>{table_html(build_table(name, _with_gaps(frame) if name == 'gaps' else frame, gap=gap))}"
        for name, title in titles.items()
    )


def _with_gaps(frame: ResultFrame) -> ResultFrame:
    """Leave out datasets without references: a table of gaps would say nothing of them."""
    records = frame.records
    known = {
        frame.groups[code].whole.key for code in records["group"][records["gap_percent"].notna()].unique()
    }
    kept = [code for code, group in enumerate(frame.groups) if group.whole.key in known]
    return replace(frame, records=records[records["group"].isin(kept)])


def _plots(
    divs: Sequence[str], rows: Sequence[MethodRow], styles: dict[str, Look], total: int, missing: str = ""
) -> str:
    if not divs:
        return _nothing("references")
    legend = "".join(
        f'<li><span aria-hidden="true" style="color:{styles[r.key][0]}">{styles[r.key][2]}</span>{escape(r.name)}</li>'
        for r in rows
    )
    more = f" The first {len(divs)} of {total} are shown." if total > len(divs) else ""
    note = (
        f'<p class="note">Gaps up to {NOISE_PERCENT:g} % stand at the bottom; hollow: not all instances; '
        f"hover for the values.{more} {escape(missing[:1].upper() + missing[1:])}</p>"
    )
    return f'<ul class="legend">{legend}</ul><div class="plots">{"".join(divs)}</div>{note}'


def _scatter(div: str, remark: str) -> str:
    controls = "".join(
        f'<label>{label}<select id="scatter-{key}"></select></label>'
        for key, label in (("dataset", "Dataset"), ("x", "Across"), ("y", "Up"))
    )
    return (
        f'<div class="controls">{controls}</div><div class="one-plot" role="figure" '
        f'aria-label="Gaps of two methods against each other, a point per instance" aria-describedby="scatter-result">'
        f"{div}</div>"
        f'<p id="scatter-result" role="status"></p><p class="note">One point per instance, in the colour of the better '
        f"method: below the line the upward one; hollow tells two of one solver apart. {escape(remark)}</p>"
    )


def _outliers(frame: ResultFrame, named: Sequence[tuple[str, CellSummary]]) -> str:
    found = [
        (name, s.group.cell.dataset, o.name, f"{o.gap_percent:.3f}")
        for name, s in named
        for o in outlying_instances(frame, s)
    ]
    if not found:
        return '<p class="soft">No instance lies beyond three interquartile ranges of its cell.</p>'
    more = (
        f'<p class="note">{MAX_OUTLIERS} of {len(found)} are listed.</p>' if len(found) > MAX_OUTLIERS else ""
    )
    headers = ("Method", "Dataset", "Instance", "Gap (%)")
    return (
        '<p class="note">Instances whose gap lies beyond three interquartile ranges of their cell.</p>'
        + plain_table("Outliers", headers, found[:MAX_OUTLIERS], numbers=(3,))
        + more
    )


def _pictures(pictures: Sequence[Picture], remarks: Sequence[str]) -> str:
    figures = "".join(
        f'<figure><img src="{p.uri}" alt="{escape(p.caption)}"><figcaption>{escape(p.caption)}</figcaption></figure>'
        for p in pictures
    )
    notes = "".join(f'<p class="note">{escape(r)}</p>' for r in remarks)
    return (
        f'<div class="pictures">{figures}</div>{notes}' if figures else notes or _nothing("stored solutions")
    )


def _environment(frame: ResultFrame, named: Sequence[tuple[str, CellSummary]]) -> str:
    used = {run for _, s in named for run in s.group.runs}
    runs, installed = [], _Letters()
    for run in frame.runs:
        if run.run_id not in used:
            continue
        e = run.info.get("environment") or {}
        gpus = ", ".join(str(g.get("name", "")) for g in e.get("gpu") or [])
        revision = e.get("revision") or {}
        commit = str(revision.get("commit", ""))[:12] if isinstance(revision, dict) else str(revision)
        listed = ", ".join(f"{name} {version}" for name, version in (e.get("packages") or {}).items())
        cores = e.get("cpu_affinity") or e.get("cpu_count") or "?"
        machine = f"{e.get('cpu', '')}, {cores} core{'' if cores == 1 else 's'}; {gpus or 'no GPU'}"
        version = f"{run.info.get('version', '')} {commit}".strip()
        runs.append(
            (
                run.run_id,
                str(e.get("date", "")),
                _command(run.info.get("command")),
                machine,
                version,
                installed.letter(listed) if listed else "",
            )
        )
    hashes = []
    for name, s in named:
        cell = s.group.cell
        weights = cell.weights or {}
        file = f"{weights['name']} {weights.get('sha256', '')}" if weights.get("name") else "none"
        hashes.append(
            (name, cell.dataset, cell.dataset_sha256, file, cell.config_sha256, ", ".join(s.group.runs))
        )
    headers = ("Run", "Date", "Command", "Machine", "nco-bench", "Packages")
    packages = "".join(
        f'<p class="note">Packages {k}: {escape(text)}</p>' for text, k in installed.known.items()
    )
    columns = ("Method", "Dataset", "Data sha256", "Weights", "Configuration", "Runs")
    return (
        _folded("Runs", len(runs), plain_table("Runs", headers, runs))
        + packages
        + _folded("Hashes", len(hashes), plain_table("Hashes", columns, hashes))
    )


def _folded(title: str, rows: int, table: str) -> str:
    """Put a table below its title, closed where it is so long that nobody finds what comes after it."""
    is_open = " open" if rows <= MAX_OPEN else ""
    return f"<details{is_open}><summary>{title} ({rows})</summary>{table}</details>"


class _Letters:
    """A, B, ... for long texts that many rows share."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def letter(self, text: str) -> str:
        index = len(self.known)
        return self.known.setdefault(text, f"{index // 26 or ''}{ascii_uppercase[index % 26]}")


def _command(command: object) -> str:
    return " ".join(map(str, command)) if isinstance(command, list) else str(command or "")

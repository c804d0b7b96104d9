"""The tables every project has: main (length, gap, time), gaps with intervals, times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from nco_bench.errors import counted
from nco_bench.reports.frame.aggregate import summarise
from nco_bench.reports.frame.result_frame import ResultFrame
from nco_bench.reports.frame.rows import arrange
from nco_bench.reports.frame.summary import CellSummary
from nco_bench.reports.tables.captions import brief, caption, remarks
from nco_bench.reports.tables.table import (
    DASH,
    Column,
    Notes,
    Number,
    Row,
    Table,
    Text,
    Value,
    column_decimals,
)
from nco_bench.reports.tables.table import PRESETS as PRESETS

LABEL_MARKS = {
    "in-distribution": ("i", "in-distribution: size and distribution of the weights' training set."),
    "size-OOD": ("s", "size-OOD: the weights were trained on another size."),
    "distribution-OOD": ("d", "distribution-OOD: the weights were trained on another distribution."),
    "size-OOD, distribution-OOD": (
        "sd",
        "size-OOD and distribution-OOD: trained on another size and distribution.",
    ),
}
COST_HEADERS = {"tsp": ("Length", ""), "cvrp": ("Length", ""), "bpp3d": ("Load rate", "%")}
"""What a problem's costs are called, and their unit."""

TASKS = "tasks"
"""Family of all other problems: the same networks are run on many of them."""

SCORE_HEADERS = {"accuracy": ("Accuracy", ""), "mse": ("MSE", "")}
"""The same by scoring convention, for problems that have several."""


@dataclass(frozen=True)
class Quantity:
    """One column of a dataset's group: header, unit, what is better, and the cell it makes of a summary."""

    key: str
    header: str
    value: Callable[[CellSummary], float | None]
    unit: str = ""
    better: str | None = None
    decimals: Callable[[Sequence[float]], int] = column_decimals
    suffix: str = ""


def main_table(frame: ResultFrame, *, gap: str) -> Table:
    """Length, gap and total time per dataset, as the papers print them."""
    summaries = summarise(frame, intervals=False)

    def quantities(column: Sequence[CellSummary]) -> tuple[Quantity, ...]:
        header, unit = cost_header(column[0])
        objective = column[0].group.cell.objective
        return (
            Quantity("cost", header, lambda s: s.mean_cost, unit, objective, cost_decimals),
            gap_quantity(gap),
            Quantity("time", "Time", lambda s: s.seconds_total, "s"),
        )

    return _table("main", "Mean cost, gap and time", summaries, quantities, frame, gap)


def gaps_table(frame: ResultFrame, *, gap: str) -> Table:
    """Both gap definitions, a 95 % interval of the mean gap, and the spread over instances."""
    summaries = summarise(frame)
    columns = (
        Quantity("gap", "Mean", lambda s: s.mean_gap_percent, "%", "min", gap_decimals),
        Quantity("low", "CI low", lambda s: s.gap_low, "%", None, gap_decimals),
        Quantity("high", "CI high", lambda s: s.gap_high, "%", None, gap_decimals),
        Quantity("std", "Std", lambda s: s.gap_std_percent, "%", None, gap_decimals),
        Quantity("ratio", "Of means", lambda s: s.gap_of_means_percent, "%", "min", gap_decimals),
    )
    title = "Gaps: mean of per-instance gaps with 95 % interval and standard deviation, and gap of means"
    return _table("gaps", title, summaries, lambda _: columns, frame, "", timed=False)


def times_table(frame: ResultFrame, *, gap: str) -> Table:
    """Total, per instance at full throughput, latency of one instance alone, and peak memory."""
    summaries = summarise(frame, intervals=False)
    columns: tuple[Quantity, ...] = (
        Quantity("total", "Total", lambda s: s.seconds_total, "s", "min"),
        Quantity("instance", "Per instance", lambda s: s.seconds_per_instance, "s", "min"),
        Quantity("latency", "Latency", lambda s: s.group.latency_seconds, "s", "min"),
        Quantity("memory", "Memory", lambda s: s.group.peak_memory_mb, "MB", "min", lambda _: 0),
    )
    if any(s.group.peak_device_memory_mb is not None for s in summaries):
        device = Quantity(
            "device", "GPU mem.", lambda s: s.group.peak_device_memory_mb, "MB", "min", lambda _: 0
        )
        columns = (*columns, device)
    title = "Time for the set, per instance in batches, of one alone (median), and peak memory above the idle program"
    whole = [s.method for s in summaries if s.group.cell.memory_before_mb is None and s.group.peak_memory_mb]
    if whole:
        names = ", ".join(dict.fromkeys(whole))
        note = (
            f"Memory of {names}: of the whole process, with all that it had loaded (records of version 0.1)."
        )
        frame = replace(frame, notes=(*frame.notes, note))
    return _table("times", title, summaries, lambda _: columns, frame, "")


def cost_header(summary: CellSummary) -> tuple[str, str]:
    """Return what the costs of a cell are called, and their unit."""
    cell = summary.group.cell
    plain = ("Score" if cell.objective == "max" else "Cost", "")
    return COST_HEADERS.get(cell.problem) or SCORE_HEADERS.get(cell.convention, plain)


def gap_quantity(gap: str) -> Quantity:
    """The gap column under either definition."""
    value: Callable[[CellSummary], float | None] = (
        (lambda s: s.mean_gap_percent) if gap == "mean-of-gaps" else (lambda s: s.gap_of_means_percent)
    )
    return Quantity("gap", "Gap", value, "%", "min", gap_decimals, "%")


def cost_decimals(values: Sequence[float]) -> int:
    """Decimals of a cost column: enough to tell methods apart at its magnitude."""
    largest = max((abs(v) for v in values), default=0.0)
    return 3 if largest < 100 else 2 if largest < 10_000 else 1


def gap_decimals(values: Sequence[float]) -> int:
    """Decimals of a gap column: 3, or 4 where a gap would print as 0.000 or 0.001."""
    return 4 if any(1e-5 <= abs(v) < 1e-3 for v in values) else 3


def _table(
    name: str,
    title: str,
    summaries: list[CellSummary],
    quantities: Callable[[Sequence[CellSummary]], Sequence[Quantity]],
    frame: ResultFrame,
    gap: str,
    *,
    timed: bool = True,
) -> Table:
    rows, datasets = arrange(summaries)
    notes = Notes()
    columns = [Column("method", "Method")]
    bodies: list[list[Value]] = [[Text(row.name)] for row in rows]
    for dataset in datasets:
        column = [s for s in dataset.cells.values() if s is not None]
        problem = column[0].group.cell.problem
        family = problem if problem in COST_HEADERS else TASKS
        for quantity in quantities(column):
            columns.append(
                Column(
                    f"{dataset.key}/{quantity.key}",
                    quantity.header,
                    dataset.title,
                    quantity.unit,
                    quantity.better,
                    bool(quantity.suffix),
                    family,
                )
            )
            known = [v for s in column if (v := quantity.value(s)) is not None]
            decimals = quantity.decimals(known)
            for row, body in zip(rows, bodies, strict=True):
                body.append(_value(dataset.cells.get(row.key), quantity, decimals, notes))
    return Table(
        name=name,
        caption=caption(title, summaries, gap, timed=timed),
        columns=tuple(columns),
        rows=tuple(Row(tuple(body), row.section) for row, body in zip(rows, bodies, strict=True)),
        notes=notes.finish(remarks(summaries, frame.notes)),
        data=tuple(s.as_dict() for s in summaries),
        brief=brief(summaries, gap, timed=timed),
    )


def _value(summary: CellSummary | None, quantity: Quantity, decimals: int, notes: Notes) -> Value:
    if summary is None:
        return DASH
    if summary.all_failed and quantity.key not in ("memory", "device"):
        return Text(failure_word(summary)) if quantity.key in ("cost", "gap") else DASH
    value = quantity.value(summary)
    marks: tuple[str, ...] = ()
    if quantity.key in ("cost", "gap", "ratio"):  # an interval and a spread are those of the mean beside them
        marks = tuple(cell_marks(summary, notes))
    elif quantity.key in ("time", "total"):  # of fewer instances than stand in the header
        marks = tuple(coverage_marks(summary, notes))
    if quantity.key == ("cost" if summary.mean_gap_percent is None else "gap"):  # not on a dash
        marks += tuple(label_marks(summary, notes))
    if value is None:
        return Text(DASH.text, marks if quantity.key == "gap" else ())
    return Number(value, decimals, quantity.suffix, compete=summary.complete, marks=marks)


def failure_word(summary: CellSummary) -> str:
    """What stands where nothing was solved: the word for the only reason, else ``failed``."""
    words = {"oom": "OOM", "timeout": "timeout", "infeasible": "infeasible"}
    reasons = [status for status, count in summary.statuses.items() if count and status != "ok"]
    return words.get(reasons[0], "failed") if len(reasons) == 1 else "failed"


def coverage_marks(summary: CellSummary, notes: Notes) -> Iterable[str]:
    """Daggers: a run that was stopped, and instances that other methods have but this one lacks."""
    if summary.stopped:
        unit = "instances" if summary.repeats == 1 else "solves"
        yield notes.mark(
            f"{summary.solves} of the {summary.asked} {unit} asked for: the run was stopped, the same command goes on."
        )
    if summary.instances < summary.instances_of_column:
        yield notes.mark(
            f"{summary.instances} of {summary.instances_of_column} instances run; not ranked against the others."
        )


def cell_marks(summary: CellSummary, notes: Notes) -> Iterable[str]:
    """Daggers: what was not run, what failed, and what has no gap."""
    yield from coverage_marks(summary, notes)
    if summary.failed_solves:
        yield notes.mark(failure_note(summary))
    if summary.undefined_gaps:
        yield notes.mark(
            f"Gap undefined on {counted(summary.undefined_gaps, 'instance')}, whose reference is 0; left out of it."
        )
    unreferenced = summary.instances - summary.gap_instances - summary.undefined_gaps
    if summary.gap_instances and not summary.failed_solves and unreferenced:
        yield notes.mark(
            f"Gap over the {summary.gap_instances} of {summary.instances} instances with a reference."
        )


def failure_note(summary: CellSummary) -> str:
    """Say how many failed and why; solves where there are repeats, else instances."""
    words = {"oom": "out of memory", "failed": "without a solution"}  # that crashed, gave up or refused
    reasons = ", ".join(
        f"{count} {words.get(status, status)}"
        for status, count in summary.statuses.items()
        if count and status != "ok"
    )
    unit = "instances" if summary.repeats == 1 else "solves"
    return f"{summary.failed_solves} of {summary.solves} {unit} failed ({reasons}); left out of the mean, not ranked."


def label_marks(summary: CellSummary, notes: Notes) -> Iterable[str]:
    """Letters: how the test set relates to the weights' training set."""
    if summary.distribution_label is not None:
        letter, text = LABEL_MARKS[summary.distribution_label]
        yield notes.mark(text, letter)
    if summary.trained_on_test:
        yield notes.mark("Warning: the weights were trained on this very test set.", "!")
    if summary.calibrated_on_test:
        yield notes.mark("Warning: the coordinate scale was calibrated on this very test set.", "c")

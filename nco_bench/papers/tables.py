"""A reproduced table as a `Table`: published | measured | difference | interval | status, with the reasons."""

from __future__ import annotations

from dataclasses import asdict
from string import ascii_lowercase

from nco_bench.papers.entries import STORED, Entry, Reproduction, count_statuses
from nco_bench.papers.judging import HARDWARE_METRICS, SETTING_STATUSES, TOLERANCE
from nco_bench.papers.measuring import METRICS
from nco_bench.papers.published import PublishedCell
from nco_bench.reports.tables.table import (
    DASH,
    Column,
    Note,
    Number,
    Row,
    Table,
    Text,
    Value,
    significant_decimals,
)

SYMBOLS = {
    "percent": "%",
    "minutes": " min",
    "hours": " h",
    "seconds": " s",
    "milliseconds": " ms",
    "MB": " MB",
}


def reproduction_table(reproduction: Reproduction, *, reasons: str = "notes") -> Table:
    """Put printed and measured numbers side by side.

    Parameters
    ----------
    reproduction
        From `nco_bench.papers.reproducing.reproduce`.
    reasons
        ``column``: in a column of their own, for CSV and JSON; ``notes``: as footnotes, for reading, and without
        the columns that no row fills.
    """
    published = reproduction.table
    marks = _Marks()
    columns = [
        Column("row", "Row"),
        Column("column", "Column"),
        Column("published", "Published"),
        Column("measured", "Measured"),
        Column("difference", "Difference"),
        Column("low", "low", group="95 % interval"),
        Column("high", "high", group="95 % interval"),
        Column("instances", "Instances"),
        Column("distribution", "Test set"),
        Column("status", "Status"),
        Column("reason", "Reason"),
    ]
    rows = tuple(
        Row((*_cells(entry), *_status(entry, marks, reasons)), section=entry.cell.row)
        for entry in reproduction.entries
    )
    if reasons == "notes":
        filled = [i for i in range(len(columns)) if any(row.cells[i] != DASH for row in rows)]
        columns = [columns[i] for i in filled]
        rows = tuple(Row(tuple(row.cells[i] for i in filled), row.section) for row in rows)
    notes = tuple(Note(mark, text) for text, mark in marks.known.items())
    remarks = [*reproduction.notes, *(f"Published table: {note}" for note in published.notes)]
    return Table(
        name=table_name(reproduction),
        caption=caption(reproduction),
        columns=tuple(columns),
        rows=rows,
        notes=(*notes, *(Note("", text) for text in remarks)),
        data=tuple(data_of(entry) for entry in reproduction.entries),
    )


def table_name(reproduction: Reproduction) -> str:
    """Name of the table in file names and LaTeX labels."""
    published = reproduction.table
    return f"{published.paper}-{published.label.lower().replace(' ', '-')}-{reproduction.scale}"


class _Marks:
    """Reasons as footnotes a, b, ..., z, aa, ab, ...; the same reason has the same mark."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def mark(self, text: str) -> str:
        if text not in self.known:
            tens, index = divmod(len(self.known), 26)
            self.known[text] = (ascii_lowercase[tens - 1] if tens else "") + ascii_lowercase[index]
        return self.known[text]


def _cells(entry: Entry) -> tuple[Value, ...]:
    cell = entry.cell
    suffix = SYMBOLS.get(cell.unit, "")
    decimals = decimals_of(entry)

    def number(value: float | None) -> Value:
        return DASH if value is None else Number(value, decimals, suffix, compete=False)

    difference = None
    if entry.value is not None and cell.number is not None and entry.preset.metric not in HARDWARE_METRICS:
        difference = entry.value - cell.number  # of times on different machines it would mean nothing
    count: Value = DASH
    if entry.measured is not None:
        count = Number(entry.measured.instances, 0, compete=False)
    label = entry.measured.distribution if entry.measured is not None else ""
    return (
        Text(cell.row), Text(cell.column), printed_number(cell), number(entry.value), number(difference),
        number(entry.low), number(entry.high), count, Text(label) if label else DASH,
    )  # fmt: skip


def printed_number(cell: PublishedCell) -> Value:
    """The paper's entry, with as many decimals as it prints; a bound such as ``<1s`` stays one."""
    if cell.number is None:
        return Text(cell.value)
    number = Number(cell.number, _printed_decimals(cell.value), SYMBOLS.get(cell.unit, ""), compete=False)
    return Text(f"<{number.text}{number.suffix}") if "upper-bound" in cell.marks else number


def _printed_decimals(value: str) -> int | None:
    head = value.split("×")[0].split("e-")[0].split("^")[0]
    if head != value:
        return None
    digits = "".join(c for c in value.partition(".")[2] if c.isdigit())
    return len(digits)


def decimals_of(entry: Entry) -> int | None:
    """As many decimals as are printed, but never fewer than show two digits of ours."""
    printed = _printed_decimals(entry.cell.value)
    if printed is None or entry.value is None:
        return None
    if entry.cell.unit == "count":
        return printed
    return max(printed, significant_decimals(entry.value, 2))


def _status(entry: Entry, marks: _Marks, reasons: str) -> tuple[Value, ...]:
    verdict = entry.verdict
    reason = verdict.reason if reasons == "column" else marks.mark(verdict.reason)
    return Text(verdict.status), Text(reason)


def caption(reproduction: Reproduction, *, counts: bool = True) -> str:
    """Say what stands in the table: conditions of the paper and ours, and the rule that every status follows."""
    published = reproduction.table
    statuses = ", ".join(f"{number} {status}" for status, number in count_statuses([reproduction]).items())
    measured = [entry.measured for entry in reproduction.entries if entry.measured is not None]
    of = "from stored records" if reproduction.scale == STORED else f"at the {reproduction.scale} scale"
    sentences = [f"{published.paper} {published.label} {of}: {published.title}"]
    if counts:
        printed = sum(not entry.reading for entry in reproduction.entries)
        sentences.append(f"{printed} printed numbers: {statuses}")
        readings = list(dict.fromkeys(entry.reading for entry in reproduction.entries if entry.reading))
        if readings:
            sentences.append(f"In brackets, not counted: another reading of the paper, {', '.join(readings)}")
    metrics = list(dict.fromkeys(e.preset.metric for e in reproduction.entries if e.measured is not None))
    if metrics:
        sentences.append("Measured: " + "; ".join(f"{m}: {METRICS.get(m, 'as reported')}" for m in metrics))
    conventions = sorted({m.cell.convention for m in measured})
    if conventions:
        sentences.append(f"Scoring: {', '.join(conventions)}")
    if "reference" in published.conditions:
        sentences.append(f"Published reference: {published.conditions['reference']}")
    if "hardware" in published.conditions:
        sentences.append(f"Published hardware: {published.conditions['hardware']}")
    seeds = sorted({str(m.cell.seed) for m in measured})
    if seeds:
        devices = ", ".join(sorted({m.cell.device for m in measured}))
        machines = "; ".join(sorted({m.hardware for m in measured if m.hardware}))
        sentences.append(f"Ours on {machines or 'an unknown machine'} ({devices}), seed {', '.join(seeds)}")
    if not all(entry.verdict.status in SETTING_STATUSES for entry in reproduction.entries):
        sentences.append(TOLERANCE)
    return ". ".join(sentence.rstrip(".") for sentence in sentences) + "."


def data_of(entry: Entry) -> dict[str, object]:
    """Return everything behind an entry as plain values."""
    cell, measured = entry.cell, entry.measured
    preset = {
        key: value
        for key, value in asdict(entry.preset).items()
        if key not in ("readings", "paper_instances", "full_limit", "gap_unstated")
        and value not in ("", 0, 0.0, (), {}, False)
    }
    known: dict[str, object] = {
        "row": cell.row,
        "column": cell.column,
        "printed": cell.value,
        "published": cell.number,
        "unit": cell.unit,
        "measured": entry.value,
        "low": entry.low,
        "high": entry.high,
        "status": entry.verdict.status,
        "reason": entry.verdict.reason,
        "reading": entry.reading,
        "preset": preset,
    }
    if measured is not None:
        known |= {
            "instances": measured.instances,
            "failed": measured.failed,
            "dataset": measured.cell.dataset,
            "dataset_sha256": measured.cell.dataset_sha256,
            "solver": measured.cell.label,
            "decoding": measured.cell.decoding,
            "hardware": measured.hardware,
            "distribution_label": measured.distribution or None,
            "trained_on_test": measured.trained_on_test,
            "calibrated_on_test": measured.calibrated_on_test,
            "weights": (measured.cell.weights or {}).get("name"),
            "weights_sha256": (measured.cell.weights or {}).get("sha256"),
            "config_sha256": measured.cell.config_sha256,
        }
    return known

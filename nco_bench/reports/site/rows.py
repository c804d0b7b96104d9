"""The leaderboard's catalogue: datasets and rows, as columns; it is all that the first page needs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from nco_bench.reports.frame.rows import DatasetColumn, arrange
from nco_bench.reports.frame.summary import CellSummary
from nco_bench.runs.records import STATUSES

CHANGING = ("date", "load_average", "command")
"""Of an environment: what differs between two runs of one machine; the runs say it themselves."""


@dataclass(frozen=True)
class Board:
    """Rows by dataset, in the order in which the site counts both.

    Attributes
    ----------
    columns
        Datasets.
    rows
        ``(dataset, row's name, cell)`` of every row.
    ids
        Name of every row's file and address: the same as long as its configuration and data are.
    """

    columns: tuple[DatasetColumn, ...]
    rows: tuple[tuple[int, str, CellSummary], ...]
    ids: tuple[str, ...]


def board(summaries: list[CellSummary]) -> Board:
    """Arrange cells as in the tables, rows of a dataset by their gap."""
    order, columns = arrange(summaries)
    place = {row.key: number for number, row in enumerate(order)}
    rows = []
    for number, column in enumerate(columns):
        best_first = sorted(column.cells.items(), key=lambda one: (*_quality(one[1]), place[one[0]]))
        rows += [(number, name, summary) for name, summary in best_first]
    return Board(tuple(columns), tuple(rows), tuple(_identifier(summary) for _, _, summary in rows))


def _quality(summary: CellSummary) -> tuple[float, float]:
    sign = -1.0 if summary.group.cell.objective == "max" else 1.0
    infinite = float("inf")
    gap = infinite if summary.mean_gap_percent is None else summary.mean_gap_percent
    return gap, infinite if summary.mean_cost is None else sign * summary.mean_cost


def _identifier(summary: CellSummary) -> str:
    cell = summary.group.cell
    facts = (cell.config_sha256, summary.group.whole.key, cell.problem_version, str(cell.seed))
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]


def catalogue(board: Board, checked: Mapping[str, bool]) -> dict[str, Any]:
    """Return datasets and rows as columns of plain values.

    Parameters
    ----------
    board
        From `board`.
    checked
        Run id to whether it was verified and holds; runs that nobody verified are not in it.
    """
    devices = [summary.hardware for _, _, summary in board.rows]
    hardware = sorted(set(devices))
    cells = [(summary, summary.group.cell) for _, _, summary in board.rows]
    weights = [cell.weights or {} for _, cell in cells]
    return {
        "datasets": [_dataset(column) for column in board.columns],
        "hardware": hardware,
        "rows": {
            "id": list(board.ids),
            "dataset": [number for number, _, _ in board.rows],
            "name": [name for _, name, _ in board.rows],
            "kind": [cell.kind for _, cell in cells],
            "device": [cell.device.partition(":")[0] for _, cell in cells],
            "hardware": [hardware.index(name) for name in devices],
            "gap": [rounded(s.mean_gap_percent, 6) for s, _ in cells],
            "low": [rounded(s.gap_low, 6) for s, _ in cells],
            "high": [rounded(s.gap_high, 6) for s, _ in cells],
            "cost": [rounded(s.mean_cost, 8) for s, _ in cells],
            "seconds": [rounded(s.seconds_per_instance, 4) for s, _ in cells],
            "instances": [s.instances for s, _ in cells],
            "failed": [s.failed for s, _ in cells],
            "complete": [int(s.complete) for s, _ in cells],
            "verified": [verified(s.group.runs, checked) for s, _ in cells],
            "weights": [one.get("name") for one in weights],
            "share": [rounded(one.get("share_of_paper"), 4) for one in weights],
            "repeats": [s.repeats_said for s, _ in cells],
            "warning": [_warning(s) for s, _ in cells],
        },
    }


def _dataset(column: DatasetColumn) -> dict[str, Any]:
    summaries = list(column.cells.values())
    cell = summaries[0].group.cell
    sizes = [s.sizes for s in summaries]
    references: dict[str, int] = {}
    for summary in summaries:
        for source, count in summary.references:
            references[source.who] = max(count, references.get(source.who, 0))
    return {
        "name": column.key,
        "problem": cell.problem,
        "n": [min(low for low, _ in sizes), max(high for _, high in sizes)],
        "instances": summaries[0].instances_of_column,
        "objective": cell.objective,
        "convention": cell.convention,
        "sha256": cell.dataset_sha256,
        "references": sorted(references.items(), key=lambda one: (-one[1], one[0])),
    }


def verified(runs: Sequence[str], checked: Mapping[str, bool]) -> str:
    """Return ``yes`` where all runs were verified and hold, ``fails`` where one does not, else ``no``."""
    if any(checked.get(run) is False for run in runs):
        return "fails"
    return "yes" if all(checked.get(run) for run in runs) else "no"


def _warning(summary: CellSummary) -> str:
    said = []
    if summary.trained_on_test:
        said.append("the weights were trained on this dataset")
    if summary.calibrated_on_test:
        said.append("the coordinate scale was calibrated on this dataset")
    if summary.stopped:
        said.append("a run was stopped before its end")
    return "; ".join(said)


def run_facts(
    board_row: tuple[int, str, CellSummary], runs: Mapping[str, Any], checked: Set[str]
) -> dict[str, Any]:
    """Return what a row's page says beside its records: configuration, hashes, and every run behind it.

    Parameters
    ----------
    board_row
        Of the board.
    runs
        Run id to ``(run.json, number of its environment)``.
    checked
        Ids of runs that hold.
    """
    _, name, summary = board_row
    cell = summary.group.cell
    return {
        "name": name,
        "solver": cell.solver,
        "label": cell.label,
        "decoding": cell.decoding,
        "version": cell.solver_version,
        "problem_version": cell.problem_version,
        "options": cell.options,
        "config": cell.config_sha256,
        "weights": cell.weights,
        "seed": cell.seed,
        "repeats": summary.repeats_said,
        "batch": cell.batch_size,
        "latency": rounded(summary.group.latency_seconds, 4),
        "memory": [summary.group.peak_memory_mb, summary.group.peak_device_memory_mb],
        "statuses": [summary.statuses.get(name, 0) for name in STATUSES],
        "pooled": {key: metric.as_dict() for key, metric in summary.pooled.items()},
        "notes": list(cell.notes),
        "runs": [_run(runs[one], one, one in checked) for one in summary.group.runs if one in runs],
    }


def _run(known: tuple[Mapping[str, Any], int], name: str, holds: bool) -> dict[str, Any]:
    info, environment = known
    machine = info.get("environment") or {}
    revision = machine.get("revision") or {}
    return {
        "id": name,
        "command": info.get("command"),
        "version": info.get("version"),
        "commit": revision.get("commit"),
        "dirty": revision.get("dirty"),
        "date": machine.get("date"),
        "environment": environment,
        "verified": holds,
    }


def rounded(value: float | None, digits: int) -> float | int | None:
    """Round to significant digits, a whole number without its point; None and NaN become None."""
    if value is None or value != value:
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short

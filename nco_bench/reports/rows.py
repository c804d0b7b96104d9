"""Which cells share a row and which share a column; rows that would print alike are told apart by what differs."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from nco_bench.reports.aggregate import CellSummary

SECTIONS = {
    "exact": "classical",
    "classical": "classical",
    "metaheuristic": "classical",
    "heuristic": "classical",
    "neural": "neural",
    "external": "external",
}
"""Section of a table by the kind of solver, in this order; a solver file's own kind is a section, and comes last."""


@dataclass(frozen=True)
class MethodRow:
    """A row: its key, what it prints, the section it belongs to, its solver."""

    key: str
    name: str
    section: str
    solver: str = ""


@dataclass(frozen=True)
class DatasetColumn:
    """A group of columns: its key, what it prints, and its cells by row key."""

    key: str
    title: str
    cells: dict[str, CellSummary] = field(default_factory=dict)


def natural_key(text: str) -> tuple[Any, ...]:
    """Sort ``tsp100`` before ``tsp1000`` and after ``tsp20``."""
    return tuple((1, int(p), "") if p.isdigit() else (0, 0, p) for p in re.split(r"(\d+)", text) if p)


def arrange(summaries: list[CellSummary]) -> tuple[list[MethodRow], list[DatasetColumn]]:
    """Sort cells into rows (by kind, then name) and columns (by problem, then name).

    Solver configurations that differ only between datasets (weights per problem, say) share a row; where one
    dataset has several of the same name, what differs is added to the name.
    """
    by_name: dict[str, list[CellSummary]] = defaultdict(list)
    for summary in summaries:
        by_name[summary.method].append(summary)
    rows: dict[str, MethodRow] = {}
    kinds: dict[str, int] = {}
    row_of: dict[int, str] = {}
    for name, cells in by_name.items():
        for index, extra in enumerate(_distinctions(cells)):
            told = name[:-1] + ", " if name.endswith(")") else f"{name} ("
            full = f"{told}{', '.join(extra)})" if extra else name
            kind = cells[index].group.cell.kind
            rows.setdefault(
                full, MethodRow(full, full, SECTIONS.get(kind, kind), cells[index].group.cell.solver)
            )
            kinds.setdefault(full, _kind_rank(kind))
            row_of[id(cells[index])] = full
    columns: dict[tuple[str, ...], DatasetColumn] = {}
    titles = _column_titles(summaries)
    for summary in summaries:
        identity = column_identity(summary)
        column = columns.setdefault(identity, DatasetColumn(*titles[identity]))
        column.cells[row_of[id(summary)]] = summary
    return (
        sorted(rows.values(), key=lambda r: (kinds[r.key], natural_key(r.name))),
        sorted(columns.values(), key=_place_of),
    )


def _place_of(column: DatasetColumn) -> tuple[Any, ...]:
    """Sort by problem and name, whatever short name a table prints for it."""
    group = next(iter(column.cells.values())).group
    return group.cell.problem, natural_key(group.whole.name), natural_key(column.key)


def column_identity(summary: CellSummary) -> tuple[str, ...]:
    """What cells must share to stand in one column."""
    cell = summary.group.cell
    return cell.dataset, cell.dataset_sha256, cell.problem_version


def _kind_rank(kind: str) -> int:
    return list(SECTIONS).index(kind) if kind in SECTIONS else len(SECTIONS)


def _facts(summary: CellSummary) -> dict[str, str]:
    """What may tell two configurations apart, in the order in which it is tried."""
    cell = summary.group.cell
    weights = cell.weights or {}
    facts = {
        "weights": str(weights.get("name", "")),
        "seed": str(cell.seed),
        "device": cell.device.partition(":")[0],
        "weights sha": str(weights.get("sha256") or "")[:8],
        "version": cell.solver_version,
    }
    for key, value in sorted(cell.options.items()):
        if key not in ("decoding", "weights"):
            facts[key.replace("_", " ")] = _setting(key, value)
    facts["config"] = cell.config_sha256[:8]
    return facts


def _distinctions(cells: list[CellSummary]) -> list[tuple[str, ...]]:
    """For cells that print the same name: the facts that must be added so that no two meet in one column."""
    facts = [_facts(c) for c in cells]
    places = [column_identity(c) for c in cells]
    chosen: list[str] = []
    names = list(dict.fromkeys(name for f in facts for name in f))

    def clash() -> list[tuple[int, int]]:
        seen: dict[tuple[Any, ...], int] = {}
        pairs = []
        for index, (fact, place) in enumerate(zip(facts, places, strict=True)):
            key = (place, *(fact.get(name) for name in chosen))
            if key in seen:
                pairs.append((seen[key], index))
            seen[key] = index
        return pairs

    for name in names:
        pairs = clash()
        if not pairs:
            break
        if any(facts[a].get(name) != facts[b].get(name) for a, b in pairs):
            chosen.append(name)
    return [tuple(_phrase(name, fact[name]) for name in chosen if fact.get(name)) for fact in facts]


def _setting(key: str, value: Any) -> str:
    """Put an option into words that hold its name where the name alone would not do."""
    if value is None:
        return f"no {key.replace('_', ' ')}"
    if isinstance(value, dict):
        return ", ".join(f"{k}={v}" for k, v in value.items()) or "default parameters"
    return str(value)


def _phrase(name: str, fact: str) -> str:
    return fact if name == "params" or fact == f"no {name}" else f"{name} {fact}"


def _column_titles(summaries: list[CellSummary]) -> dict[tuple[str, ...], tuple[str, str]]:
    """Key and title of every column; data that differ under one name carry the start of their hash."""
    counts = {column_identity(s): s.instances_of_column for s in summaries}
    titles = {}
    for identity, count in counts.items():
        dataset, sha, version = identity
        same = [i for i in counts if i[0] == dataset]
        parts = []
        if len({i[1] for i in same}) > 1:
            parts.append(sha[:8])
        if len({i[2] for i in same}) > 1:
            parts.append(f"scorer {version}")
        key = f"{dataset} [{', '.join(parts)}]" if parts else dataset
        titles[identity] = (key, f"{key} ({count:,})")
    return titles

"""Which cells share a row and which share a column; rows that would print alike are told apart by what differs."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from nco_bench.reports.frame.summary import CellSummary, plain_name

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
    """Sort cells into rows (by kind, then name) and columns (by problem, then name)."""
    rows: dict[str, MethodRow] = {}
    kinds: dict[str, int] = {}
    row_of: dict[int, str] = {}
    for summary, name in zip(summaries, row_names(summaries), strict=True):
        cell = summary.group.cell
        rows.setdefault(name, MethodRow(name, name, SECTIONS.get(cell.kind, cell.kind), cell.solver))
        kinds.setdefault(name, _kind_rank(cell.kind))
        row_of[id(summary)] = name
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


def row_names(summaries: Sequence[CellSummary]) -> list[str]:
    """Return the row of every cell: the method's name, and what else tells its configuration from others of that name.

    Weights that are taken by default may differ between problems and sizes within a row, nothing else; where one dataset
    has several of them, they are named.
    """
    by_name: dict[str, list[int]] = defaultdict(list)
    for index, summary in enumerate(summaries):
        by_name[summary.method].append(index)
    names = [summary.method for summary in summaries]
    for name, indices in by_name.items():
        for index, extra in zip(indices, _distinctions([summaries[i] for i in indices]), strict=True):
            if extra:
                told = name[:-1] + ", " if name.endswith(")") else f"{name} ("
                names[index] = f"{told}{', '.join(extra)})"
    return names


def settings_by_group(summaries: list[CellSummary]) -> dict[int, str]:
    """Return, by the identity of a group, what its row says in brackets behind solver and decoding."""
    names = zip(summaries, row_names(summaries), strict=True)
    return {id(s.group): name.removeprefix(plain_name(s.group.cell)).strip(" ()") for s, name in names}


def column_identity(summary: CellSummary) -> tuple[str, ...]:
    """What cells must share to stand in one column."""
    cell = summary.group.cell
    return cell.dataset, cell.dataset_sha256, cell.problem_version


def _kind_rank(kind: str) -> int:
    return list(SECTIONS).index(kind) if kind in SECTIONS else len(SECTIONS)


FACTS = ("weights", "seed", "device", "weights sha", "version", "calibration", "config")
"""What may tell two configurations of one name apart, in the order in which it is tried."""

APART: dict[str, tuple[str, ...]] = {
    "seed": (),
    "device": (),
    "version": (),
    "weights sha": ("problem", "weights"),
    "calibration": ("problem", "weights", "weights sha"),
}
"""What no row mixes, whatever the datasets, among cells that agree in the facts named here."""


def _facts(summary: CellSummary) -> dict[str, str]:
    cell = summary.group.cell
    weights = cell.weights or {}
    calibration = weights.get("calibration")
    return {
        "problem": cell.problem,
        "weights": str(weights.get("name", "")),
        "seed": str(cell.seed),
        "device": cell.device.partition(":")[0],
        "weights sha": str(weights.get("sha256") or "")[:8],
        "version": cell.solver_version,
        "calibration": _digest(calibration) if calibration else "",
        "config": cell.config_sha256[:8],
    }


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]


def _distinctions(cells: list[CellSummary]) -> list[tuple[str, ...]]:
    """For cells that print the same name: the facts that must be added so that no row mixes two configurations."""
    facts = [_facts(c) for c in cells]
    places = [column_identity(c) for c in cells]
    chosen = [name for name, scope in APART.items() if _differs(name, scope, facts)]

    def clash() -> list[tuple[int, int]]:
        seen: dict[tuple[Any, ...], int] = {}
        pairs = []
        for index, (fact, place) in enumerate(zip(facts, places, strict=True)):
            key = (place, *(fact[name] for name in chosen))
            if key in seen:
                pairs.append((seen[key], index))
            seen[key] = index
        return pairs

    for name in FACTS:
        if any(facts[a][name] != facts[b][name] for a, b in clash()):
            chosen.append(name)
    told = [name for name in FACTS if name in chosen]
    return [tuple(f"{name} {fact[name]}" for name in told if fact[name]) for fact in facts]


def _differs(name: str, scope: tuple[str, ...], facts: list[dict[str, str]]) -> bool:
    """Whether a fact has several values among cells that agree in the facts of a scope."""
    values: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for fact in facts:
        values[tuple(fact[key] for key in scope)].add(fact[name])
    return any(len(found) > 1 for found in values.values())


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

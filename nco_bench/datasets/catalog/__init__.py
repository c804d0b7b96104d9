"""The published values of TSPLIB, CVRPLIB and the fixed test sets, as facts with date and source; see README.md."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Entry:
    """One instance of a library.

    Attributes
    ----------
    library
        ``tsplib`` or ``cvrplib``.
    name, group
        Name of the instance and of its set (CVRPLIB); TSPLIB has the one group ``tsplib``.
    n
        Nodes (TSP) or customers (CVRP).
    edge_weight_type, convention
        The file's own word, and the distance rule of `value`.
    value, proven, date, source
        Published optimum or best known value; `proven` is ``yes``, ``no`` or ``unknown``.
    free_fleet_value
        CVRP: lowest cost found with more vehicles than the name says, where that is below `value`.
    solution_file
        Name of the published solution file, empty where there is none.
    sha256, content_sha256
        Of the uncompressed file, and of the parsed instance.
    """

    library: str
    name: str
    group: str
    n: int
    edge_weight_type: str
    convention: str
    value: float
    proven: str
    date: str
    source: str
    free_fleet_value: float | None
    solution_file: str
    sha256: str
    content_sha256: str

    @property
    def folder(self) -> str:
        """Folder below ``instances/``, the same in every place instances are looked for."""
        return "tsplib" if self.library == "tsplib" else f"cvrplib/{self.group}"

    @property
    def file(self) -> str:
        """Name of the instance file, uncompressed."""
        return f"{self.name}.tsp" if self.library == "tsplib" else f"{self.name}.vrp"


@dataclass(frozen=True)
class TestSet:
    """One fixed learning test set; `mean_cost` is that of its reference solutions under `convention`."""

    __test__ = False  # not a test for pytest to collect

    name: str
    problem: str
    n: int
    count: int
    distribution: str
    convention: str
    mean_cost: float
    solver: str
    proven: bool
    source: str
    npz_sha256: str


def _rows(name: str) -> list[dict[str, str]]:
    with (FOLDER / name).open(encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle))


@cache
def tsplib() -> tuple[Entry, ...]:
    """All symmetric TSPLIB instances, by size."""
    return tuple(_entry("tsplib", row, "tsplib", row["solution_file"]) for row in _rows("tsplib.csv"))


@cache
def cvrplib() -> tuple[Entry, ...]:
    """All CVRPLIB instances, by set."""
    return tuple(
        _entry("cvrplib", row, row["set"], f"{row['name']}.sol" if row["solution_cost"] else "")
        for row in _rows("cvrplib.csv")
    )


def _entry(library: str, row: dict[str, str], group: str, solution_file: str) -> Entry:
    free = row.get("free_fleet_value")
    return Entry(
        library=library,
        name=row["name"],
        group=group,
        n=int(row["n"]),
        edge_weight_type=row["edge_weight_type"],
        convention=row["convention"],
        value=float(row["value"]),
        proven=row["proven"],
        date=row["date"],
        source=row["source"],
        free_fleet_value=float(free) if free else None,
        solution_file=solution_file,
        sha256=row["sha256"],
        content_sha256=row["content_sha256"],
    )


@cache
def testsets() -> tuple[TestSet, ...]:
    """All fixed test sets, by name."""
    return tuple(
        TestSet(
            name=row["name"],
            problem=row["problem"],
            n=int(row["n"]),
            count=int(row["count"]),
            distribution=row["distribution"],
            convention=row["convention"],
            mean_cost=float(row["mean_cost"]),
            solver=row["solver"],
            proven=row["proven"] == "yes",
            source=row["source"],
            npz_sha256=row["npz_sha256"],
        )
        for row in _rows("testsets.csv")
    )

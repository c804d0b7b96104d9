"""The published values of TSPLIB, CVRPLIB and the fixed test sets, as facts with date and source; see README.md."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

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
    max_route_length
        CVRP: what no route may be longer than; None where there is no such limit.
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
    max_route_length: float | None
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
    """One fixed learning test set.

    Attributes
    ----------
    mean_cost
        Of its reference solutions under `convention`.
    npz_sha256
        Of the set with solutions, as a mirror has it.
    content_sha256
        Of the parsed instances, wherever they come from.
    files
        The authors' public files that it is made from; empty where there is none to name.
    no_address
        Why there is no public address, and the page where the set is described; empty where `files` are known.
    """

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
    content_sha256: str
    files: tuple[SourceFile, ...]
    no_address: str


@dataclass(frozen=True)
class SourceFile:
    """One public file of a test set, at a fixed commit of its authors' repository on GitHub.

    Attributes
    ----------
    part
        ``instances``; ``solved`` (instances with published solutions); ``labels`` (published solutions alone).
    repository, commit, path
        Where it lies.
    member
        Name of the file within it where it is a .zip; else empty.
    form
        Name of its format, see `nco_bench.datasets.formats`.
    size, sha256
        Of the file as served, in bytes.
    """

    part: str
    repository: str
    commit: str
    path: str
    member: str
    form: str
    size: int
    sha256: str

    @property
    def address(self) -> str:
        """Its place below the site that serves files of GitHub's repositories."""
        return f"{self.repository}/{self.commit}/{self.path}"

    @property
    def suffix(self) -> str:
        """Suffix of the file that holds the data."""
        return PurePosixPath(self.member or self.path).suffix


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
    free, limit = row.get("free_fleet_value"), row.get("max_route_length")
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
        max_route_length=float(limit) if limit else None,
        free_fleet_value=float(free) if free else None,
        solution_file=solution_file,
        sha256=row["sha256"],
        content_sha256=row["content_sha256"],
    )


@cache
def testsets() -> tuple[TestSet, ...]:
    """All fixed test sets, by name."""
    files = _source_files()
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
            content_sha256=row["content_sha256"],
            files=files.get(row["name"], ()),
            no_address=row["no_address"],
        )
        for row in _rows("testsets.csv")
    )


def _source_files() -> dict[str, tuple[SourceFile, ...]]:
    out: dict[str, tuple[SourceFile, ...]] = {}
    for row in _rows("testset_files.csv"):
        file = SourceFile(
            part=row["part"],
            repository=row["repository"],
            commit=row["commit"],
            path=row["path"],
            member=row["member"],
            form=row["form"],
            size=int(row["size"]),
            sha256=row["sha256"],
        )
        out[row["name"]] = (*out.get(row["name"], ()), file)
    return out

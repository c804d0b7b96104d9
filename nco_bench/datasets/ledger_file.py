"""The ledger's file: who may write it, its rows by the hash or the place of their instance, and the files of before."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Dataset, Reference
from nco_bench.datasets.names import whole_of_set
from nco_bench.errors import BadInputError, shown
from nco_bench.seals import seal_of

LOCK_SECONDS = 120.0
"""How long a writer waits for another."""
SCHEMA = """
CREATE TABLE IF NOT EXISTS reference (
    instance TEXT PRIMARY KEY, cost REAL NOT NULL, optimal INTEGER NOT NULL, solver TEXT NOT NULL, params TEXT NOT NULL,
    seconds REAL, date TEXT NOT NULL, solution BLOB NOT NULL, seal TEXT NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS place (
    whole TEXT, position INTEGER, instance TEXT NOT NULL, seal TEXT NOT NULL DEFAULT '', PRIMARY KEY (whole, position)
) WITHOUT ROWID;
"""
"""``place`` says where instances stand, for records that do not know their instance's hash."""
_ROW = "instance, cost, optimal, solver, params, seconds, date, solution"
_PLACE = "whole, position, instance"
OLD_FORMAT = 1


@dataclass(frozen=True, eq=False)
class Row:
    """A reference and the day it was found."""

    reference: Reference
    date: str


@dataclass(frozen=True)
class Entry:
    """What a table needs of a reference: its cost, who found it and how, and the day."""

    cost: float
    solver: str
    params: str
    date: str


def ledger_path(instances_dir: Path) -> Path:
    """Return the ledger's file."""
    return instances_dir / "ledger" / "references.sqlite"


@contextlib.contextmanager
def committed(path: Path) -> Iterator[sqlite3.Connection | None]:
    """Open the ledger for reading; None where nothing was ever committed.

    A first writer that was killed leaves an empty file, or pages that SQLite takes back when they are first looked at.
    """
    if not path.is_file() or path.stat().st_size == 0:
        yield None
        return
    with opened(path) as ledger:
        yield ledger if ledger.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() else None


def costs(hashes: Collection[str], instances_dir: Path) -> dict[str, Entry]:
    """Look up references by the hashes of their instances; those that the ledger does not know are left out."""
    with committed(ledger_path(instances_dir)) as ledger:
        if not hashes or ledger is None:
            return {}
        found = ledger.execute(
            "SELECT instance, cost, solver, params, date FROM reference "
            "WHERE instance IN (SELECT value FROM json_each(?))",
            (json.dumps(list(hashes)),),
        )
        return {instance: Entry(*fields) for instance, *fields in found}


def costs_at(whole: str, sha256s: Collection[str], instances_dir: Path) -> dict[int, Entry]:
    """Look up references by the place of their instances, for records that do not know their instance's hash.

    Parameters
    ----------
    whole
        Identity of the set that the places are in, see `nco_bench.datasets.names`.
    sha256s
        Content hashes of the sets that are its beginning, for ledgers of before.
    instances_dir
        Folder that holds ``ledger/``.
    """
    entries: dict[int, Entry] = {}
    for sha256 in sha256s:
        for index, row in old_rows(sha256, instances_dir).items():
            known = row.reference
            entries[index] = Entry(known.cost, known.solver, known.params, row.date)
    with committed(ledger_path(instances_dir)) as ledger:
        if ledger is not None:
            found = ledger.execute(
                "SELECT position, cost, solver, params, date FROM place JOIN reference USING (instance) WHERE whole = ?",
                (whole,),
            )
            entries |= {position: Entry(*fields) for position, *fields in found}
    return entries


@contextlib.contextmanager
def locked(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the ledger for writing; what is written is there as a whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(
            f"{path.parent}: the ledger cannot be written ({error.strerror or error})."
        ) from None
    with opened(path) as ledger:
        ledger.execute("BEGIN IMMEDIATE")
        for statement in SCHEMA.split(";"):
            ledger.execute(statement)
        _seal_all(ledger)
        yield ledger
        ledger.execute("COMMIT")


def _seal_all(ledger: sqlite3.Connection) -> None:
    """Give the rows of a ledger of before their seals."""
    if ledger.execute("PRAGMA user_version").fetchone()[0]:
        return
    for table, columns in (("reference", _ROW), ("place", _PLACE)):
        if not _has_seals(ledger, table):
            ledger.execute(f"ALTER TABLE {table} ADD COLUMN seal TEXT NOT NULL DEFAULT ''")
        keys = "instance" if table == "reference" else "whole, position"
        count = keys.count(",") + 1
        place = " AND ".join(f"{key} = ?" for key in keys.split(", "))
        rows = ledger.execute(f"SELECT {columns} FROM {table}").fetchall()
        ledger.executemany(
            f"UPDATE {table} SET seal = ? WHERE {place}", [(seal_of(*row), *row[:count]) for row in rows]
        )
    ledger.execute(f"PRAGMA user_version = {_version(ledger)}")


def _version(ledger: sqlite3.Connection) -> int:
    """Return the ``user_version`` of a ledger whose every row has a seal: a checksum of its tables' definitions."""
    tables = ledger.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name").fetchall()
    return 1 + int(seal_of(*tables)[:7], 16)


def _has_seals(ledger: sqlite3.Connection, table: str) -> bool:
    return any(column[1] == "seal" for column in ledger.execute(f"PRAGMA table_info({table})"))


def faults(instances_dir: Path) -> Iterator[str]:
    """Yield what is wrong with the ledger's file: pages that do not fit together, rows that were changed."""
    path = ledger_path(instances_dir)
    try:
        with committed(path) as ledger:
            if ledger is None:
                return
            yield from (
                f"{path}: {text}" for (text,) in ledger.execute("PRAGMA integrity_check") if text != "ok"
            )
            version = ledger.execute("PRAGMA user_version").fetchone()[0]
            if version == 0 and not _has_seals(ledger, "reference"):
                return
            if version != _version(ledger):
                yield f"{path}: the definitions of its tables were changed; restore it from a backup."
            for table, columns in (("reference", _ROW), ("place", _PLACE)):
                for *row, seal in ledger.execute(f"SELECT {columns}, seal FROM {table}"):
                    if seal_of(*row) != seal:
                        yield f"{path}: the {table} of {row[0]!r} was changed after it was written; restore a backup."
    except BadInputError as error:
        yield str(error)
    except (UnicodeDecodeError, OverflowError, MemoryError, TypeError) as error:
        yield f"{path}: damaged ({type(error).__name__}); restore it from a backup."


@contextlib.contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the ledger for reading; an open transaction is rolled back at the end."""
    try:
        ledger = sqlite3.connect(path, timeout=LOCK_SECONDS, isolation_level=None)
        with contextlib.closing(ledger):
            yield ledger
    except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite's messages quote what the file holds
        raise BadInputError(
            f"{path}: not a readable ledger, or not to be written ({shown(str(error), 200)}); "
            "restore it from a backup, or move it away."
        ) from None


def rows_by_hash(ledger: sqlite3.Connection, hashes: Collection[str]) -> dict[str, Row]:
    """Read whole rows, with their solutions."""
    found = ledger.execute(
        "SELECT instance, cost, solver, solution, optimal, seconds, params, date FROM reference "
        "WHERE instance IN (SELECT value FROM json_each(?))",
        (json.dumps(sorted(hashes)),),
    )
    rows = {}
    for instance, cost, solver, solution, optimal, seconds, params, date in found:
        tour = np.frombuffer(solution, dtype="<i4").astype(np.int64)
        rows[instance] = Row(Reference(cost, solver, tour, bool(optimal), seconds, params), date)
    return rows


def write(ledger: sqlite3.Connection, dataset: Dataset, rows: Mapping[int, Row]) -> None:
    """Write rows by the position of their instance in the dataset."""
    ledger.executemany(
        f"INSERT OR REPLACE INTO reference ({_ROW}, seal) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            _sealed(
                dataset.instance_hashes[position], float(r.cost), int(r.optimal), r.solver, r.params,
                None if r.seconds is None else float(r.seconds), row.date,
                np.asarray(r.solution, dtype="<i4").tobytes(),
            )
            for position, row in rows.items()
            for r in [row.reference]
        ],
    )  # fmt: skip


def write_places(ledger: sqlite3.Connection, dataset: Dataset, positions: Collection[int]) -> None:
    """Note where instances stand."""
    ledger.executemany(
        f"INSERT OR REPLACE INTO place ({_PLACE}, seal) VALUES (?, ?, ?, ?)",
        [
            _sealed(whole_of_set(dataset), int(dataset.first_index + p), dataset.instance_hashes[p])
            for p in positions
        ],
    )


def _sealed(*row: Any) -> tuple[Any, ...]:
    """Return a row with its seal; numbers must be of the type that the ledger gives back."""
    return (*row, seal_of(*row))


def old_rows(sha256: str, instances_dir: Path) -> dict[int, Row]:
    """Read the ledger of before of one dataset content, keyed by index."""
    path = instances_dir / "ledger" / f"{sha256[:16]}.npz"
    if not path.is_file():
        return {}
    from nco_bench.datasets.formats.reading import read_npz

    arrays = read_npz(path)
    try:
        return _rows(arrays, sha256, path)
    except (KeyError, ValueError, IndexError, TypeError) as error:
        raise BadInputError(
            f"{path}: a damaged ledger ({error}); delete it, or restore it from a backup."
        ) from None


def _rows(arrays: Mapping[str, NDArray[Any]], sha256: str, path: Path) -> dict[int, Row]:
    if int(arrays["format"]) != OLD_FORMAT or str(arrays["sha256"]) != sha256:
        raise BadInputError(f"{path}: a ledger of another dataset or version; move it away.")
    starts = np.concatenate(([0], np.cumsum(arrays["length"])))
    rows = {}
    for k, index in enumerate(arrays["index"].tolist()):
        seconds = float(arrays["seconds"][k])
        reference = Reference(
            cost=float(arrays["cost"][k]),
            solver=str(arrays["solver"][k]),
            solution=arrays["solution"][starts[k] : starts[k + 1]].astype(np.int64),
            optimal=bool(arrays["optimal"][k]),
            seconds=None if np.isnan(seconds) else seconds,
            params=str(arrays["params"][k]),
        )
        rows[int(index)] = Row(reference, str(arrays["date"][k]))
    return rows

"""What was verified, and when: a receipt per run, which holds for the records as they were then.

A receipt stands in ``verified.json`` of the results folder, and names the digest of the run's records. A record that is
changed, added or taken away later gives another digest, and the run no longer counts as verified.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from nco_bench import __version__
from nco_bench.errors import ResultsError
from nco_bench.files import write, writing_together
from nco_bench.runs.stored_run import Run

RECEIPTS = "verified.json"
FACTS = ("key", "instance", "repeat", "status", "cost", "reference", "seconds", "solution_sha256")
"""Of a record, that the digest covers; where its solution lies in a file is none of them."""


def digest(run: Run) -> str:
    """Return the SHA-256 of what a run's cells and records say, the same for a folder and for what was packed of it."""
    said = hashlib.sha256()
    for cell in run.cells():
        identity = (
            cell.cell,
            cell.label,
            cell.decoding,
            cell.config_sha256,
            cell.dataset_sha256,
            cell.device,
        )
        said.update(orjson.dumps(identity, option=orjson.OPT_APPEND_NEWLINE))
    lines = (orjson.dumps([line[name] for name in FACTS]) for line in run.raw_records())
    for line in sorted(lines):
        said.update(line + b"\n")
    return said.hexdigest()


def read(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the receipts of a results folder by run id; an absent file holds none.

    Raises
    ------
    ResultsError
        For a damaged file.
    """
    path = _path(folder)
    try:
        found = orjson.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, orjson.JSONDecodeError) as error:
        raise ResultsError(f"{path}: cannot be read ({error}); move it away and verify again.") from error
    runs = found.get("runs") if isinstance(found, dict) else None
    if not isinstance(runs, dict) or not all(isinstance(one, dict) for one in runs.values()):
        raise ResultsError(f"{path}: holds no receipts; move it away and verify again.")
    return runs


def add(folder: Path, runs: Iterable[Run]) -> None:
    """Write receipts of runs that were verified just now, beside those that are there."""
    date = f"{datetime.now(UTC):%Y-%m-%d}"
    new = {run.run_id: {"digest": digest(run), "date": date, "version": __version__} for run in runs}
    if not new:
        return
    with writing_together(_path(folder).parent):  # another may have added some since, which would be lost
        document = {"runs": dict(sorted((read(folder) | new).items()))}
        write(_path(folder), orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def verified(runs: Sequence[Run], folders: Sequence[Path]) -> frozenset[str]:
    """Return the ids of runs whose receipts hold for what they say now."""
    receipts: Mapping[str, Mapping[str, Any]] = {
        name: one for folder in folders for name, one in read(folder).items()
    }
    return frozenset(
        run.run_id
        for run in runs
        if run.run_id in receipts and receipts[run.run_id].get("digest") == digest(run)
    )


def _path(folder: Path) -> Path:
    return (folder.parent if folder.is_file() else folder) / RECEIPTS

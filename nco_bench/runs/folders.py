"""Stored runs as things to list, remove and bring together: whole folders, never half of one.

A folder arrives, and leaves, by a rename: readers find a run whole or not at all. What is on its way stands in a hidden
folder one level too deep for them.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from nco_bench.errors import ResultsError, UnknownNameError
from nco_bench.runs.archives import ArchivedRun
from nco_bench.runs.finding import none_in, runs_of
from nco_bench.runs.store import STAMP_FORMAT
from nco_bench.runs.stored_run import Run

ASIDE = ".moving"
"""Folder, within a results folder, of runs that arrive or leave."""


@dataclass(frozen=True)
class RunFacts:
    """What is to be told of a run in one line.

    Attributes
    ----------
    run, folder
        Its id, and where it is.
    started
        Date and time (UTC), as its id says; empty for an id that does not.
    solvers, datasets
        Labels with decodings, and names, in their order.
    seeds
        Of its cells.
    records
        Number of its records.
    statuses
        Number by status, of those that occur.
    megabytes
        Size of its files, or its share of an archive, in 10^6 bytes.
    command
        That made it.
    version
        Of nco-bench.
    study
        File of ``run --config`` that it belongs to, or None.
    """

    run: str
    folder: str
    started: str
    solvers: tuple[str, ...]
    datasets: tuple[str, ...]
    seeds: tuple[int, ...]
    records: int
    statuses: dict[str, int]
    megabytes: float
    command: str
    version: str
    study: str | None


def facts_of(run: Run) -> RunFacts:
    """Gather what is to be told of a run."""
    cells = run.cells()
    statuses = Counter(str(record.get("status")) for record in run.raw_records())
    study = run.info.get("study") or {}
    return RunFacts(
        run=run.run_id,
        folder=str(run.folder),
        started=_started(run.run_id),
        solvers=tuple(dict.fromkeys(f"{c.label} {c.decoding}".strip() for c in cells)),
        datasets=tuple(dict.fromkeys(c.dataset for c in cells)),
        seeds=tuple(dict.fromkeys(c.seed for c in cells)),
        records=statuses.total(),
        statuses=dict(sorted(statuses.items())),
        megabytes=round(run.size() / 1e6, 3),
        command=str(run.info.get("command") or ""),
        version=str(run.info.get("version") or ""),
        study=study.get("file"),
    )


def is_about(facts: RunFacts, datasets: Sequence[str], solvers: Sequence[str]) -> bool:
    """Whether a run is of some of the datasets and solvers, names or patterns; none means all."""
    own = (*facts.solvers, *(label.split(" ")[0].split(":")[0] for label in facts.solvers))
    pairs = ((facts.datasets, datasets), (own, solvers))
    return all(
        not wanted
        or any(fnmatchcase(name, pattern) or name == pattern for name in names for pattern in wanted)
        for names, wanted in pairs
    )


def details_of(run: Run) -> dict[str, Any]:
    """Return all that a run's files say, its records counted by cell."""
    counts: dict[int, Counter[str]] = {}
    for record in run.raw_records():
        counts.setdefault(int(record["cell"]), Counter())[str(record["status"])] += 1
    cells = [
        {
            "solver": f"{c.label} {c.decoding}".strip(),
            "dataset": c.dataset,
            "seed": c.seed,
            "records": dict(sorted(counts.get(c.cell, Counter()).items())),
            "seconds": c.seconds_total,
            "device": c.device,
            "batch_size": c.batch_size,
            "weights": (c.weights or {}).get("name"),
            "options": {key: value for key, value in c.options.items() if value not in (None, {}, "")},
            "notes": c.notes,
            "config_sha256": c.config_sha256,
            "dataset_sha256": c.dataset_sha256,
        }
        for c in run.cells()
    ]
    return {
        "run": run.run_id,
        "folder": str(run.folder),
        "command": run.info.get("command"),
        "version": run.info.get("version"),
        "schema": run.info.get("schema"),
        "environment": run.info.get("environment") or {},
        "study": run.info.get("study"),
        "cells": cells,
    }


def pick(folders: Sequence[Path], names: Sequence[str]) -> list[Run]:
    """Find runs by id, by the beginning of an id that fits one run alone, or by a pattern with ``*``.

    Parameters
    ----------
    folders
        Folders of runs.
    names
        None means all.

    Raises
    ------
    UnknownNameError
        For a name that no run answers to.
    ResultsError
        For a beginning that fits several, where there are no runs at all, or one of several folders is absent.
    """
    known = runs_of(folders)
    if not known:
        raise ResultsError(f"{none_in(folders, 'no runs here')}; 'nco-bench run' makes them.")
    chosen: dict[str, Run] = {}
    for name in names or ("*",):
        fitting = [one for one in known if one == name or fnmatchcase(one, name)]
        fitting = fitting or [one for one in known if name and one.startswith(name)]
        if not fitting:
            raise UnknownNameError("run", name, known, "See 'nco-bench runs list'.")
        if len(fitting) > 1 and not any(letter in name for letter in "*?["):
            raise ResultsError(
                f"{name!r} is the beginning of {len(fitting)} runs: {', '.join(fitting[:4])}; add letters, or '*' for all."
            )
        chosen |= {one: known[one] for one in fitting}
    return [chosen[one] for one in sorted(chosen)]


def remove(runs: Sequence[Run]) -> None:
    """Remove whole runs; one that a process of this machine is still writing stops it all before anything is gone.

    Raises
    ------
    ResultsError
        For a run that is being written, is a link or stands in an archive, or a folder that cannot be removed.
    """
    for run in runs:
        if isinstance(run, ArchivedRun):
            raise ResultsError(
                f"{run.run_id}: stands in the archive {run.archive.path}, which is never changed; nothing was removed. "
                "Pack the other runs into a new one ('nco-bench runs pack')."
            )
        if run.folder.is_symlink():
            raise ResultsError(
                f"{run.folder}: is a link to {os.path.realpath(run.folder)}; nothing was removed. Remove the link itself, "
                "or the run where it stands."
            )
        writer = _writer(run.folder)
        if writer is not None:
            raise ResultsError(
                f"{run.run_id}: process {writer} is writing it; nothing was removed. Stop the process first."
            )
    for run in runs:
        aside = run.folder.parent / ASIDE
        leaving = aside / f"{run.run_id}.old"
        try:
            aside.mkdir(exist_ok=True)
            shutil.rmtree(leaving, ignore_errors=True)  # of a command that was killed
            os.replace(run.folder, leaving)
            clear(leaving)
        except OSError as error:
            raise ResultsError(f"{run.folder}: cannot be removed ({error.strerror}).") from error


def _started(run_id: str) -> str:
    try:
        return f"{began(run_id):%Y-%m-%d %H:%M:%S}"
    except ValueError:
        return ""


def began(run_id: str) -> datetime:
    """Return when a run began; raises `ValueError` for a folder of another name."""
    return datetime.strptime(run_id[:22], STAMP_FORMAT).replace(tzinfo=UTC)


def clear(aside: Path) -> None:
    """Delete what was put aside, and the folder for it where nothing else is in it."""
    if aside.exists():
        shutil.rmtree(aside)
    with suppress(OSError):
        aside.parent.rmdir()


def _writer(folder: Path) -> int | None:
    """Return the process of this machine that holds a file of a run open for writing, or None."""
    import psutil

    inside = str(folder.resolve()) + os.sep
    for process in psutil.process_iter():
        try:
            opened = process.open_files()
        except (psutil.Error, OSError):
            continue
        if any(file.path.startswith(inside) and getattr(file, "mode", "w") != "r" for file in opened):
            return int(process.pid)
    return None

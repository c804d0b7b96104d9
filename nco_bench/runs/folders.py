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
from nco_bench.runs.finding import find_runs
from nco_bench.runs.packing import contents, write_folder
from nco_bench.runs.store import STAMP_FORMAT
from nco_bench.runs.stored_run import Run

ASIDE = ".moving"
"""Folder, within a results folder, of runs that arrive or leave."""
COPY_ORDER = ("records.jsonl", "traces.jsonl", "cells.jsonl", "solutions.bin", "run.json")
"""What speaks of something is copied before it: a run that is still being written then arrives sound, if not finished."""


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


@dataclass(frozen=True)
class Merged:
    """What `merge` did: ids of the runs that arrived, that went on since they were last merged, and that were there."""

    added: tuple[str, ...]
    extended: tuple[str, ...]
    present: tuple[str, ...]


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
        For a beginning that fits several, or where there are no runs at all.
    """
    known = {run.run_id: run for folder in dict.fromkeys(folders) for run in find_runs(folder)}
    if not known:
        raise ResultsError(f"{', '.join(map(str, folders))}: no runs here; 'nco-bench run' makes them.")
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
        For a run that is being written or stands in an archive, or a folder that cannot be removed.
    """
    for run in runs:
        if isinstance(run, ArchivedRun):
            raise ResultsError(
                f"{run.run_id}: stands in the archive {run.archive.path}, which is never changed; nothing was removed. "
                "Pack the other runs into a new one ('nco-bench runs pack')."
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
            _clear(leaving)
        except OSError as error:
            raise ResultsError(f"{run.folder}: cannot be removed ({error.strerror}).") from error


def merge(sources: Sequence[Path], results: Path, *, unpack: bool = False) -> Merged:
    """Copy the runs of other folders and archives into a folder; nothing is lost and nothing is there twice.

    A run is known by its id. One that is there already stays as it is, unless the copy elsewhere went on since: then the
    longer one takes its place. What two runs both computed stays in both, as it was measured; every reader counts the later.

    Parameters
    ----------
    sources
        Folders of runs, single runs, or archives.
    results
        Folder that they go to; made if absent.
    unpack
        A run that is there in an archive only arrives as a folder, too.

    Raises
    ------
    ResultsError
        For a source without runs, or two runs of one id that say different things; then nothing is copied.
    """
    found = [run for source in sources for run in _runs_in(source, results)]
    known = {} if unpack else {run.run_id: run for run in find_runs(results) if isinstance(run, ArchivedRun)}
    added: dict[str, Run] = {}
    extended: dict[str, Run] = {}
    present: list[str] = []
    for run in found:
        there = added.get(run.run_id) or extended.get(run.run_id)
        target = there.folder if there is not None else results / run.run_id
        there = there or (None if target.exists() else known.get(run.run_id))
        is_new = there is None and not target.exists()
        relation = "new" if is_new else _compare(run, there or Run(target))
        if relation == "new":
            added[run.run_id] = run
        elif relation == "longer":
            (added if run.run_id in added else extended)[run.run_id] = run
        else:
            present.append(run.run_id)
    for run in (*added.values(), *extended.values()):
        _bring(run, results)
    unchanged = dict.fromkeys(one for one in present if one not in added and one not in extended)
    return Merged(tuple(added), tuple(extended), tuple(unchanged))


def _runs_in(source: Path, results: Path) -> list[Run]:
    if source.resolve() == results.resolve():
        raise ResultsError(f"{source}: is the folder that the runs would go to; name another one.")
    runs = [Run(source)] if (source / "run.json").is_file() else find_runs(source)
    if not runs:
        raise ResultsError(
            f"{source}: holds no runs; name a folder of runs, a run's own folder, or an archive."
        )
    return runs


def _compare(one: Run, other: Run) -> str:
    """Return whether a run is the ``same`` as another of its id, ``longer`` or ``shorter``; all files only ever grow."""
    archived = isinstance(one, ArchivedRun) or isinstance(other, ArchivedRun)
    first_files, second_files = (contents(run) if archived else _files_of(run) for run in (one, other))
    relations = set()
    for name in COPY_ORDER[:-1]:  # run.json is replaced by a fuller one while the run goes on
        first, second = first_files[name], second_files[name]
        if first != second:
            grown, base = (first, second) if len(first) > len(second) else (second, first)
            relations.add(
                "different" if not grown.startswith(base) else "longer" if grown is first else "shorter"
            )
    if relations <= {"longer"} or relations <= {"shorter"}:
        return relations.pop() if relations else "same"
    raise ResultsError(
        f"{one.folder} and {other.folder} are runs of one id that say different things; nothing was copied. "
        "Move one of them away."
    )


def _files_of(run: Run) -> dict[str, bytes]:
    """Return a folder's files as they stand there; an absent one is empty."""
    found = {}
    for name in COPY_ORDER:
        path = run.folder / name
        found[name] = path.read_bytes() if path.exists() else b""
    return found


def _bring(run: Run, results: Path) -> None:
    """Copy a run beside its place and rename it; where a shorter copy stands, rename file by file, the records last.

    So at no moment is the shorter copy gone and the longer one not there.
    """
    target, arriving = results / run.run_id, results / ASIDE / run.run_id
    try:
        shutil.rmtree(arriving, ignore_errors=True)  # of a merge that was killed
        arriving.mkdir(parents=True)
        if isinstance(run, ArchivedRun):
            write_folder(run, arriving)
        else:
            _copy_files(run.folder, arriving)
        if target.exists():
            for name in reversed(_in_order(arriving)):
                os.replace(arriving / name, target / name)
        else:
            os.replace(arriving, target)
        _clear(arriving)
    except OSError as error:
        raise ResultsError(
            f"{target}: cannot be written ({error.strerror}); start the same command again to go on."
        ) from error


def _copy_files(source: Path, arriving: Path) -> None:
    for name in _in_order(source):
        shutil.copy2(source / name, arriving / name)


def _in_order(folder: Path) -> list[str]:
    """Return the names of a run's files in the order in which they are copied."""
    names = [path.name for path in folder.iterdir() if path.is_file()]
    return sorted(names, key=lambda n: COPY_ORDER.index(n) if n in COPY_ORDER else len(COPY_ORDER))


def _clear(aside: Path) -> None:
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


def _started(run_id: str) -> str:
    try:
        stamp = datetime.strptime(run_id[:22], STAMP_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return ""
    return f"{stamp:%Y-%m-%d %H:%M:%S}"

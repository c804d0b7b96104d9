"""Runs of several folders brought into one: whole or not at all, each once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from nco_bench.errors import ResultsError
from nco_bench.files import is_in_a_file, writing_together
from nco_bench.runs.archives import ArchivedRun
from nco_bench.runs.finding import find_runs
from nco_bench.runs.folders import ASIDE, clear
from nco_bench.runs.packing import checked_solution, contents, write_folder
from nco_bench.runs.stored_run import Run

COPY_ORDER = ("records.jsonl", "traces.jsonl", "cells.jsonl", "solutions.bin", "run.json")
"""What speaks of something is copied before it: a run that is still being written then arrives sound, if not finished."""


@dataclass(frozen=True)
class Merged:
    """What `merge` did: ids of the runs that arrived, that went on since they were last merged, and that were there."""

    added: tuple[str, ...]
    extended: tuple[str, ...]
    present: tuple[str, ...]


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
        For a source without runs, a damaged run, or two runs of one id that say different things; then nothing is copied.
    """
    refuse_file(results)
    # Where there is no folder yet, none is made for what is refused.
    with writing_together(results) if results.is_dir() else nullcontext():
        return _merge(sources, results, unpack)


def _merge(sources: Sequence[Path], results: Path, unpack: bool) -> Merged:
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
    arriving = (*added.values(), *extended.values())
    for run in arriving:
        _refuse_damage(run)
    for run in arriving:
        _bring(run, results)
    unchanged = dict.fromkeys(one for one in present if one not in added and one not in extended)
    return Merged(tuple(added), tuple(extended), tuple(unchanged))


def _refuse_damage(run: Run) -> None:
    """Read all of a run once, so that nothing damaged comes among what is sound; raises `ResultsError`."""
    run.cells()
    for _ in run.lines("traces.jsonl"):
        pass
    for record in run.records():
        if record.solution is not None:
            checked_solution(run, record)


def refuse_file(results: Path) -> None:
    """Refuse a file as the place that runs go to; raises `ResultsError`."""
    if results.is_file():
        raise ResultsError(f"{results}: is a file, and runs go to a folder; name one with --results.")
    if cause := is_in_a_file(results):
        raise ResultsError(f"{results}: cannot be made ({cause}); name another folder with --results.")


def _runs_in(source: Path, results: Path) -> list[Run]:
    if not source.exists():
        raise ResultsError(f"{source}: no such folder or archive.")
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
        clear(arriving)
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

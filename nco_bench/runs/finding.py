"""Which runs a results folder holds, as folders and in archives."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from nco_bench.errors import ResultsError
from nco_bench.runs.stored_run import Run


def find_runs(
    results: Path,
    damaged: Callable[[Path, ResultsError], object] | None = None,
    without: Collection[str] = (),
) -> list[Run]:
    """Return all runs below a results folder, by name; an absent folder has none.

    Runs are folders with a ``run.json``, or stand in archives (``*.parquet``) that lie in the folder; `results` may be an
    archive itself. A run that stands in several places counts once, as a folder first: there it may have gone on.

    Parameters
    ----------
    results
        The folder, or an archive.
    damaged
        Called with each run or archive that cannot be read; None raises.
    without
        Names of folders that are left out, unopened.

    Raises
    ------
    ResultsError
        If a run or an archive is damaged, or of an unknown schema.
    """

    def refuse(path: Path, error: ResultsError) -> None:
        if damaged is None:
            raise error
        damaged(path, error)

    found: dict[str, Run] = {}
    for name in _names(results):
        path = results / name / "run.json"
        if name in without or not os.path.exists(path):
            continue
        try:
            found[name] = Run(path.parent)
        except ResultsError as error:
            # Another process takes its folder away when it finds nothing to do.
            if path.exists():
                refuse(path.parent, error)
    alone = results.suffix == ".parquet" and results.is_file()
    archives = sorted(results.glob("*.parquet")) if results.is_dir() else [results] if alone else []
    for path in archives:
        from nco_bench.runs.archives import archived_runs

        try:
            runs = archived_runs(path, named=path == results)
        except ResultsError as error:
            refuse(path, error)
        else:
            for run in runs:
                found.setdefault(run.run_id, run)
    return [found[name] for name in sorted(found)]


def runs_of(folders: Sequence[Path]) -> dict[str, Run]:
    """Return all runs of some results folders by name; a run that was copied to a second folder counts once.

    Raises
    ------
    ResultsError
        As `find_runs` does; and where one of several folders is absent, whose runs would go missing without a word.
    """
    absent = [str(folder) for folder in folders if not folder.exists()]
    if absent and len(folders) > len(absent):
        raise ResultsError(f"{', '.join(absent)}: no such results folder; correct the name, or leave it out.")
    found: dict[str, Run] = {}
    for folder in dict.fromkeys(folders):
        if folder.is_file() and folder.suffix != ".parquet":
            raise ResultsError(
                f"{folder}: is neither a folder of runs nor an archive (.parquet); correct the name."
            )
        for run in find_runs(folder):
            found.setdefault(run.run_id, run)
    return found


def none_in(folders: Sequence[Path], what: str) -> str:
    """Begin the message that some folders hold nothing: a name that was misspelt reads like one that is empty, else."""
    absent = "" if any(folder.exists() for folder in folders) else "no such folder, so "
    return f"{', '.join(map(str, folders))}: {absent}{what}"


def incomplete(results: Path) -> dict[str, str]:
    """Return what is wrong with the folders of runs that have lost a file without which nothing is read of them.

    They are no error to whoever looks for runs: on a disk of the network, another machine's files may appear one by one.
    """
    found = {}
    for name in _names(results):
        folder = results / name
        try:
            if (folder / "run.json").exists():
                gone = "" if (folder / "records.jsonl").exists() else "records.jsonl"
            else:  # which is written before any line
                lines = [folder / file for file in ("cells.jsonl", "records.jsonl")]
                gone = "run.json" if any(path.stat().st_size for path in lines if path.exists()) else ""
        except OSError:  # nothing that can be looked into, or it goes away just now
            continue
        if gone:
            found[name] = f"{folder}: its {gone} is gone; bring it back, or move the folder away"
    return found


def _names(results: Path) -> list[str]:
    """Return the names in a folder, in order; none where it cannot be looked into."""
    try:
        return sorted(os.listdir(results))
    except OSError:
        return []

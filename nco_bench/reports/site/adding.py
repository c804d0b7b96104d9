"""Records of a stranger: verified before they count, run by run."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.load import Places, load_dataset
from nco_bench.errors import NcoBenchError, ResultsError
from nco_bench.problems import problem as problem_module
from nco_bench.reports.frame.load import load_frame
from nco_bench.reports.site import receipts
from nco_bench.runs.archives import ArchivedRun, facts_of_archive
from nco_bench.runs.finding import find_runs
from nco_bench.runs.merging import merge, refuse_file
from nco_bench.runs.packing import write_folder
from nco_bench.runs.records import Cell, Record
from nco_bench.runs.stored_run import Run
from nco_bench.runs.verify import COST_TOLERANCE, Finding, verify


@dataclass(frozen=True)
class Added:
    """What became of submitted runs.

    Attributes
    ----------
    added
        Runs that hold and are in the results folder now, with their number of records.
    refused
        Runs that do not, with all that was found.
    """

    added: dict[str, int]
    refused: dict[str, tuple[Finding, ...]]


def add(sources: Sequence[Path], results: Path, places: Places) -> Added:
    """Verify submitted runs; copy those that hold to a results folder, with a receipt each.

    A run is taken whole or refused whole. Beyond what ``nco-bench verify`` checks (every solution scored again, every key,
    solution, instance and dataset hashed again), its datasets must go by a name that stands for the same instances
    everywhere, its times must be times, and no reference may be better than the one that is known here. Runs of archives are
    unpacked first, and then held to the same.

    Parameters
    ----------
    sources
        Folders of runs, single runs, or archives.
    results
        Folder that they go to.
    places
        Where the datasets are.

    Raises
    ------
    ResultsError
        For a source without runs, a run whose id stands for something else in `results`, or an archive that is damaged
        or was packed from a changed checkout.
    """
    refuse_file(results)
    with tempfile.TemporaryDirectory(prefix="nco-bench-site-") as scratch:
        refused: dict[str, tuple[Finding, ...]] = {}
        runs = [
            run
            for i, source in enumerate(sources)
            for run in _runs_in(source, Path(scratch) / str(i), refused)
        ]
        return _add(runs, results, places, refused)


def _add(
    runs: Sequence[Run], results: Path, places: Places, refused: dict[str, tuple[Finding, ...]]
) -> Added:
    good: list[Run] = []
    here = _best_here(results)
    for run in runs:
        found = tuple(_of_strangers(run, places, here))
        if not found:
            found = _of_solutions(run, places)
        if found:
            refused[run.run_id] = found
        else:
            good.append(run)
    if good:
        merge([run.folder for run in good], results)
        receipts.add(results, [Run(results / run.run_id) for run in good])
    return Added({run.run_id: sum(1 for _ in run.raw_records()) for run in good}, refused)


def _of_solutions(run: Run, places: Places) -> tuple[Finding, ...]:
    """What scoring again finds; a cost that cannot be scored is nobody's to vouch for."""
    checked = verify(run.folder.parent, (run.run_id,), places)
    left_out = checked.unscored.get(run.run_id)
    if not left_out:
        return checked.findings
    text = f"{left_out} records keep the hash of their solution alone; pack the run with all its solutions"
    return (*checked.findings, Finding(run.run_id, "solutions", text))


def _runs_in(source: Path, scratch: Path, refused: dict[str, tuple[Finding, ...]]) -> list[Run]:
    """Return the runs of a source as folders, those of archives below `scratch`; damaged ones are noted as refused."""

    def note(path: Path, error: ResultsError) -> None:
        refused[path.name] = (Finding(path.name, "run.json", str(error)),)

    if source.is_file() and source.suffix != ".parquet":
        raise ResultsError(f"{source}: is no folder of runs and no archive (*.parquet).")
    try:
        alone = (source / "run.json").is_file()
        runs = [Run(source.resolve())] if alone else find_runs(source, note if source.is_dir() else None)
        for archive in {run.archive.path for run in runs if isinstance(run, ArchivedRun)}:
            if facts_of_archive(archive).dirty:
                raise ResultsError(
                    f"{archive}: was packed from a changed checkout; pack it again from a clean commit."
                )
        found = [_unpacked(run, scratch) if isinstance(run, ArchivedRun) else run for run in runs]
    except (TypeError, KeyError, ValueError, AttributeError, IndexError) as error:
        raise ResultsError(f"{source}: not readable as an archive of runs ({error}).") from error
    if not found and not refused:
        raise ResultsError(
            f"{source}: holds no runs; name a folder of runs, a run's own folder, or an archive."
        )
    return found


def _unpacked(run: ArchivedRun, scratch: Path) -> Run:
    name = run.run_id
    if run.folder.parent != run.archive.path or name.startswith("."):
        raise ResultsError(f"{run.archive.path}: holds a run whose id is no name ({run.folder}).")
    folder = scratch / name
    folder.mkdir(parents=True)
    write_folder(run, folder)
    return Run(folder)


def _of_strangers(run: Run, places: Places, here: Mapping[str, float]) -> Iterator[Finding]:
    """What only submissions must hold to; before any file that the run names is opened."""
    try:
        cells = {cell.cell: cell for cell in run.cells()}
        own = [cell for cell in cells.values() if _is_file(cell)]
        for cell in own:
            yield Finding(
                run.run_id,
                f"dataset {cell.dataset}",
                f"was read from the file {cell.source}; only sets that go by a name are compared "
                "(see 'nco-bench list datasets')",
            )
        if not own:
            yield from _records(run, cells, places, here)
    except ResultsError as error:
        yield Finding(run.run_id, "records", str(error))
    except NcoBenchError as error:
        yield Finding(run.run_id, "dataset", str(error))
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        yield Finding(run.run_id, "records", f"not readable as records ({error})")


def _is_file(cell: Cell) -> bool:
    names = (cell.source, cell.dataset)
    return any(Path(n).is_file() or Path(n).is_absolute() or ".." in Path(n).parts for n in names if n) or (
        bool(cell.source) and cell.origin.get("generator") is None and "." in Path(cell.source).name
    )


def _records(
    run: Run, cells: dict[int, Cell], places: Places, here: Mapping[str, float]
) -> Iterator[Finding]:
    known: dict[int, Dataset] = {}
    count = 0
    for record in run.records():
        count += 1
        cell = cells.get(record.cell)
        if cell is None:
            continue  # `verify` says so
        if cell.cell not in known:
            known[cell.cell] = load_dataset(cell.dataset, places)
        place = f"{record.name} (instance {record.instance}, repeat {record.repeat})"
        if not (math.isfinite(record.seconds) and record.seconds >= 0):
            yield Finding(run.run_id, place, f"{record.seconds!r} s is no time")
        wrong = _reference(record, cell, known[cell.cell], here)
        if wrong:
            yield Finding(run.run_id, place, wrong)
    if not count:
        yield Finding(run.run_id, "records", "there are none")


def _reference(record: Record, cell: Cell, dataset: Dataset, here: Mapping[str, float]) -> str:
    """Say what is wrong with a record's reference: every gap on its instance would be measured against it."""
    position = record.instance - dataset.first_index
    if record.reference is None or not 0 <= position < len(dataset):
        return ""
    sign = -1.0 if problem_module(cell.problem).OBJECTIVE == "max" else 1.0
    stored, content = dataset.references[position], dataset.instance_hashes[position]
    costs = [sign * here[content]] if content in here else []
    costs += [] if stored is None else [sign * stored.cost]
    if not costs:
        return f"its reference {record.reference!r} cannot be checked: none is known here for this instance"
    best = sign * min(costs)
    if not sign * (record.reference - best) >= -COST_TOLERANCE * max(1.0, abs(best)):
        return (
            f"its reference {record.reference!r} is better than the best known {best!r}; "
            "submit the solution that it belongs to as a record of its own first"
        )
    return ""


def _best_here(results: Path) -> dict[str, float]:
    """Return the best cost or reference of every instance that records of the results folder know, by its hash."""
    if not find_runs(results):
        return {}
    frame = load_frame(results)
    objective = [-1.0 if group.cell.objective == "max" else 1.0 for group in frame.groups]
    records = frame.records[frame.records["content"] != 0]
    sign = records["group"].map(dict(enumerate(objective))).to_numpy()
    best = np.fmin(sign * records["cost"].to_numpy(), sign * records["reference"].to_numpy())
    lowest = pd.DataFrame({"content": records["content"].to_numpy(), "best": best, "sign": sign})
    found = lowest.dropna().groupby("content").min()
    return {
        f"{int(str(content)):016x}": sign * value
        for content, value, sign in zip(found.index, found["best"], found["sign"], strict=True)
    }

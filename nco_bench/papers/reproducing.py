"""From published tables and a scale to every printed number beside ours: run what is missing, measure, judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.generate import generated_once
from nco_bench.errors import BadInputError, NcoBenchError, UnknownNameError
from nco_bench.papers.entries import Entry, Reproduction, computed_entry, in_printed_unit, noted, without
from nco_bench.papers.judging import Verdict, judge
from nco_bench.papers.measuring import Records
from nco_bench.papers.preset import (
    SCALES,
    CellPreset,
    Preset,
    has_preset,
    load_preset,
    numeric_cells,
    with_print,
)
from nco_bench.papers.published import PublishedCell, PublishedTable, list_papers, list_tables, load_table
from nco_bench.papers.running import (
    Computed,
    Job,
    Outcome,
    Runner,
    lacks_reference,
    solver_missing,
    weights_at_hand,
)
from nco_bench.reports.frame.load import load_frame


@dataclass
class _Pending:
    """A cell whose job is known, waiting for its records."""

    cell: PublishedCell
    preset: CellPreset
    job: Job
    outcome: Outcome
    reference: tuple[Job, Outcome] | float | None = None
    reading: str = ""


@dataclass
class _Mean:
    """A cell that is the mean of others, one per dataset."""

    cell: PublishedCell
    preset: CellPreset
    parts: list[Entry | _Pending]
    reading: str = ""


_Slot = Entry | _Pending | _Mean


@dataclass
class _Sheet:
    table: PublishedTable
    preset: Preset
    slots: list[_Slot] = field(default_factory=list)


def tables_of(paper: str, number: str | None) -> list[PublishedTable]:
    """Return the tables that a command means: those of a paper or of all, with a preset, or the one that is named.

    Raises
    ------
    UnknownNameError, BadInputError
        For an unknown paper or table, or one without a preset.
    """
    papers = list_papers()
    if paper != "all" and paper not in papers:
        raise UnknownNameError("paper", paper, ["all", *papers])
    if number is not None:
        if paper == "all":
            raise BadInputError("--table needs a paper, for example 'nco-bench reproduce pens --table 2'.")
        table = load_table(paper, number)
        load_preset(paper, table.number)
        return [table]
    known = [t for t in list_tables() if paper in ("all", t.paper) and has_preset(t.paper, t.number)]
    if not known:
        raise BadInputError(f"{paper}: none of its tables has a preset yet; see 'nco-bench list tables'.")
    return [load_table(t.paper, t.number) for t in known]


def reproduce(tables: Sequence[PublishedTable], scale: str, runner: Runner) -> list[Reproduction]:
    """Run what is missing of some tables and hold every printed number against ours.

    Parameters
    ----------
    tables
        From `tables_of`.
    scale
        ``smoke``, ``cpu`` or ``full``.
    runner
        Where results and instances are, and who is told.

    Raises
    ------
    UnknownNameError
        For another scale.
    BadInputError
        For a preset that leaves a printed number out.
    """
    with generated_once():
        sheets = plan(tables, scale, runner)
    pending = any(_has_records(slot) for sheet in sheets for slot in sheet.slots)
    records = Records(load_frame(runner.results, runner.places.instances)) if pending else None
    return [
        Reproduction(
            sheet.table,
            scale,
            tuple(_entry(slot, records) for slot in sheet.slots),
            sheet.preset.notes,
        )
        for sheet in sheets
    ]


def _has_records(slot: _Slot) -> bool:
    if isinstance(slot, _Mean):
        return any(not isinstance(part, Entry) for part in slot.parts)
    return not isinstance(slot, Entry)


def plan(tables: Sequence[PublishedTable], scale: str, runner: Runner) -> list[_Sheet]:
    """Ask the runner for everything that some tables need; raises as `reproduce` does."""
    if scale not in SCALES:
        raise UnknownNameError("scale", scale, SCALES)
    return [_sheet(table, scale, runner) for table in tables]


def _sheet(table: PublishedTable, scale: str, runner: Runner) -> _Sheet:
    preset = load_preset(table.paper, table.number)
    sheet = _Sheet(table, preset)
    computed: dict[str, Computed | Verdict] = {}
    for _, row in groupby(numeric_cells(table), key=lambda cell: cell.row):
        others: dict[str, list[_Slot]] = {}
        for cell in row:
            found = with_print(preset, table, cell, scale)
            if found.cannot:
                sheet.slots.append(without(cell, found, found.status, found.cannot))
            elif found.compute:
                if found.compute not in computed:
                    computed[found.compute] = runner.compute(found.compute, preset, table, scale)
                sheet.slots.append(computed_entry(cell, found, computed[found.compute]))
            else:
                sheet.slots.append(_planned(cell, found, preset, scale, runner))
            for name, reading in found.readings.items():
                slot = _planned(cell, reading, preset, scale, runner)
                named = replace(cell, row=f"{cell.row} ({name})")
                others.setdefault(name, []).append(replace(slot, cell=named, reading=name))
        for slots in others.values():
            sheet.slots += slots
    return sheet


def answer(preset: CellPreset, runner: Runner) -> str:
    """Run what a cell needs, with the reference where its set has none; return why it cannot be had, or nothing."""
    problem = problem_of(preset)
    weights, missing = weights_at_hand(preset.solver.partition(":")[0], preset.weights, problem)
    if missing:
        return missing
    preset = replace(preset, weights=weights)
    for name in preset.mean_of or preset.data:
        one = replace(preset, data=(name,), mean_of=())
        try:
            dataset, source = runner.dataset(one)
        except NcoBenchError as error:
            if name == (preset.mean_of or preset.data)[-1] or preset.mean_of:
                return str(error).rstrip(".")
            continue
        job = runner.job(one, dataset)
        outcome = runner.run(job, source)
        if outcome.cell is None:
            return outcome.reason.rstrip(".")
        if preset.reference and not preset.reference_mean and lacks_reference(dataset, job.count):
            reference = _reference(one, dataset, source, runner)
            if isinstance(reference, str):
                return reference
        if not preset.mean_of:
            break
    return ""


def problem_of(preset: CellPreset) -> str:
    """Return what a cell's weights are for, by the names of its datasets."""
    names = (*preset.data[:1], *preset.mean_of[:1])
    if names and names[0].startswith("lra-"):  # a network of each task
        return names[0].partition(":")[0]
    return next((p for p in ("cvrp", "bpp3d") if any(p in name for name in names)), "tsp")


def _planned(cell: PublishedCell, found: CellPreset, preset: Preset, scale: str, runner: Runner) -> _Slot:
    """Run the job or the jobs of a cell, or say why they do not run."""
    if not found.mean_of:
        return _planned_one(cell, found, preset, scale, runner)
    each = [replace(found, data=(name,), mean_of=()) for name in found.mean_of]
    return _Mean(cell, found, [_planned_one(cell, one, preset, scale, runner) for one in each])


def _planned_one(
    cell: PublishedCell, found: CellPreset, preset: Preset, scale: str, runner: Runner
) -> Entry | _Pending:
    absent = solver_missing(found.solver)
    if absent:
        return without(cell, found, "not run", absent)
    weights, missing = weights_at_hand(found.solver.partition(":")[0], found.weights, problem_of(found))
    if missing:
        return without(cell, found, "weights missing", missing)
    found = replace(found, weights=weights)
    if found.count == 0:
        larger = [s for s in SCALES[SCALES.index(scale) + 1 :] if preset.cell(cell, s).count]
        hint = f"; --scale {larger[0]} runs it" if larger else ""
        return without(cell, found, "not run", f"too much for the {scale} scale{hint}")
    try:
        dataset, source = runner.dataset(found)
    except NcoBenchError as error:
        return without(cell, found, "not run", str(error).rstrip("."))
    job = runner.job(found, dataset)
    to_mean = found.metric == "gap-of-means" and found.reference_mean > 0
    if to_mean and job.count < len(dataset):
        return without(cell, found, "not comparable", _mean_of_all(found, job, dataset))
    outcome = runner.run(job, source)
    if outcome.cell is None:
        return without(cell, found, outcome.status, outcome.reason.rstrip("."))
    if to_mean:
        return _Pending(cell, found, job, outcome, found.reference_mean)
    if found.metric not in ("gap", "gap-of-means") or not lacks_reference(dataset, job.count):
        return _Pending(cell, found, job, outcome)
    reference = _reference(found, dataset, source, runner)
    if isinstance(reference, str):
        return without(cell, found, "not run", reference)
    return _Pending(cell, found, job, outcome, reference)


def _mean_of_all(found: CellPreset, job: Job, dataset: Dataset) -> str:
    """Say why some instances of a set have no gap where only the mean reference of the whole set is published."""
    return (
        f"the paper's reference is a mean of {found.reference_mean:g} over all {len(dataset)} instances; "
        f"{job.count} of them have no gap to it"
    )


def _reference(found: CellPreset, dataset: Dataset, source: str, runner: Runner) -> tuple[Job, Outcome] | str:
    if not found.reference:
        return f"{dataset.name} has no reference solutions; 'nco-bench reference {source}' makes them"
    plain = CellPreset(solver=found.reference, count=found.count, data=found.data, seed=found.seed)
    job = runner.job(plain, dataset)
    outcome = runner.run(job, source)
    return (job, outcome) if outcome.cell is not None else f"reference: {outcome.reason}".rstrip(".")


def _entry(slot: _Slot, records: Records | None) -> Entry:
    if isinstance(slot, Entry):
        return slot
    if isinstance(slot, _Mean):
        return _mean_entry(slot, [_entry(part, records) for part in slot.parts])
    assert records is not None
    assert slot.outcome.cell is not None
    reference = slot.reference[1].cell if isinstance(slot.reference, tuple) else slot.reference
    measured = records.measure(
        slot.preset.metric,
        slot.outcome.cell,
        slot.job.count,
        slot.job.repeats,
        reference,
        timing=slot.preset.timing,
    )
    measured = in_printed_unit(measured, slot.preset, slot.cell)
    verdict = noted(judge(slot.cell, slot.preset, measured), slot.preset, measured.course)
    value, low, high = measured.value, measured.low, measured.high
    return Entry(slot.cell, slot.preset, value, low, high, verdict, measured, slot.reading)


def _mean_entry(slot: _Mean, parts: Sequence[Entry]) -> Entry:
    """Average the numbers of several datasets; without one of them there is no mean."""
    values = [part.value for part in parts if part.value is not None]
    if len(values) < len(parts):
        lacking = next(part for part in parts if part.value is None)
        return replace(lacking, cell=slot.cell, preset=slot.preset, reading=slot.reading)
    measured = [part.measured for part in parts if part.measured is not None]
    whole = replace(measured[0], instances=sum(m.instances for m in measured), distribution="")
    verdict = parts[0].verdict
    said = replace(verdict, reason=f"mean over {len(parts)} datasets; {verdict.reason}")
    return Entry(slot.cell, slot.preset, sum(values) / len(values), None, None, said, whole, slot.reading)

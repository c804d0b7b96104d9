"""How the papers' tables stand by stored records alone: every number's status, every open one's cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from nco_bench.datasets.names import stream_of
from nco_bench.errors import counted
from nco_bench.papers.costs import Cost, Costs
from nco_bench.papers.entries import Entry, computed_entry, in_printed_unit, noted, without
from nco_bench.papers.judging import ENOUGH, Verdict, judge
from nco_bench.papers.kept import RUNS_NETWORKS, Computed, kept
from nco_bench.papers.needs import FACTORS, HELD_OUT, calibration_needed, program_needed, weights_needed
from nco_bench.papers.preset import SCALES, CellPreset, Preset, load_preset, numeric_cells, with_print
from nco_bench.papers.published import PublishedCell, PublishedTable
from nco_bench.papers.running import compute_numbers, solver_missing
from nco_bench.papers.stored import Stored, configuration

MEANS = ("gap", "gap-of-means", "cost")
"""Metrics that are means over instances, which more of them make more certain."""
LONGEST = 8 * 3600.0
"""Seconds of a night: a run that would take longer here is not waited for, and its cell says ``too long``."""
WIDE = 1000
"""Nodes beyond which one instance of a network is asked for; a mean of 16 would take days of a core."""


@dataclass(frozen=True)
class Standing:
    """One printed number by stored records.

    Attributes
    ----------
    table
        Where it is printed.
    entry
        The number beside ours.
    needs
        What an open one needs, in words; empty for others.
    seconds
        Expected seconds of `instances`; None where unknown, or the cell is not open.
    instances
        How many a run would solve: `ENOUGH`, one of networks beyond `WIDE` nodes, or all where only the whole set has an
        answer.
    basis
        What the seconds come from.
    reference_seconds
        Of `seconds`, what references take.
    few
        Instances of the stored run that answers it, where a run of more is asked for; 0 for others.
    """

    table: PublishedTable
    entry: Entry
    needs: str = ""
    seconds: float | None = None
    instances: int = 0
    basis: str = ""
    reference_seconds: float = 0.0
    few: int = 0

    @property
    def runnable(self) -> bool:
        """Whether a run here can answer it, or better than the stored one does."""
        if self.few:
            return self.instances > self.few
        return self.entry.verdict.status in ("not run", "too long") and self.instances > 0

    @property
    def solver(self) -> str:
        """Registry name of the solver that answers it; empty where none does."""
        return self.entry.preset.solver.partition(":")[0]

    def as_dict(self) -> dict[str, Any]:
        """Return what ``reproduce --status --json`` lists of an open cell."""
        cell, preset = self.entry.cell, self.entry.preset
        return {
            "paper": self.table.paper, "table": str(self.table.number), "row": cell.row, "column": cell.column,
            "status": self.entry.verdict.status, "needs": self.needs, "seconds": self.seconds,
            "instances": self.instances, "device": preset.device, "basis": self.basis,
            "reason": self.entry.verdict.reason,
        }  # fmt: skip


def standings(
    tables: Sequence[PublishedTable], stored: Stored, *, readings: bool = False, anywhere: bool = False,
    least: int = 0,
) -> list[Standing]:  # fmt: skip
    """Return how every printed number of some tables stands; nothing is run and nothing written.

    Parameters
    ----------
    tables
        From `nco_bench.papers.reproducing.tables_of`.
    stored
        The records.
    readings
        Whether other readings of a paper stand below their rows, as in a reproduced table.
    anywhere
        Whether to pass over what is not installed on this machine, so that records say the same everywhere.
    least
        Numbers of records of fewer instances can be run anew; so can none where it is 0.

    Raises
    ------
    BadInputError
        For a preset that leaves a printed number out.
    """
    view = _View(stored, Costs(stored), anywhere, least)
    return [standing for table in tables for standing in _of_table(table, view, readings)]


@dataclass(frozen=True)
class _View:
    """Where numbers are looked up, whether what is not installed here counts, and of how many instances they should be."""

    stored: Stored
    costs: Costs
    anywhere: bool
    least: int = 0


def _of_table(table: PublishedTable, view: _View, readings: bool) -> Iterator[Standing]:
    preset = load_preset(table.paper, table.number)
    computed: dict[str, Computed | Verdict] = {}
    for _, row in groupby(numeric_cells(table), key=lambda cell: cell.row):
        others: dict[str, list[Standing]] = {}
        for cell in row:
            ways = {scale: with_print(preset, table, cell, scale) for scale in SCALES}
            yield _of_cell(table, preset, cell, ways, view, computed)
            for name in ways["full"].readings if readings else ():
                read = {scale: way.readings[name] for scale, way in ways.items() if name in way.readings}
                one = _of_cell(table, preset, cell, read, view, computed)
                named = replace(one.entry, cell=replace(cell, row=f"{cell.row} ({name})"), reading=name)
                others.setdefault(name, []).append(replace(one, entry=named))
        for below in others.values():
            yield from below


def _of_cell(
    table: PublishedTable, preset: Preset, cell: PublishedCell, ways: Mapping[str, CellPreset], view: _View,
    computed: dict[str, Computed | Verdict],
) -> Standing:  # fmt: skip
    found = ways["full"]
    if found.cannot:
        return Standing(table, without(cell, found, found.status, found.cannot), needs=found.cannot)
    if found.compute:
        return _by_function(table, preset, cell, found, computed, view)
    for way in _most_first(ways):
        entry = _stored_entry(cell, way, view.stored)
        if entry is not None:
            return _answered(table, entry, _most_first(ways), view)
    return _open(table, cell, _most_first(ways), view)


def _answered(table: PublishedTable, entry: Entry, ways: Sequence[CellPreset], view: _View) -> Standing:
    """Say what more instances would cost where a number is of fewer than is asked for; times are of any number."""
    few = 0 if entry.measured is None else entry.measured.instances
    if few >= view.least or entry.preset.metric not in MEANS:
        return Standing(table, entry)
    more = _open(table, entry.cell, ways, view)
    if more.seconds is None or more.instances <= few or not more.runnable:
        return Standing(table, entry)
    return replace(
        more,
        entry=replace(entry, preset=more.entry.preset),
        needs=f"{counted(more.instances, 'instance')}, {few} stored",
        seconds=_rest(entry, more, few),
        few=few,
    )


def _rest(entry: Entry, more: Standing, few: int) -> float | None:
    """Seconds of the instances that a run would still solve: it takes those that are stored as they are.

    A longer search, or one that a time limit ended, is another run, which leaves it all of them.
    """
    measured, wanted = entry.measured, more.entry.preset
    other = measured is None or measured.course or configuration(entry.preset) != configuration(wanted)
    if other or more.seconds is None:
        return more.seconds
    share = 1 - few / more.instances
    return round((more.seconds - more.reference_seconds) * share + more.reference_seconds, 3)


def _most_first(ways: Mapping[str, CellPreset]) -> list[CellPreset]:
    """The ways of a cell that solve anything, those of the most instances first."""
    return sorted((way for way in ways.values() if way.count), key=lambda way: -way.count) or [ways["full"]]


def _by_function(
    table: PublishedTable, preset: Preset, cell: PublishedCell, found: CellPreset,
    computed: dict[str, Computed | Verdict], view: _View,
) -> Standing:  # fmt: skip
    if found.compute not in computed and found.compute.startswith(RUNS_NETWORKS):
        ways = (kept(view.stored.folders, found.compute, table, scale) for scale in reversed(SCALES))
        known = next((one for one in ways if one is not None), None)
        if known is not None:
            computed[found.compute] = known
    if found.compute not in computed and found.compute.startswith(RUNS_NETWORKS):
        needs = weights_needed(found, None, table.paper) if found.solver else ""
        if needs:
            return Standing(
                table, without(cell, found, "weights missing", "neither shipped nor pulled"), needs
            )
        reason = "computed by running the networks; no records of it are stored"
        command = f"nco-bench reproduce {table.paper} --table {table.number} --scale cpu"
        return Standing(table, without(cell, found, "not run", reason), needs=command)
    if found.compute not in computed:
        computed[found.compute] = compute_numbers(found.compute, preset, table, "full")
    entry = computed_entry(cell, found, computed[found.compute])
    if entry.verdict.status == "not run" and found.coordinate_scale == "auto" and found.data:
        return _uncalibrated(table, entry, view.costs)
    lacking = entry.verdict.status == "weights missing" and bool(found.solver)
    return Standing(table, entry, weights_needed(found, None, table.paper) if lacking else "")


def _uncalibrated(table: PublishedTable, entry: Entry, costs: Costs) -> Standing:
    """Say what the search for a coordinate scale costs, which is the number itself here."""
    preset, cost = entry.preset, costs.of_instance(entry.preset)
    needs = calibration_needed(preset, costs.size(preset.data[0]))
    seconds = None if cost is None else round(FACTORS * HELD_OUT * cost.seconds, 3)
    if seconds is not None and seconds > LONGEST:
        said = f"about {seconds / 3600:,.0f} hours of a core for the search for the scale"
        entry = without(entry.cell, preset, "too long", said)
    return Standing(table, entry, needs, seconds, 0, "" if cost is None else cost.basis)


def _stored_entry(cell: PublishedCell, preset: CellPreset, stored: Stored) -> Entry | None:
    each = [replace(preset, data=(name,), mean_of=()) for name in preset.mean_of] or [preset]
    measured = [stored.measure(one) for one in each]
    if any(one is None or (one.value is None and not one.oom) for one in measured):
        return None
    scaled = [in_printed_unit(one, preset, cell) for one in measured if one is not None]
    first = scaled[0]
    verdict = noted(judge(cell, preset, first), preset, first.course)
    if len(scaled) > 1:
        values = [one.value for one in scaled if one.value is not None]
        first = replace(
            first, value=sum(values) / len(values), low=None, high=None,
            instances=sum(one.instances for one in scaled), other_gap=None,
        )  # fmt: skip
    return Entry(cell, preset, first.value, first.low, first.high, verdict, first)


def _open(table: PublishedTable, cell: PublishedCell, ways: Sequence[CellPreset], view: _View) -> Standing:
    preset, stored, costs = ways[0], view.stored, view.costs
    otherwise = stored.timed_otherwise(preset)
    if otherwise:
        batch = f" --batch-size {preset.batch_size}" if preset.batch_size else ""
        needs = f"'nco-bench run --device {preset.device}{batch} --fresh'"
        return Standing(table, without(cell, preset, "not run", otherwise), needs=needs)
    absent = solver_missing(preset.solver)
    if absent and not view.anywhere:
        return Standing(table, without(cell, preset, "not run", absent), needs=absent)
    sets = preset.mean_of or preset.data[:1]
    cost = [costs.of_instance(replace(preset, data=(name,), mean_of=())) for name in sets]
    number = preset.count if preset.reference_mean else min(preset.count, _enough(preset, costs, view.least))
    seconds, basis = _total(cost, number)
    lacking = None if seconds is None else _reference_seconds(preset, sets, number, stored, costs)
    if seconds is not None:
        seconds = None if lacking is None else round(seconds + lacking, 3)
        basis = f"{basis}, and the reference" if lacking else basis
    size = costs.size(sets[0]) if sets else None
    needs = weights_needed(preset, size, table.paper)
    if needs:
        entry = without(cell, preset, "weights missing", "neither shipped nor pulled")
        return Standing(table, entry, needs, seconds, number, basis)
    first = calibration_needed(preset, size)
    if first and seconds is not None and cost[0] is not None:
        seconds = round(seconds + FACTORS * HELD_OUT * cost[0].seconds, 3)
    if seconds is not None and seconds > LONGEST:
        said = f"about {seconds / 3600:,.0f} hours of a core for {number} instance{'s' * (number > 1)}"
        also = ["the search for the scale"] * bool(first) + ["references"] * bool(lacking)
        said += f", {' and '.join(also)} included" if also else ""
        entry = without(cell, preset, "too long", said)
        return Standing(table, entry, first or "a run", seconds, number, basis, lacking or 0.0)
    if first:
        entry = without(cell, preset, "not run", "the weights have no coordinate scale of this size")
        return Standing(table, entry, first, seconds, 0, basis)
    program = "" if view.anywhere else program_needed(preset, size)
    if program:
        return Standing(table, without(cell, preset, "not run", program), needs=program)
    entry = without(cell, preset, "not run", "no records are stored")
    return Standing(table, entry, "a run", seconds, number, basis, lacking or 0.0)


def _enough(preset: CellPreset, costs: Costs, least: int) -> int:
    """How many instances a run solves where all would be more: one of a network on very many nodes."""
    from nco_bench.cards import cards

    known = cards().get(preset.solver.partition(":")[0])
    name = next(iter(preset.data), "")
    neural = known is not None and known.kind == "neural"
    of_a_library = name.startswith(("tsplib", "cvrplib"))
    return 1 if neural and not of_a_library and (costs.size(name) or 0.0) > WIDE else max(ENOUGH, least)


def _reference_seconds(
    preset: CellPreset, sets: Sequence[str], number: int, stored: Stored, costs: Costs
) -> float | None:
    """What the references of a gap cost where sets have none and none are stored; None where that is unknown."""
    if not preset.needs_reference:
        return 0.0
    plain = CellPreset(metric="cost", solver=preset.reference, seed=preset.seed, count=number)
    open_sets = [replace(plain, data=(name,)) for name in sets if stream_of(name) is not None]
    total = 0.0
    for one in open_sets:
        there = stored.measure(one)
        lacking = number - (0 if there is None else there.instances)
        cost = costs.of_instance(one) if lacking > 0 else None
        if lacking > 0 and cost is None:
            return None
        total += lacking * cost.seconds if cost is not None else 0.0
    return total


def _total(costs: Sequence[Cost | None], number: int) -> tuple[float | None, str]:
    known = [cost for cost in costs if cost is not None]
    if not known or len(known) < len(costs):
        return None, "nothing near is stored"
    return round(number * sum(cost.seconds for cost in known), 3), known[0].basis

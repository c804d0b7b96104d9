"""The runner: load, warm up, then for each batch synchronise, clock, solve, synchronise, clock; score; append.

A record is keyed by everything that can move it, so a second start of the same command continues where the
first one stopped, and two processes can share a results folder.
"""

from __future__ import annotations

import itertools
import statistics
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nco_bench.datasets.dataset import Dataset, Reference
from nco_bench.errors import BadInputError, debugging
from nco_bench.isolation import guard
from nco_bench.nn.device import on_cpu
from nco_bench.problems import problem as problem_module
from nco_bench.progress import Batch, Level, opened
from nco_bench.runs.better import BetterSolutions
from nco_bench.runs.clock import PeakMemory, resident_mb
from nco_bench.runs.display import NO_GAPS, Display, Gaps, title_of
from nco_bench.runs.environment import Capture
from nco_bench.runs.judge import Judged, Place, batch_costs, gap_percent, judge
from nco_bench.runs.ready import prepared, usable
from nco_bench.runs.records import Cell, Record, record_keys
from nco_bench.runs.request import (
    SEEDS,
    CellPlan,
    RunRequest,
    describe,
    ended_early,
    load_datasets,
    plan_cells,
    seed_of,
)
from nco_bench.runs.solving import SolvedBatch, begin_batch, measured_alone
from nco_bench.runs.store import RunWriter, batch_sizes, is_called
from nco_bench.runs.store import done as stored_before
from nco_bench.solvers.protocol import Begins, Failure, Solved, Solver

LATE = (1.01, 0.01)
"""From where on an instance took longer than its time limit: factor and seconds, which the call itself may take."""
FAILURES_TOLD = 20
"""Failures of a cell that are shown; all are in the records."""


@dataclass
class RunOutcome:
    """Run folders written, cells in order, how many instances failed, and submissions to SLURM that have part of it.

    `references` are those of the datasets, by the hash of the instance, where records of before may not know them.
    """

    run_ids: list[str] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    failed: int = 0
    skipped: list[str] = field(default_factory=list)
    submissions: list[str] = field(default_factory=list)
    references: dict[str, Reference] = field(default_factory=dict)


def run(request: RunRequest, display: Display) -> RunOutcome:
    """Run all cells of a request in this process.

    Raises
    ------
    BadInputError
        When no solver of the request can run on any of its datasets.
    """
    guard(request.results, request.places.instances)
    with Capture() as environment:
        datasets = load_datasets(request)
        ready, skipped = usable(plan_cells(request, datasets), whole=request.asked is None)
        if not ready:
            raise BadInputError("; ".join(dict.fromkeys(skipped)) + ".")
        for line in (*ended_early(request, datasets), *(f"skipped {line}" for line in skipped)):
            display.message(line)
        outcome = RunOutcome(skipped=skipped)
        info: dict[str, Any] = {"command": request.command, "seed": request.seed}
        if request.study is not None:
            info["study"] = request.study
        with RunWriter(request.results, {**info, "environment": environment.facts}) as writer:

            def when_ready() -> None:
                """Complete the facts before the first clock starts, so that no git or nvidia-smi runs beside a solver."""
                facts = environment.finish()
                if facts is not None:
                    writer.describe({**info, "environment": facts})

            for index, (plan, solver) in enumerate(ready):
                cell, failed = _run_cell(
                    request, plan, solver, index, writer, display, when_ready, outcome.references
                )
                outcome.cells.append(cell)
                outcome.failed += failed
        if writer.folder.exists():  # where all was stored before, there is none
            outcome.run_ids.append(writer.run_id)
    return outcome


def _run_cell(
    request: RunRequest, plan: CellPlan, solver: Solver, index: int, writer: RunWriter, display: Display,
    when_ready: Callable[[], None], references: dict[str, Reference],
) -> tuple[Cell, int]:  # fmt: skip
    dataset = plan.dataset
    held_before = resident_mb()
    solver = prepared(plan, solver)
    try:
        cell = describe(request, plan, solver, index)
        done: dict[tuple[int, int], float | None] = {}
        if not request.fresh:
            for folder in (request.results, *request.known):
                stored = stored_before(folder, cell.config_sha256, request.seed, dataset)
                done |= {place: cost for place, cost in stored.items() if place[0] < request.repeats}
        if done:  # perhaps from a copy of the set without references
            references |= dataset.costs_of_references()
        pending = list(_batches(request, cell, dataset, done))
        total = request.repeats * len(dataset)
        left = sum(len(indices) for _, indices in pending)
        stored_gaps = gaps_of(cell, dataset, done)
        display.start_cell(cell, total, total - left, stored_gaps)
        if done and request.batch_size is not None:
            _tell_other_batches(request, cell, dataset, done, display)
        budget = getattr(solver, "budget", lambda *_: "")(dataset, request.time_limit)
        if left and budget:
            display.message(f"{title_of(cell)}: {budget}")
        better = BetterSolutions(dataset, cell, request.update_references)
        if done and request.update_references:
            better.note_stored((request.results, *request.known), request.repeats)
        if not pending:
            _keep_names(request, cell, dataset, writer)
            better.finish(display, request.places.instances)
            return cell, 0
        when_ready()
        if isinstance(solver, Begins):
            solver.ready()
        writer.cell(cell)
        peak = PeakMemory(cell.device)
        alone = measured_alone(solver, dataset, request, cell)
        cut = _cut_batches(request, cell, alone.seconds)
        if cut:
            pending = list(_batches(request, cell, dataset, done))
        worker = _CellWorker(request, plan, solver, cell, writer, display, peak, better)
        worker.gaps = stored_gaps
        worker.work(pending, alone.answer)
        cell.latency_seconds = alone.seconds if alone.seconds is not None else worker.median_seconds()
        cell.seconds_total = round(worker.elapsed, 6)
        cell.peak_memory_mb, cell.peak_device_memory_mb = peak.host_mb(), peak.device_mb()
        cell.memory_before_mb = held_before
        cell.notes = [*getattr(solver, "notes", lambda: [])(), *cut]
        if request.time_limit is not None:
            cell.notes += _notes_on_limit(plan, request.time_limit, worker.seconds)
        if request.beside > 1:
            shared = f", {request.sharing} of them on {cell.device}" if request.sharing > 1 else ""
            cell.notes.append(f"timed with {request.beside} jobs at once{shared}")
        cell.records = writer.written[cell.cell]
        writer.cell(cell)
        better.finish(display, request.places.instances)
        return cell, worker.failed
    finally:
        getattr(solver, "close", lambda: None)()


def _tell_other_batches(
    request: RunRequest, cell: Cell, dataset: Dataset, done: Collection[tuple[int, int]], display: Display
) -> None:
    """Say where what is stored was solved in batches of another size: the solutions are the same, the times are not.

    A batch is no larger than the set, or the share of it that a job takes; that is no other size.
    """
    sizes: dict[tuple[int, int], int] = {}
    for folder in (request.results, *request.known):
        sizes |= batch_sizes(folder, cell.config_sha256, request.seed, dataset)
    asked = request.batch_size
    other = {size for place, size in sizes.items() if place in done} - {asked, cell.batch_size}
    if other:
        these = " or ".join(map(str, sorted(other)))
        display.message(  # no counts: each job has a share of its own, and what all say alike is told once
            f"{title_of(cell)}: what is stored was solved in batches of {these}, not {asked}, "
            "and so are its times; --fresh measures them anew"
        )


def _cut_batches(request: RunRequest, cell: Cell, alone: float | None) -> list[str]:
    """Let no batch take longer than the request says; return a note on the times where that made batches smaller.

    A GPU solves many instances in the time of one, which says little of a batch there.
    """
    if request.batch_seconds is None or not alone or not on_cpu(cell.device):
        return []
    size = max(1, int(request.batch_seconds / alone))
    if size >= cell.batch_size:
        return []
    whole, cell.batch_size = cell.batch_size, size
    return [
        f"timed in batches of {size}, not {whole}, each to be kept once it is solved; larger ones may be faster"
    ]


def _notes_on_limit(plan: CellPlan, limit: float, seconds: Sequence[float]) -> list[str]:
    """Say what the limit counts; and who was given a grace before it was killed, how often that was used."""
    notes = []
    if plan.choice.info.clock == "processor":
        notes.append(f"the time limit of {limit:g} s counts processor time, not wall time")
    late = [one for one in seconds if one > limit * LATE[0] + LATE[1]]
    if late and plan.choice.info.kind == "external":
        some = f"{len(late)} of {len(seconds)} instances"
        notes.append(f"{some} took longer than the time limit of {limit:g} s, up to {max(late):.3g} s")
    return notes


def _keep_names(request: RunRequest, cell: Cell, dataset: Dataset, writer: RunWriter) -> None:
    """Store a cell without records of its own, if no other says that what is stored answers to its names, too."""
    first = cell.asked is None or cell.asked[0] == dataset.first_index  # of all shards one says it
    if writer.adds and first and not is_called(request.results, cell, dataset):
        cell.seconds_total = 0.0
        writer.cell(cell)


def _batches(
    request: RunRequest, cell: Cell, dataset: Dataset, done: Collection[tuple[int, int]]
) -> Iterator[tuple[int, range]]:
    """Cut what is not done into runs of neighbours, within blocks that are the same at every start, seeds rising by 1."""
    first, last = dataset.first_index, dataset.first_index + len(dataset)
    size = cell.batch_size
    for repeat in range(request.repeats):
        wrap = first + SEEDS - seed_of(request.seed, first, repeat)  # the first index whose seed is 0 again
        for start in (first, *range((first // size + 1) * size, last, size)):
            stop = min(last, (start // size + 1) * size)
            bounds = (start, wrap, stop) if start < wrap < stop else (start, stop)
            for part in itertools.starmap(range, itertools.pairwise(bounds)):
                free = [i for i in part if (repeat, i) not in done] if done else part
                yield from ((repeat, one) for one in _neighbours(free))


def _neighbours(indices: Sequence[int]) -> Iterator[range]:
    """Cut rising numbers into ranges without holes."""
    for _, group in itertools.groupby(enumerate(indices), lambda pair: pair[1] - pair[0]):
        run = [index for _, index in group]
        yield range(run[0], run[-1] + 1)


def gaps_of(cell: Cell, dataset: Dataset, done: Mapping[tuple[int, int], float | None]) -> Gaps:
    """Add up the gaps of what was stored before: the mean that is shown is that of the whole set."""
    references = (
        (cost, dataset.references[index - dataset.first_index]) for (_, index), cost in done.items()
    )
    gaps = [_gap(cell, cost, None if known is None else known.cost) for cost, known in references]
    found = [gap for gap in gaps if gap is not None]
    return Gaps(sum(found), len(found))


def _gap(cell: Cell, cost: float | None, reference: float | None) -> float | None:
    return None if cost is None or reference is None else gap_percent(cost, reference, cell.objective)


class _CellWorker:
    """Solves, judges and appends the batches of one cell."""

    def __init__(
        self, request: RunRequest, plan: CellPlan, solver: Solver, cell: Cell, writer: RunWriter, display: Display,
        peak: PeakMemory, better: BetterSolutions,
    ) -> None:  # fmt: skip
        self._request, self._dataset, self._solver, self._cell = request, plan.dataset, solver, cell
        self._writer, self._display, self._peak = writer, display, peak
        self._problem = problem_module(plan.dataset.problem)
        self._better = better
        self.seconds = list[float]()
        self.gaps = NO_GAPS
        self.elapsed, self.failed = 0.0, 0

    def work(self, pending: Sequence[tuple[int, range]], first: SolvedBatch | None = None) -> None:
        """Solve and keep all batches; each is judged and written while the next is solved, where that is another process.

        `first` is the answer to instance 0 alone where that was found before: it is not solved again if it is the first
        of the batches.
        """
        if first is not None and pending[0] == (0, range(1)):
            self._peak.sample()
            self._keep(*pending[0], first)
            pending = pending[1:]
        waits = deque([self._begin(*one) for one in pending[:1]])
        for number, (repeat, indices) in enumerate(pending, 1):
            if number < len(pending):
                waits.append(self._begin(*pending[number]))
            level, wait = waits.popleft()
            with level:
                solved = wait()
            self._peak.sample()
            if not waits and isinstance(self._solver, Begins):
                self._solver.dismiss()
            self._keep(repeat, indices, solved)

    def _begin(self, repeat: int, indices: range) -> tuple[Level, Callable[[], SolvedBatch]]:
        level = opened("", len(indices), kind=Batch)
        return level, begin_batch(
            self._solver, self._dataset.instances[self._positions(indices)],
            seed=seed_of(self._request.seed, indices.start, repeat), time_limit=self._request.time_limit,
            device=self._cell.device, progress=level.reach,
        )  # fmt: skip

    def _positions(self, indices: range) -> slice:
        offset = self._dataset.first_index
        return slice(indices.start - offset, indices.stop - offset)

    def _keep(self, repeat: int, indices: range, solved: SolvedBatch) -> None:
        """Judge a batch and append its records."""
        batch = self._dataset.instances[self._positions(indices)]
        references = self._dataset.references[self._positions(indices)]
        hashes = self._dataset.instance_hashes[self._positions(indices)]
        keys = record_keys(self._cell.config_sha256, hashes, self._cell.seed, indices, repeat)
        seed = seed_of(self._request.seed, indices.start, repeat)
        self.elapsed += solved.elapsed
        costs = batch_costs(self._problem, batch, solved.outcomes)
        records = []
        for key, sha256, index, instance, reference, outcome, seconds, cost in zip(
            keys, hashes, indices, batch, references, solved.outcomes, solved.seconds, costs, strict=True
        ):
            place = Place(key, self._cell.cell, index, repeat, seed + index - indices.start, seconds, sha256)
            judged = judge(self._problem, instance, reference, outcome, place, cost)
            record = judged.record
            if judged.solution is not None:
                record.solution, record.solution_sha256 = self._writer.store(judged.solution)
            if isinstance(outcome, Solved) and outcome.trace:
                self._writer.trace(key, outcome.trace)
            records.append(record)
            self._note(judged)
            if isinstance(outcome, Failure) and outcome.traceback and debugging():
                self._display.message(outcome.traceback.rstrip())
        self._writer.append(records)
        self._display.advance(len(records), self.gaps)

    def _note(self, judged: Judged) -> None:
        record = judged.record
        if record.status != "ok":
            self._note_failure(record)
            return
        self.seconds.append(record.seconds)
        gap = _gap(self._cell, record.cost, record.reference)
        if gap is not None:
            self.gaps = Gaps(self.gaps.total + gap, self.gaps.number + 1)
        if (gap is None or gap < 0.0) and self._better.beats(record):
            self._better.note(record, judged.solution)

    def _note_failure(self, record: Record) -> None:
        self.failed += 1
        if self.failed <= FAILURES_TOLD:
            self._display.message(f"{self._cell.label} on {record.name}: {record.status}: {record.message}")
        elif self.failed == FAILURES_TOLD + 1:
            self._display.message(f"{self._cell.label}: further failures are in the records only")

    def median_seconds(self) -> float | None:
        return statistics.median(self.seconds) if self.seconds else None

"""Cutting a run into jobs: shards of about equal time, by stored records or a probe, never of what another job has."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nco_bench.datasets.names import whole_of_set
from nco_bench.errors import BadInputError, NcoBenchError
from nco_bench.nn.device import CPU, CUDA, kind, on_cpu
from nco_bench.runs import planning
from nco_bench.runs.cluster.profile import Profile
from nco_bench.runs.cluster.work import Share, Task
from nco_bench.runs.ready import usable
from nco_bench.runs.records import Cell, record_key
from nco_bench.runs.request import CellPlan, RunRequest, describe, load_datasets, plan_cells
from nco_bench.runs.store import done as stored_before
from nco_bench.solvers.protocol import Begins
from nco_bench.solvers.registry import resolved_options

SHORTEST_SECONDS = 60.0
"""Shorter jobs cost more to start than they compute."""

Claims = Mapping[str, Sequence[tuple[int, int]]]
"""By claim: instances ``first .. last - 1`` that live jobs have."""


@dataclass(frozen=True)
class Sized:
    """What is to be submitted.

    Attributes
    ----------
    tasks
        One per job.
    cells
        All that was asked for, in its order, so that a table can be made of it.
    answers
        By request: its cells, or why it cannot run.
    skipped
        A line for each solver that cannot run on a dataset.
    claimed
        Solutions that live jobs of other submissions have in hand.
    stored
        Solutions that are stored.
    claims
        Of which live jobs have a part.
    """

    tasks: tuple[Task, ...]
    cells: tuple[Cell, ...]
    skipped: tuple[str, ...]
    claimed: int
    stored: int
    claims: tuple[str, ...]
    answers: tuple[tuple[Cell, ...] | NcoBenchError, ...] = ()


NOTHING = Sized((), (), (), 0, 0, ())


@dataclass(frozen=True)
class _Piece:
    """A cell with what is left of it."""

    request: RunRequest
    cell: Cell
    claim: str
    gpu: bool
    ranges: tuple[range, ...]
    seconds: float | None
    taken: int
    stored: int

    @property
    def left(self) -> int:
        return sum(map(len, self.ranges))


def cut(
    requests: Sequence[RunRequest],
    profile: Profile,
    parallel: int,
    claims: Claims,
    tell: Callable[[str], None],
    *,
    lenient: bool = False,
) -> Sized:
    """Cut requests into tasks.

    Parameters
    ----------
    requests
        That store to one folder.
    profile, parallel, claims
        What jobs ask for, how many run at once, and what others have in hand.
    tell
        Called with a line before an instance is solved for an estimate.
    lenient
        Let a request that cannot run be an answer instead of an error.

    Raises
    ------
    BadInputError
        When no solver can run on any of the datasets.
    """
    skipped: list[str] = []
    pieces: list[_Piece] = []
    answers: list[tuple[Cell, ...] | NcoBenchError] = []
    for request in requests:
        before = len(skipped)
        try:
            found = list(_pieces(request, profile, claims, skipped, tell))
        except NcoBenchError as error:
            if not lenient:
                raise
            answers.append(error)
            continue
        pieces += found
        reasons = "; ".join(dict.fromkeys(skipped[before:]))
        answers.append(tuple(piece.cell for piece in found) if found else BadInputError(f"{reasons}."))
    if not pieces and not lenient:
        raise BadInputError("; ".join(dict.fromkeys(skipped)) + ".")
    tasks: list[Task] = []
    for gpu in (False, True):
        mine = [piece for piece in pieces if piece.gpu is gpu and piece.left]
        total = sum(piece.left * (piece.seconds or 0.0) for piece in mine)
        target = max(SHORTEST_SECONDS, min(profile.target_seconds, total / parallel))
        shares = [share for piece in mine for share in _shares(piece, profile, parallel, target)]
        tasks += _packed(shares, gpu, target, apart=profile.shards is not None)
    return Sized(
        tasks=tuple(tasks),
        cells=tuple(piece.cell for piece in pieces),
        skipped=tuple(dict.fromkeys(skipped)),
        claimed=sum(piece.taken for piece in pieces),
        stored=sum(piece.stored for piece in pieces),
        claims=tuple(piece.claim for piece in pieces if piece.taken),
        answers=tuple(answers),
    )


def wants_gpu(plan: CellPlan, request: RunRequest, profile: Profile) -> bool:
    """Whether a solver's jobs ask for a GPU: where it can use one, the profile has one and the device is not the CPU."""
    network = plan.choice.info.kind in ("neural", "external") and bool(plan.choice.info.decodings)
    return network and not on_cpu(request.device) and (profile.gpus > 0 or kind(request.device) == CUDA)


def _pieces(
    request: RunRequest, profile: Profile, claims: Claims, skipped: list[str], tell: Callable[[str], None]
) -> Iterator[_Piece]:
    here = replace(request, device=CPU)  # the GPU is elsewhere
    ready, lines = usable(plan_cells(here, load_datasets(here)))
    skipped += lines
    for plan, solver in ready:
        gpu = wants_gpu(plan, request, profile)
        if isinstance(solver, Begins):
            solver.launch(plan.dataset)
            solver.ready()
        else:
            solver.prepare(plan.dataset)
        try:
            cell = describe(here, plan, solver, 0)
            if gpu:
                options = replace(plan.choice.options, device=CUDA)
                cell = describe(here, replace(plan, choice=replace(plan.choice, options=options)), solver, 0)
            claim = _claim(request, plan, gpu)
            ranges, taken, stored = _left(request, cell, plan, claims.get(claim, ()))
            seconds = planning.known_seconds(request.results, cell, plan.dataset) if ranges else None
            expected = None if seconds is None else seconds[0]
            if ranges and seconds is None and not gpu:
                expected, _ = planning.expect(here, cell, plan.dataset, solver, tell)
        finally:
            getattr(solver, "close", lambda: None)()
        yield _Piece(
            _alone(request, plan), cell, claim, gpu, ranges,
            None if expected is None else expected * request.repeats, taken, stored,
        )  # fmt: skip


def _alone(request: RunRequest, plan: CellPlan) -> RunRequest:
    """Return the request of one cell; options of networks are left out where none would read them."""
    network = bool(plan.choice.info.decodings)
    return replace(
        request,
        solvers=(plan.choice.text,),
        datasets=(plan.source,),
        decodings=(plan.choice.options.decoding,) if network and plan.choice.options.decoding else (),
        weights=request.weights if network else None,
        logit_scale=request.logit_scale if network else None,
        coordinate_scale=request.coordinate_scale if network else None,
        device=request.device if network else CPU,
        jobs=1,
        executor="local",
    )


def _claim(request: RunRequest, plan: CellPlan, gpu: bool) -> str:
    parts = {
        "solver": plan.choice.info.name, "version": plan.choice.info.version, "time_limit": request.time_limit,
        "options": dict(resolved_options(plan.choice.options)), "dataset": whole_of_set(plan.dataset),
        "seed": request.seed, "gpu": gpu,
    }  # fmt: skip
    return record_key(parts)


def _left(
    request: RunRequest, cell: Cell, plan: CellPlan, taken: Sequence[tuple[int, int]]
) -> tuple[tuple[range, ...], int, int]:
    """Return the instances that are neither stored nor another job's, as ranges, and how many solutions are either."""
    dataset = plan.dataset
    stored: set[tuple[int, int]] = set()
    if not request.fresh:
        found = stored_before(request.results, cell.config_sha256, request.seed, dataset)
        stored = {place for place in found if place[0] < request.repeats}
    everything = range(dataset.first_index, dataset.first_index + len(dataset))
    whole = {i for i in everything if all((repeat, i) in stored for repeat in range(request.repeats))}
    theirs = {i for first, last in taken for i in range(first, last) if i in everything} - whole
    left = [i for i in everything if i not in whole and i not in theirs]
    groups = itertools.groupby(enumerate(left), lambda pair: pair[1] - pair[0])
    runs = [[index for _, index in group] for _, group in groups]
    ranges = tuple(range(run[0], run[-1] + 1) for run in runs)
    return ranges, len(theirs) * request.repeats, len(stored)


def _shares(piece: _Piece, profile: Profile, parallel: int, target: float) -> Iterator[Share]:
    """Cut a cell's ranges: into so many as were asked for, by time, or evenly where the time is not known."""
    if profile.shards is not None:
        length = math.ceil(piece.left / profile.shards)
    elif piece.seconds:
        length = max(1, int(target / piece.seconds))
    else:
        length = math.ceil(piece.left / parallel)
    batch = piece.cell.batch_size
    if length > batch and profile.shards is None:
        length -= length % batch
    for one in piece.ranges:
        parts = math.ceil(len(one) / length)
        bounds = [one.start + len(one) * k // parts for k in range(parts + 1)]
        for first, last in itertools.pairwise(bounds):
            asked = piece.cell.asked or (first, last)
            request = replace(piece.request, limit=(first, last), asked=asked)
            seconds = None if piece.seconds is None else piece.seconds * (last - first)
            title = f"{piece.cell.label} {piece.cell.decoding}".strip() + f" on {piece.cell.dataset}"
            yield Share(request, piece.claim, title, first, last, batch, seconds)


def _packed(shares: Sequence[Share], gpu: bool, target: float, *, apart: bool) -> list[Task]:
    """Put short shards together into jobs of about the target; those of unknown length stay alone."""
    tasks: list[list[Share]] = []
    room = 0.0
    for share in shares:
        if share.seconds is None or apart or share.seconds > room or not tasks:
            tasks.append([])
            room = 0.0 if share.seconds is None or apart else max(target, share.seconds)
        tasks[-1].append(share)
        room -= share.seconds or 0.0
    return [Task(tuple(one), gpu) for one in tasks]

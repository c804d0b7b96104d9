"""Running what a preset asks for: the same job once, however many tables need it, through the ordinary runner."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path

from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.load import Places, load_dataset
from nco_bench.errors import BadInputError, BadWeightsError, NcoBenchError, UnknownNameError
from nco_bench.papers.judging import Verdict
from nco_bench.papers.kept import RUNS_NETWORKS, Computed, keep, kept
from nco_bench.papers.measuring import HARDWARE_METRICS
from nco_bench.papers.preset import CellPreset, Preset
from nco_bench.papers.published import PublishedTable
from nco_bench.runs.display import Display
from nco_bench.runs.finding import find_runs
from nco_bench.runs.records import Cell
from nco_bench.runs.request import RunRequest
from nco_bench.runs.runner import run


@dataclass(frozen=True)
class Job:
    """A solver configuration on the first `count` instances of a dataset; equal jobs are run once."""

    solver: str
    weights: str
    decoding: str
    logit_scale: str
    coordinate_scale: str
    params: tuple[tuple[str, str], ...]
    batch_size: int
    time_limit: float
    repeats: int
    seed: int
    device: str
    data: str
    count: int
    timed: bool = False
    """Whether its time or memory is asked for, which other batches do not answer."""


@dataclass(frozen=True)
class Outcome:
    """What became of a job.

    Attributes
    ----------
    cell
        Identity of its records, or None where it did not run.
    status, reason
        ``""`` where it ran, else ``not run`` or ``weights missing`` and why.
    failed
        Instances that failed in this call.
    """

    cell: Cell | None = None
    status: str = ""
    reason: str = ""
    failed: int = 0


@dataclass
class Runner:
    """Runs jobs and remembers what became of them.

    Attributes
    ----------
    results, places
        As for ``nco-bench run``.
    display
        What is told while it works.
    limit
        At most this many instances of any dataset, or None.
    command
        For the records.
    batch_seconds, known
        As in `RunRequest`.
    """

    results: Path
    places: Places
    display: Display
    limit: int | None = None
    command: str = ""
    batch_seconds: float | None = None
    known: tuple[Path, ...] = ()
    outcomes: dict[Job, Outcome] = field(default_factory=dict)
    failed: int = 0

    def job(self, preset: CellPreset, dataset: Dataset) -> Job:
        """Return the job behind a cell."""
        count = min(preset.count, len(dataset), *(() if self.limit is None else (self.limit,)))
        return Job(
            solver=preset.solver,
            weights=preset.weights[0] if preset.weights else "",
            decoding=preset.decoding,
            logit_scale=preset.logit_scale,
            coordinate_scale=preset.coordinate_scale,
            params=tuple(sorted(preset.params.items())),
            batch_size=preset.batch_size,
            time_limit=preset.time_limit,
            repeats=preset.repeats,
            seed=preset.seed,
            device=preset.device,
            data=dataset.name,
            count=count,
            timed=preset.metric in HARDWARE_METRICS and preset.batch_size > 0,
        )

    def dataset(self, preset: CellPreset) -> tuple[Dataset, str]:
        """Return the first dataset of a cell that is at hand, and the name it was asked for by.

        Raises
        ------
        BadInputError
            When none is; the message is that of the first.
        """
        errors = []
        for name in preset.data:
            try:
                return _load(name, self.places), name
            except (BadInputError, UnknownNameError) as error:
                errors.append(str(error))
        raise BadInputError(errors[0] if errors else "the preset names no dataset")

    def run(self, job: Job, source: str) -> Outcome:
        """Run a job, unless this was done before."""
        if job not in self.outcomes:
            self.outcomes[job] = self._run(job, source)
            self.failed += self.outcomes[job].failed
        return self.outcomes[job]

    def _run(self, job: Job, source: str) -> Outcome:
        missing = solver_missing(job.solver)
        if missing:
            return Outcome(status="not run", reason=missing)
        try:
            request = self.request(job, source)
            done = run(request, self.display)
            if job.timed and not self._was_timed(done.cells[0]):
                done = run(replace(request, fresh=True), self.display)
        except NcoBenchError as error:
            return refused(error)
        return Outcome(cell=done.cells[0], failed=done.failed)

    def _was_timed(self, cell: Cell) -> bool:
        """Whether a stored run solved anything of a cell in its batches: results are the same in others, times are not."""
        identity = (cell.config_sha256, cell.seed, cell.batch_size, cell.whole)
        return any(
            (one.config_sha256, one.seed, one.batch_size, one.whole) == identity and one.seconds_total
            for stored in find_runs(self.results)
            for one in stored.cells()
        )

    def request(self, job: Job, source: str) -> RunRequest:
        """Return a job as the ordinary runner takes it; `source` is what its dataset was asked for by."""
        return RunRequest(
            solvers=(job.solver,),
            datasets=(source,),
            results=self.results,
            places=self.places,
            decodings=(job.decoding,) if job.decoding else (),
            weights=job.weights or None,
            logit_scale=job.logit_scale or None,
            coordinate_scale=job.coordinate_scale or None,
            device=job.device,
            seed=job.seed,
            repeats=job.repeats,
            batch_size=job.batch_size or None,
            batch_seconds=self.batch_seconds,
            limit=(0, job.count),
            time_limit=job.time_limit or None,
            params=dict(job.params),
            command=self.command,
            known=self.known,
        )

    def compute(self, target: str, preset: Preset, table: PublishedTable, scale: str) -> Computed | Verdict:
        """Compute the numbers of a table by a function, or say why that cannot be done here; those of networks are kept."""
        if not target.startswith(RUNS_NETWORKS):
            return compute_numbers(target, preset, table, scale)
        found = kept([self.results], target, table, scale)
        if found is not None:
            return found
        computed = compute_numbers(target, preset, table, scale)
        if not isinstance(computed, Verdict):
            keep(self.results, target, table, scale, computed, self.command)
        return computed


def refused(error: NcoBenchError) -> Outcome:
    """Return what became of a job that cannot run."""
    if isinstance(error, BadWeightsError):
        return Outcome(status="weights missing", reason=str(error).rstrip("."))
    return Outcome(status="not run", reason=str(error))


def compute_numbers(target: str, preset: Preset, table: PublishedTable, scale: str) -> Computed | Verdict:
    """Compute the numbers of a table, or say why that cannot be done here."""
    function = _function(target, preset)
    try:
        return function(table, scale)
    except BadWeightsError as error:
        return Verdict("weights missing", first_part(error))
    except NcoBenchError as error:
        return Verdict("not run", first_part(error))
    except ImportError as error:
        return Verdict("not run", f"{error}; see 'nco-bench doctor'")


def _function(target: str, preset: Preset) -> Callable[[PublishedTable, str], Computed]:
    module, _, name = target.partition(":")
    try:
        function: Callable[[PublishedTable, str], Computed] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise BadInputError(f"{preset.path.name}: compute = {target!r} cannot be had ({error}).") from error
    return function


@cache
def solver_missing(solver: str) -> str:
    """Say why a solver cannot run here, or return an empty string; asked once per solver, since packages are searched."""
    from nco_bench.solvers.availability import availability
    from nco_bench.solvers.registry import all_solvers

    name = solver.partition(":")[0]
    known = all_solvers()
    if name not in known:
        return f"there is no solver {name!r} yet"
    found = availability(known[name])
    return "" if found.available else f"{name} is not installed: {found.missing}"


def weights_at_hand(name: str, weights: Sequence[str], problem: str) -> tuple[tuple[str, ...], str]:
    """Choose the first weights that are at hand, as a tuple of one; else say why the first that are named are not.

    Parameters
    ----------
    name, problem
        As for `weights_missing`.
    weights
        Names in the order of preference; none for the solver's default.
    """
    reasons = []
    for candidate in weights or ("",):
        reason = weights_missing(name, candidate, problem)
        if not reason:
            return ((candidate,) if candidate else ()), ""
        reasons.append(reason)
    return (), reasons[0]


@cache
def weights_missing(name: str, weights: str, problem: str) -> str:
    """Say that the weights of a network are not at hand, before anything is loaded or generated; else an empty string.

    Parameters
    ----------
    name
        Registry name of a solver that is at hand.
    weights
        Name or path, or an empty string for the default.
    problem
        What they are for.
    """
    from nco_bench.cards import card
    from nco_bench.weights.choice import at_hand, default_weights, find, lra_training

    info = card(name)
    if info.problems == ("lra",) and info.kind == "neural" and not weights:
        trained = f"{name}-{problem}"
        return (
            ""
            if at_hand(trained)
            else f"no weights {trained}; make them with '{lra_training(name, problem)}'"
        )
    if info.kind != "neural" or weights == "random" or problem not in info.problems:
        return ""
    if not weights and info.family != "path":
        return ""  # the solver chooses by problem and size
    try:
        find(weights or default_weights(name, problem, 100), name, problem)
    except BadWeightsError as error:
        return first_part(error)
    return ""


def first_part(error: Exception) -> str:
    """Return the first part of a message, without suggestions and remedies."""
    return str(error).split(". ")[0].split(";")[0].rstrip(".")


@lru_cache(maxsize=2)  # neighbouring cells share their dataset, and large ones take memory
def _load(name: str, places: Places) -> Dataset:
    return load_dataset(name, places)


def lacks_reference(dataset: Dataset, count: int) -> bool:
    """Whether any of the first `count` instances has no reference."""
    references: Sequence[object] = dataset.references[:count]
    return any(reference is None for reference in references)

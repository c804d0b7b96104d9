"""What a run is asked to do, resolved to cells: solver x decoding x dataset."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.load import Places, load_dataset
from nco_bench.errors import BadInputError, counted
from nco_bench.nn.device import CPU, on_cpu
from nco_bench.nn.logit_scale import resolved
from nco_bench.problems import problem as problem_module
from nco_bench.runs.devices import AUTO, check_device, processes, resolve_devices
from nco_bench.runs.records import Cell, record_key
from nco_bench.solvers.protocol import Solver, SolverOptions
from nco_bench.solvers.registry import SolverChoice, choose, resolved_options

SEEDS = 2**31 - 1
"""Seeds are taken modulo this, for native solvers that keep them in 32 bits."""


@dataclass(frozen=True)
class RunRequest:
    """The arguments of ``nco-bench run``.

    Attributes
    ----------
    limit
        Instances ``limit[0] .. limit[1] - 1`` of each dataset (0-based), or None for all.
    time_limit
        Seconds per instance.
    batch_size
        None lets each solver choose.
    batch_seconds
        Where the end may come at any time, which keeps nothing of the batch in hand: how long one may take on a CPU, by the
        time of the first instance alone. None for batches of `batch_size`.
    jobs
        Processes at once; on GPUs those that `device` names, see `worker_devices`.
    beside, sharing
        Of a shard: how many processes ran at once with it, and how many of them on its GPU; its cells say so.
    asked
        Of a shard: first and last + 1 of the instances that all shards have together.
    fresh
        Compute again what is already stored.
    known
        Further results folders: what is stored there is not computed, and stays there.
    study
        Name and text of the file that the command took its options from, kept with the records; None without.
    cluster, slurm, detach
        Of ``--executor slurm``: profile, settings over it, and whether to return once the jobs are submitted.
    """

    solvers: tuple[str, ...]
    datasets: tuple[str, ...]
    results: Path
    places: Places
    decodings: tuple[str, ...] = ()
    weights: str | None = None
    logit_scale: str | None = None
    coordinate_scale: str | None = None
    device: str = "auto"
    seed: int = 1234
    repeats: int = 1
    batch_size: int | None = None
    batch_seconds: float | None = None
    limit: tuple[int, int | None] | None = None
    time_limit: float | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    jobs: int = 1
    beside: int = 1
    sharing: int = 1
    asked: tuple[int, int] | None = None
    executor: str = "local"
    fresh: bool = False
    known: tuple[Path, ...] = ()
    update_references: bool = False
    in_process: bool = False
    command: str = ""
    study: Mapping[str, str] | None = None
    cluster: str | None = None
    slurm: Mapping[str, str] = field(default_factory=dict)
    detach: bool = False


@dataclass(frozen=True)
class CellPlan:
    """One cell to run; `source` is the dataset's name or path as it was asked for."""

    choice: SolverChoice
    dataset: Dataset
    source: str


def seed_of(base: int, index: int, repeat: int) -> int:
    """Seed of one instance: neighbours differ by 1, so that a batch needs only its first; repeats never overlap."""
    return (base + 1_000_003 * repeat + index) % SEEDS


def parse_limit(text: str | None) -> tuple[int, int | None] | None:
    """Parse ``--limit``: ``K`` means the first K instances, ``A-B`` instances A to B counted from 1, both included.

    Raises
    ------
    BadInputError
        For anything else.
    """
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,15})(?:-([0-9]{1,15}))?", text)
    if not match:
        raise BadInputError(f"--limit {text!r}: expected K or A-B, for instance 100 or 11-20.")
    first, last = int(match[1]), match[2]
    start, stop = (0, first) if last is None else (first - 1, int(last))
    if start < 0 or stop <= start:
        raise BadInputError(f"--limit {text!r}: holds no instance; they are counted from 1.")
    return start, stop


def parse_batch_size(text: str) -> int | None:
    """Parse ``--batch-size``; None stands for ``auto``.

    Raises
    ------
    BadInputError
        For anything but ``auto`` or a positive whole number.
    """
    if text == "auto":
        return None
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < 1:
        raise BadInputError(f"--batch-size {text!r}: expected auto or a whole number >= 1.")
    return int(text)


def load_datasets(request: RunRequest) -> list[Dataset]:
    """Load the datasets of a request and cut them to its limit.

    Raises
    ------
    BadInputError
        When the limit begins behind a dataset's last instance.
    """
    return [cut(load_dataset(name, request.places), request.limit) for name in request.datasets]


def cut(dataset: Dataset, limit: tuple[int, int | None] | None) -> Dataset:
    """Return the part of a dataset that a limit names, all for None; raises `BadInputError` as `load_datasets`."""
    if limit is None:
        return dataset
    start, stop = limit
    if start >= len(dataset):
        raise BadInputError(
            f"--limit {start + 1}-{stop}: {dataset.name} holds only {counted(len(dataset), 'instance')}."
        )
    return dataset.slice(start, len(dataset) if stop is None else min(stop, len(dataset)))


def ended_early(request: RunRequest, datasets: list[Dataset]) -> list[str]:
    """Return a line for each dataset, cut to the limit, that ends before it."""
    start, stop = request.limit or (0, None)
    if stop is None:
        return []
    asked = f"{start + 1}-{stop}" if start else str(stop)
    return [
        f"--limit {asked}: {dataset.name} ends with instance {start + len(dataset)}; the others are not there"
        for dataset in datasets
        if start + len(dataset) < stop
    ]


def plan_cells(request: RunRequest, datasets: list[Dataset]) -> list[CellPlan]:
    """Pair solvers, decodings and datasets; names are checked before anything runs.

    Raises
    ------
    UnknownNameError
        For an unknown solver or decoding.
    BadInputError
        For an option that only networks have, where no solver is one.
    """
    choices = [choice for text in request.solvers for choice in _choices(request, text)]
    _refuse_unused(request, choices)
    return [
        CellPlan(choice, dataset, source)
        for dataset, source in zip(datasets, request.datasets, strict=True)
        for choice in choices
    ]


def other_problem(plan: CellPlan) -> str | None:
    """Return that the solver does not solve the dataset's problem, or None; needs no import of the solver."""
    problems = plan.choice.info.problems
    if not problems or plan.dataset.problem in problems:
        return None
    return f"solves {' and '.join(problems)}, not {plan.dataset.problem}"


def wrong_problem(plan: CellPlan) -> str | None:
    """Return the line that says so of this solver and dataset, or None; see `other_problem`."""
    reason = other_problem(plan)
    return None if reason is None else f"{plan.choice.label} on {plan.dataset.name}: {reason}"


def _refuse_unused(request: RunRequest, choices: list[SolverChoice]) -> None:
    """Refuse options that no solver would read.

    Those of networks where none is one (beside a network, classical solvers do without them), and settings that every
    solver's name has a value of its own for.
    """
    for key, setting in request.params.items():
        if all(f":{key}=" in choice.text for choice in choices):
            names = " and ".join(dict.fromkeys(choice.text for choice in choices))
            raise BadInputError(
                f"--param {key}={setting}: {names} says its own {key}; leave one of them out."
            )
    given = {
        "--decoding": ", ".join(request.decodings),
        "--weights": request.weights,
        "--logit-scale": request.logit_scale,
        "--coordinate-scale": request.coordinate_scale,
        "--device": None if request.device in (AUTO, CPU) else request.device,
    }
    if any(choice.info.decodings for choice in choices):
        return
    for option, value in given.items():
        if value:
            known = list(dict.fromkeys(choice.info.name for choice in choices))
            verdict = "is no network and has" if len(known) == 1 else "are no networks and have"
            raise BadInputError(
                f"{option} {value}: {' and '.join(known)} {verdict} no use for it; leave it out."
            )


def _choices(request: RunRequest, text: str) -> list[SolverChoice]:
    from nco_bench.solvers.decoding.spec import parse_decoding, spelt

    defaults = SolverOptions(
        weights=request.weights,
        logit_scale=request.logit_scale,
        coordinate_scale=request.coordinate_scale,
        params=request.params,
        in_process=request.in_process,
    )
    for decoding in request.decodings:
        parse_decoding(decoding)
    choice = choose(text, defaults)
    options = replace(choice.options, device=_device_for(choice, request.device))
    if not choice.info.decodings:
        # What only networks read must not stand in the record's key: the same solution would be computed again.
        bare = replace(options, decoding=None, weights=None, logit_scale=None, coordinate_scale=None)
        return [replace(choice, options=bare)]
    if options.logit_scale:
        scale = resolved(options.logit_scale, glimpse=choice.info.glimpse, model=choice.info.name)
        options = replace(options, logit_scale=scale)
    named = (options.decoding,) if options.decoding else request.decodings or (choice.info.decodings[0],)
    # A stranger's solver may tell the two apart: its card then names them.
    named = tuple(d if d in choice.info.decodings else spelt(d) for d in named)
    return [replace(choice, options=replace(options, decoding=d)) for d in dict.fromkeys(named)]


def _device_for(choice: SolverChoice, device: str) -> str:
    """Classical solvers run on the CPU whatever the device; asking torch for them would cost its import."""
    if choice.info.kind in ("neural", "external") and choice.info.decodings:
        return resolve_devices(device)[0]
    check_device(device)
    return CPU


def worker_devices(request: RunRequest) -> tuple[str, ...]:
    """Return the device of each process that a request runs in: as many as jobs, or as GPUs where a network uses them.

    Raises
    ------
    BadInputError
        For a device that is not there, or jobs that would share a GPU.
    """
    choices = [choice for text in request.solvers for choice in _choices(request, text)]
    if all(on_cpu(choice.options.device) for choice in choices):
        return (CPU,) * request.jobs
    return processes(request.device, resolve_devices(request.device), request.jobs)


def describe(request: RunRequest, plan: CellPlan, solver: Solver, index: int) -> Cell:
    """Return the facts of a cell; the solver is prepared."""
    choice, dataset = plan.choice, plan.dataset
    module = problem_module(dataset.problem)
    size = request.batch_size or getattr(solver, "batch_size", lambda _: 1)(dataset)
    weights = getattr(solver, "weights_facts", lambda: None)()
    options = {**resolved_options(choice.options), "time_limit": request.time_limit}
    config = {
        "solver": choice.info.name,
        "solver_version": choice.info.version,
        "options": options,
        "weights": None if weights is None else [weights["sha256"], weights.get("calibration")],
        "problem_version": module.VERSION,
        "device": choice.options.device.partition(":")[0],
    }
    references = [r.solver for r in dataset.references if r is not None]
    return Cell(
        cell=index,
        solver=choice.info.name,
        label=choice.label,
        solver_version=choice.info.version,
        decoding=choice.options.decoding or "",
        kind=choice.info.kind,
        options=options,
        config_sha256=record_key(config),
        weights=weights,
        dataset=dataset.name,
        dataset_sha256=dataset.sha256,
        problem=dataset.problem,
        problem_version=module.VERSION,
        objective=module.OBJECTIVE,
        convention=dataset.convention,
        origin=asdict(dataset.origin),
        instances=len(dataset),
        repeats=request.repeats,
        seed=request.seed,
        reference_solver=statistics.mode(references) if references else None,
        device=choice.options.device,
        batch_size=max(1, min(size, len(dataset))),
        source=plan.source,
        asked=request.asked or (dataset.first_index, dataset.first_index + len(dataset)),
    )

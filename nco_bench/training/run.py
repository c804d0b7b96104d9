"""The one entry point of training: from a model's name, labelled data and a configuration to weights with a manifest.

How a model learns is its course (see `courses`); this file knows files, checkpoints and reports only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from nco_bench.cards import first_name
from nco_bench.datasets.places import Places
from nco_bench.errors import BadInputError, UnknownNameError, counted
from nco_bench.nn.device import check_precision, warn_of_slow
from nco_bench.training.checkpoint import LAST
from nco_bench.training.choices import departures, paper_of
from nco_bench.training.courses import COURSES, Assignment, Course, Prepared, course_for
from nco_bench.training.distributed import joined, reports
from nco_bench.training.learner import GAP, HoldsProcesses, Measure, SharesBatches
from nco_bench.training.loop import Hooks, train_until_done
from nco_bench.training.options import model_options, refuse_own_name
from nco_bench.training.progress import Bar, Board, Lines, Report, Silent, write_log
from nco_bench.training.recipes import LoopRecipe, network_of
from nco_bench.training.start import start_from
from nco_bench.training.trainer import Trainer
from nco_bench.weights.manifest import Manifest, manifest_path
from nco_bench.weights.shelf import export
from nco_bench.weights.store import SUFFIX

CHECKPOINTS = ".training"
"""Suffix of the folder of checkpoints, in place of the weights file's."""


@dataclass(frozen=True)
class TrainResult:
    """What came out.

    Attributes
    ----------
    weights, manifest, log
        The files that were written.
    steps, samples, seconds
        Updates, sub-problems and training time in all sessions together.
    validation
        What the course measured of the exported weights on the validation instances; None without any.
    complete
        False when this session ended before the recipe's steps; ``--resume`` continues.
    interrupted
        Whether it was asked to end before.
    """

    weights: Path
    manifest: Path
    log: Path
    steps: int
    samples: int
    seconds: float
    validation: Measure | None
    complete: bool
    interrupted: bool = False

    @property
    def validation_gap(self) -> float | None:
        """Mean gap in percent, where that is what was measured."""
        return self.validation.value if self.validation is not None and self.validation.name == GAP else None

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        values = {k: str(v) if isinstance(v, Path) else v for k, v in dataclasses.asdict(self).items()}
        return {**values, "validation_gap": self.validation_gap}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> TrainResult:
        """Return the result behind what `as_dict` gave."""
        known = {key: value for key, value in values.items() if key != "validation_gap"}
        files = {key: Path(known[key]) for key in ("weights", "manifest", "log")}
        measured = known["validation"]
        return TrainResult(**{**known, **files, "validation": measured and Measure.from_json(measured)})

    def describe(self) -> str:
        """Say it in a line or two."""
        measured = "" if self.validation is None else f", {self.validation.describe()}"
        more = "" if self.complete else " Continue with --resume."
        done = (
            f"{counted(self.steps, 'step')}, {counted(self.samples, 'sample')}, {self.seconds / 60:.1f} min"
        )
        return f"{self.weights}: {done}{measured}.{more}"


def train(
    model: str,
    data: Sequence[str | Path] = (),
    config: Mapping[str, str] | None = None,
    budget_s: float | None = None,
    resume: bool = False,
    out: Path | None = None,
    seed: int = 1234,
    device: str = "cpu",
    progress: str | Report = "lines",
    validation: Path | Sequence[Path] = (),
    adopt: bool = False,
    places: Places | None = None,
    problem: str | None = None,
    planned_s: float | None = None,
    tensorboard: Path | None = None,
    start: str | None = None,
    branch: Path | None = None,
    until_step: int | None = None,
    asked_to_end: Callable[[], bool] = lambda: False,
) -> TrainResult:
    """Train a model and write ``OUT.safetensors``, its manifest ``OUT.json`` and the log ``OUT.csv``.

    Checkpoints are in the folder ``OUT.training``; an error or a killed process leaves the last one in place.

    Parameters
    ----------
    model
        Name of a model that a course takes.
    data
        Files of labelled instances, where the course learns from such: datasets with reference solutions, or npz files
        with coords and tours.
    config
        Overrides of the recipe; ``learner`` and ``recipe`` choose the course and its recipe. ``model.KEY`` overrides the
        model's configuration, where the course takes that.
    budget_s
        Wall time of this session in seconds. Where the recipe has no steps, it must be given.
    resume
        Continue from the checkpoint beside `out`.
    out
        The weights file; ``MODEL.safetensors`` in the working folder by default.
    seed
        Of the first weights, the order of data and all draws.
    device
        ``cpu``, ``cuda`` or ``cuda:i``.
    progress
        ``bar``, ``lines``, ``silent`` or an object of one's own.
    validation
        Instances for the validation; by default the course's own. Several, one per size, where the course learns from
        labels: the first is what the run is judged by.
    adopt
        With `resume`: accept another configuration or other data from here on; the manifest says so.
    places
        Where datasets are found by name.
    problem
        ``tsp``, ``cvrp`` or another; None where model and data decide.
    planned_s
        Training time in all sessions, over which schedules run where the recipe has no steps; None ends them with this
        session.
    tensorboard
        Folder for TensorBoard events, None for none.
    start
        Weights to start from instead of random ones, see `start_from`; the manifest names them.
    branch
        Weights file (`out`) of another run: go on from its last checkpoint with this configuration and these data, in a run
        of one's own. The other run is left as it is and can go on as well.
    until_step
        Updates in all sessions after which this one ends, before the recipe's last; `resume` continues.
    asked_to_end
        Asked now and then by the first process: when it says so the session ends with a checkpoint.

    Raises
    ------
    NcoBenchError
        For anything in the arguments or files that the user can mend.
    TrainingStopped
        When the loss is no number any more, or the device is lost; the message names the last checkpoint.
    """
    called, model = model, first_name(model)
    judges = (validation,) if isinstance(validation, Path) else tuple(validation) or None
    values, options, course, recipe = checked(model, data, config, budget_s, judges or ())
    if branch is not None and (resume or start is not None):
        raise BadInputError(
            f"--branch {branch}: begins where that run stands; leave --resume and --start out."
        )
    if branch is not None and branch.name in ("", ".."):
        raise BadInputError(f"--branch {branch}: is a folder; name the weights file of the other run.")
    weights = weights_path(out, called)
    check_precision(recipe.precision, device, "--config")
    if reports():
        warn_of_slow(recipe.precision, device, "--config")
    with joined(device) as mine, ExitStack() as held:
        torch.manual_seed(seed)
        assignment = Assignment(model, recipe, tuple(data), problem, seed, mine, judges, places, options)
        prepared = course.prepare(assignment)
        if isinstance(prepared.learner, HoldsProcesses):
            held.callback(prepared.learner.close)
        if not resume:
            refuse_own_name(weights, model, options)
        if start is not None:
            _start(prepared, start, model)
        trainer = _trainer(prepared, recipe, weights, resume=resume, adopt=adopt, branch=branch)
        log = weights.with_suffix(".csv")
        with _reporting(progress if trainer.group.first else "silent", model, tensorboard) as report:
            hooks = _hooks(report, prepared, log)
            complete = train_until_done(trainer, hooks, budget_s, planned_s, until_step, asked_to_end)
        if trainer.group.first:
            manifest = _with_parent(
                prepared.manifest(trainer, weights.stem), trainer.configuration.get("start")
            )
            paper = paper_of(course.papers(model), values.get("recipe", ""), manifest.problem)
            ours = (
                {}
                if paper is None
                else departures(recipe, paper, manifest.data.size, trainer.progress.history)
            )
            export(trainer.weights(), dataclasses.replace(manifest, ours=ours), weights)
    done = trainer.progress
    return TrainResult(
        weights, manifest_path(weights), log, done.step, done.samples, done.seconds, done.measure, complete,
        not complete and asked_to_end(),
    )  # fmt: skip


def checked(
    model: str,
    data: Sequence[str | Path],
    config: Mapping[str, str] | None,
    budget_s: float | None,
    validation: Sequence[str | Path] = (),
) -> tuple[dict[str, str], dict[str, str], Course, LoopRecipe]:
    """Return the recipe's overrides, the model's options, the course and the recipe of a training.

    Raises
    ------
    NcoBenchError
        For what the user can mend, as far as it is seen before anything is loaded.
    """
    values, options = model_options(config or {})
    name, course = course_for(model, values, has_data=bool(data))
    if not data and COURSES[name].needs_data:
        raise BadInputError(f"{model} learns from labelled instances: name them with --data.")
    if validation and not COURSES[name].needs_data:
        raise BadInputError(
            f"--validation {validation[0]}: {model} ({name}) is validated on instances of its own; leave it out."
        )
    recipe = course.recipe(model, {k: v for k, v in values.items() if k != "learner"}, data)
    recipe = dataclasses.replace(recipe, learner=name)
    _refuse_impossible(model, recipe, budget_s)
    if options and not COURSES[name].model_options:
        raise BadInputError(
            f"--config model.{next(iter(options))}: its training ({name}) takes no options of the model."
        )
    return values, network_of(model, name, values) | options, course, recipe


def _start(prepared: Prepared, start: str, model: str) -> None:
    old = start_from(prepared.policy, start, model, prepared.identity.get("problem", "")).manifest
    facts = {"name": old.name, "sha256": old.sha256, "steps": old.steps, "samples": old.samples}
    prepared.identity["start"] = facts


def _with_parent(manifest: Manifest, start: dict[str, Any] | None) -> Manifest:
    if start is None:
        return manifest
    done = f"{counted(start['steps'], 'step')}, {counted(start['samples'], 'sample')}"
    note = f"Started from {start['name']} ({done}), which are not counted here."
    return dataclasses.replace(manifest, parent=start["sha256"], notes=f"{manifest.notes} {note}".strip())


def _trainer(
    prepared: Prepared, recipe: LoopRecipe, weights: Path, *, resume: bool, adopt: bool, branch: Path | None
) -> Trainer:
    """Make a fresh run, or one that goes on from its own checkpoint or another run's."""
    folder = weights.with_suffix(CHECKPOINTS)
    trainer = Trainer(prepared.policy, prepared.learner, recipe, folder, prepared.identity)
    learner = prepared.learner
    shares = isinstance(learner, SharesBatches) and learner.shares_batches
    if trainer.group.size > 1 and not shares:
        raise BadInputError(
            f"{recipe.learner}: cannot be trained by several processes; start it without torchrun."
        )
    if resume:
        trainer.resume(adopt=adopt)
    else:
        if trainer.group.first:
            refuse_taken(weights)
        if branch is not None:
            trainer.resume(adopt=True, folder=branch.with_suffix(CHECKPOINTS))
        trainer.save()  # from here on a killed run can be resumed
    if recipe.compile:
        for layer in getattr(prepared.policy, "layers", [prepared.policy]):
            layer.compile(dynamic=True)
    return trainer


def refuse_taken(weights: Path) -> None:
    """Refuse to begin where another run has begun; raises `BadInputError`."""
    folder = weights.with_suffix(CHECKPOINTS)
    if (folder / LAST).exists():
        raise BadInputError(
            f"{folder} holds the checkpoint of an earlier run: continue it with --resume, or choose another --out."
        )
    for path in (weights, manifest_path(weights), weights.with_suffix(".csv")):
        if path.exists():
            raise BadInputError(f"{path} is there already: choose another --out, or move it away.")


def weights_path(out: Path | None, model: str) -> Path:
    """Return the weights file of a run, with its suffix; raises `BadInputError` for a folder's name and other suffixes."""
    path = Path(out) if out else Path(f"{model}{SUFFIX}")
    if path.name in ("", ".."):
        raise BadInputError(
            f"--out {path}: is a folder; name the weights file, such as {path / model}{SUFFIX}."
        )
    if path.suffix not in ("", SUFFIX):
        raise BadInputError(
            f"--out {path}: weights are written as {SUFFIX}; give the file this ending or none."
        )
    return path.with_suffix(SUFFIX)


def _refuse_impossible(model: str, recipe: LoopRecipe, budget_s: float | None) -> None:
    if budget_s is None and not recipe.steps:
        raise BadInputError(
            f"{model}: the recipe trains for a given time; add --budget 30m (or --config steps=N)."
        )
    if budget_s is not None and budget_s <= 0:
        raise BadInputError(f"--budget {budget_s:g}: expected more than 0 seconds.")


@contextmanager
def _reporting(progress: str | Report, model: str, tensorboard: Path | None) -> Iterator[Report]:
    with _display(progress, model) as report:
        if tensorboard is None:
            yield report
            return
        with Board(tensorboard, report) as board:
            yield board


def _display(progress: str | Report, model: str) -> AbstractContextManager[Report]:
    if not isinstance(progress, str):
        return nullcontext(progress)
    if progress == "bar":
        return Bar(f"train {model}")
    if progress in ("lines", "silent"):
        return nullcontext(Lines() if progress == "lines" else Silent())
    raise UnknownNameError("progress display", progress, ("bar", "lines", "silent"))


def _hooks(report: Report, prepared: Prepared, log: Path) -> Hooks:
    def validate(trainer: Trainer) -> Measure | None:
        return prepared.validate(trainer)

    def save_log(trainer: Trainer) -> None:
        if trainer.group.first:
            write_log(log, trainer.progress.history)

    return Hooks(validate, report.line, report.tick, save_log)

"""The one entry point of training: from a model's name, labelled data and a configuration to weights with a manifest.

Ways to learn are looked up in `LEARNERS`; to add one, write a file with a `Learner` (see `loop`) and a line there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nco_bench.datasets.load import Places
from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.models.registry import PATH_MODELS, build_path_policy, count_parameters, entry
from nco_bench.training.data import LabelStream, describe, read_shard
from nco_bench.training.loop import Hooks, Learner, Trainer, train_until_done
from nco_bench.training.machine import code_version, machine
from nco_bench.training.progress import Bar, Lines, Report, Silent, write_log
from nco_bench.training.recipes import Recipe, recipe_for
from nco_bench.training.supervised import Supervised
from nco_bench.training.validation import Gap, gap_of_weights
from nco_bench.weights.manifest import PAPER_SAMPLES, Manifest, Validation, manifest_path
from nco_bench.weights.store import SUFFIX, export

PROBLEM = "tsp"
LEARNERS: dict[str, Callable[..., Learner]] = {"supervised": Supervised}
"""Ways to learn by name."""


@dataclass(frozen=True)
class TrainResult:
    """What came out.

    Attributes
    ----------
    weights, manifest, log
        The files that were written.
    steps, samples, seconds
        Updates, sub-problems and training time in all sessions together.
    validation_gap
        Greedy gap in percent of the exported weights on the validation instances, None without any.
    complete
        False when the time budget ended before the recipe's steps; ``--resume`` continues.
    """

    weights: Path
    manifest: Path
    log: Path
    steps: int
    samples: int
    seconds: float
    validation_gap: float | None
    complete: bool

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {k: str(v) if isinstance(v, Path) else v for k, v in dataclasses.asdict(self).items()}

    def describe(self) -> str:
        """Say it in a line or two."""
        gap = "" if self.validation_gap is None else f", validation gap {self.validation_gap:.3f} %"
        more = "" if self.complete else " Continue with --resume."
        return f"{self.weights}: {self.steps:,} steps, {self.samples:,} samples, {self.seconds / 60:.1f} min{gap}.{more}"


def train(
    model: str,
    data: Sequence[str | Path],
    config: Mapping[str, str] | None = None,
    budget_s: float | None = None,
    resume: bool = False,
    out: Path | None = None,
    seed: int = 1234,
    device: str = "cpu",
    progress: str | Report = "lines",
    validation: Path | None = None,
    adopt: bool = False,
    places: Places | None = None,
) -> TrainResult:
    """Train a model and write ``OUT.safetensors``, its manifest ``OUT.json`` and the log ``OUT.csv``.

    Checkpoints are in the folder ``OUT.training``; an error or a killed process leaves the last one in place.

    Parameters
    ----------
    model
        Name of a path model for the TSP.
    data
        Files of labelled instances: datasets with reference tours, or npz files with coords and tours.
    config
        Overrides of the recipe, see `recipes.Recipe`.
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
        Labelled instances for the validation gap; by default some of the last shard, which training then leaves out.
    adopt
        With `resume`: accept another configuration or other data from here on; the manifest says so.
    places
        Where datasets are found by name.

    Raises
    ------
    NcoBenchError
        For anything in the arguments or files that the user can mend, and when the loss is no number any more.
    """
    recipe = recipe_for(model, dict(config or {}))
    _refuse_impossible(model, recipe, budget_s)
    weights = _weights_path(out, model)
    torch.manual_seed(seed)
    policy = build_path_policy(model, PROBLEM).to(device)
    stream, held_out = _data(data, validation, recipe, seed, places)
    learner = LEARNERS[recipe.learner](policy, stream, recipe, seed, torch.device(device))
    identity = {"model": model, "seed": seed}
    trainer = Trainer(policy, learner, recipe, weights.with_suffix(".training"), identity)
    if resume:
        trainer.resume(adopt=adopt)
    elif trainer.has_checkpoint():
        raise BadInputError(
            f"{trainer.folder} holds the checkpoint of an earlier run: continue it with --resume, or choose another --out."
        )
    else:
        trainer.save()  # from here on a killed run can be resumed
    if recipe.compile:
        for layer in getattr(policy, "layers", [policy]):
            layer.compile(dynamic=True)
    log = weights.with_suffix(".csv")
    with _reporting(progress, model) as report:
        complete = train_until_done(trainer, _hooks(report, held_out, log), budget_s)
    manifest = _manifest(trainer, weights.stem, stream, held_out)
    export(trainer.weights(), manifest, weights)
    done = trainer.progress
    return TrainResult(
        weights, manifest_path(weights), log, done.step, done.samples, done.seconds, done.gap, complete
    )


def _weights_path(out: Path | None, model: str) -> Path:
    path = Path(out) if out else Path(f"{model}{SUFFIX}")
    return path if path.suffix == SUFFIX else path.with_name(path.name + SUFFIX)


def _refuse_impossible(model: str, recipe: Recipe, budget_s: float | None) -> None:
    if PROBLEM not in entry(model).problems:
        raise BadInputError(f"{model}: not a model for the {PROBLEM}; only those can be trained so far.")
    if recipe.learner not in LEARNERS:
        raise UnknownNameError("way to learn", recipe.learner, LEARNERS)
    if budget_s is None and not recipe.steps:
        raise BadInputError(
            f"{model}: the recipe trains for a given time; add --budget 30m (or --config steps=N)."
        )
    if budget_s is not None and budget_s <= 0:
        raise BadInputError(f"--budget {budget_s:g}: expected more than 0 seconds.")


def _data(
    data: Sequence[str | Path], validation: Path | None, recipe: Recipe, seed: int, places: Places | None
) -> tuple[LabelStream, NDArray[np.float32]]:
    """Return the stream to learn from and the instances held out, at most `recipe.validation_instances`."""
    count = recipe.validation_instances
    if validation is not None:
        return LabelStream(data, seed, places=places), read_shard(validation, places).ordered[:count]
    stream = LabelStream(data, seed, hold_out=count, places=places)
    return stream, stream.held_out()


def _reporting(progress: str | Report, model: str) -> AbstractContextManager[Report]:
    if not isinstance(progress, str):
        return nullcontext(progress)
    if progress == "bar":
        return Bar(f"train {model}")
    if progress in ("lines", "silent"):
        return nullcontext(Lines() if progress == "lines" else Silent())
    raise UnknownNameError("progress display", progress, ("bar", "lines", "silent"))


def _hooks(report: Report, held_out: NDArray[np.float32], log: Path) -> Hooks:
    def validate(trainer: Trainer) -> Gap | None:
        return gap_of_weights(trainer.policy, trainer.weights(), held_out) if len(held_out) else None

    def save_log(trainer: Trainer) -> None:
        write_log(log, trainer.progress.history)

    return Hooks(validate, report.line, report.tick, save_log)


def _manifest(trainer: Trainer, name: str, stream: LabelStream, held_out: NDArray[np.float32]) -> Manifest:
    """Say what the weights are; the hash is filled in when they are written."""
    policy: Any = trainer.policy
    model, progress = trainer.configuration["model"], trainer.progress
    paper = PAPER_SAMPLES.get(model.partition("-")[0]) if model in PATH_MODELS else None
    return Manifest(
        name=name,
        model=model,
        config=dataclasses.asdict(policy.config),
        problem=PROBLEM,
        parameters=count_parameters(policy),
        sha256="",
        steps=progress.step,
        samples=progress.samples,
        data=describe(stream),
        recipe={k: v for k, v in trainer.configuration.items() if k not in ("model", "seed")},
        seed=trainer.configuration["seed"],
        hours=round(progress.seconds / 3600, 3),
        machine=machine(next(policy.parameters()).device),
        code_version=code_version(),
        validation=_measured(trainer, held_out),
        paper_samples=paper,
        share_of_paper=None if paper is None else round(progress.samples / paper, 5),
        recipe_changes=tuple(line for line in progress.history if "changed" in line),
    )


def _measured(trainer: Trainer, held_out: NDArray[np.float32]) -> tuple[Validation, ...]:
    """Return the last validation of the run, which saw the weights that are written."""
    progress = trainer.progress
    if progress.gap is None or not len(held_out):
        return ()
    on = f"labelled tsp{held_out.shape[1]} held out of training, greedy from node 0"
    return (Validation(round(progress.gap, 4), round(progress.gap_ci95, 4), len(held_out), on),)

"""The supervised course: path models that imitate labelled solutions."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nco_bench.errors import BadInputError
from nco_bench.models.registry import build_path_policy, count_parameters, entry, model_config
from nco_bench.training.choices import supervised_papers
from nco_bench.training.courses import Assignment, Course, Prepared
from nco_bench.training.data import LabelStream, describe
from nco_bench.training.learner import Measure
from nco_bench.training.machine import code_version, machine
from nco_bench.training.options import checked_options, prefixed
from nco_bench.training.recipes import recipe_for
from nco_bench.training.shards import read_shard
from nco_bench.training.supervised import Supervised
from nco_bench.training.trainer import Trainer
from nco_bench.training.validation import gap_of_weights
from nco_bench.weights.manifest import Manifest, TrainingData, Validation, paper_samples


def prepare(assignment: Assignment) -> Prepared:
    """Build the policy, read labels, hold some out."""
    model, recipe, seed = assignment.model, assignment.recipe, assignment.seed
    stream, held_out = _data(assignment)
    problem = stream.problem
    if assignment.problem not in (None, problem):
        raise BadInputError(
            f"{stream.shards[-1]}: holds {problem} instances, --problem says {assignment.problem}."
        )
    if problem not in entry(model).problems:
        raise BadInputError(f"{stream.shards[-1]}: holds {problem} instances; {model} does not solve them.")
    options = checked_options(model_config(model, problem), assignment.options)
    policy: Any = build_path_policy(model, problem, **options).to(assignment.device)
    learner = Supervised(policy, stream, recipe, seed, torch.device(assignment.device))

    def validate(trainer: Trainer) -> Measure | None:
        return gap_of_weights(trainer.policy, trainer.weights(), held_out, problem) if len(held_out) else None

    def make_manifest(trainer: Trainer, name: str) -> Manifest:
        return path_manifest(trainer, name, describe(stream), held_out)

    identity = {"model": model, "problem": problem, "seed": seed, **prefixed(options)}
    return Prepared(policy, learner, validate, make_manifest, identity)


def _data(assignment: Assignment) -> tuple[LabelStream, NDArray[np.float32]]:
    """Return the stream to learn from and the instances held out, at most `recipe.validation_instances`."""
    count, places = assignment.recipe.validation_instances, assignment.places
    if assignment.validation is not None:
        stream = LabelStream(assignment.data, assignment.seed, places=places)
        judges = read_shard(assignment.validation, places)
        if judges.problem != stream.problem or not judges.tours:
            held = f"{judges.problem} instances" if judges.tours else "paths"
            raise BadInputError(
                f"--validation {assignment.validation}: holds {held}; expected solved {stream.problem} instances, "
                "as in --data."
            )
        return stream, judges.ordered[:count]
    stream = LabelStream(assignment.data, assignment.seed, hold_out=count, places=places)
    return stream, stream.held_out()


def path_manifest(trainer: Trainer, name: str, data: TrainingData, held_out: NDArray[np.float32]) -> Manifest:
    """Say what the weights of a path model are; the hash is filled in when they are written."""
    policy: Any = trainer.policy
    model, progress = trainer.configuration["model"], trainer.progress
    problem, learner = trainer.configuration["problem"], trainer.configuration["learner"]
    paper = paper_samples(model, learner, problem, data.size)
    return Manifest(
        name=name,
        model=model,
        config=dataclasses.asdict(policy.config),
        problem=problem,
        parameters=count_parameters(policy),
        sha256="",
        steps=progress.step,
        samples=progress.samples,
        data=data,
        recipe={k: v for k, v in trainer.configuration.items() if k in vars(trainer.recipe)},
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
    problem = trainer.configuration["problem"]
    size = held_out.shape[1] - (problem == "cvrp")
    on = f"labelled {problem}{size} held out of training, greedy from {'the depot' if problem == 'cvrp' else 'node 0'}"
    return (Validation(round(progress.gap, 4), round(progress.gap_ci95, 4), len(held_out), on),)


COURSE = Course(recipe_for, prepare, supervised_papers)

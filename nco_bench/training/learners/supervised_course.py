"""The supervised course: path models that imitate labelled solutions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nco_bench.cards import network_card
from nco_bench.datasets.places import Places
from nco_bench.errors import BadInputError
from nco_bench.nn.build import build_path_policy, model_config
from nco_bench.solvers.path.construct import greedy
from nco_bench.solvers.path.problem import cvrp_problem, route_lengths, tour_lengths, tsp_problem
from nco_bench.training.courses import COURSES, Assignment, Course, Prepared, load_course
from nco_bench.training.data import LabelStream, describe
from nco_bench.training.learner import GAP, Learner, Measure
from nco_bench.training.learners.supervised import Supervised
from nco_bench.training.manifest import manifest_of
from nco_bench.training.options import checked_options, prefixed
from nco_bench.training.recipes import Recipe, check_pieces
from nco_bench.training.shards import read_shard, unpack_routes
from nco_bench.training.trainer import Trainer
from nco_bench.weights.manifest import Manifest, TrainingData, Validation


def prepare(assignment: Assignment) -> Prepared:
    """Build the policy, read labels, hold some out."""
    return prepare_with(assignment, Supervised)


Judge = Callable[[Any, NDArray[np.float32]], Measure]
"""Measures a model in evaluation mode on labelled instances, as shards hold them."""


def prepare_with(
    assignment: Assignment, learns: Callable[..., Learner], judge: Judge | None = None, how: str = ""
) -> Prepared:
    """Prepare for a learner that takes what `Supervised` takes.

    Parameters
    ----------
    judge, how
        Measures the model on what is held out, and how it decodes there; greedily from one node by default.
    """
    model, recipe, seed = assignment.model, assignment.recipe, assignment.seed
    stream, held_out, further = _data(assignment)
    problem = stream.problem
    if assignment.problem not in (None, problem):
        raise BadInputError(
            f"{stream.shards[-1]}: holds {problem} instances, --problem says {assignment.problem}."
        )
    if problem not in network_card(model).problems:
        raise BadInputError(f"{stream.shards[-1]}: holds {problem} instances; {model} does not solve them.")
    options = checked_options(model_config(model, problem), assignment.options)
    policy: Any = build_path_policy(model, problem, **options).to(assignment.device)
    learner = learns(policy, stream, recipe, seed, torch.device(assignment.device))

    gap = judge or (greedy_cvrp_gap if problem == "cvrp" else greedy_gap)
    how = how or f"greedy from {'the depot' if problem == 'cvrp' else 'node 0'}"

    def validate(trainer: Trainer) -> Measure | None:
        if not len(held_out):
            return None
        with trainer.shipping() as shipped:
            found = [gap(shipped, part) for part in (held_out, *further)]
        also = (
            dataclasses.replace(m, name=_column(part, problem))
            for m, part in zip(found[1:], further, strict=True)
        )
        return dataclasses.replace(found[0], also=tuple(also))

    def make_manifest(trainer: Trainer, name: str) -> Manifest:
        return path_manifest(trainer, name, describe(stream), _measured(trainer, (held_out, *further), how))

    identity = {"model": model, "problem": problem, "seed": seed, **prefixed(options)}
    return Prepared(policy, learner, validate, make_manifest, identity)


def _data(assignment: Assignment) -> tuple[LabelStream, NDArray[np.float32], list[NDArray[np.float32]]]:
    """Return the stream to learn from, the instances held out to judge by, and those of further sizes.

    Of each at most `recipe.validation_instances`.
    """
    count, places = assignment.recipe.validation_instances, assignment.places
    if not assignment.validation:
        stream = LabelStream(assignment.data, assignment.seed, hold_out=count, places=places)
        return stream, stream.held_out(), []
    stream = LabelStream(assignment.data, assignment.seed, places=places)
    first, *further = (_judges(path, stream.problem, count, places) for path in assignment.validation)
    sizes = [part.shape[1] for part in (first, *further)]
    if len(set(sizes)) < len(sizes):
        raise BadInputError(
            f"--validation {assignment.validation[-1]}: two files are of one size; name one per size."
        )
    return stream, first, further


def _judges(path: Path, problem: str, count: int, places: Places | None) -> NDArray[np.float32]:
    judges = read_shard(path, places)
    if judges.problem != problem or not judges.tours:
        held = f"{judges.problem} instances" if judges.tours else "paths"
        raise BadInputError(
            f"--validation {path}: holds {held}; expected solved {problem} instances, as in --data."
        )
    return judges.ordered[:count]


def _size(held_out: NDArray[np.float32], problem: str) -> int:
    return held_out.shape[1] - (problem == "cvrp")


def _column(held_out: NDArray[np.float32], problem: str) -> str:
    return f"{GAP}_{problem}{_size(held_out, problem)}"


def greedy_gap(policy: Any, ordered: NDArray[np.floating]) -> Measure:
    """Solve instances greedily from node 0 and compare with their labels.

    Parameters
    ----------
    policy
        A path policy for the TSP in evaluation mode.
    ordered
        ``(B, N, 2)`` coordinates in the order of the label tour. A policy is equivariant to the order of nodes, so only the
        choice of the start node depends on it, and that is no information about the tour.
    """
    device = next(policy.parameters()).device
    coords = torch.from_numpy(np.ascontiguousarray(ordered, dtype=np.float32)).to(device)
    order = greedy(policy, tsp_problem(coords)).order
    tours = torch.cat([torch.zeros_like(order[:, :1]), order], dim=1)
    labels = torch.arange(coords.shape[1], device=device).expand(len(coords), -1)
    gaps = (tour_lengths(coords, tours) / tour_lengths(coords, labels) - 1).cpu().numpy() * 100
    return Measure.of(gaps)


def greedy_cvrp_gap(policy: Any, packed: NDArray[np.floating]) -> Measure:
    """Solve CVRP instances greedily and compare with their labels.

    Parameters
    ----------
    policy
        A path policy for the CVRP in evaluation mode.
    packed
        ``(B, V + 1, 5)`` in the order of the label, see `data.pack_routes`.
    """
    device = next(policy.parameters()).device
    table = torch.from_numpy(np.ascontiguousarray(packed, dtype=np.float32)).to(device)
    coords, demand, capacity, via = unpack_routes(table)
    path = greedy(policy, cvrp_problem(coords, demand, capacity))
    label = torch.arange(1, coords.shape[1], device=device).expand(len(coords), -1)
    found, wanted = route_lengths(coords, path.order, path.flags), route_lengths(coords, label, via)
    return Measure.of((found / wanted - 1).cpu().numpy() * 100)


def path_manifest(
    trainer: Trainer, name: str, data: TrainingData, validation: tuple[Validation, ...]
) -> Manifest:
    """Say what the weights of a path model are."""
    facts, cores = trainer.configuration, trainer.progress.core_seconds
    course = load_course(COURSES[facts["learner"]])
    learner = course.imitates or course.name
    paper = network_card(facts["model"]).paper_samples(learner, facts["problem"], data.size)
    teacher = getattr(trainer.learner, "teacher", None)
    notes = "" if teacher is None else teacher.describe(trainer.recipe)
    made = manifest_of(trainer, name, data, paper, validation=validation, notes=notes)
    return dataclasses.replace(made, core_hours=round(cores / 3600, 3))


def _measured(trainer: Trainer, judges: Sequence[NDArray[np.float32]], how: str) -> tuple[Validation, ...]:
    """Return the last validation of the run, which saw the weights that are written; one entry per size."""
    measure, problem = trainer.progress.measure, trainer.configuration["problem"]
    if measure is None or not len(judges[0]):
        return ()
    return tuple(
        Validation(
            round(m.value, 4), round(m.ci95, 4), m.instances,
            f"labelled {problem}{_size(part, problem)} held out of training, {how}",
        )
        for m, part in zip((measure, *measure.also), judges, strict=True)
    )  # fmt: skip


def _checked(model: str, recipe: Recipe) -> Recipe:
    check_pieces(recipe)
    return recipe


COURSE = Course("supervised", Recipe, prepare, _checked)

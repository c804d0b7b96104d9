"""The self-improved course: SIT and SIGD without labels, on the TSP and the CVRP."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from nco_bench.cards import network_card
from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.nn.build import build_path_policy, model_config
from nco_bench.training.courses import Assignment, Course, Prepared
from nco_bench.training.learner import Measure
from nco_bench.training.learners.pseudo_labels import METHODS, PseudoLabels, SelfRecipe, draw_instances
from nco_bench.training.learners.self_improved import SelfImproved, greedy_lengths
from nco_bench.training.learners.supervised_course import path_manifest
from nco_bench.training.manifest import last_validation
from nco_bench.training.options import checked_options, prefixed
from nco_bench.training.recipes import check_pieces
from nco_bench.training.trainer import Trainer
from nco_bench.weights.manifest import Manifest, TrainingData


def checked(model: str, recipe: SelfRecipe) -> SelfRecipe:
    """Check the numbers of self-improved learning; raises `UnknownNameError` and `BadInputError`."""
    check_pieces(recipe)
    if recipe.method not in METHODS:
        raise UnknownNameError("--config method", recipe.method, METHODS)
    least = {"size": 5, "instances": 1, "rounds_updates": 1, "judged_updates": 1, "samples": 1, "chunk": 1}
    for key, value in least.items():
        if getattr(recipe, key) < value:
            raise BadInputError(f"--config {key}={getattr(recipe, key)}: expected {value} or more.")
    if recipe.ema:
        raise BadInputError(
            f"--config ema={recipe.ema:g}: self-improved learning exports the best weights of a round; leave it out."
        )
    return recipe


def prepare(assignment: Assignment) -> Prepared:
    """Build the policy, draw instances, and label them by insertion."""
    model, recipe, seed = assignment.model, assignment.recipe, assignment.seed
    problem = assignment.problem or "tsp"
    if assignment.data or assignment.validation is not None:
        raise BadInputError(
            f"{model}: self-improved learning draws its own instances; leave --data and --validation out."
        )
    if problem not in network_card(model).problems:
        raise UnknownNameError(f"problem of {model}", problem, network_card(model).problems)
    config = model_config(model, problem)
    decided = {"problem": "--problem", "training_size": "size=N"}
    options = checked_options(config, assignment.options, decided)
    trained_on = {"training_size": recipe.size} if hasattr(config, "training_size") else {}
    policy: Any = build_path_policy(model, problem, **options, **trained_on).to(assignment.device)
    labels = PseudoLabels(problem, recipe, seed)
    held_out = draw_instances(problem, recipe.size, max(1, recipe.validation_instances), seed, 3)
    goal = PseudoLabels(problem, dataclasses.replace(recipe, instances=len(held_out.coords)), seed)
    goal.instances = held_out
    goal.order, goal.via = goal._insertion()
    reference = goal.lengths().numpy()
    learner = SelfImproved(policy, labels, held_out, recipe, seed, torch.device(assignment.device))

    def validate(trainer: Trainer) -> Measure:
        with trainer.shipping() as shipped:
            return Measure.of((greedy_lengths(shipped, held_out).cpu().numpy() / reference - 1) * 100)

    def make_manifest(trainer: Trainer, name: str) -> Manifest:
        data = TrainingData(
            "uniform",
            recipe.size,
            recipe.instances,
            f"{model} itself",
            f"{recipe.method}, {learner.rounds} rounds",
        )
        on = f"{problem}{recipe.size} held out, greedy, against insertion (negative is better)"
        return path_manifest(trainer, name, data, last_validation(trainer.progress, len(held_out.coords), on))

    identity = {"model": model, "problem": problem, "seed": seed, **prefixed(options)}
    return Prepared(policy, learner, validate, make_manifest, identity)


COURSE = Course("self-improved", SelfRecipe, prepare, checked)

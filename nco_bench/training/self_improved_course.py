"""The self-improved course: SIT and SIGD without labels, on the TSP and the CVRP."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.models.registry import build_path_policy, entry
from nco_bench.training.courses import Assignment, Course, Prepared
from nco_bench.training.learner import Measure
from nco_bench.training.recipes import check_pieces, chosen, overridden
from nco_bench.training.self_improved import (
    METHODS,
    PseudoLabels,
    SelfImproved,
    SelfRecipe,
    draw_instances,
    greedy_lengths,
)
from nco_bench.training.supervised_course import path_manifest
from nco_bench.training.trainer import Trainer
from nco_bench.weights.manifest import Manifest, TrainingData, Validation

SMALL = SelfRecipe(
    size=100, instances=512, batch=32, steps=0, lr=4e-4, beta2=0.98, schedule="cosine", warmup=100, ema=0.0,
    rounds_updates=200, iterations=20, samples=32, chunk=64, longest=101, longest_start=101,
)  # fmt: skip
"""For hours of a CPU: few instances, short rounds. Labels that the untrained network improves cost nothing to make."""

PAPER_SIT = SelfRecipe(
    size=1000, instances=20_000, batch=256, steps=8 * 1580, optimizer="adam", lr=1e-4, weight_decay=0.0, clip=10.0,
    decay=0.97, decay_every=79, rounds_updates=1580, iterations=100, longest=1000, longest_start=1000, symmetries=False,
)  # fmt: skip
"""SIT at 1K nodes: 20,000 instances, eight rounds of 20 epochs, 100 iterations of PRC per round, Adam 1e-4 x 0.97 an epoch.

The official code updates after every decision of a piece; here each update draws a new piece. Round 1 learns from insertion.
"""

PAPER_SIGD = SelfRecipe(
    size=100, instances=1000, method="samples", batch=1024, steps=100_000, optimizer="adam", lr=2e-4, weight_decay=0.0,
    clip=0.0, schedule="constant", rounds_updates=1000, samples=128,
)  # fmt: skip
"""SIGD: 1000 instances, 128 distinct samples each, 1000 batches of 1024 per epoch, Adam at 2e-4.

Differs from the paper: one pass of sampling without replacement instead of four with advantages between them; the same
instances in all rounds, whose labels begin with insertion and never get longer.
"""


def self_recipe(model: str, config: Mapping[str, str]) -> SelfRecipe:
    """Return the recipe of a model with overrides: ``small``, the default, or ``paper``."""
    sampled = model.partition("-")[0] == "sigd"
    small = dataclasses.replace(SMALL, method="samples") if sampled else SMALL
    recipe = overridden(
        chosen({"small": small, "paper": PAPER_SIGD if sampled else PAPER_SIT}, config), config
    )
    check_pieces(recipe)
    if recipe.method not in METHODS:
        raise UnknownNameError("--config method", recipe.method, METHODS)
    for key, least in (("size", 5), ("instances", 1), ("rounds_updates", 1), ("samples", 1), ("chunk", 1)):
        if getattr(recipe, key) < least:
            raise BadInputError(f"--config {key}={getattr(recipe, key)}: expected {least} or more.")
    return recipe


def prepare(assignment: Assignment) -> Prepared:
    """Build the policy, draw instances, and label them by insertion."""
    model, recipe, seed = assignment.model, assignment.recipe, assignment.seed
    problem = assignment.problem or "tsp"
    if assignment.data or assignment.validation is not None:
        raise BadInputError(
            f"{model}: self-improved learning draws its own instances; leave --data and --validation out."
        )
    if problem not in entry(model).problems:
        raise UnknownNameError(f"problem of {model}", problem, entry(model).problems)
    policy: Any = build_path_policy(model, problem).to(assignment.device)
    labels = PseudoLabels(problem, recipe, seed)
    held_out = draw_instances(problem, recipe.size, max(1, recipe.validation_instances), seed, 3)
    goal = PseudoLabels(problem, dataclasses.replace(recipe, instances=len(held_out.coords)), seed)
    goal.instances = held_out
    goal.order, goal.via = goal._insertion()
    reference = goal.lengths().numpy()
    learner = SelfImproved(policy, labels, held_out, recipe, seed, torch.device(assignment.device))

    def validate(trainer: Trainer) -> Measure:
        own = {name: value.detach().clone() for name, value in trainer.policy.state_dict().items()}
        trainer.policy.load_state_dict(trainer.weights())
        try:
            gaps = (greedy_lengths(trainer.policy, held_out).cpu().numpy() / reference - 1) * 100
        finally:
            trainer.policy.load_state_dict(own)
        spread = float(gaps.std(ddof=1)) if len(gaps) > 1 else 0.0
        return Measure(float(gaps.mean()), 1.96 * spread / len(gaps) ** 0.5, len(gaps))

    def make_manifest(trainer: Trainer, name: str) -> Manifest:
        data = TrainingData(
            "uniform",
            recipe.size,
            recipe.instances,
            f"{model} itself",
            f"{recipe.method}, {learner.rounds} rounds",
        )
        manifest = path_manifest(trainer, name, data, np.empty(0, np.float32))
        progress = trainer.progress
        if progress.gap is None:
            return manifest
        on = f"{problem}{recipe.size} held out, greedy, against insertion (negative is better)"
        measured = Validation(round(progress.gap, 4), round(progress.gap_ci95, 4), len(held_out.coords), on)
        return dataclasses.replace(manifest, validation=(measured,))

    identity = {"model": model, "problem": problem, "seed": seed}
    return Prepared(policy, learner, validate, make_manifest, identity)


COURSE = Course(self_recipe, prepare)

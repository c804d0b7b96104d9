"""The policy-gradient course: AM, POMO and ELG learn from their own solutions of instances that are made on the way."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from nco_bench.cards import network_card
from nco_bench.errors import BadInputError
from nco_bench.nn.build import build_path_policy, model_config
from nco_bench.nn.logit_scale import resolved
from nco_bench.training.courses import Assignment, Course, Prepared
from nco_bench.training.learner import Measure
from nco_bench.training.learners.fresh_instances import (
    UNIFORM,
    FreshInstances,
    on_device,
    problem_to_draw,
)
from nco_bench.training.learners.policy_gradient import PolicyGradient, PolicyGradientSettings
from nco_bench.training.learners.rollout_baseline import greedy_costs
from nco_bench.training.manifest import last_validation, manifest_of
from nco_bench.training.options import checked_options, prefixed
from nco_bench.training.recipes import LoopRecipe
from nco_bench.training.trainer import Trainer
from nco_bench.weights.manifest import Manifest, TrainingData


@dataclass(frozen=True)
class PolicyGradientRecipe(LoopRecipe):
    """How an encode-once policy learns by policy gradient; see `LoopRecipe` for the rest.

    Attributes
    ----------
    size, capacity, demand, distribution
        Of the instances, see `policy_gradient.FreshInstances`.
    baseline, epoch_steps, evaluation, significance, shrink, first_size, grow, zero_mean, tours, scale_advantage, local_from
        See `policy_gradient.PolicyGradientSettings`.
    normalization, centred
        Of AM, see `models.am.AmConfig`; other models have no such choice.
    logit_scale
        Factor of attention logits while training, ``NAME`` or ``NAME:at=PLACE``; `run --logit-scale` has to name it again.
    """

    learner: str = "policy-gradient"
    batch: int = 512
    steps: int = 250_000
    optimizer: str = "adam"
    lr: float = 1e-4
    weight_decay: float = 0.0
    schedule: str = "constant"
    validation_instances: int = 512
    spike: float = 0.0
    size: int = 100
    capacity: float = 50.0
    demand: str = "integer"
    distribution: str = UNIFORM
    baseline: str = "rollout"
    epoch_steps: int = 2500
    evaluation: int = 10_000
    significance: float = 0.05
    shrink: float = 1.0
    first_size: int = 0
    grow: float = 0.0
    zero_mean: bool = False
    tours: int = 1
    scale_advantage: bool = False
    local_from: int = 0
    normalization: str = "batch"
    centred: bool = False
    logit_scale: str = "none"


def checked(model: str, recipe: PolicyGradientRecipe) -> PolicyGradientRecipe:
    """Check a recipe and give its logit scale the full name; raises `NcoBenchError`."""
    if not 0 < recipe.significance < 0.5:
        raise BadInputError(f"--config significance={recipe.significance:g}: expected between 0 and 0.5.")
    scale = resolved(recipe.logit_scale, glimpse=network_card(model).glimpse, model=model)
    return dataclasses.replace(recipe, logit_scale=scale)


def prepare(assignment: Assignment) -> Prepared:
    """Build the policy and its learner."""
    model, recipe, seed = assignment.model, assignment.recipe, assignment.seed
    problem = problem_to_draw(assignment)
    variant = {"normalization": recipe.normalization, "centred": recipe.centred} if model == "am" else {}
    decided = {"problem": "--problem", "training_size": "size=N", **{key: f"{key}=..." for key in variant}}
    options = checked_options(model_config(model, problem), assignment.options, decided)
    policy: Any = build_path_policy(
        model, problem, logit_scale=recipe.logit_scale, training_size=recipe.size, **variant, **options
    )
    policy = policy.to(assignment.device)
    source = FreshInstances(problem, recipe.size, recipe.capacity, recipe.demand, recipe.distribution)
    settings = PolicyGradientSettings(
        recipe.baseline,
        recipe.epoch_steps,
        recipe.evaluation,
        recipe.significance,
        shrink=recipe.shrink,
        first_size=recipe.first_size,
        grow=recipe.grow,
        zero_mean=recipe.zero_mean,
        tours=recipe.tours,
        scale_advantage=recipe.scale_advantage,
        local_from=recipe.local_from,
    )
    learner = PolicyGradient(policy, source, recipe, seed, torch.device(assignment.device), settings)

    def validate(trainer: Trainer) -> Measure | None:
        return _greedy_cost(trainer, source, seed)

    def make_manifest(trainer: Trainer, name: str) -> Manifest:
        return _manifest(trainer, name, source)

    identity = {"model": model, "problem": problem, "seed": seed, **prefixed(options)}
    return Prepared(policy, learner, validate, make_manifest, identity)


def _greedy_cost(trainer: Trainer, source: FreshInstances, seed: int) -> Measure | None:
    """Measure the mean greedy cost, in the unit square, on uniform instances of their own seed."""
    count = trainer.recipe.validation_instances
    if not count:
        return None
    fresh = dataclasses.replace(source, distribution=UNIFORM).draw(count, np.random.default_rng([seed, 2]))
    with trainer.shipping() as policy:
        costs = greedy_costs(policy, on_device(fresh, next(policy.parameters()).device))
    return Measure.of(costs.cpu().numpy(), "greedy_cost", "")


def _manifest(trainer: Trainer, name: str, source: FreshInstances) -> Manifest:
    """Say what the weights are."""
    configuration, samples = trainer.configuration, trainer.progress.samples
    model = configuration["model"]
    recipes = COURSE.recipes(model)
    first = next(iter(recipes))
    own = recipes.get(f"{first}-{source.problem}", recipes[first])  # AM's, for the largest CVRP alone
    paper = own if own.size == source.size else recipes[first]
    if configuration["normalization"] == "layer":
        paper = recipes["eie"]
    budget = network_card(model).paper_samples("policy-gradient", source.problem, source.size)
    which = "of the training distribution" if source.distribution == UNIFORM else "uniform instances"
    on = f"mean greedy cost on fresh {source.problem}{source.size} {which}, unit square; no gap"
    return manifest_of(
        trainer,
        name,
        TrainingData(
            ", ".join(sorted(source.distribution.split("+"))),
            source.size,
            samples,
            label_solver="none (policy gradient)",
        ),
        budget or paper.steps * paper.batch,
        validation=last_validation(trainer.progress, trainer.recipe.validation_instances, on),
    )


COURSE = Course("policy-gradient", PolicyGradientRecipe, prepare, checked)

"""The self-improved course: SIT and SIGD without labels, on the TSP and the CVRP."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.solvers.models import build_path_policy, entry, model_config
from nco_bench.training.choices import SIT_OURS, Paper, Papers
from nco_bench.training.courses import Assignment, Course, Prepared
from nco_bench.training.learner import Measure
from nco_bench.training.learners.self_improved import (
    METHODS,
    PseudoLabels,
    SelfImproved,
    SelfRecipe,
    draw_instances,
    greedy_lengths,
)
from nco_bench.training.learners.supervised_course import path_manifest
from nco_bench.training.options import checked_options, prefixed
from nco_bench.training.recipes import check_pieces, chosen, overridden
from nco_bench.training.trainer import Trainer
from nco_bench.weights.manifest import SIT_DECISIONS, Manifest, TrainingData, Validation

SMALL = SelfRecipe(
    size=100, instances=512, batch=32, steps=0, lr=4e-4, beta2=0.98, schedule="cosine", warmup=100, ema=0.0,
    rounds_updates=200, judged_updates=50, iterations=20, samples=32, chunk=64, longest=101, longest_start=101,
)  # fmt: skip
"""For hours of a CPU: few instances, short rounds. Labels that the untrained network improves cost nothing to make."""

SIT_EPOCH = 79 * SIT_DECISIONS
"""Updates of an epoch at 1K nodes: 20,000 instances in batches of 256, every decision of a piece (Algorithm 4)."""

PAPER_SIT = SelfRecipe(
    size=1000, instances=20_000, batch=256, steps=8 * 20 * SIT_EPOCH, optimizer="adam", lr=1e-4, weight_decay=0.0,
    clip=10.0, decay=0.97, decay_every=SIT_EPOCH, rounds_updates=20 * SIT_EPOCH, judged_updates=SIT_EPOCH, iterations=100,
    chunk=512, longest=1000, longest_start=1000, symmetries=False, walk=True,
)  # fmt: skip
"""SIT at 1K nodes: 20,000 instances, eight rounds of 20 epochs, 100 iterations of PRC a round, Adam 1e-4 x 0.97 an epoch."""

SIT_FIGURE_3 = dataclasses.replace(PAPER_SIT, steps=2 * 20 * SIT_EPOCH)
"""SIT, appendix C: two self-improved iterations at 1K nodes, for ``model.repeats=K``."""

SIT_PAPER = Paper(
    PAPER_SIT,
    "SIT, section 5, Algorithms 1-4 and Table 6 (1K nodes)",
    {
        **SIT_OURS,
        "rounds_updates": "20 epochs, counted in updates as the decay is",
        "first round": "of the eight learns from insertion, as in its code; the paper warms up on these, for an unsaid time",
        "validation_instances": f"not stated; {PAPER_SIT.validation_instances}",
    },
)

SIT_FIGURE_3_PAPER = dataclasses.replace(
    SIT_PAPER,
    recipe=SIT_FIGURE_3,
    source="SIT, appendix C, Figure 3 (model.repeats), and as for the recipe `paper`",
)


def sit_at(size: int, instances: int, rounds: int, batch: int, chunk: int) -> SelfRecipe:
    """Return SIT's recipe for another scale: a column of Table 6; rounds of 20 epochs, as at 1K nodes."""
    epoch = math.ceil(instances / batch) * SIT_DECISIONS
    return dataclasses.replace(
        PAPER_SIT, size=size, instances=instances, batch=batch, chunk=chunk, steps=rounds * 20 * epoch,
        rounds_updates=20 * epoch, judged_updates=epoch, decay_every=epoch,
    )  # fmt: skip


SIT_SCALES = {
    "paper-5k": sit_at(5_000, 200, 8, 32, 32),
    "paper-10k": sit_at(10_000, 200, 3, 32, 32),
    "paper-10k-cvrp": sit_at(10_000, 200, 4, 32, 32),
    "paper-50k": sit_at(50_000, 100, 3, 32, 16),
    "paper-50k-cvrp": sit_at(50_000, 100, 4, 32, 16),
    "paper-100k": sit_at(100_000, 100, 7, 16, 8),
}
"""SIT, Table 6: instances, self-improved iterations, training and reconstruction batch; the CVRP where it differs."""

SIT_RECIPES = {"paper": PAPER_SIT, "paper-figure-3": SIT_FIGURE_3, **SIT_SCALES}

PAPER_SIGD = SelfRecipe(
    size=100, instances=1000, method="samples", batch=1024, steps=100_000, optimizer="adam", lr=2e-4, weight_decay=0.0,
    clip=0.0, schedule="constant", rounds_updates=1000, judged_updates=1000, samples=128,
)  # fmt: skip
"""SIGD: 1000 instances, 128 distinct samples each, 1000 batches of 1024 per epoch, Adam at 2e-4."""

SIGD_PAPER = Paper(
    PAPER_SIGD,
    "SIGD's code, self-improvement",
    {
        "samples": "of one pass of sampling without replacement instead of four with advantages between them",
        "instances": "the same in all rounds, with labels that begin with insertion and never get longer",
    },
)


def self_papers(model: str) -> Papers:
    """Return the papers' recipes of a model that makes its own labels: SIT (which trains BQ too, Table 10) and SIGD."""
    scales = {
        name: dataclasses.replace(
            SIT_PAPER,
            recipe=recipe,
            source=f"SIT, section 5, Algorithms 1-4 and Table 6 ({recipe.size:,} nodes)",
        )
        for name, recipe in SIT_SCALES.items()
    }
    papers: dict[str, Papers] = {
        "sit": {"paper": SIT_PAPER, "paper-figure-3": SIT_FIGURE_3_PAPER, **scales},
        "bq": {"paper": SIT_PAPER},
        "sigd": {"paper": SIGD_PAPER},
    }
    return papers.get(model.partition("-")[0], {})


def self_recipe(model: str, config: Mapping[str, str]) -> SelfRecipe:
    """Return the recipe of a model with overrides: ``small``, the default, or ``paper``."""
    sampled = model.partition("-")[0] == "sigd"
    small = dataclasses.replace(SMALL, method="samples") if sampled else SMALL
    papers = {"paper": PAPER_SIGD} if sampled else SIT_RECIPES
    recipe = overridden(chosen({"small": small, **papers}, config), config)
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
    if problem not in entry(model).problems:
        raise UnknownNameError(f"problem of {model}", problem, entry(model).problems)
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

    identity = {"model": model, "problem": problem, "seed": seed, **prefixed(options)}
    return Prepared(policy, learner, validate, make_manifest, identity)


COURSE = Course(self_recipe, prepare, self_papers)

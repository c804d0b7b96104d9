"""The on-policy course: the supervised one, with the policy's own states beside the labels."""

from __future__ import annotations

import dataclasses

from nco_bench.errors import BadInputError
from nco_bench.training.courses import Assignment, Course, Prepared
from nco_bench.training.learners.on_policy import OnPolicy, OnPolicyRecipe
from nco_bench.training.learners.supervised_course import prepare_with
from nco_bench.training.recipes import check_pieces
from nco_bench.training.trainer import Trainer
from nco_bench.weights.manifest import Manifest


def checked(model: str, recipe: OnPolicyRecipe) -> OnPolicyRecipe:
    """Check the numbers of learning on policy; raises `BadInputError`."""
    check_pieces(recipe)
    if recipe.share > 1:
        raise BadInputError(f"--config share={recipe.share:g}: expected 0 to 1.")
    if recipe.walk:
        raise BadInputError("--config walk=true: learner=on-policy draws every state anew; leave it out.")
    for key in ("pool", "rollouts", "every", "cuts", "solve_seconds"):
        if not getattr(recipe, key) > 0:
            raise BadInputError(f"--config {key}={getattr(recipe, key)}: expected more than 0.")
    return recipe


def prepare(assignment: Assignment) -> Prepared:
    """Build the policy, read labels, hold some out."""
    prepared = prepare_with(assignment, OnPolicy)

    def make_manifest(trainer: Trainer, name: str) -> Manifest:
        made, learner = prepared.manifest(trainer, name), prepared.learner
        assert isinstance(learner, OnPolicy)
        note = (
            f"{learner.solved:,} states that the policy came to, each solved by fast-tsp, beside the labels."
        )
        return dataclasses.replace(made, notes=f"{made.notes} {note}".strip())

    return dataclasses.replace(prepared, manifest=make_manifest)


BEYOND = {"states": "of labels, and those that the policy came to, solved anew; the paper: of labels alone"}
COURSE = Course("on-policy", OnPolicyRecipe, prepare, checked, imitates="supervised", beyond=BEYOND)

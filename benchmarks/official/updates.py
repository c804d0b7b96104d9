"""One training update of ours, as the training loop does it: loss, gradients, clipping, optimiser, moving average."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nco_bench.nn.build import build_path_policy, load_official
from nco_bench.nn.memory import keep_freed_memory
from nco_bench.training.learner import Loss
from nco_bench.training.learners.fresh_instances import FreshInstances
from nco_bench.training.learners.pieces import SubPaths
from nco_bench.training.learners.policy_gradient import POMO_SETTINGS, PolicyGradient
from nco_bench.training.learners.policy_gradient_course import PolicyGradientRecipe
from nco_bench.training.learners.supervised import Supervised
from nco_bench.training.recipes import chosen, overridden, recipe_for, recipes_of
from nco_bench.training.trainer import Trainer
from official.engine import Case, Pair, Side

CPU = torch.device("cpu")


class Pieces:
    """A learner that is given the same pieces of tours at every update: what is drawn is not compared."""

    def __init__(self, learner: Supervised, pieces: SubPaths) -> None:
        self.learner, self.pieces, self.extra = learner, pieces, learner.extra

    def loss(self, step: int, fraction: float) -> Loss:
        return self.learner.paths_loss(self.pieces, step)


class Labels:
    """In the place of labelled instances."""

    problem = "tsp"


def pieces_of(case: Case) -> Tensor:
    """Pieces of tours with half of the nodes, ``(B, L, 2)``: the mean of a training run."""
    return torch.rand(case.batch, case.size // 2 + 1, 2, generator=torch.Generator().manual_seed(3))


def supervised_pair(
    case: Case, official: nn.Module, theirs: Callable[[Tensor], Tensor], clip: float = 0.0
) -> Pair:
    """Prepare an update along one decision of each piece.

    Parameters
    ----------
    case
        Which.
    official
        The official network.
    theirs
        The official loss of pieces ``(B, L, 2)`` in the order of the tour.
    clip
        Of the norm of gradients, 0 for none.
    """
    coords = pieces_of(case)
    policy = build_path_policy(case.model)
    load_official(policy, case.model, official.state_dict())
    recipe = recipe_for(case.model, {"recipe": "paper", "clip": str(clip)})
    learner = Supervised(policy.train(), Labels(), recipe, 0, CPU)  # type: ignore[arg-type]
    pieces = Pieces(learner, SubPaths(coords, closed=False, instance_size=case.size))
    trainer = Trainer(policy, pieces, recipe, Path("unused"), {})  # type: ignore[arg-type]
    optimizer = torch.optim.Adam(official.train().parameters(), lr=recipe.lr)

    def update() -> float:
        optimizer.zero_grad()
        loss = theirs(coords)
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(official.parameters(), clip)
        optimizer.step()
        return float(loss.detach())

    return Pair([update], loss_of(trainer), close)


def sampled_update(case: Case, state: dict[str, Tensor], recipe_name: str = "", **changed: str) -> Side:
    """Prepare an update of ours by policy gradient, with the recipe of the paper, in its first epoch."""
    policy = build_path_policy(case.model, case.problem)
    load_official(policy, case.model, state)
    config = {"recipe": recipe_name or case.model, "batch": str(case.batch), **changed}
    recipe = overridden(
        chosen(recipes_of(case.model, "policy-gradient", PolicyGradientRecipe), config), config
    )
    settings = None
    if recipe.scale_advantage:
        settings = replace(POMO_SETTINGS, scale_advantage=True)
    source = FreshInstances(case.problem, case.size)
    learner = PolicyGradient(policy.train(), source, recipe, 0, CPU, settings)
    trainer: Any = Trainer(policy, learner, recipe, Path("unused"), {})
    return loss_of(trainer)


def loss_of(trainer: Any) -> Side:
    """Return what does one update, and returns its loss."""
    keep_freed_memory()  # as the training command does; of the whole process, so that theirs gain as well

    def update() -> float:
        trainer.progress.loss = None  # a mean over updates otherwise
        trainer.update(0.0)
        return float(trainer.progress.loss)

    return update


def close(theirs: float, ours: float) -> float:
    """Return 1 where the losses agree to a thousandth."""
    return float(abs(theirs - ours) <= 1e-3 * abs(theirs))

"""Policy gradient of local-view policies on turned copies of fresh instances (INViT, section 4, and its code).

Every instance is seen in several copies, turned or mirrored by random angles (see `solvers.decoding.turns`). Of each copy a
solution is sampled; the loss is the mean of (cost - baseline) times its log-probability, costs being those of the instance
as it was drawn. The baseline is what a frozen copy of the policy reaches greedily on the same turned copy, from a first node
of its own (TSP). At the end of an epoch the frozen copy is replaced where the policy's best of all copies is shorter in the
mean of fresh instances, by more than `tolerance`; there is no test of significance. The frozen copy is what is exported.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nco_bench.cards import network_card
from nco_bench.errors import BadInputError
from nco_bench.nn.build import build_path_policy, model_config
from nco_bench.solvers.decoding.draws import instance_draws
from nco_bench.solvers.decoding.search import Choose, construct, greedy_choice, sampling
from nco_bench.solvers.decoding.turns import turns
from nco_bench.solvers.stepwise.local_steps import LocalViews, Walks, quick
from nco_bench.solvers.stepwise.policy import Options
from nco_bench.solvers.stepwise.problem import Demands, RoutingProblem, trajectory_lengths
from nco_bench.training.courses import Assignment, Course, Prepared
from nco_bench.training.learner import Loss, Measure
from nco_bench.training.learners.fresh_instances import FreshInstances, on_device, problem_to_draw
from nco_bench.training.manifest import last_validation, manifest_of
from nco_bench.training.options import checked_options, prefixed
from nco_bench.training.recipes import LoopRecipe
from nco_bench.training.trainer import Trainer
from nco_bench.weights.manifest import Manifest, TrainingData

LEARNED, JUDGED, VALIDATED = 0, 1, 2
"""What instances are drawn for."""
SAMPLED, COMPARED = 0, 1
"""Kinds of first nodes."""


@dataclass(frozen=True)
class TurnedCopiesRecipe(LoopRecipe):
    """How INViT learns; see `LoopRecipe` for the rest. `batch` counts copies.

    Attributes
    ----------
    size, capacity
        Of the instances.
    copies
        Of each instance, itself among them; `batch` is a multiple of it.
    epoch_steps
        Updates between two comparisons with the frozen copy.
    evaluation
        Batches of each comparison.
    tolerance
        By how much, in the unit square, the policy must be better to replace the frozen copy.
    recompute
        Compute each step again for its gradients, in place of keeping all of them; saves memory and costs half more time.
    """

    learner: str = "turned-copies"
    batch: int = 128
    steps: int = 75_000
    lr: float = 1e-4
    decay_all: bool = True
    clip: float = 0.0
    schedule: str = "exponential"
    decay: float = 0.99
    decay_every: int = 300
    validation_instances: int = 128
    spike: float = 0.0
    size: int = 100
    capacity: float = 50.0
    copies: int = 16
    epoch_steps: int = 300
    evaluation: int = 80
    tolerance: float = 1e-3
    recompute: bool = False


class TurnedCopies:
    """INViT's training as one way to learn that the training loop takes.

    Parameters
    ----------
    policy
        A local-view policy.
    source
        Where instances come from.
    recipe, seed
        Copies and comparisons; the seed, which with the step decides all draws.
    device
        Where the policy is.
    """

    def __init__(
        self, policy: Any, source: FreshInstances, recipe: TurnedCopiesRecipe, seed: int, device: torch.device
    ) -> None:
        self.policy, self.source, self.recipe, self.seed, self.device = policy, source, recipe, seed, device
        self.extra = nn.ModuleDict({"baseline": copy.deepcopy(policy).requires_grad_(False).eval()})
        self._state = {"epochs": 0, "copies": 0}

    def loss(self, step: int, fraction: float) -> Loss:
        """Draw a batch, sample solutions and return the loss; at the end of an epoch, judge the frozen copy first."""
        epoch = step // self.recipe.epoch_steps
        if epoch > self._state["epochs"]:
            self._end_epoch(epoch)
            self._state["epochs"] = epoch
        some, keys = self._draw(LEARNED, step)
        views = RecomputedViews if self.recipe.recompute else LocalViews
        cost, log_prob = _built(self.policy, some, keys, SAMPLED, sampling(keys, 0, 1, double=True), views)
        assert log_prob is not None
        with torch.no_grad():
            compared, _ = _built(self.extra["baseline"], some, keys, COMPARED, greedy_choice)
        return Loss(((cost - compared).to(log_prob.dtype) * log_prob).mean(), cost.mean(), len(cost))

    def _draw(self, purpose: int, number: int) -> tuple[Turned, Tensor]:
        """Draw one batch of copies, and a key for each."""
        rng = np.random.default_rng([self.seed, purpose, number])
        count = self.recipe.batch // self.recipe.copies
        problem = on_device(self.source.draw(count, rng), self.device)
        keys = torch.from_numpy(rng.integers(2**62, size=count * self.recipe.copies)).to(self.device)
        return Turned.of(problem, self.recipe.copies, keys[:count]), keys

    def _end_epoch(self, epoch: int) -> None:
        """Replace the frozen copy where the policy's best of all copies is shorter."""
        means = [self._best_of_copies(policy, epoch) for policy in (self.extra["baseline"], self.policy)]
        if means[1] + self.recipe.tolerance < means[0]:
            self.extra["baseline"].load_state_dict(self.policy.state_dict())
            self._state["copies"] += 1

    @torch.no_grad()
    def _best_of_copies(self, policy: nn.Module, epoch: int) -> float:
        """Return the mean over fresh instances of the shortest greedy solution of all copies."""
        total = 0.0
        for batch in range(self.recipe.evaluation):
            some, keys = self._draw(JUDGED, epoch * self.recipe.evaluation + batch)
            cost, _ = _built(policy, some, keys, SAMPLED, greedy_choice)
            total += float(cost.view(-1, self.recipe.copies).amin(dim=1).mean())
        return total / self.recipe.evaluation

    def chosen(self, step: int) -> dict[str, Tensor]:
        """Return the frozen copy, once it was replaced: the official code exports that."""
        return dict(self.extra["baseline"].state_dict()) if self._state["copies"] else {}

    def position(self) -> dict[str, Any]:
        """Return how often the frozen copy was judged and replaced; the instances follow from seed and step."""
        return {"source": f"uniform {self.source.problem}{self.source.size}", **self._state}

    def seek(self, position: dict[str, Any], *, adopt: bool = False) -> None:
        """Go to a saved position; raises `BadInputError` for other instances, unless they are to be adopted."""
        mine = self.position()["source"]
        if position.get("source") != mine and not adopt:
            raise BadInputError(
                f"the checkpoint learned from {position.get('source')}, now it is {mine}; resume with the same size."
            )
        self._state = {key: position.get(key, value) for key, value in self._state.items()}


@dataclass(frozen=True)
class Turned:
    """Copies of instances.

    Attributes
    ----------
    seen
        The copies as the policy sees them, ``(R, N, 2)``.
    coords
        ``(R, N, 2)`` float64, the instances themselves, by which solutions are measured.
    """

    seen: RoutingProblem
    coords: Tensor

    @classmethod
    def of(cls, problem: RoutingProblem, copies: int, keys: Tensor) -> Turned:
        """Turn instances by angles that their keys ``(B,)`` say."""
        demands = problem.demands
        if demands is not None:
            parts = (demands.amount, demands.capacity, demands.limit)
            demands = Demands(*(part.repeat_interleave(copies, dim=0) for part in parts))
        coords = problem.coords.double().repeat_interleave(copies, dim=0)
        return cls(RoutingProblem(turns(problem.coords, copies, keys), demands), coords)


@dataclass(frozen=True)
class RecomputedViews(LocalViews):
    """Steps that keep what a policy sees until the gradient is asked for, and not what it computes from that."""

    def scores(self, walks: Walks) -> tuple[Tensor, Options]:
        """Return what `LocalViews` does; the next move changes the table of open nodes, so that a copy is kept."""
        seen = replace(walks, state=replace(walks.state, open=walks.state.open.clone()))
        found: tuple[Tensor, Options] = checkpoint(
            super().scores, seen, use_reentrant=False, preserve_rng_state=False
        )
        return found


def _built(
    policy: nn.Module,
    some: Turned,
    keys: Tensor,
    kind: int,
    choose: Choose,
    views: type[LocalViews] = LocalViews,
) -> tuple[Tensor, Tensor | None]:
    """Build one solution of each copy; its cost ``(R,)``, float64, and log-probability, where gradients are on."""
    network, problem = quick(policy), some.seen
    starts = None
    if network.needs_start:
        starts = instance_draws(keys).below(0, kind, problem.coords.shape[1])[:, None]
    steps, wanted = views(network, problem, problem.nodes()), torch.is_grad_enabled()
    done = construct(steps, steps.begin(1, starts), choose, log_prob=wanted)
    cost = trajectory_lengths(some.coords, done.nodes, cvrp=problem.demands is not None)[:, 0]
    return cost, done.log_prob[:, 0] if done.log_prob is not None else None


def prepare(assignment: Assignment) -> Prepared:
    """Build the policy and its learner."""
    model, recipe, seed = assignment.model, assignment.recipe, assignment.seed
    problem = problem_to_draw(assignment)
    options = checked_options(model_config(model, problem), assignment.options, {"problem": "--problem"})
    policy: Any = build_path_policy(model, problem, **options).to(assignment.device)
    source = FreshInstances(problem, recipe.size, recipe.capacity)
    device = torch.device(assignment.device)
    learner = TurnedCopies(policy, source, recipe, seed, device)

    def validate(trainer: Trainer) -> Measure | None:
        if not recipe.validation_instances:
            return None
        fresh = on_device(
            source.draw(recipe.validation_instances, np.random.default_rng([seed, VALIDATED])), device
        )
        keys = torch.arange(len(fresh.coords), device=device)
        with trainer.shipping() as shipped, torch.no_grad():
            cost, _ = _built(shipped, Turned.of(fresh, 1, keys), keys, SAMPLED, greedy_choice)
        return Measure.of(cost.cpu().numpy(), "greedy_cost", "")

    def make_manifest(trainer: Trainer, name: str) -> Manifest:
        on = f"mean greedy cost on fresh {problem}{recipe.size} of the training distribution, unit square; no gap"
        samples = trainer.progress.samples
        return manifest_of(
            trainer,
            name,
            TrainingData("uniform", recipe.size, samples, label_solver="none (policy gradient)"),
            network_card(model).paper_samples("turned-copies", problem),
            validation=last_validation(trainer.progress, recipe.validation_instances, on),
        )

    identity = {"model": model, "problem": problem, "seed": seed, **prefixed(options)}
    return Prepared(policy, learner, validate, make_manifest, identity)


def checked(model: str, recipe: TurnedCopiesRecipe) -> TurnedCopiesRecipe:
    """Check a recipe; raises `BadInputError`."""
    for key, least in (("size", 3), ("copies", 1), ("epoch_steps", 1), ("evaluation", 1), ("capacity", 9)):
        if not least <= getattr(recipe, key) < float("inf"):
            raise BadInputError(f"--config {key}={getattr(recipe, key)}: expected at least {least}.")
    if recipe.batch % recipe.copies:
        raise BadInputError(
            f"--config batch={recipe.batch} copies={recipe.copies}: expected a batch that the copies divide."
        )
    return recipe


COURSE = Course("turned-copies", TurnedCopiesRecipe, prepare, checked)

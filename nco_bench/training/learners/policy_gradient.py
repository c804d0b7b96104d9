"""Learning from one's own solutions by policy gradient: AM with the rollout baseline, POMO and ELG with the shared one.

REINFORCE: the loss is the mean of (cost - baseline) times the log-probability of what was sampled (AM, Equation 9; POMO,
Equation 3). The baseline is one of

- ``rollout`` (AM, section 4): what a frozen copy of the policy reaches greedily on the same instance. At the end of an epoch
  the copy is replaced if the policy is better on instances of their own by a one-sided paired t-test. In the first epoch a
  moving average of costs stands in for it.
- ``shared`` (POMO): the mean over the trajectories of the instance, one from each start.

EIE's rule (section 5) is included: where the test says that the policy is worse (p > 0.95), the learning rate shrinks.
As in the official code, the test looks at one set of instances until the baseline changes.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.solvers.decoding.search import construct, sampling
from nco_bench.solvers.stepwise.glimpse import MANY_TRAJECTORIES
from nco_bench.solvers.stepwise.policy import EncodeOncePolicy
from nco_bench.solvers.stepwise.problem import RoutingProblem
from nco_bench.solvers.stepwise.rollout import completed, fits
from nco_bench.solvers.stepwise.steps import EncodeOnce, log_probabilities
from nco_bench.training.learner import Loss
from nco_bench.training.learners.fresh_instances import DISTRIBUTIONS, UNIFORM, FreshInstances, on_device
from nco_bench.training.learners.rollout_baseline import greedy_costs, p_value, trajectory_costs
from nco_bench.training.recipes import LoopRecipe

BASELINES = ("rollout", "shared")
DEMANDS = ("integer", "unit")
LITTLE = 2**15
"""Scores of a step (instances x trajectories x nodes) up to which two passes are faster than one on the CPU."""


@dataclass(frozen=True)
class PolicyGradientSettings:
    """What belongs to policy gradients only; all else is the recipe's.

    Attributes
    ----------
    baseline
        ``rollout`` or ``shared``.
    epoch_steps
        Updates between two tests of the rollout baseline: 2,500 in AM, 10 in EIE.
    evaluation
        Instances of that test: 10,000 in AM.
    significance
        Level of the test.
    warmup_decay
        Of the moving average in the first epoch.
    shrink
        Factor of the learning rate where the policy is significantly worse: 1 in AM, 0.95 in EIE.
    first_size, grow
        Instances grow from `first_size` nodes to the source's size over this share of the run, each step by the same
        factor; no part of AM or EIE, for small budgets. 0 is off.
    zero_mean
        Take their mean over the batch off what costs differ from the rollout baseline by. Samples of a young policy are
        mostly worse than its greedy solutions, and all of them would be made less likely; no part of AM or EIE.
    tours
        Solutions that are sampled per instance, against the rollout baseline: 1 in AM and EIE. More of them cost little
        where encoding is most of the work.
    scale_advantage
        ``shared``: divide what costs differ by, instance by instance, by how much the best solution is better than the mean
        (ELG); a batch with an instance whose solutions all cost the same is left as it is.
    local_from
        Update from which ELG's local policy takes part, with an optimiser that remembers nothing; 0 is from the beginning.
    """

    baseline: str = "rollout"
    epoch_steps: int = 2500
    evaluation: int = 10_000
    significance: float = 0.05
    warmup_decay: float = 0.8
    shrink: float = 1.0
    first_size: int = 0
    grow: float = 0.0
    zero_mean: bool = False
    tours: int = 1
    scale_advantage: bool = False
    local_from: int = 0


AM_SETTINGS = PolicyGradientSettings()
POMO_SETTINGS = PolicyGradientSettings(baseline="shared")


class PolicyGradient:
    """Policy gradient as one way to learn that the training loop takes.

    Parameters
    ----------
    policy
        An encode-once policy.
    source
        Where instances come from.
    recipe, seed
        Batch size; the seed of instances and samples. With the step it decides all draws, so that a resumed run draws
        the same.
    device
        Where the policy is.
    settings
        Baseline and its test; None takes AM's, or POMO's for policies that are given their start.

    Raises
    ------
    NcoBenchError
        For settings that do not fit the policy.
    """

    def __init__(
        self,
        policy: Any,
        source: FreshInstances,
        recipe: LoopRecipe,
        seed: int,
        device: torch.device,
        settings: PolicyGradientSettings | None = None,
    ) -> None:
        settings = settings or (POMO_SETTINGS if policy.needs_start else AM_SETTINGS)
        _check(policy, source, settings)
        self.policy, self.source, self.recipe, self.seed = policy, source, recipe, seed
        self.device, self.settings = device, settings
        self.extra = nn.ModuleDict()
        self.optimizer: torch.optim.Optimizer | None = None
        self._state: dict[str, Any] = {
            "rate": 1.0,
            "average": None,
            "copies": 0,
            "epochs": 0,
            "tested": source.size,
            "alone": settings.local_from > 0,
        }
        self._set: RoutingProblem | None = None
        self._goal: NDArray[np.float64] | None = None
        if settings.baseline == "rollout":
            self.extra["baseline"] = copy.deepcopy(policy).requires_grad_(False).eval()

    def follow(self, optimizer: torch.optim.Optimizer) -> None:
        """Let the learner shrink the learning rate of this optimiser, as `PolicyGradientSettings.shrink` says."""
        self.optimizer = optimizer
        self._apply_rate()

    @property
    def rate(self) -> float:
        """By what the learning rate has shrunk so far."""
        return float(self._state["rate"])

    def loss(self, step: int, fraction: float) -> Loss:
        """Draw a batch, sample solutions and return the loss; at the end of an epoch, test the baseline first."""
        if self.settings.local_from:
            self._let_in_the_local_policy(step)
        epoch, source = step // self.settings.epoch_steps, self._source(fraction)
        if self.settings.baseline == "rollout" and epoch > self._state["epochs"]:
            self._end_epoch(source.size)
            self._state["epochs"] = epoch
        problem = on_device(source.draw(self.recipe.batch, self._rng(step)), self.device)
        if self.settings.baseline == "shared":
            return self._shared(problem, step)
        cost, log_prob = self._sample(problem, step, self.settings.tours, None)
        advantage = cost - self._baseline(problem, cost, epoch)
        if self.settings.zero_mean:
            advantage = advantage - advantage.mean()
        return Loss((advantage * log_prob).mean(), cost.mean(), len(cost))

    def _let_in_the_local_policy(self, step: int) -> None:
        alone = step < self.settings.local_from
        if self._state["alone"] and not alone and self.optimizer is not None:
            self.optimizer.state.clear()
        self._state["alone"] = alone
        self.policy.joint = not alone

    def chosen(self, step: int) -> dict[str, Tensor]:
        """Return weights whose local policy says nothing as long as it takes no part; else nothing."""
        if not self._state["alone"]:
            return {}
        silent = ("local.combine.weight", "local.combine.bias")
        state = self.policy.state_dict()
        return {key: torch.zeros_like(value) if key in silent else value for key, value in state.items()}

    def _source(self, fraction: float) -> FreshInstances:
        """Return where instances come from at this share of the run."""
        first, grow, size = self.settings.first_size, self.settings.grow, self.source.size
        if not first or fraction >= grow:
            return self.source
        return replace(self.source, size=round(first * (size / first) ** (fraction / grow)))

    def _shared(self, problem: RoutingProblem, step: int) -> Loss:
        """POMO: one trajectory per start, each compared with the mean of its instance."""
        customers = problem.coords.shape[1] - int(self.source.problem == "cvrp")
        starts = torch.arange(customers, device=self.device) + int(self.source.problem == "cvrp")
        cost, log_prob = self._sample(problem, step, customers, starts.expand(len(problem.coords), -1))
        advantage = cost - cost.mean(dim=1, keepdim=True)
        best = -advantage.amin(dim=1, keepdim=True)
        if self.settings.scale_advantage and bool((best > 0).all()):
            advantage = advantage / best
        return Loss((advantage * log_prob).mean(), cost.mean(), len(cost))

    def _sample(
        self, problem: RoutingProblem, step: int, trajectories: int, starts: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Sample solutions; their costs and log-probabilities, ``(B, P)``."""
        first = (self.seed * 1_000_003 + step) * self.recipe.batch
        seeds = torch.arange(first, first + len(problem.coords), device=self.device)
        network = cast("EncodeOncePolicy", self.policy)
        encoded = network.encode(problem.nodes())
        steps = EncodeOnce(network, problem, encoded)
        # Two passes, whose first is compiled, cost less than one where a step is little work.
        little = trajectories * problem.coords.shape[:2].numel() <= LITTLE
        with torch.no_grad():
            compiled = little and fits(steps)
        if not compiled and trajectories >= MANY_TRAJECTORIES:
            choose = _without_gradient(sampling(seeds, 0, trajectories))
            done = construct(steps, steps.begin(trajectories, starts), choose, log_prob=True)
            assert done.log_prob is not None
            return trajectory_costs(problem, done.nodes).to(done.log_prob.dtype), done.log_prob
        with torch.no_grad():
            nodes = completed(steps, trajectories, starts, seeds).nodes
        log_prob = log_probabilities(network, problem, encoded, nodes, given=int(starts is not None))
        return trajectory_costs(problem, nodes).to(log_prob.dtype), log_prob

    def _baseline(self, problem: RoutingProblem, cost: Tensor, epoch: int) -> Tensor:
        """Return what the costs ``(B, 1)`` are compared with."""
        if epoch > 0:
            return greedy_costs(self.extra["baseline"], problem).to(cost.dtype)[:, None]
        mean, before = float(cost.mean()), self._state["average"]
        decay = self.settings.warmup_decay
        self._state["average"] = mean if before is None else decay * before + (1 - decay) * mean
        return torch.full_like(cost, self._state["average"])

    def _end_epoch(self, size: int) -> None:
        """Replace the baseline if the policy is significantly better; shrink the learning rate if it is worse."""
        if size != self._state["tested"]:
            self._state["tested"] = size
            self._set = self._goal = None
        was_training = self.policy.training
        found = greedy_costs(self.policy.eval(), self._evaluation_set()).cpu().numpy()
        self.policy.train(was_training)
        if self._goal is None:
            self._goal = greedy_costs(self.extra["baseline"], self._evaluation_set()).cpu().numpy()
        p = p_value(found, self._goal)
        if p < self.settings.significance:
            self.extra["baseline"].load_state_dict(self.policy.state_dict())
            self._state["copies"] += 1
            self._set = self._goal = None
        elif p > 1 - self.settings.significance:
            self._state["rate"] *= self.settings.shrink
            self._apply_rate()

    def _apply_rate(self) -> None:
        if self.optimizer is not None:
            for group in self.optimizer.param_groups:
                group.setdefault("first_peak", group["peak"])
                group["peak"] = group["first_peak"] * self.rate

    def _evaluation_set(self) -> RoutingProblem:
        """Return the instances of the test, fresh ones after each change of the baseline or of their size."""
        if self._set is None:
            rng = np.random.default_rng([self.seed, 1, self._state["copies"]])
            source = replace(self.source, size=self._state["tested"])
            self._set = on_device(source.draw(self.settings.evaluation, rng), self.device)
        return self._set

    def _rng(self, step: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, 0, step])

    def position(self) -> dict[str, Any]:
        """Return the state of the baseline; the instances follow from seed and step."""
        return {"source": _described(self.source, self.settings), **self._state}

    def seek(self, position: dict[str, Any], *, adopt: bool = False) -> None:
        """Go to a saved position; raises `BadInputError` for other instances, unless they are to be adopted."""
        mine = _described(self.source, self.settings)
        if position.get("source") != mine and not adopt:
            raise BadInputError(
                f"the checkpoint learned from {position.get('source')}, now it is {mine}; resume with the same values."
            )
        self._state = {key: position.get(key, value) for key, value in self._state.items()}
        self._set = self._goal = None
        self._apply_rate()


def _without_gradient(choose: Callable[[Tensor, int], Tensor]) -> Callable[[Tensor, int], Tensor]:
    def chosen(logits: Tensor, step: int) -> Tensor:
        return choose(logits.detach(), step)

    return chosen


def _described(source: FreshInstances, settings: PolicyGradientSettings) -> str:
    demands = f", capacity {source.capacity:g}, {source.demand} demands" if source.problem == "cvrp" else ""
    return f"{source.distribution} {source.problem}{source.size}{demands}, {settings.baseline} baseline"


def _check(policy: Any, source: FreshInstances, settings: PolicyGradientSettings) -> None:
    if settings.baseline not in BASELINES:
        raise UnknownNameError("baseline", settings.baseline, BASELINES)
    if source.demand not in DEMANDS:
        raise UnknownNameError("demand", source.demand, DEMANDS)
    if source.distribution not in DISTRIBUTIONS:
        raise UnknownNameError("--config distribution", source.distribution, DISTRIBUTIONS)
    if source.distribution != UNIFORM and settings.baseline == "rollout":
        raise BadInputError(
            f"--config distribution={source.distribution}: the rollout baseline is tested on uniform instances alone."
        )
    if policy.problem != source.problem:
        raise BadInputError(
            f"the policy solves the {policy.problem}, the instances are of the {source.problem}."
        )
    if settings.local_from and not hasattr(policy, "joint"):
        raise BadInputError(f"local_from={settings.local_from}: only elg has a local policy; leave it out.")
    if policy.needs_start and settings.baseline == "rollout":
        raise BadInputError("this policy does not choose its first node; it learns with the shared baseline.")
    if source.size < 3 or settings.epoch_steps < 1 or settings.evaluation < 2 or settings.tours < 1:
        raise BadInputError(
            f"policy gradient: size={source.size}, epoch_steps={settings.epoch_steps}, "
            f"evaluation={settings.evaluation}, tours={settings.tours}: expected at least 3, 1, 2 and 1."
        )
    if not 0 <= settings.grow <= 1 or (settings.first_size and not 3 <= settings.first_size <= source.size):
        raise BadInputError(
            f"policy gradient: first_size={settings.first_size}, grow={settings.grow:g}: expected 3 to {source.size}, "
            "or 0, and 0 to 1."
        )
    largest = 9.0 if source.demand == "integer" else 1.0
    if source.problem == "cvrp" and not (math.isfinite(source.capacity) and source.capacity >= largest):
        raise BadInputError(
            f"policy gradient: capacity {source.capacity:g} is below a demand of {largest:g}."
        )

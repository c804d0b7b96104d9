"""Self-improved learning: the policy improves a set of pseudo-labels, then learns from them, again and again.

SIT (Algorithms 1-4): labels begin with insertion; each round goes back to the best weights of the round before, improves
all labels by parallel local re-construction with them, in segments of at most l_max nodes, and trains on random pieces of
the labels for a number of updates.
SIGD: each round draws distinct solutions without replacement from the best policy so far and keeps the shortest of each.
Here it goes on being compared with the label it has, so that in either way a label never gets longer.

The best weights are those with the shortest greedy solutions on instances of their own, as no optimal ones are known. They
are looked for within a round, every `judged_updates` and at its end (SIT, Appendix E), and they are what is exported.
"""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nco_bench.datasets.routing import default_capacity
from nco_bench.errors import BadInputError
from nco_bench.solvers.decoding.insertion import insert_cvrp, insert_tsp
from nco_bench.solvers.path.construct import greedy
from nco_bench.solvers.path.problem import PathProblem, cvrp_problem, route_lengths, tour_lengths, tsp_problem
from nco_bench.solvers.path.reconstruction import improve_cvrp, improve_tsp
from nco_bench.solvers.path.reconstruction_segments import CvrpInstance
from nco_bench.solvers.path.task import Budget
from nco_bench.training.data import Batch
from nco_bench.training.learner import Loss
from nco_bench.training.learners.sampling import best_of_distinct
from nco_bench.training.learners.supervised import Supervised
from nco_bench.training.recipes import Recipe

METHODS = ("prc", "samples")
SMALL_CAPACITIES = {300: 100}
"""CVRP: the size whose capacity in SIT (appendix H) is not that of its dataset name, `cvrp300`."""


@dataclass(frozen=True)
class SelfRecipe(Recipe):
    """Numbers of self-improved learning; see `Recipe` for the rest.

    Attributes
    ----------
    size, instances
        Nodes (customers) per instance, and how many instances are labelled.
    method
        ``prc`` (SIT) or ``samples`` (SIGD).
    rounds_updates, judged_updates
        Updates between two improvements of the labels, and between two looks at the greedy solutions of the weights.
    iterations
        Of re-construction per improvement.
    samples
        Distinct solutions per instance and improvement.
    chunk
        Instances that are improved together.
    improve_first
        Whether the first round, too, improves the labels before it learns, as a network that is already trained should.
    """

    size: int = 1000
    instances: int = 20_000
    method: str = "prc"
    rounds_updates: int = 1580
    judged_updates: int = 79
    iterations: int = 100
    samples: int = 128
    chunk: int = 256
    improve_first: bool = False


@dataclass(frozen=True)
class Instances:
    """Uniform instances: ``(B, N, 2)``; for the CVRP row 0 is the depot, with ``(B, N)`` demands and ``(B,)`` capacities."""

    coords: Tensor
    demand: Tensor | None = None
    capacity: Tensor | None = None

    def part(self, rows: slice) -> Instances:
        """Return some of them."""
        return Instances(
            self.coords[rows],
            None if self.demand is None else self.demand[rows],
            None if self.capacity is None else self.capacity[rows],
        )

    def problem(self) -> PathProblem:
        """Return them as path problems."""
        if self.demand is None or self.capacity is None:
            return tsp_problem(self.coords)
        return cvrp_problem(self.coords, self.demand, self.capacity)


def draw_instances(problem: str, size: int, count: int, seed: int, stream: int) -> Instances:
    """Draw uniform instances; demands 1..9 with the capacity that the dataset `cvrpSIZE` has."""
    rng = np.random.default_rng([seed, stream])
    if problem == "tsp":
        return Instances(torch.from_numpy(rng.random((count, size, 2), dtype=np.float32)))
    coords = torch.from_numpy(rng.random((count, size + 1, 2), dtype=np.float32))
    demand = torch.from_numpy(rng.integers(1, 10, (count, size + 1)))
    demand[:, 0] = 0
    capacity = SMALL_CAPACITIES.get(size) or default_capacity(size)
    return Instances(coords, demand, torch.full((count,), capacity))


class PseudoLabels:
    """Instances with the best solutions found so far, read in batches like labelled data.

    Parameters
    ----------
    problem
        ``tsp`` or ``cvrp``.
    recipe, seed
        Size and number of the instances; the seed of instances and order.
    """

    def __init__(self, problem: str, recipe: SelfRecipe, seed: int) -> None:
        self.problem, self.recipe, self.seed = problem, recipe, seed
        self.instances = draw_instances(problem, recipe.size, recipe.instances, seed, 0)
        self.order, self.via = self._insertion()
        self.epoch, self.offset = 0, 0
        self._shuffle: NDArray[np.int64] = np.empty(0, np.int64)
        self._shuffled = -1

    def _insertion(self) -> tuple[Tensor, Tensor | None]:
        """Label by random insertion; the CVRP by insertion in angular order, which is SIT's."""
        instances = self.instances
        if instances.demand is None or instances.capacity is None:
            order = torch.from_numpy(np.random.default_rng([self.seed, 1]).permutation(self.recipe.size))
            return insert_tsp(instances.coords, order).clone(), None  # a normal tensor, which can be changed
        made = [
            insert_cvrp(coords.numpy(), demand.numpy(), int(capacity))
            for coords, demand, capacity in zip(
                instances.coords, instances.demand, instances.capacity, strict=True
            )
        ]
        orders, vias = (np.stack(arrays) for arrays in zip(*made, strict=True))
        return torch.from_numpy(orders), torch.from_numpy(vias)

    def lengths(self) -> Tensor:
        """Return the lengths of all labels, ``(D,)`` float64."""
        if self.via is None:
            return tour_lengths(self.instances.coords, self.order)
        return route_lengths(self.instances.coords, self.order, self.via)

    def improve(self, policy: Any, round_number: int) -> None:
        """Improve every label by the policy; none gets longer."""
        recipe, device = self.recipe, next(policy.parameters()).device
        policy.eval()
        for begin in range(0, recipe.instances, recipe.chunk):
            rows = slice(begin, begin + recipe.chunk)
            generator = torch.Generator().manual_seed((self.seed * 1009 + round_number) * 100_003 + begin)
            part = _on(self.instances.part(rows), device)
            old = self.order[rows].to(device), None if self.via is None else self.via[rows].to(device)
            new = (_reconstructed if recipe.method == "prc" else _sampled)(
                policy, part, old, recipe, generator
            )
            shorter = _lengths(part, new) < _lengths(part, old)
            self.order[rows] = torch.where(shorter[:, None], new[0], old[0]).cpu()
            if self.via is not None and new[1] is not None and old[1] is not None:
                self.via[rows] = torch.where(shorter[:, None], new[1], old[1]).cpu()
        policy.train()

    def take(self, count: int) -> Batch:
        """Return the next instances in the order of their labels; fewer than `count` at the end of an epoch."""
        if self._shuffled != self.epoch:
            rng = np.random.default_rng([self.seed, 2, self.epoch])
            self._shuffle, self._shuffled = rng.permutation(self.recipe.instances), self.epoch
        rows = torch.from_numpy(self._shuffle[self.offset : self.offset + count])
        self.offset += len(rows)
        if self.offset >= self.recipe.instances:
            self.epoch, self.offset = self.epoch + 1, 0
        coords, order = self.instances.coords[rows], self.order[rows]
        ordered = coords.gather(1, order[..., None].expand(-1, -1, 2))
        demand, capacity = self.instances.demand, self.instances.capacity
        if demand is None or capacity is None or self.via is None:
            return Batch(ordered.numpy(), True)
        packed = torch.cat(
            [
                torch.cat([coords[:, :1], ordered], dim=1),
                torch.cat([demand[rows][:, :1], demand[rows].gather(1, order)], dim=1)[..., None],
                torch.nn.functional.pad(self.via[rows].float(), (1, 0))[..., None],
                capacity[rows].float()[:, None, None].expand(-1, coords.shape[1], 1),
            ],
            dim=2,
        )
        return Batch(packed.float().numpy(), True)

    def position(self) -> dict[str, Any]:
        """Return where reading stands, and what is read."""
        recipe = self.recipe
        source = f"{recipe.instances} uniform {self.problem}{recipe.size}, seed {self.seed}"
        return {"epoch": self.epoch, "offset": self.offset, "source": source}

    def seek(self, position: dict[str, Any], *, adopt: bool = False) -> None:
        """Go to a saved position; raises `BadInputError` for other instances (labels cannot be carried over)."""
        if position["source"] != self.position()["source"]:
            raise BadInputError(
                f"The checkpoint labels {position['source']}, now it is {self.position()['source']}; "
                "resume with the same values."
            )
        self.epoch, self.offset = position["epoch"], position["offset"]


Solutions = tuple[Tensor, Tensor | None]


def _reconstructed(
    policy: Any, part: Instances, old: Solutions, recipe: SelfRecipe, generator: torch.Generator
) -> Solutions:
    budget = Budget(recipe.iterations, None, time.monotonic(), lambda seconds, costs: None)
    longest = recipe.longest  # l_max of Algorithm 1 holds for improvement and training alike
    if part.demand is None or part.capacity is None or old[1] is None:
        tours = improve_tsp(policy, part.coords, old[0], budget, generator, parallel=True, max_length=longest)
        return tours, None
    instance, routes = CvrpInstance(part.coords, part.demand, part.capacity), (old[0], old[1])
    return improve_cvrp(policy, instance, routes, budget, generator, parallel=True, max_length=longest)


def _sampled(
    policy: Any, part: Instances, old: Solutions, recipe: SelfRecipe, generator: torch.Generator
) -> Solutions:
    path, _ = best_of_distinct(policy, part.problem(), recipe.samples, generator)
    return _solutions(path, cvrp=old[1] is not None)


def _solutions(path: Any, cvrp: bool) -> Solutions:
    if not cvrp:
        return torch.cat([torch.zeros_like(path.order[:, :1]), path.order], dim=1), None
    via = path.flags.clone()
    via[:, 0] = True
    return path.order, via


def _lengths(part: Instances, solutions: Solutions) -> Tensor:
    order, via = solutions
    return tour_lengths(part.coords, order) if via is None else route_lengths(part.coords, order, via)


def _on(instances: Instances, device: torch.device) -> Instances:
    demand, capacity = instances.demand, instances.capacity
    return Instances(
        instances.coords.to(device),
        None if demand is None else demand.to(device),
        None if capacity is None else capacity.to(device),
    )


@torch.inference_mode()
def greedy_lengths(policy: Any, instances: Instances) -> Tensor:
    """Return the lengths of greedy solutions, ``(B,)`` float64."""
    device = next(policy.parameters()).device
    instances = _on(instances, device)
    path = greedy(policy, instances.problem())
    return _lengths(instances, _solutions(path, cvrp=instances.demand is not None))


class SelfImproved:
    """Self-improved learning as one way to learn that the training loop takes.

    Parameters
    ----------
    policy
        A path policy.
    labels
        The pseudo-labels.
    held_out
        Instances that choose the best weights.
    recipe, seed, device
        As `Supervised` takes them.
    """

    shares_batches = True
    """Several processes may train together; each improves all labels, in the same way."""

    def __init__(
        self, policy: Any, labels: PseudoLabels, held_out: Instances, recipe: SelfRecipe, seed: int,
        device: torch.device,
    ) -> None:  # fmt: skip
        self.policy, self.labels, self.held_out, self.recipe = policy, labels, held_out, recipe
        self.supervised = Supervised(policy, labels, recipe, seed, device)  # type: ignore[arg-type]
        self.extra: nn.ModuleDict = self.supervised.extra
        self.rounds = 0
        self.best_length = float("inf")
        self.best: dict[str, Tensor] = {}
        self._judged = 0

    def loss(self, step: int, fraction: float) -> Loss:
        """Draw a batch of pieces; at the beginning of a round, improve the labels first."""
        self._judge(step)
        if step == 0 and self.recipe.improve_first:
            self.labels.improve(self.policy, 0)
        while self.rounds < step // self.recipe.rounds_updates:
            self._improve()
        return self.supervised.loss(step, fraction)

    def _improve(self) -> None:
        """Go back to the best weights, and improve the labels with them."""
        self.policy.load_state_dict(self.best)
        self.rounds += 1
        self.labels.improve(self.policy, self.rounds)
        self.supervised.rest()
        if self.recipe.method == "prc":  # SIGD's best weights are those of all rounds
            self.best_length = float("inf")

    def _judge(self, step: int) -> None:
        """Keep the weights of this step, if it is one to look at, where their greedy solutions are the shortest."""
        recipe = self.recipe
        if step in (0, self._judged) or (step % recipe.judged_updates and step % recipe.rounds_updates):
            return
        was_training, self._judged = self.policy.training, step
        length = float(greedy_lengths(self.policy.eval(), self.held_out).mean())
        self.policy.train(was_training)
        if length < self.best_length:
            self.best_length = length
            self.best = copy.deepcopy(self.policy.state_dict())

    def chosen(self, step: int) -> dict[str, Tensor]:
        """Return the weights to export: the best that were judged, of this round or else of the last; none at first."""
        self._judge(step)
        return self.best

    def position(self) -> dict[str, Any]:
        """Return the round and the position among the labels."""
        labels = self.supervised.position()
        return {"rounds": self.rounds, "best_length": self.best_length, "labels": labels}

    def seek(self, position: dict[str, Any], *, adopt: bool = False) -> None:
        """Go to a saved position; raises `BadInputError` for other instances."""
        self.supervised.seek(position["labels"], adopt=adopt)
        self.rounds, self.best_length = position["rounds"], position["best_length"]

    def tensors(self) -> dict[str, Tensor]:
        """Return the labels and the best weights."""
        kept = {"order": self.labels.order} | {f"best/{k}": v for k, v in self.best.items()}
        return kept if self.labels.via is None else kept | {"via": self.labels.via}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take back what `tensors` returned."""
        self.labels.order = tensors["order"]
        self.labels.via = tensors.get("via")
        device = next(self.policy.parameters()).device
        self.best = {
            k.removeprefix("best/"): v.to(device) for k, v in tensors.items() if k.startswith("best/")
        }

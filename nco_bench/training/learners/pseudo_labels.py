"""Pseudo-labels of self-improved learning: instances with the best solutions so far, which a policy improves."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nco_bench.datasets.routing import default_capacity
from nco_bench.errors import BadInputError
from nco_bench.solvers.decoding.insertion import insert_cvrp, insert_tsp
from nco_bench.solvers.path.problem import PathProblem, cvrp_problem, route_lengths, tour_lengths, tsp_problem
from nco_bench.solvers.path.reconstruction import improve_cvrp, improve_tsp
from nco_bench.solvers.path.reconstruction_segments import CvrpInstance
from nco_bench.solvers.path.task import Budget
from nco_bench.training.data import Batch
from nco_bench.training.learners.sampling import best_of_distinct
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
    judged_knn
        As `knn` of the greedy decoding, for these looks; 0 shows all nodes.
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
    judged_knn: int = 0
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
        """Label by random insertion, in one order for all (SIT's Algorithm 2 draws one for each; its code one for a batch);
        the CVRP by insertion in angular order, which is that of SIT's code.
        """
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
            part = on_device(self.instances.part(rows), device)
            old = self.order[rows].to(device), None if self.via is None else self.via[rows].to(device)
            new = (_reconstructed if recipe.method == "prc" else _sampled)(
                policy, part, old, recipe, generator
            )
            shorter = lengths_of(part, new) < lengths_of(part, old)
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
    return solutions_of(path, cvrp=old[1] is not None)


def solutions_of(path: Any, cvrp: bool) -> Solutions:
    """Return what a path policy built as whole solutions."""
    if not cvrp:
        return torch.cat([torch.zeros_like(path.order[:, :1]), path.order], dim=1), None
    via = path.flags.clone()
    via[:, 0] = True
    return path.order, via


def lengths_of(part: Instances, solutions: Solutions) -> Tensor:
    """Return the lengths of one solution per instance, ``(B,)`` float64."""
    order, via = solutions
    return tour_lengths(part.coords, order) if via is None else route_lengths(part.coords, order, via)


def on_device(instances: Instances, device: torch.device) -> Instances:
    """Move instances to a device."""
    demand, capacity = instances.demand, instances.capacity
    return Instances(
        instances.coords.to(device),
        None if demand is None else demand.to(device),
        None if capacity is None else capacity.to(device),
    )

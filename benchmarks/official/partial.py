"""What the three models of path problems share: whole constructions, and steps at evenly spread lengths of a partial one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from nco_bench.nn.build import build_path_policy, load_official
from nco_bench.solvers.decoding.search import greedy_choice
from nco_bench.solvers.decoding.spec import parse_decoding
from nco_bench.solvers.path.construct import construct_from
from nco_bench.solvers.path.decode import decode_path
from nco_bench.solvers.path.policy import PathPolicy
from nco_bench.solvers.path.problem import Load, PathProblem, cvrp_problem, tsp_problem
from official.engine import Case, Pair, Side, same_rows
from official.instances import Instances, drawn


@dataclass(frozen=True)
class Partial:
    """Where B constructions stand.

    Attributes
    ----------
    some
        The instances.
    visited
        ``(B, t)`` nodes in visiting order; for the CVRP customers, from 1 on.
    remaining
        ``(B,)`` capacity left; None for the TSP.
    """

    some: Instances
    visited: Tensor
    remaining: Tensor | None = None

    @property
    def left(self) -> Tensor:
        """Nodes that are not visited, ascending, ``(B, M)``."""
        count = self.some.coords.shape[1]
        mask = torch.ones(len(self.visited), count, dtype=torch.bool).scatter(1, self.visited, False)
        if self.remaining is not None:
            mask[:, 0] = False
        return torch.arange(count).expand_as(mask)[mask].view(len(mask), -1)

    @property
    def rows(self) -> Tensor:
        """Origin, open nodes, destination."""
        if self.remaining is None:
            return torch.cat([self.visited[:, -1:], self.left, self.visited[:, :1]], dim=1)
        depot = torch.zeros_like(self.left[:, :1])
        origin = self.visited[:, -1:] if self.visited.shape[1] else depot
        return torch.cat([origin, self.left, depot], dim=1)


Chosen = tuple[Tensor, Tensor | None]
"""Nodes ``(B,)``, and whether each is reached via the depot."""
Step = Callable[[Partial], Callable[[], Chosen]]
"""Prepares a step of the official code, which the call then does; what depends on the instance alone is not timed."""


def spread(case: Case) -> list[Partial]:
    """Return partial constructions in the middles of equal parts of the whole one."""
    some = drawn(case.problem, case.size, case.batch)
    cvrp = case.problem == "cvrp"
    generator = torch.Generator().manual_seed(7)
    orders = torch.stack([torch.randperm(case.size, generator=generator) for _ in range(case.batch)]) + int(
        cvrp
    )
    remaining = None
    if some.capacity is not None:
        remaining = torch.randint(10, int(some.capacity[0]), (case.batch,), generator=generator)
    lengths = [1 + int((i + 0.5) * (case.size - 2) / case.points) for i in range(case.points)]
    return [Partial(some, orders[:, :length], remaining) for length in lengths]


def path_pair(case: Case, official: nn.Module, step: Step, whole: Callable[[Instances], Side]) -> Pair:
    """Prepare both sides, for whole constructions or for steps.

    Parameters
    ----------
    case
        Which.
    official
        The official network.
    step, whole
        What does one step, and a whole construction, with the official code.
    """
    policy = build_path_policy(case.model, case.problem)
    load_official(policy, case.model, official.state_dict())
    some = drawn(case.problem, case.size, case.batch)
    if not case.points:
        decoding = parse_decoding(case.decoding)
        return Pair(
            [whole(some)],
            lambda: decode_path(cast("PathPolicy", policy), *some.given, decoding=decoding),
            same_rows,
        )
    partials = spread(case)
    theirs = [step(partial) for partial in partials]
    ours = [our_step(cast("PathPolicy", policy), partial) for partial in partials]

    def all_of(steps: list[Callable[[], Chosen]]) -> Side:
        def run() -> Any:
            with torch.inference_mode():
                return [one() for one in steps]

        return run

    return Pair([all_of(theirs)], all_of(ours), same_choices, scale=case.size / case.points)


def our_step(policy: PathPolicy, partial: Partial) -> Callable[[], Chosen]:
    """Prepare one step of ours."""
    some, rows = partial.some, partial.rows
    if some.demand is None or some.capacity is None or partial.remaining is None:
        nodes, load = tsp_problem(some.coords).nodes, None
    else:
        nodes = cvrp_problem(some.coords, some.demand, some.capacity).nodes
        load = Load(some.demand, some.capacity, partial.remaining)
    problem = PathProblem(nodes, rows, closed=partial.visited.shape[1] == int(load is None), load=load)
    with torch.inference_mode():
        features = policy.embed(nodes)

    def run() -> Chosen:
        found = construct_from(policy, problem, features, lambda part: greedy_choice, steps=1)
        return found.order[:, 0], None if found.via is None else found.via[:, 0]

    return run


def same_choices(theirs: list[Chosen], ours: list[Chosen]) -> float:
    """Return the share of steps that choose the same."""
    same = []
    for (node, via), (other, other_via) in zip(theirs, ours, strict=True):
        equal = node == other
        if via is not None and other_via is not None:
            equal &= via == other_via
        same.append(equal.float())
    return float(torch.cat(same).mean())

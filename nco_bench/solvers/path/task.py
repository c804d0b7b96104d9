"""What decodings of path policies share: the task of one call, its batch, whole solutions, and when to stop.

Letters in shapes: B batch, N nodes, V customers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from nco_bench.progress import tracked
from nco_bench.solvers.decoding.draws import Draws, instance_draws
from nco_bench.solvers.decoding.instances import SYMMETRIES
from nco_bench.solvers.decoding.spec import Decoding
from nco_bench.solvers.path.policy import PathPolicy
from nco_bench.solvers.path.problem import (
    Path,
    PathProblem,
    cvrp_problem,
    route_lengths,
    tour_lengths,
    tsp_problem,
)


@dataclass(frozen=True)
class PathTask:
    """What stays the same during one call."""

    policy: PathPolicy
    decoding: Decoding
    seed: int
    scale: float
    dtype: torch.dtype

    def seen(self, coords: Tensor) -> Tensor:
        """Coordinates as the policy sees them."""
        return (coords * self.scale).to(self.dtype) if self.scale != 1 else coords.to(self.dtype)

    def seeds(self, batch: int) -> Tensor:
        """One seed per problem, ``(B,)``; the eight versions of an instance draw apart."""
        copies = self.decoding.augmentation
        count = batch // copies
        return ((self.seed + torch.arange(count))[:, None] * SYMMETRIES + torch.arange(copies)).flatten()

    def draws(self, coords: Tensor) -> Draws:
        """What rrc and prc draw from, for problems ``(B, N, 2)``."""
        return instance_draws(self.seeds(len(coords)).to(coords.device))


Solutions = tuple[Tensor, Tensor | None]
"""Whole tours ``(B, N)`` and None; or customers and flags, ``(B, V)`` each."""


@dataclass(frozen=True)
class PathBatch:
    """Instances as the policy sees them, ``(B, N, 2)``; `metric` are the coordinates that lengths are measured on."""

    coords: Tensor
    metric: Tensor
    demand: Tensor | None = None
    capacity: Tensor | None = None

    def problem(self, start: int = 0) -> PathProblem:
        """Return the path problems; tours begin at `start`."""
        if self.demand is None or self.capacity is None:
            return tsp_problem(self.coords, start)
        return cvrp_problem(self.coords, self.demand, self.capacity)

    def lengths(self, found: Solutions) -> Tensor:
        """Lengths of one or more solutions per instance, float64."""
        order, via = found
        metric = self.metric.repeat_interleave(len(order) // len(self.metric), dim=0)
        return tour_lengths(metric, order) if via is None else route_lengths(metric, order, via)


def whole(problem: PathProblem, path: Path) -> Solutions:
    """Put the start node before the visiting order of a tour; set the first flag of routes, which begin at the depot."""
    if path.via is None:
        copies = len(path.order) // len(problem.rows)
        return torch.cat([problem.rows[:, :1].repeat_interleave(copies, dim=0), path.order], dim=1), None
    via = path.via.clone()
    via[:, 0] = True
    return path.order, via


@dataclass(frozen=True)
class Budget:
    """When to stop, and whom to tell.

    Attributes
    ----------
    iterations
        At most this many.
    seconds
        Stop this long after `begun`, within an iteration too, which then counts for nothing; None for no limit.
    begun
        ``time.monotonic()`` when the solve began (its initial solution counts too).
    report
        Called with (seconds since `begun`, costs ``(B,)``) after the initial solution and every iteration.
    """

    iterations: int
    seconds: float | None
    begun: float
    report: Callable[[float, Tensor], None]

    @property
    def deadline(self) -> float | None:
        """When the time is over, as ``time.monotonic`` tells it."""
        return None if self.seconds is None else self.begun + self.seconds

    def steps(self) -> Iterator[int]:
        """Count iterations until one of the limits is reached."""
        for step in tracked(range(self.iterations), "iteration"):
            if self.seconds is not None and time.monotonic() - self.begun >= self.seconds:
                return
            yield step

    def note(self, costs: Tensor) -> None:
        """Report the costs reached by now."""
        self.report(time.monotonic() - self.begun, costs)

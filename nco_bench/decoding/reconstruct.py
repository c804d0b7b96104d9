"""Random re-construction (RRC, LEHD) and parallel local re-construction (PRC, SIT), for TSP and CVRP: whole searches.

Both take segments out of a complete solution, rebuild them greedily as path problems of their own, and keep the new
ones where they are strictly shorter (`iterations_tsp`, `iterations_cvrp`). Here their draws are made and time is kept.
Draws are shared by the batch, as in the official code: segments of a batch have one length.

Letters in shapes: B batch, N nodes, V customers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from nco_bench.decoding.iterations_cvrp import prc_cvrp_step, rrc_cvrp_step
from nco_bench.decoding.iterations_tsp import prc_tsp_step, rrc_tsp_step
from nco_bench.decoding.problem import route_lengths, tour_lengths
from nco_bench.decoding.rebuild import CvrpInstance
from nco_bench.decoding.segments import Routes
from nco_bench.models.path import PathPolicy

MAX_SEGMENT_LENGTH = 1000
"""l_max of PRC (SIT, section 5)."""


@dataclass(frozen=True)
class Budget:
    """When to stop, and whom to tell.

    Attributes
    ----------
    iterations
        At most this many.
    seconds
        Stop before the first iteration that begins later than this after `begun`; None for no limit.
    begun
        ``time.monotonic()`` when the solve began (its initial solution counts too).
    report
        Called with (seconds since `begun`, costs ``(B,)``) after the initial solution and every iteration.
    """

    iterations: int
    seconds: float | None
    begun: float
    report: Callable[[float, Tensor], None]

    def steps(self) -> Iterator[int]:
        """Count iterations until one of the limits is reached."""
        for step in range(self.iterations):
            if self.seconds is not None and time.monotonic() - self.begun >= self.seconds:
                return
            yield step

    def note(self, costs: Tensor) -> None:
        """Report the costs reached by now."""
        self.report(time.monotonic() - self.begun, costs)


@torch.inference_mode()
def improve_tsp(
    policy: PathPolicy,
    coords: Tensor,
    tours: Tensor,
    budget: Budget,
    generator: torch.Generator,
    *,
    parallel: bool,
    max_length: int | None = None,
    knn: int | None = None,
    metric: Tensor | None = None,
) -> Tensor:
    """Improve tours by RRC, or by PRC if `parallel`; never makes one longer.

    Parameters
    ----------
    coords, tours
        ``(B, N, 2)``, ``(B, N)``.
    budget, generator
        Limits, and the source of the draws: one draw of each kind per iteration, shared by the batch.
    max_length
        Longest segment; None is N for RRC and 1000 for PRC (l_max).
    knn
        As in `greedy`, within a segment.
    metric
        Coordinates to report costs on, if not `coords`.
    """
    count = tours.shape[1]
    longest = max(4, min(count, max_length or (MAX_SEGMENT_LENGTH if parallel else count)))
    metric = coords if metric is None else metric
    budget.note(tour_lengths(metric, tours))
    if count < 4:  # all tours are equal
        return tours
    step = prc_tsp_step if parallel else rrc_tsp_step
    for _ in budget.steps():
        length = _integer(4, longest + 1, generator)
        start, flip = _integer(0, count, generator), bool(_integer(0, 2, generator))
        tours, _ = step(policy, coords, tours, flip=flip, start=start, length=length, knn=knn)
        budget.note(tour_lengths(metric, tours))
    return tours


@torch.inference_mode()
def improve_cvrp(
    policy: PathPolicy,
    instance: CvrpInstance,
    routes: Routes,
    budget: Budget,
    generator: torch.Generator,
    *,
    parallel: bool,
    max_length: int | None = None,
    knn: int | None = None,
    metric: Tensor | None = None,
) -> Routes:
    """Improve CVRP solutions by RRC, or by PRC if `parallel`; never makes one longer or infeasible.

    Parameters are as for `improve_tsp`; the solutions given must be feasible.
    """
    batch, customers = routes[0].shape
    device = routes[0].device
    shortest = min(4, customers)
    longest = max(shortest, min(customers, max_length or (MAX_SEGMENT_LENGTH if parallel else customers)))
    metric = instance.coords if metric is None else metric
    budget.note(route_lengths(metric, *routes))
    if customers < 2:
        return routes
    for _ in budget.steps():
        length = _integer(shortest, longest + 1, generator)
        flip = bool(_integer(0, 2, generator))
        first, second = (_coins(customers, generator, device).expand(batch, -1) for _ in range(2))
        draw = float(torch.rand((), generator=generator))
        if parallel:
            count = routes[1].sum(1)
            routes, _ = prc_cvrp_step(
                policy, instance, routes, length=length, flip=flip, flip_routes=(first, second),
                shift=(draw * count).long() + 1, knn=knn,
            )  # fmt: skip
        else:
            end = torch.full((batch,), draw, device=device)
            routes, _ = rrc_cvrp_step(
                policy, instance, routes, flip=flip, flip_routes=first, length=length, end=end, knn=knn
            )
        budget.note(route_lengths(metric, *routes))
    return routes


def _integer(low: int, high: int, generator: torch.Generator) -> int:
    """Draw uniformly from ``low ... high - 1``."""
    return int(torch.randint(low, high, (), generator=generator))


def _coins(count: int, generator: torch.Generator, device: torch.device) -> Tensor:
    """Draw ``(1, count)`` fair coins."""
    return (torch.rand(1, count, generator=generator) <= 0.5).to(device)

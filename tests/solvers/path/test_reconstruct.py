"""RRC and PRC: never worse, never infeasible."""

from __future__ import annotations

import math
import time
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from nco_bench.nn.build import build_path_policy
from nco_bench.solvers.path.policy import PathPolicy
from nco_bench.solvers.path.problem import route_arrays, tour_lengths
from nco_bench.solvers.path.reconstruction import improve_cvrp, improve_tsp
from nco_bench.solvers.path.reconstruction_segments import CvrpInstance, rebuild_tsp
from nco_bench.solvers.path.task import Budget

SMALL = {"width": 8, "heads": 1, "head_dim": 8, "ffn": 8}


@cache
def policy_called(name: str, problem: str) -> nn.Module:
    torch.manual_seed(1)
    depth = {"decoder_layers": 1} if name == "lehd" else {"layers": 1}
    return build_path_policy(name, problem, **SMALL, **depth)


def run_to_the_end(iterations: int, costs: list[torch.Tensor]) -> Budget:
    return Budget(iterations, None, time.monotonic(), lambda seconds, cost: costs.append(cost))


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 16), st.integers(0, 2**20), st.booleans(), st.sampled_from(["lehd", "sit"]))
def test_tours_stay_tours_and_never_get_longer(count: int, seed: int, parallel: bool, name: str) -> None:
    generator = torch.Generator().manual_seed(seed)
    coords = torch.rand(3, count, 2, generator=generator)
    tours = torch.stack([torch.randperm(count, generator=generator) for _ in range(3)])
    costs: list[torch.Tensor] = []
    budget = run_to_the_end(4, costs)
    after = improve_tsp(policy_called(name, "tsp"), coords, tours, budget, generator, parallel=parallel)
    assert all(sorted(tour) == list(range(count)) for tour in after.tolist())
    assert len(costs) == 5 or count < 4
    for earlier, later in pairwise(costs):
        assert bool((later <= earlier + 1e-12).all())
    torch.testing.assert_close(tour_lengths(coords, after), costs[-1])


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 16),
    st.integers(9, 30),
    st.integers(0, 2**20),
    st.booleans(),
    st.sampled_from(["lehd", "sit"]),
)
def test_routes_stay_feasible_and_never_get_longer(
    customers: int, capacity: int, seed: int, parallel: bool, name: str
) -> None:
    generator = torch.Generator().manual_seed(seed)
    coords = torch.rand(2, customers + 1, 2, generator=generator)
    demand = torch.randint(1, 10, (2, customers + 1), generator=generator)
    demand[:, 0] = 0
    order = torch.stack([1 + torch.randperm(customers, generator=generator) for _ in range(2)])
    via = filled_in_order(order, demand, capacity)
    costs: list[torch.Tensor] = []
    order, via = improve_cvrp(
        policy_called(name, "cvrp"),
        CvrpInstance(coords, demand, torch.full((2,), capacity)),
        (order, via),
        run_to_the_end(4, costs),
        generator,
        parallel=parallel,
    )
    for b, solution in enumerate(route_arrays(order, via)):
        assert sorted(solution[solution > 0]) == list(range(1, customers + 1))
        loads = np.add.reduceat(demand[b].numpy()[solution], np.flatnonzero(solution == 0))
        assert loads.max() <= capacity
        points = coords[b].double().numpy()[solution]
        length = sum(math.dist(p, q) for p, q in pairwise(points))
        assert length == pytest.approx(float(costs[-1][b]), abs=1e-9)
    for earlier, later in pairwise(costs):
        assert bool((later <= earlier + 1e-12).all())


def filled_in_order(order: torch.Tensor, demand: torch.Tensor, capacity: int) -> torch.Tensor:
    """Start a new route whenever the next customer does not fit."""
    flags = []
    for row, needs in zip(order.tolist(), demand.tolist(), strict=True):
        room, flag = 0, []
        for node in row:
            flag.append(needs[node] > room)
            room = (capacity if flag[-1] else room) - needs[node]
        flags.append(flag)
    return torch.tensor(flags)


class NearestNeighbour(nn.Module, PathPolicy):
    """A policy that knows what it does: score = minus distance."""

    problem = "tsp"

    def embed(self, nodes):  # type: ignore[no-untyped-def]
        return nodes.coords

    def scores(self, state):  # type: ignore[no-untyped-def]
        return -(state.coords[:, 1:-1] - state.coords[:, :1]).norm(dim=2)


def test_a_segment_is_rebuilt_from_its_first_to_its_last_node() -> None:
    """Nodes on a line, visited 0 2 1 3 4: nearest neighbour from 0 to 4 finds 0 1 2 3 4, 8 becomes 4."""
    coords = torch.tensor([[[0.0, 0], [1, 0], [2, 0], [3, 0], [4, 0]]])
    rebuilt = rebuild_tsp(NearestNeighbour(), coords, torch.tensor([[[0, 2, 1, 3, 4]]]))
    assert rebuilt.order.tolist() == [[0, 1, 2, 3, 4]]
    assert (rebuilt.before.item(), rebuilt.after.item()) == (6.0, 4.0)
    assert rebuilt.accepted.tolist() == [True]


def test_prc_with_nearest_neighbour_improves_a_random_tour() -> None:
    generator = torch.Generator().manual_seed(0)
    coords, tour = torch.rand(1, 60, 2, generator=generator), torch.randperm(60, generator=generator)[None]
    costs: list[torch.Tensor] = []
    improve_tsp(NearestNeighbour(), coords, tour, run_to_the_end(30, costs), generator, parallel=True)
    assert float(costs[-1]) < 0.5 * float(costs[0])


def test_the_time_limit_stops_before_the_next_iteration() -> None:
    coords, costs = torch.rand(1, 8, 2), []
    budget = Budget(1000, 0.0, time.monotonic() - 1, lambda seconds, cost: costs.append((seconds, cost)))
    tours = torch.arange(8)[None]
    after = improve_tsp(NearestNeighbour(), coords, tours, budget, torch.Generator(), parallel=False)
    assert len(costs) == 1  # the initial solution, and no iteration
    assert costs[0][0] >= 1
    assert after.tolist() == tours.tolist()


def test_a_knn_limit_reaches_the_segments() -> None:
    """With one candidate shown there is no choice: every segment becomes its nearest-neighbour path."""
    coords = torch.rand(1, 12, 2, generator=torch.Generator().manual_seed(4))
    tour = torch.arange(12)[None, None]
    rebuilt = rebuild_tsp(policy_called("sit", "tsp"), coords, tour, knn=1).order[0].tolist()
    here, left, nearest = 0, set(range(1, 11)), [0]
    while left:
        here = min(left, key=lambda node: float((coords[0, node] - coords[0, here]).norm()))
        left.remove(here)
        nearest.append(here)
    assert rebuilt == [*nearest, 11]

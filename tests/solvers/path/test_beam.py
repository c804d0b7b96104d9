"""Beam search."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import pytest
import torch
from torch import Tensor, nn

from nco_bench.solvers.path.beam import beam, final_beams
from nco_bench.solvers.path.construct import greedy
from nco_bench.solvers.path.problem import cvrp_problem, tour_lengths, tsp_problem

Make = Callable[..., nn.Module]
MakeCvrp = Callable[..., tuple[Tensor, Tensor, Tensor]]


@pytest.mark.parametrize("name", ["lehd", "bq", "sigd", "sigd-lehd", "sit", "pens-a", "decoder-6x128"])
def test_one_beam_is_greedy(name: str, make_policy: Make) -> None:
    policy = make_policy(name)
    problem = tsp_problem(torch.rand(4, 15, 2, generator=torch.Generator().manual_seed(1)))
    assert beam(policy, problem, 1).order.tolist() == greedy(policy, problem).order.tolist()
    assert beam(policy, problem, 1, knn=6).order.tolist() == greedy(policy, problem, knn=6).order.tolist()


@pytest.mark.parametrize("name", ["lehd", "bq", "sigd", "sigd-lehd", "sit"])
def test_one_beam_is_greedy_on_the_cvrp(name: str, make_policy: Make, make_cvrp: MakeCvrp) -> None:
    policy, problem = make_policy(name, "cvrp"), cvrp_problem(*make_cvrp(4, 15, 14, seed=2))
    one, path = beam(policy, problem, 1), greedy(policy, problem)
    assert one.order.tolist() == path.order.tolist()
    assert one.via[:, 1:].tolist() == path.via[:, 1:].tolist()  # type: ignore[index]


def test_a_beam_that_holds_every_tour_finds_the_optimum(make_policy: Make) -> None:
    """6 nodes have 120 tours from a start: with 120 beams the shortest of all is returned."""
    coords = torch.rand(3, 6, 2, generator=torch.Generator().manual_seed(3))
    problem = tsp_problem(coords)
    paths = final_beams(make_policy("lehd"), problem, 120)
    for b in range(3):
        assert sorted(map(tuple, paths.order.view(3, 120, 5)[b].tolist())) == sorted(
            permutations(range(1, 6))
        )
    assert paths.log_prob.view(3, 120).exp().sum(1).tolist() == pytest.approx([1.0] * 3)  # type: ignore[union-attr]
    tours = torch.cat([problem.rows[:, :1], beam(make_policy("lehd"), problem, 120).order], dim=1)
    every = torch.tensor([[0, *rest] for rest in permutations(range(1, 6))])
    best = [float(tour_lengths(coords[b].expand(120, -1, -1), every).min()) for b in range(3)]
    assert tour_lengths(coords, tours).tolist() == pytest.approx(best, abs=1e-12)


def test_wider_beams_of_an_instance_do_not_depend_on_its_batch(make_policy: Make) -> None:
    policy, coords = make_policy("sit"), torch.rand(5, 14, 2, generator=torch.Generator().manual_seed(4))
    together = beam(policy, tsp_problem(coords), 7).order
    alone = torch.cat([beam(policy, tsp_problem(coords[b : b + 1]), 7).order for b in range(5)])
    assert together.tolist() == alone.tolist()


def test_beams_of_repairing_policies_hold_no_solution_twice(make_policy: Make, make_cvrp: MakeCvrp) -> None:
    """An infeasible direct choice is carried out via the depot, as another beam may have chosen outright."""
    coords, demand, capacity = make_cvrp(3, 8, 10, seed=5)
    paths = final_beams(make_policy("lehd", "cvrp"), cvrp_problem(coords, demand, capacity), 12)
    alive = paths.log_prob.isfinite().view(3, 12)  # type: ignore[union-attr]
    for b in range(3):
        solutions = torch.cat([paths.order, paths.via.long()], 1).view(3, 12, -1)[b][alive[b]].tolist()  # type: ignore[union-attr]
        assert len({tuple(s) for s in solutions}) == len(solutions) == 12

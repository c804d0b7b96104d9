"""Every decoding with local-view policies: feasible solutions, seeds per instance, turned copies."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nco_bench.errors import BadInputError
from nco_bench.nn.build import build_path_policy
from nco_bench.problems import cvrp
from nco_bench.solvers.decoding.spec import parse_decoding
from nco_bench.solvers.decoding.turns import turned, turns
from nco_bench.solvers.path.problem import tour_lengths
from nco_bench.solvers.stepwise.local_steps import decode_local_views

SMALL = {
    "invit-3v": {"width": 16, "heads": 2, "ffn": 16, "candidates": 4, "middle": 6, "widest": 8},
    "dgl": {"width": 16, "heads": 2, "head_dim": 8, "ffn": 16, "neighbours": 5, "depot_neighbours": 4},
}
NAMES = sorted(SMALL)
DECODINGS = ("greedy", "sample:3", "beam:3", "multistart:4", "x8", "sample:2+x8", "beam:2+x8")


def small_policy(name: str, problem: str) -> nn.Module:
    torch.manual_seed(5)
    return build_path_policy(name, problem, **SMALL[name]).eval()


def instances(batch: int, nodes: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    coords = torch.rand(batch, nodes, 2, generator=generator)
    demand = torch.randint(1, 10, (batch, nodes), generator=generator)
    demand[:, 0] = 0
    return coords, demand, torch.full((batch,), 20)


def assert_feasible(coords: Tensor, demand: Tensor, capacity: Tensor, routes: list[np.ndarray]) -> None:
    for xy, load, limit, route in zip(
        coords.double().numpy(), demand.numpy(), capacity.tolist(), routes, strict=True
    ):
        instance = cvrp.CVRPInstance("t", xy[0], xy[1:], load[1:], float(limit))
        assert cvrp.violations(instance, route) == ()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("decoding", DECODINGS)
def test_solutions_are_feasible(name: str, decoding: str) -> None:
    coords, demand, capacity = instances(3, 14)
    tours = decode_local_views(small_policy(name, "tsp"), coords, decoding=parse_decoding(decoding))
    assert [sorted(tour.tolist()) for tour in tours] == [list(range(14))] * 3
    policy = small_policy(name, "cvrp")
    routes = decode_local_views(policy, coords, demand, capacity, decoding=parse_decoding(decoding))
    assert_feasible(coords, demand, capacity, routes)


@pytest.mark.parametrize("name", NAMES)
def test_instances_with_fewer_nodes_than_a_view_are_solved(name: str) -> None:
    for nodes in (2, 3, 5):
        coords, demand, capacity = instances(2, nodes)
        tours = decode_local_views(small_policy(name, "tsp"), coords, decoding=parse_decoding("beam:4"))
        assert [sorted(tour.tolist()) for tour in tours] == [list(range(nodes))] * 2
        for decoding in ("greedy", "beam:4"):
            policy = small_policy(name, "cvrp")
            routes = decode_local_views(policy, coords, demand, capacity, decoding=parse_decoding(decoding))
            assert_feasible(coords, demand, capacity, routes)


@pytest.mark.parametrize("name", NAMES)
def test_customers_that_fill_a_vehicle_are_served(name: str) -> None:
    coords, demand, capacity = instances(2, 12)
    demand[:, 1:] = 20
    policy = small_policy(name, "cvrp")
    routes = decode_local_views(policy, coords, demand, capacity, decoding=parse_decoding("greedy"))
    assert_feasible(coords, demand, capacity, routes)
    assert [len(route) for route in routes] == [23, 23]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("decoding", "copies"), [("sample:3", 1), ("sample:2+x8", 1), ("greedy", 5)])
def test_a_solution_depends_on_its_seed_and_not_on_the_batch(name: str, decoding: str, copies: int) -> None:
    coords, demand, capacity = instances(4, 12)
    policy, how = small_policy(name, "cvrp"), parse_decoding(decoding)

    def solve(rows: slice, seeds: Tensor) -> list[np.ndarray]:
        return decode_local_views(
            policy, coords[rows], demand[rows], capacity[rows], decoding=how, seeds=seeds, copies=copies
        )

    together = solve(slice(0, 4), torch.arange(10, 14))
    for i in range(4):
        alone = solve(slice(i, i + 1), torch.tensor([10 + i]))
        assert np.array_equal(together[i], alone[0])


@pytest.mark.parametrize("name", NAMES)
def test_one_beam_is_greedy_and_more_attempts_are_never_worse(name: str) -> None:
    coords, _, _ = instances(3, 16)
    policy = small_policy(name, "tsp")

    def lengths(decoding: str, copies: int = 1) -> Tensor:
        tours = decode_local_views(policy, coords, decoding=parse_decoding(decoding), copies=copies)
        return tour_lengths(coords, torch.from_numpy(np.stack(tours)))

    greedy = lengths("greedy")
    torch.testing.assert_close(lengths("beam:1"), greedy)
    for better in (lengths("multistart"), lengths("x8"), lengths("greedy", copies=6)):
        assert bool((better <= greedy + 1e-9).all())
        assert bool((better < greedy - 1e-3).any())


def test_turned_copies_keep_the_shape_of_an_instance() -> None:
    coords = torch.rand(2, 9, 2, generator=torch.Generator().manual_seed(3))
    copies = turns(coords, 4, torch.tensor([1, 2])).view(2, 4, 9, 2)
    assert torch.equal(copies[:, 0], coords)
    assert float(copies.min()) >= 0.0
    assert float(copies.max()) <= 1.0 + 1e-6
    ratio = (
        torch.cdist(copies.double(), copies.double()) / torch.cdist(coords.double(), coords.double())[:, None]
    )
    apart = ratio[..., ~torch.eye(9, dtype=torch.bool)]
    torch.testing.assert_close(apart, apart[..., :1].expand_as(apart), atol=1e-4, rtol=1e-4)
    assert not torch.allclose(copies[0, 1], copies[0, 2])


def test_a_quarter_turn_and_a_mirror_at_the_diagonal_by_hand() -> None:
    corner = torch.tensor([[[0.0, 0.0], [1.0, 0.0], [0.0, 0.5]]])
    quarter, mirror = torch.tensor([torch.pi / 2]), torch.tensor([torch.pi / 4])
    # (x, y) -> (-y, x), shifted back into the box; and (x, y) -> (y, x).
    rotated = turned(corner, quarter, torch.tensor([False]))
    torch.testing.assert_close(
        rotated, torch.tensor([[[0.5, 0.0], [0.5, 1.0], [0.0, 0.0]]]), atol=1e-6, rtol=0
    )
    mirrored = turned(corner, mirror, torch.tensor([True]))
    torch.testing.assert_close(mirrored, corner.flip(2), atol=1e-6, rtol=0)


def test_what_does_not_fit_is_refused_in_one_line() -> None:
    coords, demand, capacity = instances(1, 6)
    policy = small_policy("dgl", "cvrp")
    with pytest.raises(BadInputError, match="path problems"):
        decode_local_views(policy, coords, demand, capacity, decoding=parse_decoding("rrc:5"))
    with pytest.raises(BadInputError, match="turns=4"):
        decode_local_views(policy, coords, demand, capacity, decoding=parse_decoding("x8"), copies=4)
    with pytest.raises(BadInputError, match="fraction"):
        decode_local_views(policy, coords, demand / 2, capacity, decoding=parse_decoding("greedy"))
    with pytest.raises(BadInputError, match="are needed"):
        decode_local_views(policy, coords, decoding=parse_decoding("greedy"))

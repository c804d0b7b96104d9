"""Greedy construction and sampling."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import pytest
import torch
from torch import Tensor, nn

from nco_bench.nn import threads as parts
from nco_bench.solvers.path.beam import final_beams
from nco_bench.solvers.path.construct import greedy, sample
from nco_bench.solvers.path.policy import path_state
from nco_bench.solvers.path.problem import cvrp_problem, route_arrays, route_lengths, tsp_problem

Make = Callable[..., nn.Module]
MakeCvrp = Callable[..., tuple[Tensor, Tensor, Tensor]]
TSP_POLICIES = ("lehd", "bq", "sigd", "sigd-lehd", "sit", "pens-a", "decoder-6x128")


@pytest.mark.parametrize("name", TSP_POLICIES)
def test_greedy_is_the_argmax_over_sub_problems_built_anew(name: str, make_policy: Make) -> None:
    """Against a slow loop that scores one instance at a time, with rows written out by hand."""
    policy, coords = make_policy(name), torch.rand(2, 9, 2, generator=torch.Generator().manual_seed(1))
    problem = tsp_problem(coords)
    order = greedy(policy, problem).order
    for b in range(2):
        alone = tsp_problem(coords[b : b + 1])
        tour, left = [0], list(range(1, 9))
        while left:
            rows = torch.tensor([[tour[-1], *left, 0]])
            with torch.no_grad():
                state = path_state(alone.nodes, policy.embed(alone.nodes), rows, closed=len(tour) == 1)
                tour.append(left.pop(int(policy.scores(state).argmax())))
        assert order[b].tolist() == tour[1:]


@pytest.mark.parametrize("name", TSP_POLICIES)
def test_a_tour_does_not_depend_on_its_batch(name: str, make_policy: Make) -> None:
    policy, coords = make_policy(name), torch.rand(8, 20, 2, generator=torch.Generator().manual_seed(2))
    together = greedy(policy, tsp_problem(coords)).order
    alone = torch.cat([greedy(policy, tsp_problem(coords[b : b + 1])).order for b in range(8)])
    assert together.tolist() == alone.tolist()


@pytest.mark.parametrize("name", ["lehd", "bq", "sigd", "sigd-lehd", "sit"])
def test_routes_do_not_depend_on_their_batch(name: str, make_policy: Make, make_cvrp: MakeCvrp) -> None:
    policy, instances = make_policy(name, "cvrp"), make_cvrp(5, 15, 20, seed=9)

    def routes(part: slice) -> list[tuple[list[int], list[bool]]]:
        path = greedy(policy, cvrp_problem(*(t[part] for t in instances)))
        return list(zip(path.order.tolist(), path.flags.tolist(), strict=True))

    assert routes(slice(0, 5)) == [routes(slice(b, b + 1))[0] for b in range(5)]


@pytest.mark.parametrize("name", [name for name in TSP_POLICIES if name != "pens-a"])
def test_a_tour_does_not_depend_on_the_numbering_of_nodes(name: str, make_policy: Make) -> None:
    """PENS draws its node vectors by number; its invariance is tested with the vectors moved along."""
    policy, coords = make_policy(name), torch.rand(3, 20, 2, generator=torch.Generator().manual_seed(3))
    renumbered = torch.cat([torch.zeros(1, dtype=torch.int64), 1 + torch.randperm(19)])
    tours = greedy(policy, tsp_problem(coords)).order
    others = greedy(policy, tsp_problem(coords[:, renumbered])).order
    assert renumbered[others].tolist() == tours.tolist()


@pytest.mark.parametrize("name", ["lehd", "bq", "sigd", "sigd-lehd", "sit"])
def test_routes_keep_to_the_capacity_and_reach_every_customer(
    name: str, make_policy: Make, make_cvrp: MakeCvrp
) -> None:
    coords, demand, capacity = make_cvrp(6, 25, 12, seed=4)
    path = greedy(make_policy(name, "cvrp"), cvrp_problem(coords, demand, capacity))
    for solution, needs in zip(route_arrays(path.order, path.via), demand, strict=True):
        assert sorted(solution[solution > 0]) == list(range(1, 26))
        routes = [[]]
        for node in solution:
            routes = [*routes, []] if node == 0 else [*routes[:-1], [*routes[-1], int(node)]]
        assert max(int(needs[route].sum()) for route in routes if route) <= 12


def test_a_knn_limit_counts_as_the_paper_of_the_model_does(make_policy: Make) -> None:
    """BQ's 3 rows hold the current node, one candidate and the destination: the nearest neighbour tour."""
    coords = torch.rand(4, 12, 2, generator=torch.Generator().manual_seed(6))
    distances = torch.cdist(coords, coords)
    expected = []
    for b in range(4):
        tour = [0]
        while len(tour) < 12:
            tour.append(min(set(range(12)) - set(tour), key=lambda j: distances[b, tour[-1], j]))
        expected.append(tour[1:])
    assert greedy(make_policy("bq"), tsp_problem(coords), knn=3).order.tolist() == expected
    assert greedy(make_policy("sit"), tsp_problem(coords), knn=1).order.tolist() == expected


def test_samples_follow_the_probabilities_of_the_policy(make_policy: Make) -> None:
    """Frequencies of all 6 tours of 4 nodes in 4000 samples, against products of softmax probabilities."""
    policy, coords = make_policy("lehd"), torch.rand(1, 4, 2, generator=torch.Generator().manual_seed(7))
    problem = tsp_problem(coords)
    drawn = sample(policy, problem, 4000, torch.tensor([0])).order.tolist()
    for tour in permutations([1, 2, 3]):
        probability, left, here = 1.0, [1, 2, 3], 0
        for node in tour:
            with torch.no_grad():
                rows = torch.tensor([[here, *left, 0]])
                scores = policy.scores(
                    path_state(problem.nodes, policy.embed(problem.nodes), rows, closed=here == 0)
                )
            probability *= float(scores.softmax(1)[0, left.index(node)])
            left.remove(node)
            here = node
        assert drawn.count(list(tour)) / 4000 == pytest.approx(probability, abs=0.03)


def test_samples_repeat_with_the_seed_whatever_the_batch(make_policy: Make, make_cvrp: MakeCvrp) -> None:
    coords, demand, capacity = make_cvrp(3, 10, 15, seed=8)
    policy = make_policy("bq", "cvrp")

    def draw(instances: slice) -> list[list[int]]:
        problem = cvrp_problem(coords[instances], demand[instances], capacity[instances])
        return sample(policy, problem, 5, torch.arange(3, 6)[instances]).order.tolist()

    assert draw(slice(0, 3)) == [row for b in range(3) for row in draw(slice(b, b + 1))]


def test_route_lengths_by_hand() -> None:
    """Depot (0, 0), customers at (3, 4), (3, 0), (0, 5): 0-1-2-0-3-0 is 5 + 4 + 3 + 5 + 5 = 22."""
    coords = torch.tensor([[[0.0, 0.0], [3.0, 4.0], [3.0, 0.0], [0.0, 5.0]]])
    order, via = torch.tensor([[1, 2, 3]]), torch.tensor([[True, False, True]])
    assert route_lengths(coords, order, via).tolist() == [22.0]
    assert [row.tolist() for row in route_arrays(order, via)] == [[0, 1, 2, 0, 3, 0]]


@pytest.mark.parametrize("name", [*TSP_POLICIES, "cvrp"])
def test_solutions_are_the_same_bit_for_bit_with_any_number_of_threads(
    name: str, make_policy: Make, make_cvrp: MakeCvrp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several parts: log-probabilities of beams tell whether the arithmetic was the same."""
    monkeypatch.setattr(parts, "PART_TOKENS", 64)
    if name == "cvrp":
        policy, problem = make_policy("sit", "cvrp"), cvrp_problem(*make_cvrp(11, 12, 20, seed=3))
    else:
        policy, problem = (
            make_policy(name),
            tsp_problem(torch.rand(11, 12, 2, generator=torch.Generator().manual_seed(6))),
        )
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            beams = final_beams(policy, problem, 2)
            drawn = sample(policy, problem, 2, torch.arange(11))
            orders = [greedy(policy, problem).order, drawn.order, drawn.flags, beams.order, beams.flags]
            found.append([*(t.tolist() for t in orders), beams.log_prob.tolist()])
    finally:
        torch.set_num_threads(before)
    assert found[0] == found[1] == found[2]


def test_a_batch_is_cut_into_equal_shares_and_long_problems_stay_together() -> None:
    cpu = torch.device("cpu")
    cuts = parts.cut(128, 1, 101, cpu)
    assert [part.stop - part.start for part in cuts] == [32] * 4
    assert [part.start for part in cuts] == [0, *(part.stop for part in cuts[:-1])]
    assert len(parts.cut(8, 1, 1001, cpu)) == 2
    assert len(parts.cut(8, 1, 10_001, cpu)) == len(parts.cut(1, 1, 101, cpu)) == 1
    assert len(parts.cut(128, 1, 101, torch.device("cuda"))) == 1

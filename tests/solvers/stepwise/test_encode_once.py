"""Decoding with encode-once policies: feasibility, search against exhaustive answers, seeds, exact loads."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nco_bench.errors import BadInputError
from nco_bench.nn.build import build_path_policy
from nco_bench.nn.device import PerDevice
from nco_bench.problems.cvrp import CVRPInstance
from nco_bench.problems.cvrp import score as cvrp_score
from nco_bench.problems.cvrp import violations as cvrp_violations
from nco_bench.problems.tsp import TSPInstance
from nco_bench.problems.tsp import score as tsp_score
from nco_bench.problems.tsp import violations as tsp_violations
from nco_bench.solvers.decoding.search import beam_search, construct, sampling
from nco_bench.solvers.decoding.spec import parse_decoding
from nco_bench.solvers.stepwise import decode as multistart
from nco_bench.solvers.stepwise import glimpse as fast
from nco_bench.solvers.stepwise import steps as moves
from nco_bench.solvers.stepwise.decode import decode_encode_once
from nco_bench.solvers.stepwise.glimpse import Glimpse
from nco_bench.solvers.stepwise.problem import RoutingProblem, cvrp_demands, float32_demands
from nco_bench.solvers.stepwise.steps import EncodeOnce, begin, log_probabilities, move

DECODINGS = (
    "greedy",
    "sample:5",
    "beam:4",
    "multistart",
    "multistart:3",
    "x8",
    "multistart+x8",
    "sample:3+x8",
    "beam:3+x8",
)
MODELS = ("am", "pomo", "elg")


def policy_of(model: str, problem: str) -> nn.Module:
    """A small untrained network with logits far enough apart that rounding does not decide."""
    torch.manual_seed(5)
    sizes = {"width": 32, "heads": 4, "ffn": 64, "layers": 2}
    if model != "am":
        sizes["head_dim"] = 8
    if model == "elg":
        sizes["neighbours"] = 6
    return build_path_policy(model, problem, **sizes)


def tsp_batch(count: int = 3, size: int = 11) -> tuple[Tensor]:
    return (torch.rand(count, size, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64),)


def cvrp_batch(count: int = 3, size: int = 11) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    coords = torch.rand(count, size + 1, 2, generator=generator, dtype=torch.float64)
    demand = torch.randint(1, 10, (count, size + 1), generator=generator)
    demand[:, 0] = 0
    return coords, demand, torch.full((count,), 20)


def batch_of(problem: str) -> tuple[Tensor, ...]:
    return tsp_batch() if problem == "tsp" else cvrp_batch()


def costs_of(problem: str, batch: tuple[Tensor, ...], solutions: list[np.ndarray]) -> list[float]:
    """Scores by the referee, who also finds nothing wrong."""
    costs = []
    for i, solution in enumerate(solutions):
        if problem == "tsp":
            tour_instance = TSPInstance(str(i), batch[0][i].numpy())
            assert tsp_violations(tour_instance, solution) == ()
            costs.append(tsp_score(tour_instance, solution))
        else:
            points = batch[0][i].numpy()
            instance = CVRPInstance(
                str(i), points[0], points[1:], batch[1][i, 1:].numpy(), float(batch[2][i])
            )
            assert cvrp_violations(instance, solution) == ()
            costs.append(cvrp_score(instance, solution))
    return costs


def solve(
    model: str, problem: str, decoding: str, batch: tuple[Tensor, ...] | None = None, **options: Tensor
) -> list:
    batch = batch_of(problem) if batch is None else batch
    return decode_encode_once(policy_of(model, problem), *batch, decoding=parse_decoding(decoding), **options)


@pytest.mark.parametrize("decoding", DECODINGS)
@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
@pytest.mark.parametrize("model", MODELS)
def test_every_decoding_finds_feasible_solutions(model: str, problem: str, decoding: str) -> None:
    assert len(costs_of(problem, batch_of(problem), solve(model, problem, decoding))) == 3


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
@pytest.mark.parametrize("model", ["pomo", "elg"])
def test_best_of_starts_and_symmetries_is_never_worse_than_one(model: str, problem: str) -> None:
    names = ("greedy", "multistart", "multistart+x8")
    single, starts, all_of_them = (
        costs_of(problem, batch_of(problem), solve(model, problem, name)) for name in names
    )
    for one, some, most in zip(single, starts, all_of_them, strict=True):
        assert one >= some - 1e-12
        assert some >= most - 1e-12
    assert sum(single) > sum(starts) > sum(all_of_them)


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_samples_repeat_with_their_seeds_and_change_with_others(problem: str) -> None:
    seeds = torch.tensor([5, 6, 7])
    first, again, other = (solve("am", problem, "sample:4", seeds=s) for s in (seeds, seeds, seeds + 100))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("decoding", ["greedy", "sample:6", "multistart+x8", "beam:3"])
@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_solutions_depend_on_neither_batch_nor_groups(
    problem: str, decoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = torch.tensor([5, 6, 7])
    together = solve("pomo", problem, decoding, seeds=seeds)
    batch = batch_of(problem)
    alone = [
        solve("pomo", problem, decoding, tuple(t[i : i + 1] for t in batch), seeds=seeds[i : i + 1])[0]
        for i in range(3)
    ]
    monkeypatch.setattr(
        multistart, "ENTRIES_AT_A_TIME", PerDevice(cpu=25, gpu=25)
    )  # two trajectories at a time
    grouped = solve("pomo", problem, decoding, seeds=seeds)
    for a, b, c in zip(together, alone, grouped, strict=True):
        assert np.array_equal(a, b)
        assert np.array_equal(a, c)


def problem_of(problem: str) -> RoutingProblem:
    coords, *capacities = batch_of(problem)
    return RoutingProblem(coords.float(), cvrp_demands(*capacities) if capacities else None)


@pytest.mark.parametrize("pieces", [False, True], ids=["at once", "in pieces"])
@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
@pytest.mark.parametrize("model", MODELS)
def test_one_pass_over_all_moves_has_the_gradient_of_the_steps(
    model: str, problem: str, pieces: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if pieces:
        batch, nodes, _ = problem_of(problem).coords.shape
        two_moves = 2 * batch * 3 * nodes
        monkeypatch.setattr(moves, "MASKS_AT_A_TIME", PerDevice(cpu=two_moves, gpu=two_moves))
    policy, instances, trajectories = policy_of(model, problem), problem_of(problem), 3
    starts = torch.tensor([[1, 4, 7]]).expand(3, -1) if model != "am" else None
    choose = sampling(torch.tensor([5, 6, 7]), 0, trajectories)
    weight = torch.randn(3, trajectories, generator=torch.Generator().manual_seed(3))

    def gradients(log_prob: Tensor) -> list[Tensor]:
        policy.zero_grad()
        (log_prob * weight).sum().backward()
        return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in policy.parameters()]

    steps = EncodeOnce(policy, instances, policy.encode(instances.nodes()))
    begun = steps.begin(trajectories, starts)
    done = construct(steps, begun, lambda logits, step: choose(logits.detach(), step), log_prob=True)
    stepwise = gradients(done.log_prob)
    given = int(starts is not None)
    encoded = policy.encode(instances.nodes())
    at_once = log_probabilities(policy, instances, encoded, done.nodes, given=given)
    torch.testing.assert_close(at_once, done.log_prob, rtol=1e-5, atol=1e-5)
    largest = max(float(g.abs().max()) for g in stepwise)
    assert largest > 0.1
    for mine, theirs in zip(gradients(at_once), stepwise, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5 * largest)


@pytest.mark.parametrize("model", ["am", "pomo", "elg"])
def test_attention_by_factors_follows_the_same_tours(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = tsp_batch(size=40)  # enough starts
    ready = solve(model, "tsp", "multistart+x8", batch)
    monkeypatch.setattr(fast, "FACTORED_NODES", 0)
    plain = solve(model, "tsp", "multistart+x8", batch)
    assert all(np.array_equal(a, b) for a, b in zip(ready, plain, strict=True))


def test_attention_by_factors_gives_way_where_weights_underflow() -> None:
    """Every node but the visited ones is 100 nats below them, for the first and the current node alike."""
    nodes = trajectories = 40
    generator = torch.Generator().manual_seed(8)
    keys, values = torch.zeros(1, 1, nodes, 4), torch.randn(1, 1, nodes, 4, generator=generator)
    keys[:, :, :2, 0] = 100.0
    keys[..., 1] = torch.linspace(-1, 1, nodes)
    query = torch.tensor([1.0, 1.0, 0.0, 0.0]).expand(1, nodes, 4)
    pointer = torch.randn(1, 4, nodes, generator=generator)
    glimpse = Glimpse(keys, keys.transpose(2, 3).contiguous(), values, pointer, current=query, first=query)
    visited = torch.zeros(1, trajectories, dtype=torch.int64)
    with torch.inference_mode():
        problem = RoutingProblem(torch.rand(1, nodes, 2, generator=generator))
        progress = move(problem, begin(problem, trajectories), visited)
        ready = fast.factored(glimpse, progress.state)
        assert ready.factors is not None
        for node in (visited, visited + 1):
            progress = progress if node is visited else move(problem, progress, node)
            found = fast.pointer_scores(ready, progress.state)
            expected = fast.pointer_scores(glimpse, progress.state)
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_samples_follow_the_probabilities_and_avoid_blocked_nodes() -> None:
    logits = torch.tensor([0.0, 1.0, -torch.inf, 2.0, -1.0, -torch.inf])
    count = 40_000
    choose = sampling(torch.tensor([123]), 0, count)
    for step in range(3):
        drawn = choose(logits.expand(1, count, 6), step)[0]
        expected = logits.softmax(0)
        share = torch.bincount(drawn, minlength=6) / count
        # Four standard deviations of a binomial share.
        assert torch.all((share - expected).abs() <= 4 * (expected * (1 - expected) / count).sqrt())


def test_wide_beam_holds_every_tour_with_its_probability() -> None:
    problem = RoutingProblem(torch.rand(2, 5, 2, generator=torch.Generator().manual_seed(4)))
    policy = policy_of("am", "tsp")
    with torch.inference_mode():
        steps = EncodeOnce(policy, problem, policy.encode(problem.nodes()))
        beams = beam_search(steps, steps.begin(1), 200)
    for nodes, log_prob in zip(beams.nodes, beams.log_prob, strict=True):
        real = ~log_prob.isneginf()
        assert {tuple(t) for t in nodes[real].tolist()} == set(itertools.permutations(range(5)))
        assert int(real.sum()) == 120
        assert float(log_prob.exp().sum()) == pytest.approx(1.0, abs=1e-5)


def test_beam_of_one_is_greedy_and_a_full_beam_finds_the_shortest_tour() -> None:
    batch = tsp_batch(size=6)
    assert all(
        np.array_equal(a, b)
        for a, b in zip(solve("am", "tsp", "beam:1", batch), solve("am", "tsp", "greedy", batch), strict=True)
    )
    found = costs_of("tsp", batch, solve("am", "tsp", "beam:720", batch))
    for coords, cost in zip(batch[0], found, strict=True):
        instance = TSPInstance("x", coords.numpy())
        shortest = min(
            tsp_score(instance, np.array((0, *rest))) for rest in itertools.permutations(range(1, 6))
        )
        assert cost == pytest.approx(shortest, abs=1e-9)


def test_whole_loads_are_counted_exactly_where_float32_refuses_a_full_vehicle() -> None:
    # In float32, 5/30 + 9/30 + 1/30 + 2/30 + 4/30 + 7/30 + 2/30 = 1.0000001.
    demand, capacity = torch.tensor([[0, 5, 9, 1, 2, 4, 7, 2]]), torch.tensor([30])
    coords = torch.rand(1, 8, 2)
    for demands, open_for_the_last in (
        (cvrp_demands(demand, capacity), True),
        (float32_demands(demand, capacity), False),
    ):
        problem = RoutingProblem(coords, demands)
        progress = begin(problem, 1)
        for customer in range(1, 7):
            progress = move(problem, progress, torch.tensor([[customer]]))
        assert bool(progress.state.blocked[0, 0, 7] == 0) is open_for_the_last


def test_depot_is_closed_only_while_customers_wait_and_the_vehicle_stands_there() -> None:
    problem = RoutingProblem(torch.rand(1, 3, 2), cvrp_demands(torch.tensor([[0, 2, 2]]), torch.tensor([3])))
    blocked = []
    progress = begin(problem, 1)
    for node in (1, 0, 2, 0):
        blocked.append((progress.state.blocked[0, 0] != 0).tolist())
        progress = move(problem, progress, torch.tensor([[node]]))
    blocked.append((progress.state.blocked[0, 0] != 0).tolist())
    assert blocked == [
        [True, False, False],  # at the depot, both customers wait
        [False, True, True],  # 1 served, 2 does not fit any more
        [True, True, False],
        [False, True, True],
        [False, True, True],  # done: stays at the depot
    ]
    assert progress.to_come() == 0


def test_fractional_demands_are_solved_within_the_capacity() -> None:
    coords, _, _ = cvrp_batch()
    demand = torch.rand(3, 12, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    demand[:, 0] = 0
    batch = (coords, demand, torch.full((3,), 2.0))
    assert len(costs_of("cvrp", batch, solve("am", "cvrp", "multistart", batch))) == 3


def test_mistakes_are_refused_in_one_line() -> None:
    coords, demand, _ = cvrp_batch()
    with pytest.raises(BadInputError, match="demand exceeds the vehicle's capacity"):
        solve("am", "cvrp", "greedy", (coords, demand, torch.full((3,), 5)))
    with pytest.raises(BadInputError, match="demands and capacities are needed"):
        solve("am", "cvrp", "greedy", tsp_batch())
    with pytest.raises(BadInputError, match=r"rrc.*path problems; use one of greedy"):
        solve("pomo", "tsp", "rrc:10")
    with pytest.raises(BadInputError, match="leave knn out"):
        solve("pomo", "tsp", "greedy,knn=5")

"""ELG: official outputs, and the local policy against attention over explicit tokens."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from nco_bench.nn.build import count_parameters
from nco_bench.parity import check_fixture
from nco_bench.solvers.stepwise import elg_quick
from nco_bench.solvers.stepwise.elg import ElgConfig, LocalPolicy, build
from nco_bench.solvers.stepwise.problem import RoutingProblem, cvrp_demands
from nco_bench.solvers.stepwise.steps import EncodeOnce, begin, move


@pytest.mark.parametrize("name", ["elg-tsp", "elg-cvrp"])
def test_official_outputs_are_reproduced(official: Callable[[str], Path], name: str) -> None:
    outcome = check_fixture(official(name))
    assert outcome.ok, outcome.details["failed"]
    assert outcome.tours_identical
    assert outcome.max_relative_error < 1e-4


@pytest.mark.parametrize(("problem", "count"), [("tsp", 1_274_016), ("cvrp", 1_258_304)])
def test_parameters_are_those_of_the_official_model(problem: str, count: int) -> None:
    assert count_parameters(build(ElgConfig(problem))) == count


def test_local_policy_equals_attention_over_explicit_tokens() -> None:
    torch.manual_seed(0)
    policy, features = LocalPolicy(3, 32, 4), torch.randn(7, 3)
    visible = torch.tensor([True, True, False, True, True, False, True])
    with torch.inference_mode():
        ours = policy(features[None, None], visible[None, None])[0, 0]
        angles = [[r * math.exp(-i * math.log(10000) / 15) for i in range(16)] for r in range(7)]
        codes = torch.tensor([[math.sin(a) for a in row] + [math.cos(a) for a in row] for row in angles])
        tokens = policy.embedding(features) + codes
        query, keys, values = policy.query(policy.query_token), policy.key(tokens), policy.value(tokens)
        heads = []
        for q, k, v in zip(query.chunk(4), keys.chunk(4, 1), values.chunk(4, 1), strict=True):
            heads.append((k @ q / math.sqrt(8)).masked_fill(~visible, -math.inf).softmax(0) @ v)
        expected = tokens @ policy.combine(torch.cat(heads)) / math.sqrt(32)
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


def test_neighbours_are_the_nearest_open_customers() -> None:
    coords = torch.tensor([[[0.5, 0.5], [0.1, 0.5], [0.2, 0.5], [0.9, 0.5], [0.4, 0.5], [0.35, 0.5]]])
    # Capacity 10. After customers 1 (demand 3) and 4 (demand 2), 5 are left: customer 5 (demand 6) does not fit.
    demands = cvrp_demands(torch.tensor([[0, 3, 4, 5, 2, 6]]), torch.tensor([10]))
    policy = build(ElgConfig("cvrp", width=16, heads=2, head_dim=8, ffn=16, layers=1, neighbours=3)).eval()
    problem = RoutingProblem(coords, demands)
    with torch.inference_mode():
        progress = begin(problem, 1)
        for node in (1, 4):
            progress = move(problem, progress, torch.tensor([[node]]))
        encoded = policy.encode(problem.nodes())
        around = policy.neighbourhood(encoded, progress.state)
        features = policy.features(encoded, progress.state, around)[0, 0]
    assert around.nodes[around.real].tolist() == [2, 3]
    assert around.distance[around.real].tolist() == pytest.approx([0.2, 0.5])
    # Depot: zeros. Customer 2 lies to the west (angle pi) at 0.2 / 0.5, demand 4 of 5 left; customer 3 to the east.
    expected = [[0, 0, 0], [0.4, math.pi, 0.8], [1.0, 0.0, 1.0], [0, 0, 0]]
    torch.testing.assert_close(features, torch.tensor(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("neighbours", [5, 30])
@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_tables_score_as_the_network_does(
    problem: str, neighbours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At all steps, with fewer open nodes than neighbours, nodes as far as others, and vehicles that are full."""
    torch.manual_seed(3)
    sizes = {"width": 16, "heads": 2, "head_dim": 8, "ffn": 16, "layers": 1}
    policy = build(ElgConfig(problem, neighbours=neighbours, **sizes)).eval()
    coords, demands = torch.rand(3, 24, 2), None
    coords[0, 3:6] = coords[0, 2]
    coords[1] = (coords[1] * 6).round() / 6
    if problem == "cvrp":
        demand = torch.randint(1, 10, (3, 24)).index_fill_(1, torch.tensor([0, 7]), 0)
        demands = cvrp_demands(demand, torch.tensor([20, 25, 30]))
    instances = RoutingProblem(coords, demands)
    with torch.inference_mode():
        monkeypatch.setattr(elg_quick, "KERNELS", False)
        plain = policy.encode(instances.nodes())
        monkeypatch.undo()
        monkeypatch.setattr(elg_quick, "ROWS_AT_A_TIME", 7)
        quick = policy.encode(instances.nodes())
        assert plain.around is None
        assert quick.around is not None
        steps, moves = EncodeOnce(policy, instances, plain), 1
        progress, _ = steps.begin(5, torch.tensor([[1, 2, 9, 17, 23]]).expand(3, -1))
        while steps.only(progress, moves) is None and not steps.finished(progress, moves):
            expected = policy.logits(plain, progress.state)
            torch.testing.assert_close(policy.logits(quick, progress.state), expected, rtol=1e-4, atol=1e-4)
            progress, _ = steps.follow(progress, None, expected.argmax(dim=2))
            moves += 1
    assert moves >= 23


def test_with_gradients_without_the_local_policy_or_for_many_nodes_the_network_itself_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy, nodes = build(ElgConfig("tsp", width=16, heads=2, head_dim=8, ffn=16, layers=1)).eval(), 12
    problem = RoutingProblem(torch.rand(1, nodes, 2))
    assert policy.encode(problem.nodes()).around is None
    with torch.no_grad():
        encoded = policy.encode(problem.nodes())
        progress = move(problem, begin(problem, 2), torch.tensor([[0, 1]]))
    monkeypatch.setattr("nco_bench.solvers.stepwise.elg.add_nearby", None)
    assert policy.logits(encoded, progress.state).requires_grad
    policy.joint = False
    with torch.no_grad():
        policy.logits(encoded, progress.state)
        monkeypatch.setattr(elg_quick, "PAIRED_NODES", nodes - 1)
        assert policy.encode(problem.nodes()).around is None


def test_sorted_distances_are_those_of_torch() -> None:
    distance = torch.rand(2, 5, 40).mul_(8).round_().div_(3)
    values, places = elg_quick.in_order(distance)
    expected = distance.sort(dim=2, stable=True)
    assert torch.equal(values, expected.values)
    assert torch.equal(places, expected.indices)

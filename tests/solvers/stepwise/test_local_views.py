"""INViT and DGL: official outputs, published sizes, and what they see, against calculations by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from nco_bench.errors import BadInputError
from nco_bench.nn.build import build_path_policy, count_parameters
from nco_bench.parity import check_fixture
from nco_bench.solvers.decoding.search import construct, greedy_choice
from nco_bench.solvers.stepwise.dgl import DglConfig, distances_to, normalised, relative_demand
from nco_bench.solvers.stepwise.dgl import build as build_dgl
from nco_bench.solvers.stepwise.invit import build as build_invit
from nco_bench.solvers.stepwise.invit_views import InvitConfig
from nco_bench.solvers.stepwise.local_steps import LocalViews
from nco_bench.solvers.stepwise.problem import RoutingProblem, cvrp_demands

FIXTURES = ("invit-tsp", "invit-tsp-2v", "invit-cvrp", "invit-cvrp-2v", "dgl-tsp", "dgl-cvrp")
SMALL = InvitConfig(width=16, heads=2, ffn=16, candidates=4, middle=6, widest=8)


@pytest.mark.parametrize("name", FIXTURES)
def test_ours_computes_what_the_official_code_computes(official: Callable[[str], Path], name: str) -> None:
    outcome = check_fixture(official(name))
    assert outcome.details["failed"] == []
    assert outcome.tours_identical
    assert outcome.max_relative_error < 1e-4


@pytest.mark.parametrize("name", ["invit-tsp", "dgl-tsp"])
def test_a_changed_weight_fails_the_check(shared: Path, tmp_path: Path, name: str) -> None:
    tensors = load_file(shared / "parity" / f"{name}.safetensors")
    key = "action_encoder.input_emb.weight" if name == "invit-tsp" else "encoder.layers.0.Wv.weight"
    tensors[f"state_dict.{key}"][0, 0] += 1.0
    save_file(tensors, tmp_path / f"{name}.safetensors")
    (tmp_path / f"{name}.json").write_text((shared / "parity" / f"{name}.json").read_text())
    assert not check_fixture(tmp_path / f"{name}.safetensors").ok


@pytest.mark.parametrize(
    ("name", "problem", "count"),
    [
        ("invit-2v", "tsp", 1_190_272),
        ("invit-3v", "tsp", 1_718_528),
        ("invit-2v", "cvrp", 1_207_552),
        ("invit-3v", "cvrp", 1_736_064),
        # 840,193 less the two unused maps of 128 x 128 with their biases.
        ("dgl", "tsp", 840_193 - 2 * 128 * 129),
    ],
)
def test_parameters_are_those_of_the_official_models(name: str, problem: str, count: int) -> None:
    assert count_parameters(build_path_policy(name, problem)) == count


def test_invit_does_not_see_where_and_how_large_an_instance_is() -> None:
    torch.manual_seed(0)
    policy, coords = build_invit(SMALL).eval(), torch.rand(2, 20, 2)
    seen: list[torch.Tensor] = []

    def choose(scores: torch.Tensor, step: int) -> torch.Tensor:
        seen.append(scores)
        return greedy_choice(scores, step)

    found = []
    # A power of two and a shift by whole eighths change the float coordinates by no rounding that matters.
    for problem in (RoutingProblem(coords), RoutingProblem(coords / 4 + 0.125)):
        with torch.inference_mode():
            steps = LocalViews(policy, problem, problem.nodes())
            found.append(construct(steps, steps.begin(1, torch.tensor([[3], [7]])), choose).nodes)
    assert torch.equal(*found)
    half = len(seen) // 2
    for a, b in zip(seen[:half], seen[half:], strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


def one_line(demand: list[int], capacity: int) -> RoutingProblem:
    """Customers on a line, the depot at its end."""
    x = torch.arange(len(demand)) / 10.0
    demands = cvrp_demands(torch.tensor([demand]), torch.tensor([capacity]))
    return RoutingProblem(torch.stack([x, torch.zeros_like(x)], dim=1)[None], demands)


def test_invit_refuses_an_exact_fit_but_serves_who_fills_a_whole_vehicle() -> None:
    torch.manual_seed(0)
    policy = build_invit(InvitConfig("cvrp", 16, 2, 16, candidates=3, middle=0, widest=4)).eval()
    problem = one_line([0, 4, 6, 5, 10], 10)
    nodes = problem.nodes()
    steps = LocalViews(policy, problem, nodes)
    with torch.inference_mode():
        walks, _ = steps.begin(1)
        first = policy.options(nodes, walks.state)
        assert set(first.nodes[first.log_probs.isfinite()].tolist()) == {
            1,
            2,
            3,
        }  # the nearest three; not the depot
        walks = steps.move(walks, torch.tensor([1]), None)
        second = policy.options(nodes, walks.state)
        # 6 are left: customer 2 would fit exactly and is refused, customer 4 does not fit.
        assert set(second.nodes[second.log_probs.isfinite()].tolist()) == {3, 0}
        moves = construct(steps, steps.begin(1), greedy_choice).nodes
    assert sorted(moves[moves > 0].tolist()) == [1, 2, 3, 4]


def test_candidates_of_invit_are_the_nearest_customers_that_fit_and_views_hold_them_first() -> None:
    policy = build_invit(InvitConfig("cvrp", 16, 2, 16, candidates=2, middle=0, widest=5)).eval()
    problem = one_line([0, 4, 8, 1, 9, 2, 1], 10)
    nodes = problem.nodes()
    with torch.inference_mode():
        steps = LocalViews(policy, problem, nodes)
        walks = steps.move(steps.begin(1)[0], torch.tensor([1]), None)
        slots, real = policy.neighbours(nodes, walks.state)
    # 6 of 10 are left at customer 1: 3 and 5 fit and are nearest; then 2, 4, 6 by distance, whether they fit or not.
    assert slots.tolist() == [[3, 5, 2, 4, 6]]
    assert real is not None
    assert bool(real.all())


def test_dgl_keeps_the_mean_distance_to_open_nodes() -> None:
    torch.manual_seed(0)
    coords = torch.rand(2, 40, 2)
    policy, problem = (
        build_dgl(DglConfig(width=16, heads=2, head_dim=8, ffn=16)).eval(),
        RoutingProblem(coords),
    )
    nodes = problem.nodes()
    steps = LocalViews(policy, problem, nodes)
    walks, _ = steps.begin(1, torch.tensor([[5], [0]]))
    for pair in ([7, 3], [1, 39], [30, 20]):
        walks = steps.move(walks, torch.tensor(pair), None)
    exact = (coords[:, :, None].double() - coords[:, None].double()).norm(dim=3)
    expected = (exact * walks.state.open[:, None]).sum(dim=2) / walks.state.open.sum(dim=1)[:, None]
    mean, _, here, target = walks.state.memory
    # The rounding of distances near 0 is up to 5e-4, that of others around 1e-6.
    torch.testing.assert_close(mean.double(), expected, atol=2e-5, rtol=0)
    torch.testing.assert_close(here.double()[0], exact[0, 30], atol=6e-4, rtol=0)
    torch.testing.assert_close(target.double()[0], exact[0, 5], atol=6e-4, rtol=0)


def test_distances_of_dgl_are_those_of_a_matrix_product_above_25_nodes() -> None:
    torch.manual_seed(0)
    for count, tolerance in ((25, 2e-7), (26, 6e-4)):
        coords = torch.rand(3, count, 2)
        exact = (coords - coords[:, 4:5]).double().norm(dim=2)
        ours = distances_to(coords, torch.tensor([4, 4, 4]))
        torch.testing.assert_close(ours.double(), exact, atol=tolerance, rtol=0)
    # Where distances are not tiny, both agree with torch.cdist but for the last bits.
    far = exact > 0.1
    theirs = torch.cdist(coords, coords)[:, :, 4]
    torch.testing.assert_close(ours[far], theirs[far], atol=1e-5, rtol=0)


def test_demands_of_dgl_are_relative_to_the_capacity_left() -> None:
    demand, room = torch.tensor([[0.2, 0.1], [0.2, 0.1]]), torch.tensor([[0.4], [0.0]])
    torch.testing.assert_close(relative_demand(demand, room), torch.tensor([[0.5, 0.25], [1.1, 1.1]]))
    features = torch.tensor([[[2.0, 7.0], [4.0, 7.0], [3.0, 7.0]]])
    assert normalised(features).tolist() == [[[0, 0], [1, 0], [0.5, 0]]]


def test_invit_has_no_use_for_a_logit_scale() -> None:
    with pytest.raises(BadInputError, match="--logit-scale"):
        build_path_policy("invit-2v", logit_scale="ssmax")

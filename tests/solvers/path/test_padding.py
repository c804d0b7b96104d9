"""Scores of padded states are those of the states, for every path network of the cards."""

from __future__ import annotations

import math

import pytest
import torch

from nco_bench.cards import networks
from nco_bench.nn.build import build_path_policy
from nco_bench.nn.graphs import rounded
from nco_bench.solvers.path.policy import PathNodes, PathPolicy, PathState, path_state
from nco_bench.solvers.path.precision import at_precision
from nco_bench.solvers.path.replayed import LEAST, Padded, padded
from nco_bench.solvers.path.solver import _initialise

CARDS = {
    name: card
    for name, card in networks().items()
    if card.family == "path"
    and (card.network != networks()["decoder-6x128"].network or name == "decoder-6x128")
}
"""Of the decoders, which are one network in many sizes, one."""

CASES = [(name, problem, {}) for name, card in CARDS.items() for problem in card.problems]
CASES += [("bq", "cvrp", {"attention": "cross"}), ("sit", "tsp", {"attention": "self"})]
EXACT, STREAMED = 16, 140
"""Numbers of candidates: one that needs no padding; one from which SIT computes in another order."""


def policy_and_state(
    name: str, problem: str, candidates: int, *, closed: bool = False, **overrides: str
) -> tuple[PathPolicy, PathState]:
    policy = build_path_policy(name, problem, **overrides)
    _initialise(policy)
    torch.manual_seed(candidates)
    count = candidates + 3
    demand = torch.rand(3, count) / 2 if problem == "cvrp" else None
    nodes = PathNodes(torch.rand(3, count, 2), demand, count)
    assert isinstance(policy, PathPolicy)
    policy.reseed(torch.arange(3))
    rows = torch.rand(3, count).argsort(dim=1)[:, : candidates + 2]
    if closed and problem == "tsp":
        rows[:, -1] = rows[:, 0]
    remaining = torch.rand(3) if problem == "cvrp" else None
    with torch.inference_mode():
        return policy, path_state(nodes, policy.embed(nodes), rows, closed=closed, remaining=remaining)


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize(("name", "problem", "overrides"), CASES)
def test_padding_changes_no_score(name: str, problem: str, overrides: dict[str, str], closed: bool) -> None:
    for candidates in (1, 2, 9, EXACT, *((STREAMED,) if name == "sit" else ())):
        policy, state = policy_and_state(name, problem, candidates, closed=closed, **overrides)
        assert policy.masks, "a network of our own that is recorded for every number of candidates"
        assert len(padded(policy, state).features) == 3
        with torch.inference_mode():
            found, expected = Padded(policy).scores(state), policy.scores(state)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * float(spread(expected)))


def spread(scores: torch.Tensor) -> torch.Tensor:
    return scores[scores.isfinite()].abs().amax()


def test_what_the_network_sees_is_longer_and_wider() -> None:
    policy, state = policy_and_state("lehd", "cvrp", 11)
    wide = PathState(
        *(torch.cat([t] * 7)[:19] for t in (state.features, state.coords)),
        torch.cat([state.demand] * 7)[:19],  # type: ignore[list-item]
        torch.cat([state.remaining] * 7)[:19],  # type: ignore[list-item]
        state.closed,
        state.instance_size,
    )
    longer = padded(policy, wide)
    assert longer.features.shape[:2] == (20, 18)
    real = longer.real()
    assert real is not None
    assert real.flatten().tolist() == [True] * 12 + [False] * 5 + [True]
    with torch.inference_mode():
        torch.testing.assert_close(Padded(policy).scores(wide), policy.scores(wide), rtol=1e-4, atol=1e-4)


def test_a_lower_precision_is_padded_too() -> None:
    policy, state = policy_and_state("pens-a", "tsp", 11)
    lowered = at_precision(policy, "pens-a", "bf16")
    with torch.inference_mode():
        found, expected = Padded(lowered).scores(state), lowered.scores(state)
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05 * float(spread(expected)))


class Stranger(torch.nn.Module, PathPolicy):
    """A network that knows no padding."""

    def scores(self, state: PathState) -> torch.Tensor:
        return state.features.mean(dim=1, keepdim=True).expand(-1, state.candidates, -1)[..., 0]


def test_a_network_that_knows_no_padding_gets_none() -> None:
    _, state = policy_and_state("bq", "tsp", 11)
    assert torch.equal(Padded(Stranger()).scores(state), Stranger().scores(state))


@pytest.mark.parametrize("least", [1, LEAST])
def test_sizes_are_few_and_near(least: int) -> None:
    sizes = [rounded(count, least) for count in range(1, 10_001)]
    assert all(count <= size < count + max(least, count / 8) for count, size in enumerate(sizes, start=1))
    assert all(size % least == 0 and rounded(size, least) == size for size in sizes)
    for largest in (100, 1_000, 10_000):
        assert len(set(sizes[:largest])) <= 8 * math.log2(largest)

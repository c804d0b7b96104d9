"""Views that keep their size and are padded tell what views that shrink do, for every local-view network of the cards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from nco_bench.cards import networks
from nco_bench.nn.build import build_path_policy
from nco_bench.solvers.stepwise.local_steps import LocalViews, Walks
from nco_bench.solvers.stepwise.policy import LocalViewPolicy, Options
from nco_bench.solvers.stepwise.problem import RoutingProblem, cvrp_demands
from nco_bench.solvers.stepwise.replayed import ReplayedViews

CASES = [
    (name, problem)
    for name, card in networks().items()
    if card.target.endswith("LocalViewSolver")
    for problem in card.problems
]
NODES = 42
"""More than any network here sees at once, but for the widest view."""


def steps_of(name: str, problem: str) -> LocalViews:
    torch.manual_seed(3)
    policy = build_path_policy(name, problem, logit_scale="ssmax" if name == "dgl" else None)
    coords, demands = torch.rand(2, NODES, 2), None
    if problem == "cvrp":
        amount = torch.randint(1, 10, (2, NODES)).index_fill(1, torch.tensor(0), 0)
        demands = cvrp_demands(amount, torch.tensor([30, 40]))
    task = RoutingProblem(coords, demands)
    assert isinstance(policy, LocalViewPolicy)
    return LocalViews(policy, task, task.nodes())


def walked(steps: LocalViews) -> Iterator[tuple[Walks, Options]]:
    """Yield every state of a greedy construction with what it is shown."""
    starts = torch.ones(2, 1, dtype=torch.int64)
    walks, _ = steps.begin(1, starts if steps.policy.needs_start else None)
    while not steps.finished(walks, 0):
        scores, options = steps.scores(walks)
        yield walks, options
        walks, _ = steps.follow(walks, options, scores.argmax(dim=2))


def possible(options: Options) -> list[list[tuple[int, bool]]]:
    """Name what is possible, in order."""
    via = torch.zeros_like(options.nodes, dtype=torch.bool) if options.via is None else options.via
    rows = zip(options.nodes.tolist(), via.tolist(), options.log_probs.isfinite().tolist(), strict=True)
    return [[(n, v) for n, v, real in zip(*row, strict=True) if real] for row in rows]


@pytest.mark.parametrize(("name", "problem"), CASES)
def test_padding_changes_no_option(name: str, problem: str) -> None:
    steps = steps_of(name, problem)
    held, policy, sizes = ReplayedViews(steps.policy), steps.policy, set()  # type: ignore[arg-type]
    assert held.masks, "a network of our own that is recorded for every number of nodes left"
    with torch.inference_mode():
        for walks, options in walked(steps):
            walk = held._held(steps.nodes, walks.state)
            found = policy.options(steps.nodes, walk)
            sizes.add(found.nodes.shape)
            assert possible(found) == possible(options)
            torch.testing.assert_close(
                found.log_probs[found.log_probs.isfinite()],
                options.log_probs[options.log_probs.isfinite()],
                rtol=1e-4,
                atol=1e-4,
            )
            if 0 < walks.state.left < NODES - 2:
                told = replace(walks.state, left=walks.state.left - 1)
                expected = policy.moved(steps.nodes, told) if told.left else ()
                ours = policy.moved(steps.nodes, held._held(steps.nodes, told)) if told.left else ()
                for one, other in zip(ours, expected, strict=True):
                    torch.testing.assert_close(one, other)
    assert len(sizes) == 1, "another size is another recording"

"""Compiled roll-outs: the same choices as step by step, for every kind of decoding that takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nco_bench.datasets.generate import generate
from nco_bench.nn.build import build_path_policy
from nco_bench.solvers.decoding.draws import streams
from nco_bench.solvers.decoding.search import construct, greedy_choice, sampling
from nco_bench.solvers.protocol import Failure, SolverOptions
from nco_bench.solvers.registry import choose, create
from nco_bench.solvers.stepwise import rollout
from nco_bench.solvers.stepwise.problem import RoutingProblem, cvrp_demands, float32_demands
from nco_bench.solvers.stepwise.steps import EncodeOnce

pytest.importorskip("numba")
from nco_bench.solvers.stepwise import together

INSTANCES, SIZE, TRAJECTORIES = 3, 21, 4


def policy_of(model: str, problem: str, heads: int = 4) -> nn.Module:
    """A small network with heads 8 wide, and logits far enough apart that rounding does not decide."""
    torch.manual_seed(5)
    sizes: dict[str, Any] = {"width": 32, "heads": heads, "ffn": 64, "layers": 2} | (
        {} if model == "am" else {"head_dim": 8}
    )
    policy = build_path_policy(model, problem, **sizes)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(1.5)
    return policy.eval()


def problem_of(problem: str, loads: str) -> RoutingProblem:
    generator = torch.Generator().manual_seed(1)
    coords = torch.rand(INSTANCES, SIZE, 2, generator=generator)
    if problem == "tsp":
        return RoutingProblem(coords)
    demand = torch.randint(1, 10, (INSTANCES, SIZE), generator=generator)
    demand[:, 0] = 0
    capacity = torch.full((INSTANCES,), 30)
    if loads == "fractional":
        return RoutingProblem(coords, cvrp_demands(demand * 0.7, capacity * 0.7))
    return RoutingProblem(coords, (float32_demands if loads == "float32" else cvrp_demands)(demand, capacity))


def at_work(
    model: str, problem: str, loads: str = "exact", trajectories: int = TRAJECTORIES, heads: int = 4
) -> tuple[EncodeOnce, Tensor | None]:
    policy, routing = policy_of(model, problem, heads), problem_of(problem, loads)
    starts = torch.arange(trajectories) + int(problem == "cvrp") if policy.needs_start else None
    steps = EncodeOnce(policy, routing, policy.encode(routing.nodes()))  # type: ignore[arg-type,operator]
    return steps, None if starts is None else starts.expand(INSTANCES, -1)


@pytest.mark.parametrize("drawn", [False, True], ids=["greedy", "sample"])
@pytest.mark.parametrize(
    ("problem", "loads"), [("tsp", ""), ("cvrp", "exact"), ("cvrp", "float32"), ("cvrp", "fractional")]
)
@pytest.mark.parametrize("model", ["am", "pomo"])
def test_choices_are_those_of_single_steps(model: str, problem: str, loads: str, drawn: bool) -> None:
    with torch.inference_mode():
        steps, starts = at_work(model, problem, loads)
        seeds = torch.arange(7, 7 + INSTANCES)
        choose = sampling(seeds, 0, TRAJECTORIES) if drawn else greedy_choice
        expected = construct(steps, steps.begin(TRAJECTORIES, starts), choose).nodes
        assert rollout.fits(steps)
        stream = streams(seeds, 0, TRAJECTORIES) if drawn else None
        found = rollout.rolled_out(steps, TRAJECTORIES, starts, stream).nodes
    assert torch.equal(found, expected)


@pytest.mark.parametrize("drawn", [False, True], ids=["greedy", "sample"])
@pytest.mark.parametrize("steep", [1.0, 300.0], ids=["", "underflow"])
@pytest.mark.parametrize(
    ("model", "problem", "heads"),
    [("pomo", "tsp", 4), ("pomo", "tsp", 9), ("pomo", "cvrp", 8), ("am", "tsp", 4), ("am", "cvrp", 4)],
)
def test_many_together_choose_as_single_steps_do(
    model: str, problem: str, heads: int, drawn: bool, steep: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights of steep attention are lost to underflow where they are relative to a row's largest, and computed anew."""
    many, lost = SIZE - 1, []
    with torch.inference_mode():
        steps, starts = at_work(model, problem, trajectories=many, heads=heads)
        glimpse = steps.encoded
        parts = {name: getattr(glimpse, name) for name in ("current", "first", "room", "base")}
        steps = replace(
            steps, encoded=replace(glimpse, **{k: v * steep for k, v in parts.items() if v is not None})
        )
        seeds = torch.arange(7, 7 + INSTANCES)
        choose = sampling(seeds, 0, many) if drawn else greedy_choice
        expected = construct(steps, steps.begin(many, starts), choose).nodes
        assert rollout.fits(steps)
        assert rollout.many_together(steps, many)
        monkeypatch.setattr(together.Part, "score", watched(lost))
        found = rollout.rolled_out(steps, many, starts, streams(seeds, 0, many) if drawn else None).nodes
    assert torch.equal(found, expected)
    assert any(lost) == (steep > 1 or model == "am")  # whose capacity left matters much here


def watched(lost: list[bool]) -> Callable[[together.Part], None]:
    """Score as ever, and note whether weights of any head add up to too little without a second try."""
    score = together.Part.score

    def noted(part: together.Part) -> None:
        pairs, under = part.shared.pairs, part.under
        instances = np.arange(len(under.here))[:, None]
        logits = (
            pairs.current[instances, under.here]
            + under.share[..., None, None] * pairs.other[instances, under.row]
        )
        logits = logits + under.closed[:, :, None]
        lost.append(bool((np.exp2(np.maximum(logits, -126)).sum(axis=3) < together.kernels.SAFE_SUM).any()))
        score(part)

    return noted


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_parts_and_threads_change_no_choice(problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.inference_mode():
        steps, starts = at_work("pomo", problem, trajectories=SIZE - 1)
        whole = rollout.rolled_out(steps, SIZE - 1, starts).nodes
        for part in (7, SIZE - 1, 45):  # parts of a few trajectories, of one instance, of two
            monkeypatch.setattr(together, "PART", part)
            for threads in (1, 3):
                monkeypatch.setattr(torch, "get_num_threads", lambda count=threads: count)
                assert torch.equal(rollout.rolled_out(steps, SIZE - 1, starts).nodes, whole)


def test_threads_share_trajectories_without_changing_them(monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.inference_mode():
        steps, starts = at_work("pomo", "cvrp")
        alone = rollout.rolled_out(steps, TRAJECTORIES, starts).nodes
        monkeypatch.setattr(torch, "get_num_threads", lambda: 5)  # 12 trajectories: parts of unequal length
        assert torch.equal(rollout.rolled_out(steps, TRAJECTORIES, starts).nodes, alone)


def test_ties_go_to_the_first_node() -> None:
    """Where all nodes are at one point, all scores are equal to the last bit but for the order of sums."""
    with torch.inference_mode():
        steps, _ = at_work("am", "tsp")
        problem = RoutingProblem(torch.full((1, SIZE, 2), 0.5))
        policy = steps.policy
        same = EncodeOnce(policy, problem, policy.encode(problem.nodes()))
        found = rollout.rolled_out(same, 1, None).nodes
    assert torch.equal(found, torch.arange(SIZE).expand(1, 1, -1))


def test_what_the_loops_cannot_do_is_left_to_single_steps() -> None:
    with torch.inference_mode():
        steps, _ = at_work("pomo", "tsp")
        assert rollout.fits(steps)
        assert not rollout.fits(at_work("elg", "tsp")[0])  # whose scores are not the pointer's alone
        policy, problem = steps.policy.double(), RoutingProblem(steps.problem.coords.double())  # type: ignore[attr-defined]
        double = EncodeOnce(policy, problem, policy.encode(problem.nodes()))
        assert not rollout.fits(double)
    steps, _ = at_work("am", "tsp")
    assert not rollout.fits(steps)  # a gradient may be wanted


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
@pytest.mark.parametrize("model", ["am", "pomo"])
def test_loops_are_compiled_before_a_clock_runs(model: str, problem: str) -> None:
    from nco_bench.solvers.stepwise.rollout_kernels import tours
    from nco_bench.solvers.stepwise.rollout_routes import routes

    dataset = generate(problem, 20, 2, seed=3)
    solver = create(choose(model, SolverOptions(weights="random", decoding="greedy")))
    solver.prepare(dataset)
    compiled = list(tours.signatures), list(routes.signatures)
    assert compiled[problem == "cvrp"]
    solver.solve(dataset.instances, seed=0, time_limit=None, progress=lambda _: None)
    assert (tours.signatures, routes.signatures) == compiled


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
@pytest.mark.parametrize("decoding", ["multistart", "sample:32"])
def test_loops_for_many_together_are_compiled_before_a_clock_runs(
    decoding: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nco_bench.solvers.stepwise.together_kernels import attend, join, move_routes, move_tours

    called: list[tuple[Any, ...]] = []
    constructed = together.moved_together
    monkeypatch.setattr(
        together, "moved_together", lambda *given: called.append(given) or constructed(*given)
    )
    dataset = generate(problem, 20, 2, seed=3)
    solver = create(choose("pomo", SolverOptions(weights="random", decoding=decoding)))
    solver.prepare(dataset)
    assert called
    loops = (attend, join, move_routes, move_tours)
    compiled = [list(loop.signatures) for loop in loops]
    solver.solve(dataset.instances, seed=0, time_limit=None, progress=lambda _: None)
    assert len(called) > 1
    assert [loop.signatures for loop in loops] == compiled


def test_a_scale_that_refuses_a_size_says_so_when_solving() -> None:
    """EIE's lambda is not defined below the training size."""
    dataset = generate("tsp", 20, 1, seed=3)
    solver = create(choose("am", SolverOptions(weights="random", logit_scale="eie")))
    solver.prepare(dataset)
    (failed,) = solver.solve(dataset.instances, seed=0, time_limit=None, progress=lambda _: None)
    assert isinstance(failed, Failure)
    assert "below the training size" in failed.message

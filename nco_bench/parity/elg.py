"""Parity of ELG (gaocrr/ELG): local features and scores, probabilities, multi-start, benchmark path, training step."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from nco_bench.nn.build import load_official
from nco_bench.parity.fixture import Checks, Fixture, ParityResult, result
from nco_bench.parity.pomo import (
    check_augmentation,
    check_forced,
    check_greedy,
    forced_moves,
    lengths_of,
    official_rows,
    transform_major,
)
from nco_bench.parity.trajectories import compare_gradients, replay, shared_demand
from nco_bench.solvers.stepwise.elg import Elg, ElgConfig, Encoded, build, from_official
from nco_bench.solvers.stepwise.policy import RouteState
from nco_bench.solvers.stepwise.problem import Demands, RoutingProblem, cvrp_demands

STEPS = ("first", "mid", "late")
"""Names of the steps that ``expected.steps`` numbers; others are called by their number, as ``step7``."""


def check(fixture: Fixture) -> ParityResult:
    """Compare what an ELG fixture holds."""
    problem, checks = str(fixture.fact("problem")), Checks()
    config = ElgConfig(
        problem,
        fixture.size("embedding_dim"),
        fixture.size("head_num"),
        fixture.size("qkv_dim"),
        fixture.size("ff_hidden_dim"),
        fixture.size("encoder_layer_num"),
        fixture.size("logit_clipping"),
        neighbours=fixture.size("local_size")[0],
        far_penalty=fixture.size("xi"),
        local_width=fixture.size("local_att_hidden_dim"),
        local_heads=fixture.size("local_att_head_num"),
    )
    policy = build(config).eval()
    load_official(policy, "elg", fixture.state_dict, str(fixture.path))
    starts = fixture.input("starts")
    with torch.inference_mode():
        if _steps(fixture):
            _check_local(fixture, policy, checks, problem_of(fixture), starts)
        check_greedy(fixture, policy, checks, problem_of(fixture), starts)
        if fixture.wants("b"):
            check_greedy(fixture, policy, checks, problem_of(fixture, "b."), fixture.input("b.starts"), "b.")
        check_augmentation(fixture, policy, checks, problem_of(fixture), starts)
        check_forced(fixture, policy, checks, problem_of(fixture))
        if fixture.wants("lib"):
            _check_benchmark(fixture, policy, checks)
    if fixture.wants("train"):
        _check_training(fixture, policy, checks)
    return result(fixture, "elg", problem, checks)


def problem_of(fixture: Fixture, group: str = "") -> RoutingProblem:
    """Return the instances of ``input.*`` or ``input.b.*``, with the official capacity arithmetic."""
    if not fixture.has(f"input.{group}loc"):
        return RoutingProblem(fixture.input(f"{group}problems"))
    coords = torch.cat([fixture.input(f"{group}depot"), fixture.input(f"{group}loc")], dim=1)
    return RoutingProblem(coords, shared_demand(fixture.input(f"{group}demand")))


def _check_local(
    fixture: Fixture, policy: Elg, checks: Checks, problem: RoutingProblem, starts: Tensor
) -> None:
    """Compare what the local policy sees and answers at the steps of the greedy decoding that the fixture holds."""
    seen: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    logits = policy.logits

    def noted(encoded: Encoded, state: RouteState) -> Tensor:
        around = policy.neighbourhood(encoded, state)
        features = policy.features(encoded, state, around)
        local = policy.local(features, policy.visible(state, around))
        nodes, shown = around.nodes, around.real
        if policy.problem == "cvrp":
            nodes, shown = F.pad(nodes, (1, 0)), F.pad(shown, (1, 0), value=True)
        seen.append((features, local, nodes, shown))
        return logits(encoded, state)

    policy.logits = noted  # type: ignore[method-assign]
    replay(policy, problem, len(starts), starts=starts.expand(len(problem.coords), -1))
    policy.logits = logits  # type: ignore[method-assign]
    for name, step in _steps(fixture).items():
        expected = fixture.expected(f"{name}.local_features")
        # The official code cuts off tokens that no trajectory has, and scatters padding to arbitrary closed nodes.
        features, local, nodes, shown = (t[:, :, : expected.shape[2]] for t in seen[step])
        checks.close(f"{name}.local_features", features, expected)
        scores = fixture.wanted(f"{name}.local_scores")
        if scores is not None:
            checks.close(f"{name}.local_scores", local[shown], scores.gather(2, nodes)[shown])


def _steps(fixture: Fixture) -> dict[str, int]:
    """Return the steps that are held, by name."""
    found = {name: int(name.removeprefix("step")) for name in fixture.groups(r"step\d+")}
    if fixture.wants(*STEPS):
        numbers = dict(zip(STEPS, fixture.expected("steps").tolist(), strict=False))
        found |= {name: numbers[name] for name in STEPS if fixture.wants(name)}
    return found


def _check_benchmark(fixture: Fixture, policy: Elg, checks: Checks) -> None:
    """Compare the path for library instances: scaled coordinates, eight transforms, edges rounded one by one."""
    raw = fixture.input("lib.coords")
    cvrp = policy.problem == "cvrp"
    low, high = (raw.amin(dim=0), raw.amax(dim=0)) if cvrp else (raw.min(), raw.max())
    coords = transform_major(((raw - low) / (high - low))[None])
    checks.close("lib.xy", coords, fixture.wanted("lib.xy"))
    starts = fixture.input("lib.starts")
    problem = RoutingProblem(coords, _library_demands(fixture) if cvrp else None)
    done = replay(policy, problem, len(starts), starts=starts.expand(len(coords), -1))
    rows = official_rows(problem, done.nodes)
    checks.same("lib.tours", rows, fixture.wanted("lib.tours"))
    points = raw[rows]  # (8, P, T, 2)
    lengths = (points - points.roll(-1, dims=2)).norm(dim=3).round().sum(dim=2)
    checks.close("lib.lengths", lengths, fixture.wanted("lib.lengths"))


def _library_demands(fixture: Fixture) -> Demands:
    demand = fixture.input("lib.demand").long()
    if len(demand) < len(fixture.input("lib.coords")):
        demand = F.pad(demand, (1, 0))
    capacity = torch.full((8,), int(fixture.option("lib_capacity")))
    return cvrp_demands(demand.expand(8, -1), capacity)


def _check_training(fixture: Fixture, policy: Elg, checks: Checks) -> None:
    """Replay one step of REINFORCE; advantages are divided by the instance's largest."""
    policy.train()
    problem = problem_of(fixture)
    moves = forced_moves(fixture, problem)
    done = replay(policy, problem, moves.shape[1], starts=moves[:, :, 0], moves=moves)
    reward = -lengths_of(problem, done.nodes)
    advantage = reward - reward.mean(dim=1, keepdim=True)
    loss = -(advantage * done.log_prob / advantage.amax(dim=1, keepdim=True)).mean()
    checks.close("train.loss", loss[None], fixture.wanted("train.loss"))
    loss.backward()
    compare_gradients(fixture, policy, from_official, checks)

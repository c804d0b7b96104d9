"""Parity of AM (wouterkool/attention-learn-to-route): encoder, logits, greedy, beam search, training step."""

from __future__ import annotations

import torch
from torch import Tensor

from nco_bench.errors import BadInputError
from nco_bench.nn.build import load_official
from nco_bench.parity.fixture import LOGIT_TOLERANCE, Checks, Fixture, ParityResult, result
from nco_bench.parity.trajectories import compare_gradients, lengths_of, replay, shared_demand
from nco_bench.solvers.decoding.search import Trajectories, beam_search
from nco_bench.solvers.stepwise.am import Am, AmConfig, build, from_official
from nco_bench.solvers.stepwise.problem import RoutingProblem
from nco_bench.solvers.stepwise.steps import EncodeOnce, begin

PRETRAINED_SHARE = 0.95
"""Of the tours with trained weights: a tie in float32 may turn one."""


def check(fixture: Fixture) -> ParityResult:
    """Compare what a fixture with random weights, or with the released ones, holds."""
    problem, checks = str(fixture.fact("problem")), Checks()
    config = AmConfig(
        problem,
        fixture.size("embedding_dim"),
        fixture.size("n_heads"),
        fixture.size("feed_forward_hidden"),
        fixture.size("n_encode_layers"),
        fixture.size("tanh_clipping"),
        fixture.size("normalization"),
    )
    policy = build(config).eval()
    load_official(policy, "am", _weights(fixture), str(fixture.path))
    with torch.inference_mode():
        if "checkpoint" in fixture.meta:
            _check_pretrained(fixture, policy, checks)
        else:
            _check_encoder(fixture, policy, checks)
            _check_decoding(fixture, policy, checks)
            _check_beams(fixture, policy, checks)
    if fixture.wants("train"):
        _check_training(fixture, policy, checks)
    return result(fixture, "am", problem, checks)


def _weights(fixture: Fixture) -> dict[str, Tensor]:
    """Return the fixture's own weights, or those of the checkpoint that it names, found beside the fixtures."""
    if "checkpoint" not in fixture.meta:
        return fixture.state_dict
    from safetensors.torch import load_file

    name = str(fixture.fact("checkpoint")).rpartition("/")[2]
    path = fixture.path.parent.parent / "checkpoints" / name
    if not path.is_file():
        raise BadInputError(f"{fixture.path}: needs the released weights, looked for {path}.")
    return load_file(path)


def problem_of(fixture: Fixture, group: str = "") -> RoutingProblem:
    """Return the instances of ``input.*`` or ``input.b.*``, with the official capacity arithmetic."""
    loc = fixture.input(f"{group}loc")
    if not fixture.has(f"input.{group}demand"):
        return RoutingProblem(loc)
    coords = torch.cat([fixture.input(f"{group}depot")[:, None], loc], dim=1)
    return RoutingProblem(coords, shared_demand(fixture.input(f"{group}demand")))


def _cut(moves: Tensor, like: Tensor) -> Tensor:
    """Leave out moves beyond those of `like` if they stay at the depot: the official code lets the last way home out."""
    extra = moves.shape[-1] - like.shape[-1]
    return moves[..., : like.shape[-1]] if extra == 1 and not moves[..., -1].any() else moves


def _check_encoder(fixture: Fixture, policy: Am, checks: Checks) -> None:
    problem = problem_of(fixture)
    x = policy.embed(problem.nodes())
    checks.close("init_embed", x, fixture.wanted("init_embed"))
    for i, layer in enumerate(policy.encoder):
        x = layer(x, (policy.config.width / policy.config.heads) ** -0.5)
        checks.close(f"layer{i}_out", x, fixture.wanted(f"layer{i}_out"))
    checks.close("encoder_out", x, fixture.wanted("encoder_out"))
    graph = x.mean(dim=1)
    checks.close("graph_embed", graph, fixture.wanted("graph_embed"))
    checks.close("fixed_context", policy.graph_projection(graph), fixture.wanted("fixed_context"))
    logits = policy.logits(policy.encode(problem.nodes()), begin(problem, 1).state)
    checks.close("step0.logits", logits[:, 0], fixture.wanted("step0.logits"))


def _check_decoding(fixture: Fixture, policy: Am, checks: Checks) -> None:
    for group in ("", "b."):
        if not fixture.wants(f"{group}greedy"):
            continue
        problem = problem_of(fixture, group)
        done = replay(policy, problem, 1)
        name = f"{group}greedy"
        pi = fixture.expected(f"{name}.pi")
        checks.same(f"{name}.pi", _cut(done.nodes[:, 0], pi), pi)
        checks.close(f"{name}.cost", lengths_of(problem, done.nodes)[:, 0], fixture.wanted(f"{name}.cost"))
        checks.close(f"{name}.ll", done.log_prob[:, 0], fixture.wanted(f"{name}.ll"))
        if not group:
            rows = done.log_probs[: pi.shape[1], :, 0].transpose(0, 1)
            checks.close(f"{name}.log_p", rows, fixture.wanted(f"{name}.log_p"))
    if not fixture.wants("forced"):
        return
    problem = problem_of(fixture)
    moves = fixture.input("forced_pi")
    done = replay(policy, problem, 1, moves=moves[:, None])
    rows = done.log_probs[: moves.shape[1], :, 0].transpose(0, 1)
    checks.close("forced.log_p", rows, fixture.wanted("forced.log_p"))
    checks.close("forced.ll", done.log_prob[:, 0], fixture.wanted("forced.ll"))
    checks.close("forced.cost", lengths_of(problem, done.nodes)[:, 0], fixture.wanted("forced.cost"))


@torch.inference_mode()
def _beams(policy: Am, problem: RoutingProblem, width: int) -> Trajectories:
    steps = EncodeOnce(policy, problem, policy.encode(problem.nodes()))
    return beam_search(steps, steps.begin(1), width)


def _check_beams(fixture: Fixture, policy: Am, checks: Checks) -> None:
    """Compare beams of every width held, which their names end with."""
    for name in fixture.groups(r"beam\d+"):
        problem = problem_of(fixture)
        beams = _beams(policy, problem, int(name.removeprefix("beam")))
        assert beams.log_prob is not None
        pi = fixture.expected(f"{name}.pi")
        checks.same(f"{name}.pi", _cut(beams.nodes.flatten(0, 1), pi), pi)
        checks.close(f"{name}.score", beams.log_prob.flatten(), fixture.wanted(f"{name}.score"))
        cost = lengths_of(problem, beams.nodes).flatten()
        checks.close(f"{name}.cost", cost, fixture.wanted(f"{name}.cost"))


def _check_pretrained(fixture: Fixture, policy: Am, checks: Checks) -> None:
    """Compare with the released weights; some tours may differ by ties, their costs are left out."""
    problem = problem_of(fixture)
    first = policy.embed(problem.nodes())[:1]
    for layer in policy.encoder:
        first = layer(first, (policy.config.width / policy.config.heads) ** -0.5)
    checks.close("encoder_out.first", first, fixture.wanted("encoder_out.first"), 5e-4)
    if fixture.wants("greedy"):
        _check_pretrained_tours(fixture, policy, checks, problem)
    for name in fixture.groups(r"beam\d+"):
        best = fixture.expected(f"{name}.best_cost")
        part, width = problem.take(slice(0, len(best))), int(name.removeprefix("beam"))
        checks.close(
            f"{name}.best_cost", lengths_of(part, _beams(policy, part, width).nodes).amin(dim=1), best
        )


def _check_pretrained_tours(fixture: Fixture, policy: Am, checks: Checks, problem: RoutingProblem) -> None:
    done = replay(policy, problem, 1)
    pi = fixture.expected("greedy.pi")
    nodes = _cut(done.nodes[:, 0], pi)
    moves = min(nodes.shape[1], pi.shape[1])
    same = (nodes[:, :moves] == pi[:, :moves]).all(dim=1)
    same &= ~nodes[:, moves:].any(dim=1) & ~pi[:, moves:].any(dim=1)
    checks.identical["greedy.pi"] = bool(same.all())
    if same.double().mean() < PRETRAINED_SHARE:
        checks.failed.append("greedy.pi")
    cost, log_prob = lengths_of(problem, done.nodes)[:, 0], done.log_prob[:, 0]
    for name, ours, tolerance in (("cost", cost, LOGIT_TOLERANCE), ("ll", log_prob, 5e-4)):
        expected = fixture.wanted(f"greedy.{name}")
        if expected is not None:
            checks.close(f"greedy.{name}", ours[same], expected[same], tolerance)
    expected = fixture.wanted("greedy.log_p.first")
    if expected is not None and bool(same[0]):
        rows = done.log_probs[: expected.shape[1], :1, 0].transpose(0, 1)
        checks.close("greedy.log_p.first", rows, expected, 5e-4)


def _check_training(fixture: Fixture, policy: Am, checks: Checks) -> None:
    """Replay one step of REINFORCE: teacher forcing in training mode, with batch statistics."""
    problem = problem_of(fixture)
    policy.train()
    done = replay(policy, problem, 1, moves=fixture.input("forced_pi")[:, None])
    ll = done.log_prob[:, 0]
    checks.close("train.ll", ll, fixture.wanted("train.ll"))
    cost = lengths_of(problem, done.nodes)[:, 0].float()
    loss = ((cost - fixture.input("baseline")) * ll).mean()
    checks.close("train.loss", loss[None], fixture.wanted("train.loss"))
    loss.backward()
    compare_gradients(fixture, policy, from_official, checks)
    prefix = "train.after."
    after = {
        name.removeprefix(prefix): fixture.expected(name) for name in fixture.groups(r"train\.after\..+")
    }
    expected = from_official(fixture.state_dict | after)
    ours = policy.state_dict()
    for key in (key for key in expected if "running" in key):
        checks.close(f"train.after.{key}", ours[key], expected[key])

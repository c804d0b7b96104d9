"""Replay of official training steps: the same draws, losses and parameters after Adam.

Official parameters are stacked and transposed differently in our modules, so they are compared where the importer puts
them: see `compare_parameters`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from nco_bench.parity.fixture import Checks, Fixture
from nco_bench.solvers.path.policy import PathNodes, PathPolicy, PathState, path_state
from nco_bench.solvers.path.problem import shares
from nco_bench.solvers.path.route_moves import Routes

Importer = Callable[[dict[str, Tensor]], dict[str, Tensor]]


def floored(probabilities: Tensor) -> Tensor:
    """LEHD's and SIL's post-processing: 1e-7 is added to probabilities of at most 1e-5, without renormalisation."""
    return torch.where(probabilities <= 1e-5, probabilities + 1e-7, probabilities)


class Trainer:
    """Adam on a policy, with the losses kept."""

    def __init__(self, policy: nn.Module, fixture: Fixture, *, clip: float | None = None) -> None:
        self.policy, self.clip = policy, clip
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=fixture.option("train_lr"))
        self.losses: list[Tensor] = []

    def step(self, loss: Tensor) -> None:
        """Take one optimiser step, after noting the loss."""
        self.losses.append(loss.detach().double())
        self.optimizer.zero_grad()
        loss.backward()
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.policy.parameters(), self.clip)
        self.optimizer.step()


def compare_parameters(fixture: Fixture, policy: nn.Module, importer: Importer, checks: Checks) -> None:
    """Compare every ``train.param_after.<official key>`` with the entries of ours that it was imported into."""
    prefix = "expected.train.param_after."
    ours = {name: value.detach() for name, value in policy.state_dict().items()}
    for name in (key for key in fixture.tensors if key.startswith(prefix)):
        key = name.removeprefix(prefix)
        marked = fixture.state_dict
        marked[key] = torch.full_like(marked[key], torch.nan)
        places = {k: v.isnan() for k, v in importer(marked).items() if v.isnan().any()}
        after = importer(fixture.state_dict | {key: fixture.expected(name.removeprefix("expected."))})
        error = max(float((ours[k][at] - after[k][at]).abs().max()) for k, at in places.items())
        checks.parameter(f"train.param_after.{key}", error)


def tsp_segment(
    fixture: Fixture, policy: PathPolicy, checks: Checks, trainer: Trainer, segment: Tensor
) -> None:
    """Replay supervised training on a segment ``(B, L)`` of the label tours, one Adam step per decoding step.

    The last node is the destination, the first the origin; then each next node is predicted.
    """
    coords = fixture.input("problems")
    nodes, local = segment.sort(dim=1)
    label = local.argsort(1)
    points = coords.gather(1, nodes[..., None].expand(-1, -1, 2))
    checks.close("train.sub_problems", points, fixture.wanted("train.sub_problems"))
    checks.same("train.sub_labels", label, fixture.wanted("train.sub_labels"))
    problem = PathNodes(points, None, coords.shape[1])
    for step in range(1, label.shape[1] - 1):
        candidates = label[:, step:-1].sort(dim=1).values
        rows = torch.cat([label[:, step - 1 : step], candidates, label[:, -1:]], dim=1)
        scores = policy.scores(path_state(problem, policy.embed(problem), rows))
        target = (candidates == label[:, step : step + 1]).long().argmax(1, keepdim=True)
        probability = floored(scores.softmax(1)).gather(1, target)
        trainer.step(-probability.double().log().mean())


def cvrp_segment(
    fixture: Fixture, policy: PathPolicy, checks: Checks, trainer: Trainer, segment: Routes, room: Tensor
) -> None:
    """Replay supervised training on CVRP segments ``(B, L)`` with the capacity ``(B,)`` before their first customer."""
    coords, demand, capacity = (fixture.input(name) for name in ("coords", "demand", "capacity"))
    order, via = segment
    customers, local = order.sort(dim=1)
    label = local.argsort(1) + 1
    nodes = torch.cat([torch.zeros_like(customers[:, :1]), customers], dim=1)
    points = coords.gather(1, nodes[..., None].expand(-1, -1, 2))
    load = demand.gather(1, nodes)
    features = torch.cat([points, load[..., None], room[:, None, None].expand(-1, nodes.shape[1], 1)], dim=2)
    checks.close("train.sub_problems", features, fixture.wanted("train.sub_problems"))
    checks.same("train.sub_labels", torch.stack([label, via.long()], 2), fixture.wanted("train.sub_labels"))
    problem = PathNodes(points, shares(load, capacity, points.dtype), coords.shape[1] - 1)
    remaining = room
    for step in range(label.shape[1]):
        node, flag = label[:, step : step + 1], via[:, step]
        if step > 0:
            candidates = label[:, step:].sort(dim=1).values
            rows = torch.cat([label[:, step - 1 : step], candidates, torch.zeros_like(node)], dim=1)
            share = shares(remaining, capacity, points.dtype)
            state = path_state(problem, policy.embed(problem), rows, remaining=share)
            trainer.step(_cvrp_loss(policy, state, candidates == node, flag))
        served = load.gather(1, node).squeeze(1)
        remaining = torch.where(flag | (remaining < served), capacity, remaining) - served


def _cvrp_loss(policy: PathPolicy, state: PathState, chosen: Tensor, via: Tensor) -> Tensor:
    scores = policy.scores(state)
    probabilities = floored(scores.flatten(1).softmax(1)).view(scores.shape)
    at_node = probabilities[chosen]  # (B, 2): directly, via the depot
    return -at_node.gather(1, via.long()[:, None]).double().log().mean()


def compare_losses(
    fixture: Fixture, trainer: Trainer, checks: Checks, name: str = "train.step_losses"
) -> None:
    """Compare the losses, each taken before its optimiser step."""
    checks.close(name, torch.stack(trainer.losses), fixture.wanted(name))

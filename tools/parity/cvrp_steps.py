"""What the makers of LEHD's and SIT's CVRP fixtures share: scores of going to a customer directly or by way of the depot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from making import margin
from torch import Tensor, nn
from tsp_steps import Tape

Decide = Callable[[Tensor, Tensor, float, Tensor], Tensor]
"""From rows x, y, demand ``(B, V + 1, 3)``, customers visited ``(B, t)``, the capacity and what is left of it ``(B,)`` to
probabilities ``(B, 2 V)``: directly to customer 1 .. V, then by way of the depot."""

CAPACITY = 25.0


def drawn(count: int, customers: int, seed: int) -> dict[str, Tensor]:
    """Draw instances, and solutions in place of labels: random orders, cut where the vehicle is full."""
    generator = torch.Generator().manual_seed(seed)
    demand = torch.randint(1, 10, (count, customers + 1), generator=generator)
    demand[:, 0] = 0
    order = torch.stack([torch.randperm(customers, generator=generator) + 1 for _ in range(count)])
    via, left = torch.zeros_like(order), torch.zeros(count)
    for at in range(customers):
        wanted = demand.gather(1, order[:, at : at + 1]).squeeze(1)
        via[:, at] = left < wanted
        left = torch.where(left < wanted, CAPACITY, left) - wanted
    return {
        "coords": torch.rand(count, customers + 1, 2, generator=generator), "demand": demand,
        "capacity": torch.full((count,), int(CAPACITY)), "label_node_flag": torch.stack([order, via], dim=2),
    }  # fmt: skip


def rows_of(given: dict[str, Tensor]) -> Tensor:
    """Return the rows x, y, demand of instances, as the official networks take them."""
    return torch.cat([given["coords"], given["demand"][..., None].float()], dim=2)


def step_of(
    name: str, decide: Decide, tape: Tape, given: dict[str, Tensor], selected: Tensor, left: Tensor
) -> dict[str, Tensor]:
    """Return scores and probabilities after visited customers."""
    probs = decide(rows_of(given), selected, CAPACITY, left)
    return {f"{name}.probs": probs, f"{name}.raw_logits": tape.scores[0]}


def greedy_of(decide: Decide, given: dict[str, Tensor]) -> tuple[dict[str, Tensor], float]:
    """Construct solutions, with the smallest margin of all decisions.

    As in the official environment, a direct way to a customer that is too heavy leads by the depot instead.
    """
    rows = rows_of(given)
    count, customers = len(rows), rows.shape[1] - 1
    visited, flags = torch.zeros(count, 0, dtype=torch.int64), torch.zeros(count, 0, dtype=torch.int64)
    left, least = torch.full((count,), CAPACITY), float("inf")
    while visited.shape[1] < customers:
        probs = decide(rows, visited, CAPACITY, left)
        least = min(least, margin(probs.clamp(min=0).log()))
        best = probs.argmax(1, keepdim=True)
        chosen = best % customers + 1
        wanted = given["demand"].gather(1, chosen).squeeze(1)
        via = (best.squeeze(1) >= customers) | (left < wanted)
        left = torch.where(via, CAPACITY, left) - wanted
        visited, flags = torch.cat([visited, chosen], 1), torch.cat([flags, via[:, None].long()], 1)
    flags[:, 0] = 1
    return {
        "node_flag": torch.stack([visited, flags], 2),
        "lengths": lengths_of(given["coords"], visited, flags),
    }, least


def lengths_of(coords: Tensor, order: Tensor, flags: Tensor) -> Tensor:
    """Return what solutions cost."""
    points = coords.gather(1, order[..., None].expand(-1, -1, 2))
    depot = coords[:, :1]
    direct = (points[:, 1:] - points[:, :-1]).norm(dim=2)
    by_depot = (points[:, 1:] - depot).norm(dim=2) + (points[:, :-1] - depot).norm(dim=2)
    ends = (points[:, [0, -1]] - depot).norm(dim=2).sum(1)
    return torch.where(flags[:, 1:] == 1, by_depot, direct).sum(1) + ends


def segments_of(
    given: dict[str, Tensor], shift: int, end: Tensor, length: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Cut a segment per label solution: `length` customers up to the end of a drawn route, after a rotation.

    Returns customers ``(B, L)``, their flags, and the capacity left before the first.
    """
    cut = []
    for (order, flags), demand, p in zip(given["label_node_flag"].mT, given["demand"], end, strict=True):
        starts = flags.nonzero().flatten()
        turn = int(starts[(shift + 1) % len(starts)])
        order, flags = order.roll(-turn), flags.roll(-turn)
        starts = flags.nonzero().flatten()
        follower = int(starts[int(p * len(starts))])
        order, flags = order.roll(-follower), flags.roll(-follower)
        first = len(order) - length
        begun = int(flags[: first + 1].nonzero().max())
        room = CAPACITY - float(demand[order[begun:first]].sum())
        cut.append((order[first:], flags[first:], torch.tensor(room)))
    order, flags, room = map(torch.stack, zip(*cut, strict=True))
    return order, flags, room


def training_of(
    model: Any, decide: Decide, given: dict[str, Tensor], draws: dict[str, Tensor], keys: list[str], lr: float,
    clip: float = 0.0,
) -> dict[str, Tensor]:  # fmt: skip
    """Train along a segment of the label solutions: an update of Adam for each decision but the first."""
    order, flags, left = segments_of(given, int(draws["shift"]), draws["end_route"], int(draws["length"]))
    customers, local = order.sort(dim=1)
    solution = local.argsort(1) + 1
    nodes = torch.cat([torch.zeros_like(customers[:, :1]), customers], dim=1)
    rows = rows_of(given).gather(1, nodes[..., None].expand(-1, -1, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    losses, length = [], solution.shape[1]
    for step in range(length):
        chosen, via = solution[:, step : step + 1], flags[:, step]
        if step:
            probs = decide(rows, solution[:, :step], CAPACITY, left)
            target = chosen - 1 + length * via[:, None]
            loss = -probs.gather(1, target).double().log().mean()
            optimizer.zero_grad()
            loss.backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            losses.append(loss.detach())
        wanted = rows[..., 2].gather(1, chosen).squeeze(1)
        left = torch.where((via == 1) | (left < wanted), CAPACITY, left) - wanted
    after = {f"train.param_after.{key}": model.state_dict()[key] for key in keys}
    return {"train.step_losses": torch.stack(losses), **after}

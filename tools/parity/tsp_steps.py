"""What the makers of LEHD's and SIT's fixtures share: their networks score the open nodes of a partial tour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from making import margin
from torch import Tensor

Decide = Callable[[Tensor, Tensor], Tensor]
"""From nodes ``(B, N, 2)`` and those visited ``(B, t)``, the destination first, to probabilities ``(B, N)``."""


@dataclass
class Tape:
    """The scores of the final layer, last call first: the official networks return probabilities only."""

    scores: list[Tensor]

    @staticmethod
    def of(layer: torch.nn.Module) -> Tape:
        tape = Tape([])
        layer.register_forward_hook(lambda _module, _given, out: tape.scores.insert(0, out.squeeze(-1)))
        return tape


def step_of(name: str, decide: Decide, tape: Tape, problems: Tensor, selected: Tensor) -> dict[str, Tensor]:
    """Return scores and probabilities after a partial tour."""
    probs = decide(problems, selected)
    return {f"{name}.probs": probs, f"{name}.raw_logits": tape.scores[0]}


def greedy_of(decide: Decide, problems: Tensor) -> tuple[dict[str, Tensor], float]:
    """Construct tours from node 0 on, with the smallest margin of all decisions."""
    tours = torch.zeros(len(problems), 1, dtype=torch.int64)
    least = float("inf")
    while tours.shape[1] < problems.shape[1]:
        probs = decide(problems, tours)
        least = min(least, margin(probs.clamp(min=0).log()))
        tours = torch.cat([tours, probs.argmax(1, keepdim=True)], dim=1)
    ordered = problems.gather(1, tours[..., None].expand(-1, -1, 2))
    lengths = (ordered - ordered.roll(-1, dims=1)).norm(dim=2).sum(1)
    return {"tours": tours, "lengths": lengths}, least


def drawn(count: int, n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return random nodes ``(B, N, 2)``, and random tours ``(B, N)`` in place of labels."""
    generator = torch.Generator().manual_seed(seed)
    tours = torch.stack([torch.randperm(n, generator=generator) for _ in range(count)])
    return torch.rand(count, n, 2, generator=generator), tours


def training_of(
    model: Any, decide: Decide, problems: Tensor, labels: Tensor, draws: dict[str, int], keys: list[str], lr: float,
    clip: float = 0.0,
) -> dict[str, Tensor]:  # fmt: skip
    """Train along one segment of the label tours: an update of Adam for each decision.

    The segment is `length` nodes from position `start` on, read backwards where `flip` is 1; its last node is the
    destination, its first the origin, and both are given.
    """
    segment = labels.roll(-draws["start"], dims=1)[:, : draws["length"]]
    segment = segment.flip(1) if draws["flip"] else segment
    nodes, local = segment.sort(dim=1)
    solution = local.argsort(1)
    points = problems.gather(1, nodes[..., None].expand(-1, -1, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    selected, losses = solution[:, [-1, 0]], []
    for step in range(1, solution.shape[1] - 1):
        chosen = solution[:, step : step + 1]
        loss = -decide(points, selected).gather(1, chosen).log().mean()
        optimizer.zero_grad()
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        losses.append(loss.detach())
        selected = torch.cat([selected, chosen], dim=1)
    after = {f"train.param_after.{key}": model.state_dict()[key] for key in keys}
    return {"train.step_losses": torch.stack(losses), **after}

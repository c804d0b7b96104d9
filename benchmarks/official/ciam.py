"""How the code of LEHD and of SIT is driven: their networks score the open nodes of a partial solution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from official.engine import Side
from official.instances import Instances
from official.partial import Chosen, Partial

Decide = Callable[[Any, Instances, Tensor, Tensor | None], Tensor]
"""From what was encoded, instances, visited nodes ``(B, t)`` and capacity left to the probabilities of all actions."""


def encoded(model: Any, some: Instances) -> Any:
    """Encode as the official `forward` does before its first step."""
    if some.demand is None or some.capacity is None:
        return model.encoder(some.coords)
    problems = problems_of(some, some.capacity)
    return model.encoder(problems, float(some.capacity[0]))


def problems_of(some: Instances, remaining: Tensor) -> Tensor:
    """Coordinates, demand and capacity left of each node, as the official environment keeps them."""
    assert some.demand is not None
    left = remaining.float()[:, None].expand(-1, some.coords.shape[1])
    return torch.cat([some.coords, some.demand.float()[..., None], left[..., None]], dim=2)


def stepwise(model: Any, decide: Decide, partial: Partial) -> Callable[[], Chosen]:
    """Prepare one step."""
    with torch.inference_mode():
        known = encoded(model, partial.some)

    def run() -> Chosen:
        probs = decide(known, partial.some, partial.visited, partial.remaining)
        return chosen(probs, partial.some)

    return run


def chosen(probs: Tensor, some: Instances) -> Chosen:
    """Read the best action as the official `forward` does: direct ones first, then those via the depot."""
    best = probs.argmax(dim=1)
    if some.demand is None:
        return best, None
    customers = some.coords.shape[1] - 1
    via = best >= customers
    return torch.where(via, best - customers, best) + 1, via


def whole(model: Any, decide: Decide, some: Instances) -> Side:
    """Construct from the first step to the last."""

    def run() -> list[list[int]]:
        with torch.no_grad():
            known, count = encoded(model, some), len(some.coords)
            if some.demand is None or some.capacity is None:
                visited = torch.zeros(count, 1, dtype=torch.int64)
                while visited.shape[1] < some.coords.shape[1]:
                    node, _ = chosen(decide(known, some, visited, None), some)
                    visited = torch.cat([visited, node[:, None]], dim=1)
                return visited.tolist()
            visited, flags = torch.zeros(count, 0, dtype=torch.int64), []
            remaining, rows = some.capacity.clone(), torch.arange(count)
            while visited.shape[1] < some.coords.shape[1] - 1:
                node, via = chosen(decide(known, some, visited, remaining), some)
                assert via is not None
                # Where the demand of a direct customer is larger than what is left, their environment goes by the depot.
                via = via | (some.demand[rows, node] > remaining)
                remaining = torch.where(via, some.capacity, remaining) - some.demand[rows, node]
                visited, flags = torch.cat([visited, node[:, None]], dim=1), [*flags, via]
            return arrays(visited, torch.stack(flags, dim=1))

    return run


def arrays(visited: Tensor, via: Tensor) -> list[list[int]]:
    """Return sequences with 0 for each depot visit."""
    found = []
    for nodes, flags in zip(visited.tolist(), via.tolist(), strict=True):
        row = [0, nodes[0]]
        for node, flag in zip(nodes[1:], flags[1:], strict=True):
            row += [0, node] if flag else [node]
        found.append([*row, 0])
    return found

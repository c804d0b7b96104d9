"""BQ against github.com/naver/bq-nco: greedy, beam search, and an update."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from official.checkouts import first_on_path
from official.engine import Case, Pair, Side, separated
from official.instances import Instances
from official.partial import Chosen, Partial, path_pair
from official.stubs import without
from official.updates import supervised_pair

CASES = (
    *(Case("bq", problem, size, "greedy", batch, points)
      for problem in ("tsp", "cvrp") for size, batch, points in ((100, 8, 5), (500, 2, 5), (1000, 1, 5))),
    Case("bq", "tsp", 20, "beam:16", 1, 0),
    Case("bq", "cvrp", 20, "beam:16", 1, 0),
    Case("bq", "tsp", 100, "update", 32),
)  # fmt: skip


def pair(case: Case, checkout: Path) -> Pair:
    """Prepare both sides."""
    first_on_path([checkout])
    without("entmax", entmax15=None)  # only a variant of its attention uses it
    decoding = importlib.import_module(f"learning.{case.problem}.decoding")
    model_of = importlib.import_module("model.model").BQModel
    features = 2 if case.problem == "tsp" else 4
    model = separated(model_of(features, 192, 512, "relu", 9, 12, "softmax", 0.0, False, case.problem), 1.3)
    if case.decoding == "update":
        return supervised_pair(
            case, model, lambda coords: cross_entropy(model(coords), torch.ones(len(coords)).long())
        )
    width = int(case.decoding.removeprefix("beam:")) if "beam" in case.decoding else 1
    return path_pair(
        case,
        model,
        lambda partial: stepwise(decoding, model, partial),
        lambda some: whole(decoding, model, some, width),
    )


def closed(some: Instances) -> tuple[Any, ...]:
    """Coordinates, and demands, with the first node again at the end."""
    coords = torch.cat([some.coords, some.coords[:, :1]], dim=1)
    if some.demand is None:
        return (coords,)
    return coords, torch.cat([some.demand, some.demand[:, :1]], dim=1).float()


def whole(decoding: Any, model: Any, some: Instances, width: int) -> Side:
    """Construct with the official loop."""
    coords, *demands = closed(some)
    distances = torch.cdist(coords, coords)

    def run() -> Any:
        with torch.no_grad():
            if some.capacity is None:
                return decoding.decode(coords, distances, model, width, -1)[0].tolist()
            capacities = some.capacity.float()
            _, tours = decoding.decode(
                coords, distances, *demands, capacities, model, width, -1, make_tours=True
            )
            # The last of a tour is the depot's second row.
            return [[node % some.coords.shape[1] for node in tour] for tour in tours]

    return run


def stepwise(decoding: Any, model: Any, partial: Partial) -> Callable[[], Chosen]:
    """Prepare one step of the official loop; distances, which only its nearest neighbours need, are left out."""
    rows = partial.rows
    rows = torch.cat([rows[:, :-1], torch.full_like(rows[:, :1], partial.some.coords.shape[1])], dim=1)
    coords, *demands = (
        one.gather(1, rows[..., None].expand(-1, -1, 2)) if one.dim() == 3 else one.gather(1, rows)
        for one in closed(partial.some)
    )

    def run() -> Chosen:
        if partial.remaining is None or partial.some.capacity is None:
            state = decoding.DecodingSubPb(coords, rows, torch.empty(0))
            return decoding.greedy_decoding_step(state, model, -1)[0], None
        left = partial.remaining.float()[:, None]
        state = decoding.DecodingSubPb(coords, torch.empty(0), *demands, left, rows)
        node, via, _ = decoding.greedy_decoding_step(partial.some.capacity.float(), state, model, -1)
        return node, via

    return run

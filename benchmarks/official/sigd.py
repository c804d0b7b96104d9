"""SIGD against github.com/grimmlab/gumbeldore: greedy and beam search of both styles of network, and an update."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from official.checkouts import first_on_path
from official.ciam import arrays
from official.engine import Case, Pair, Side, separated
from official.instances import Instances
from official.partial import Chosen, Partial, path_pair
from official.stubs import without
from official.updates import supervised_pair

CASES = (
    *(Case("sigd", problem, size, "greedy", batch, points)
      for problem in ("tsp", "cvrp") for size, batch, points in ((100, 16, 6), (500, 4, 5), (1000, 2, 5))),
    *(Case("sigd-lehd", problem, 100, "greedy", 16, 6) for problem in ("tsp", "cvrp")),
    Case("sigd", "tsp", 20, "beam:16", 4),
    Case("sigd", "tsp", 100, "beam:16", 1),
    Case("sigd", "cvrp", 20, "beam:16", 4),
    Case("sigd", "cvrp", 100, "beam:16", 1),
    Case("sigd", "tsp", 100, "update", 1024),  # the batch of the authors' training
)  # fmt: skip
SIZES = {
    "num_transformer_blocks": 9, "feedforward_dimension": 512, "dropout": 0.0, "use_rezero_transformer": True,
}  # fmt: skip
WIDTHS = {"tsp": (128, 8), "cvrp": (192, 12)}
"""Embedding and heads."""


def pair(case: Case, checkout: Path) -> Pair:
    """Prepare both sides."""
    without("easydict", EasyDict=dict)  # for another of its problems
    first_on_path([checkout])
    style = "lehd" if case.model == "sigd-lehd" else "bq"
    width, heads = WIDTHS[case.problem]
    sizes = SimpleNamespace(**SIZES, latent_dimension=width, num_attention_heads=heads)
    kind = getattr(import_module(f"{case.problem}.{style}_network"), f"{style.upper()}PolicyNetwork")
    model: Any = separated(kind(sizes), 1.3)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("resweight"):
                weight.fill_(0.5)
    if case.decoding == "update":

        def loss(coords: torch.Tensor) -> torch.Tensor:
            return cross_entropy(model({"nodes": coords}), torch.zeros(len(coords), dtype=torch.int64))

        return supervised_pair(case, model, loss)
    search = import_module("core.beam_search").beam_search
    width = int(case.decoding.removeprefix("beam:")) if case.decoding.startswith("beam") else 1
    return path_pair(
        case,
        model,
        lambda partial: stepwise(search, model, partial),
        lambda some: whole(search, model, some, width),
    )


def begun(model: Any, some: Instances) -> list[Any]:
    """Return the official trajectories of instances, before their first step."""
    problem = "tsp" if some.capacity is None else "cvrp"
    given = [{"inst": coords, "nodes": coords} for coords in some.coords.numpy()]
    if some.demand is not None and some.capacity is not None:
        for one, demands, capacity in zip(given, some.demand.numpy(), some.capacity.tolist(), strict=True):
            one.update(demands=demands, capacity=capacity)
    kind = import_module(f"{problem}.trajectory").Trajectory
    found: list[Any] = kind.init_batch_from_instance_list(given, model, torch.device("cpu"))
    return found


def whole(search: Any, model: Any, some: Instances, width: int) -> Side:
    """Construct with the official search, which is greedy with one beam."""

    def run() -> list[list[int]]:
        found = search(begun(model, some), model, width)
        if some.demand is None:
            return [one.partial_tour for one in found]
        orders, flags = (
            torch.tensor([[int(x) for x in getattr(one, f"partial_tour_{name}")] for one in found])
            for name in ("idcs", "flags")
        )
        return arrays(orders, flags)

    return run


def stepwise(search: Any, model: Any, partial: Partial) -> Callable[[], Chosen]:
    """Prepare one step of the official search with one beam."""
    problem = "tsp" if partial.remaining is None else "cvrp"
    with torch.inference_mode():
        states = [standing(one, partial, i) for i, one in enumerate(begun(model, partial.some))]

    class Once(import_module(f"{problem}.trajectory").Trajectory):  # type: ignore[misc]
        """Ends after one step."""

        def transition_fn(self, action: int) -> tuple[Any, bool]:
            after, _ = super().transition_fn(action)
            after.objective = 0.0
            return after, True

    def run() -> Chosen:
        trajectories = [Once() for _ in states]
        for one, state in zip(trajectories, states, strict=True):
            one.__dict__.update(state)
        found = search(trajectories, model, 1)
        if partial.remaining is None:
            return torch.tensor([one.partial_tour[partial.visited.shape[1]] for one in found]), None
        step = partial.visited.shape[1]
        nodes = torch.tensor([int(one.partial_tour_idcs[step]) for one in found])
        return nodes, torch.tensor([one.partial_tour_flags[step] == 1 for one in found])

    return run


def standing(one: Any, partial: Partial, index: int) -> dict[str, Any]:
    """Return the fields of a trajectory that stands where a partial construction does."""
    visited, left = partial.visited[index].tolist(), partial.left[index]
    last = visited[-1]
    fields = {"start_node": one.nodes[last : last + 1], "remaining_nodes": one.nodes[left]}
    if partial.remaining is None:
        first = visited[0]
        fields |= {
            "partial_tour": visited,
            "remaining_idcs": left.tolist(),
            "dest_node": one.nodes[first : first + 1],
        }
        return one.__dict__ | fields
    fields |= {
        "partial_tour_idcs": visited, "partial_tour_flags": [1] * len(visited), "remaining_idcs": np.asarray(left),
        "start_node_idx": last, "current_capacity": float(partial.remaining[index]),
        "start_node_demand": one.demands[last : last + 1], "remaining_demands": one.demands[left],
    }  # fmt: skip
    one.__dict__.update(fields)
    one.set_nearest_idcs_of_remaining()
    state: dict[str, Any] = one.__dict__
    return state

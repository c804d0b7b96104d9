"""INViT-3V against github.com/Kasumigaoka-Utaha/INViT: greedy from one start, without turned copies."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import torch

from nco_bench.nn.build import build_path_policy, load_official
from nco_bench.solvers.decoding.spec import parse_decoding
from nco_bench.solvers.stepwise.local_steps import decode_local_views
from official.checkouts import first_on_path
from official.engine import Case, Pair, Side, same_rows, separated
from official.instances import Instances, drawn, routes
from official.stubs import torch_cluster, without

CARD = "invit-3v"
CASES = tuple(
    Case("invit-3v", problem, size, "greedy", batch)
    for problem, sizes in (
        ("tsp", ((100, 2), (1000, 2))),
        ("cvrp", ((50, 2), (500, 2))),
    )
    for size, batch in sizes
)
NEIGHBOURS, VIEWS = 15, [35, 50]


def pair(case: Case, checkout: Path) -> Pair:
    """Prepare both sides."""
    torch_cluster()
    without("sklearn", "sklearn.preprocessing", "sklearn.decomposition", "sklearn.manifold",
            preprocessing=None, PCA=None, TSNE=None)  # fmt: skip
    first_on_path([checkout])
    name = "TSP_net" if case.problem == "tsp" else "VRP_net"
    official = getattr(importlib.import_module(name), name)(2, 128, 512, 2, 2, 2, 3, 8, batchnorm=False)
    separated(official, 1.5)
    ours = build_path_policy("invit-3v", case.problem)
    load_official(ours, "invit-3v", official.state_dict())
    some, decoding = drawn(case.problem, case.size, case.batch), parse_decoding("greedy")

    def solve() -> Any:
        return decode_local_views(ours, *some.given, decoding=decoding)

    return Pair([greedy(official, some)], solve, same_rows)


def greedy(model: Any, some: Instances) -> Side:
    """Solve with the official forward pass, whose random start is node 0 here."""

    def first_node(high: int, size: tuple[int, ...]) -> torch.Tensor:
        return torch.zeros(size, dtype=torch.int64)

    def solve() -> list[list[int]]:
        with torch.no_grad():
            if some.demand is None or some.capacity is None:
                drawn_by_torch, torch.randint = torch.randint, first_node  # type: ignore[assignment]
                try:
                    tours, _ = model(some.coords, NEIGHBOURS, VIEWS, choice_deterministic=True)
                finally:
                    torch.randint = drawn_by_torch
                return tours.tolist()
            given = {
                "loc": some.coords[:, 1:],
                "depot": some.coords[:, 0],
                "demand": some.demand[:, 1:].clone(),
            }
            capacity = int(some.capacity[0])
            moves, _ = model(given, NEIGHBOURS, VIEWS, capacity, "cvrp", choice_deterministic=True)
            return routes(moves + 1)  # their depot is -1

    return solve

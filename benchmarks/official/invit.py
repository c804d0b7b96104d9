"""INViT-3V against github.com/Kasumigaoka-Utaha/INViT: greedy from one start, alone and on the eight symmetries; an update.

The authors' own copies are turned by random angles; when solving, both sides are given the symmetries here.
"""

from __future__ import annotations

import copy
import importlib
from pathlib import Path
from typing import Any

import torch

from nco_bench.nn.build import build_path_policy, load_official
from nco_bench.solvers.decoding.instances import SYMMETRIES, symmetries
from nco_bench.solvers.decoding.spec import parse_decoding
from nco_bench.solvers.decoding.turns import turns
from nco_bench.solvers.stepwise.local_steps import decode_local_views
from nco_bench.training.learners.fresh_instances import FreshInstances
from nco_bench.training.learners.turned_copies import COURSE, TurnedCopies
from nco_bench.training.trainer import Trainer
from official.checkouts import first_on_path
from official.engine import Case, Pair, Side, same_rows, separated
from official.instances import Instances, drawn, routes
from official.stubs import torch_cluster, without
from official.updates import CPU, loss_of

CARD = "invit-3v"
CASES = (
    *(
        Case("invit-3v", problem, size, "greedy", batch)
        for problem, sizes in (
            ("tsp", ((100, 2), (1000, 2))),
            ("cvrp", ((50, 2), (500, 2))),
        )
        for size, batch in sizes
    ),
    Case("invit-3v", "tsp", 100, "greedy+x8", 1),
    Case("invit-3v", "cvrp", 50, "greedy+x8", 1),
    Case("invit-3v", "tsp", 50, "update", 64),  # size and batch of the authors' script
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
    if case.decoding == "update":
        return Pair([their_update(case, official)], our_update(case, ours), None)
    some, decoding = drawn(case.problem, case.size, case.batch), parse_decoding(case.decoding)

    def solve() -> Any:
        return decode_local_views(ours, *some.given, decoding=decoding)

    theirs = greedy(official, some) if decoding.augmentation == 1 else best_of_eight(official, some)
    return Pair([theirs], solve, same_rows)


def our_update(case: Case, policy: Any) -> Side:
    """Prepare an update with the numbers of the paper; the batch are the copies of one instance."""
    config = {"recipe": "paper", "size": str(case.size), "batch": str(case.batch), "copies": str(case.batch)}
    recipe = COURSE.recipe("invit-3v", config)
    learner = TurnedCopies(policy.train(), FreshInstances(case.problem, case.size), recipe, 0, CPU)
    trainer: Any = Trainer(policy, learner, recipe, Path("unused"), {})
    return loss_of(trainer)


def their_update(case: Case, model: Any) -> Side:
    """Do what the official `train_model_with_knn` does with a batch."""
    utilities = importlib.import_module("utils.utils_for_model")
    baseline = copy.deepcopy(model).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    coords = drawn(case.problem, case.size, 1).coords
    repeated = coords.repeat_interleave(case.batch, dim=0)
    seen = turns(coords, case.batch, torch.zeros(1, dtype=torch.int64))

    def step() -> float:
        model.train()
        with torch.no_grad():
            tours, _ = baseline(seen, NEIGHBOURS, VIEWS, choice_deterministic=True)
        compared = utilities.compute_tsp_tour_length(repeated, tours)
        tours, log_prob = model(seen, NEIGHBOURS, VIEWS, choice_deterministic=False)
        loss = ((utilities.compute_tsp_tour_length(repeated, tours) - compared) * log_prob).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


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


def best_of_eight(model: Any, some: Instances) -> Side:
    """Solve the eight symmetries together and keep the shortest solution of each instance."""
    repeated = (
        None if one is None else one.repeat_interleave(SYMMETRIES, dim=0)
        for one in (some.demand, some.capacity)
    )
    solve = greedy(model, Instances(symmetries(some.coords), *repeated))
    coords = some.coords.repeat_interleave(SYMMETRIES, dim=0)

    def shortest() -> list[list[int]]:
        found = solve()
        lengths = torch.tensor([length(points, row) for points, row in zip(coords, found, strict=True)])
        best = lengths.view(-1, SYMMETRIES).argmin(1)
        return [found[SYMMETRIES * i + int(k)] for i, k in enumerate(best)]

    return shortest


def length(points: torch.Tensor, row: list[int]) -> float:
    """Return the length of a closed tour, or of routes with 0 at both ends."""
    visited = points[row].double()
    return float((visited - visited.roll(-1, dims=0)).norm(dim=1).sum())

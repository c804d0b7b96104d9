"""LEHD against github.com/CIAM-Group/NCO_code (`single_objective/LEHD`): greedy, RRC, and an update along one decision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from official.checkouts import first_on_path
from official.ciam import stepwise, whole
from official.engine import Case, Pair, separated
from official.instances import Instances
from official.partial import path_pair
from official.rebuilding import rebuilding_pair
from official.updates import supervised_pair

CASES = (
    *(
        Case("lehd", problem, size, "greedy", batch, points)
        for problem in ("tsp", "cvrp")
        for size, batch, points in ((100, 16, 6), (500, 4, 5), (1000, 2, 5))
    ),
    *(Case("lehd", problem, 100, "rrc:3", 8) for problem in ("tsp", "cvrp")),
    Case("lehd", "tsp", 100, "update", 32),
)
SIZES = {
    "embedding_dim": 128, "sqrt_embedding_dim": 128**0.5, "decoder_layer_num": 6, "qkv_dim": 16, "head_num": 8,
    "ff_hidden_dim": 512, "mode": "test",
}  # fmt: skip


def pair(case: Case, checkout: Path) -> Pair:
    """Prepare both sides."""
    name = "TSP" if case.problem == "tsp" else "VRP"
    first_on_path([checkout / "single_objective/LEHD" / case.problem.upper()])
    model = separated(getattr(__import__(f"{name}Model"), f"{name}Model")(**SIZES), 1.3)

    if case.decoding == "update":
        model.mode = "train"
        return supervised_pair(case, model, loss_of(model))

    def decide(known: Any, some: Instances, visited: Tensor, remaining: Tensor | None) -> Tensor:
        if some.capacity is None:
            return model.decoder(known, visited)
        return model.decoder(known, visited, float(some.capacity[0]), remaining)

    if case.decoding.startswith("rrc"):
        return rebuilding_pair(case, model, decide)
    return path_pair(
        case, model, lambda partial: stepwise(model, decide, partial), lambda some: whole(model, decide, some)
    )


def loss_of(model: Any) -> Any:
    """Return the official loss of one decision: the last node of a piece is its destination, the first its origin."""

    def loss(coords: Tensor) -> Tensor:
        visited = torch.tensor([coords.shape[1] - 1, 0]).expand(len(coords), -1)
        probs = model.decoder(model.encoder(coords), visited)
        return -probs[:, 1].to(torch.float64).log().mean()

    return loss

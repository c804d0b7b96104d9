"""SIT against github.com/CIAM-Group/SIL: greedy, PRC, and an update along one decision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from official.checkouts import first_on_path, module_of
from official.ciam import problems_of, stepwise, whole
from official.engine import Case, Pair, separated
from official.instances import Instances
from official.partial import path_pair
from official.rebuilding import rebuilding_pair
from official.updates import supervised_pair

COMMIT = "9ec783e90a1631f7b95f84eb20f8f9751cb45c10"
CASES = (
    *(
        Case("sit", problem, size, "greedy", batch, points)
        for problem in ("tsp", "cvrp")
        for size, batch, points in ((100, 16, 6), (1000, 2, 5), (10_000, 1, 2))
    ),
    *(Case("sit", problem, 1000, "prc:2", 1) for problem in ("tsp", "cvrp")),
    Case("sit", "tsp", 100, "update", 256),  # the batch of the authors' training
)
SIZES = {
    "embedding_dim": 128, "sqrt_embedding_dim": 128**0.5, "encoder_layer_num": 6, "decoder_layer_num": 6, "qkv_dim": 16,
    "head_num": 8,
    "ff_hidden_dim": 512, "logit_clipping": 10, "mode": "test", "use_k_nearest": False, "k_nearest_num": 1000,
}  # fmt: skip


def pair(case: Case, checkout: Path) -> Pair:
    """Prepare both sides."""
    name = "TSP" if case.problem == "tsp" else "VRP"
    first_on_path([checkout / case.problem.upper() / "Test_All"])
    model = separated(getattr(__import__(f"{name}Model"), f"{name}Model")(**SIZES), 1.3)

    if case.decoding == "update":
        trained = module_of(checkout / "TSP/Train/TSPModel.py").TSPModel(**SIZES)
        trained.load_state_dict(model.state_dict())
        return supervised_pair(case, trained, loss_of(trained), clip=10.0)

    def decide(known: Any, some: Instances, visited: Tensor, remaining: Tensor | None) -> Tensor:
        count, nodes, _ = some.coords.shape
        step = visited.shape[1]
        if some.capacity is None or remaining is None:
            first, last = visited[:, 0], visited[:, -1]
            return model.decoder(known, some.coords, first, last, visited, step, count, nodes, mode="test")
        problems = problems_of(some, remaining)
        return model.decoder(known, problems, visited, step, float(some.capacity[0]), remaining)

    if case.decoding.startswith("prc"):
        return rebuilding_pair(case, model, decide)
    return path_pair(
        case, model, lambda partial: stepwise(model, decide, partial), lambda some: whole(model, decide, some)
    )


def loss_of(model: Any) -> Any:
    """Return the official loss of one decision: the last node of a piece is its destination, the first its origin."""

    def loss(coords: Tensor) -> Tensor:
        visited = torch.tensor([coords.shape[1] - 1, 0]).expand(len(coords), -1)
        ends = coords[:, [-1, 0]]
        probs = model.decoder(
            model.encoder(coords), coords, ends[:, :1], ends[:, 1:], visited, 2, *coords.shape[:2]
        )
        return -probs[:, 1].to(torch.float64).log().mean()

    return loss

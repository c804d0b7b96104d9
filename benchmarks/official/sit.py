"""SIT against github.com/CIAM-Group/SIL: greedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from official.checkouts import first_on_path
from official.ciam import problems_of, stepwise, whole
from official.engine import Case, Pair, separated
from official.instances import Instances
from official.partial import path_pair

COMMIT = "9ec783e90a1631f7b95f84eb20f8f9751cb45c10"
CASES = tuple(
    Case("sit", problem, size, "greedy", batch, points)
    for problem in ("tsp", "cvrp")
    for size, batch, points in ((100, 16, 6), (1000, 2, 5), (10_000, 1, 2))
)
SIZES = {
    "embedding_dim": 128, "sqrt_embedding_dim": 128**0.5, "encoder_layer_num": 6, "qkv_dim": 16, "head_num": 8,
    "ff_hidden_dim": 512, "logit_clipping": 10, "mode": "test", "use_k_nearest": False, "k_nearest_num": 1000,
}  # fmt: skip


def pair(case: Case, checkout: Path) -> Pair:
    """Prepare both sides."""
    name = "TSP" if case.problem == "tsp" else "VRP"
    first_on_path([checkout / case.problem.upper() / "Test_All"])
    model = separated(getattr(__import__(f"{name}Model"), f"{name}Model")(**SIZES), 1.3)

    def decide(known: Any, some: Instances, visited: Tensor, remaining: Tensor | None) -> Tensor:
        count, nodes, _ = some.coords.shape
        step = visited.shape[1]
        if some.capacity is None or remaining is None:
            first, last = visited[:, 0], visited[:, -1]
            return model.decoder(known, some.coords, first, last, visited, step, count, nodes, mode="test")
        problems = problems_of(some, remaining)
        return model.decoder(known, problems, visited, step, float(some.capacity[0]), remaining)

    return path_pair(
        case, model, lambda partial: stepwise(model, decide, partial), lambda some: whole(model, decide, some)
    )

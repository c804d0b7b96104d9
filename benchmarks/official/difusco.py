"""DIFUSCO against github.com/Edward-Sun/DIFUSCO: a denoising step on the complete graph, an update of training; merging a
heat map, with 2-opt; the tree search (`difusco_mcts`).

The official merge is compiled in its checkout: ``python setup.py build_ext --inplace`` in ``difusco/utils/cython_merge``.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nco_bench.nn.build import build_path_policy, load_official
from nco_bench.solvers.edges.difusco import DifuscoConfig, EdgeGraph
from nco_bench.solvers.edges.merge import edge_map, merge_greedily
from nco_bench.solvers.edges.two_opt import improve_best_first
from nco_bench.training.data import Batch
from nco_bench.training.learners.diffusion import COURSE, Diffusion
from nco_bench.training.trainer import Trainer
from official.checkouts import first_on_path
from official.difusco_mcts import searched
from official.engine import Case, Pair, Side, same_rows, separated
from official.instances import drawn
from official.stubs import without
from official.updates import CPU, close, loss_of

COMMIT = "65eb3b7bde76097c0d3438ce743fa6769baf9ce5"
CASES = (
    *(Case("difusco", "tsp", size, "denoise", 1) for size in (50, 100)),
    *(Case("difusco", "tsp", size, "merge+2opt", 1) for size in (100, 500, 1000)),
    *(Case("difusco", "tsp", size, "mcts", 1) for size in (500, 1000)),
    Case("difusco", "tsp", 50, "update", 4),
)
MOST_MOVES = 1000
"""Of 2-opt, as in the authors' scripts."""
NOISE = 2.0
"""Of the heat map: it blurs the tour that lengths alone would make, so that 2-opt has work."""


def pair(case: Case, checkout: Path) -> Pair:
    """Prepare both sides."""
    without("torch_sparse", SparseTensor=None, sum=None, mean=None, max=None)  # sparse graphs only
    first_on_path([checkout / "difusco"])
    if case.decoding == "merge+2opt":
        return merged(*blurred(case))
    if case.decoding == "mcts":
        return searched(*blurred(case), checkout)
    official = importlib.import_module("models.gnn_encoder").GNNEncoder(
        12, 256, out_channels=2, aggregation="sum"
    )
    for parameter in official.parameters():
        if not parameter.any():  # each layer's output begins at zero
            torch.nn.init.normal_(parameter, std=0.05)
    separated(official, 1.0)
    ours = build_path_policy("difusco", "tsp")
    load_official(ours, "difusco", {f"model.{key}": value for key, value in official.state_dict().items()})
    if case.decoding == "update":
        return Pair([update(case, official, "theirs")], update(case, ours, "ours"), close)
    coords = drawn("tsp", case.size, case.batch).coords
    state = (torch.rand(case.batch, case.size, case.size) > 0.5).float()
    time = torch.full((case.batch,), 500.0)
    graph = EdgeGraph(coords)

    def theirs() -> Tensor:
        with torch.inference_mode():
            return official(coords, time, state, None).permute(0, 2, 3, 1)

    def denoise() -> Tensor:
        with torch.inference_mode():
            return ours(graph, state, time)

    return Pair([theirs], denoise, same_edges)


def update(case: Case, network: nn.Module, side: str) -> Side:
    """Prepare an update with the numbers of the paper; both sides are given the same noise on the same tours."""
    recipe = COURSE.recipe("difusco", {"recipe": "paper", "batch": str(case.batch)})
    ordered = drawn("tsp", case.size, case.batch).coords  # in the order of a tour, as good as any here
    if side == "ours":
        learner: Any = Diffusion(network.train(), Same(ordered), recipe, 0, CPU)  # type: ignore[arg-type]
        trainer = Trainer(network, learner, recipe, Path("unused"), {})
        return loss_of(trainer)
    optimizer = torch.optim.AdamW(
        network.train().parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay
    )
    asked: dict[str, Tensor] = {}

    def noted(model: nn.Module, graph: EdgeGraph, state: Tensor, time: Tensor) -> Tensor:
        asked.update(state=state, time=time.float())
        return network(graph.coords, asked["time"], state, None).permute(0, 2, 3, 1)

    stand_in: Any = SimpleNamespace(config=DifuscoConfig(), recomputes=False)
    noise = Diffusion(stand_in, Same(ordered), recipe, 0, CPU)  # type: ignore[arg-type]

    def step() -> float:
        optimizer.zero_grad()
        with patch("nco_bench.training.learners.diffusion.denoised", noted):
            loss = noise.loss(0, 0.0).total
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


class Same:
    """A stream that returns the same instances forever."""

    def __init__(self, ordered: Tensor) -> None:
        self.batch = Batch(ordered.numpy(), True)

    def take(self, count: int) -> Batch:
        return self.batch


def blurred(case: Case) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return cities, ``(N, 2)``, and a heat map, ``(N, N)``."""
    coords = drawn("tsp", case.size, 1).coords[0].double().numpy()
    generator = np.random.default_rng(3)
    away = np.linalg.norm(coords[:, None] - coords, axis=2) * case.size**0.5
    return coords, np.exp(-away - NOISE * generator.random(away.shape))


def merged(coords: NDArray[np.float64], heat: NDArray[np.float64]) -> Pair:
    """Prepare both sides for one heat map: from scores to an improved tour."""
    official = importlib.import_module("utils.tsp_utils")

    def theirs() -> list[list[int]]:
        tours, _ = official.merge_tours(heat[None], coords, None)
        found, _ = official.batched_two_opt_torch(coords, np.array(tours), max_iterations=MOST_MOVES)
        return [row[:-1] for row in found.tolist()]

    def ours() -> list[list[int]]:
        tour, _ = improve_best_first(coords, merge_greedily(edge_map(coords, heat)).tour, MOST_MOVES)
        return [tour.tolist()]

    return Pair([theirs], ours, same_rows)


def same_edges(theirs: Tensor, ours: Tensor) -> float:
    """Return the share of edges on whose class both agree."""
    return float((theirs.argmax(3) == ours.argmax(3)).float().mean())

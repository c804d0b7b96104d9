"""DIFUSCO against github.com/Edward-Sun/DIFUSCO: one denoising step on the complete graph."""

from __future__ import annotations

import importlib
from pathlib import Path

import torch
from torch import Tensor

from nco_bench.nn.build import build_path_policy, load_official
from nco_bench.solvers.edges.difusco import EdgeGraph
from official.checkouts import first_on_path
from official.engine import Case, Pair, separated
from official.instances import drawn
from official.stubs import without

COMMIT = "65eb3b7bde76097c0d3438ce743fa6769baf9ce5"
CASES = (Case("difusco", "tsp", 50, "denoise", 1), Case("difusco", "tsp", 100, "denoise", 1))


def pair(case: Case, checkout: Path) -> Pair:
    """Prepare both sides."""
    without("torch_sparse", SparseTensor=None, sum=None, mean=None, max=None)  # sparse graphs only
    first_on_path([checkout / "difusco"])
    official = importlib.import_module("models.gnn_encoder").GNNEncoder(
        12, 256, out_channels=2, aggregation="sum"
    )
    for parameter in official.parameters():
        if not parameter.any():  # each layer's output begins at zero
            torch.nn.init.normal_(parameter, std=0.05)
    separated(official, 1.0)
    ours = build_path_policy("difusco", "tsp")
    load_official(ours, "difusco", {f"model.{key}": value for key, value in official.state_dict().items()})
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


def same_edges(theirs: Tensor, ours: Tensor) -> float:
    """Return the share of edges on whose class both agree."""
    return float((theirs.argmax(3) == ours.argmax(3)).float().mean())

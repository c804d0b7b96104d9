"""Checkpoints with random numbers that are laid out as the authors' trainers write them, at the published sizes.

Names and small shapes come from the parity fixtures, which the authors' code made; `GROWTH` says what each size of a fixture
is in the published model. A file also holds what trainers keep beside the weights: optimiser, schedule, logs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn


@dataclass(frozen=True)
class Growth:
    """From a fixture to the published model.

    Attributes
    ----------
    sizes
        Sizes of dimensions, fixture to published; others stay.
    layers
        Prefix of the names of a stack of layers, and its published depth.
    kept
        Names whose dimensions stay but for those in `sizes_there`, as a regular expression.
    sizes_there
        Sizes for the names that `kept` matches.
    """

    sizes: Mapping[int, int]
    layers: Mapping[str, int] = field(default_factory=dict)
    kept: str = "$^"
    sizes_there: Mapping[int, int] = field(default_factory=dict)


POMO = Growth({64: 128, 65: 129, 128: 512}, {"encoder.layers": 6})
LEHD = Growth({32: 128, 33: 129, 64: 512}, {"decoder.layers": 6})
INVIT = Growth(
    {32: 128, 64: 256, 96: 384, 128: 512, 160: 640, 192: 768},
    kept=r".*\.linear[12]_layers\.",
    sizes_there={32: 128, 64: 512},
)
STACKS = ("MHA_layers", "linear1_layers", "linear2_layers", "norm1_layers", "norm2_layers")
INVIT_2V = replace(INVIT, layers={f"action_encoder.encoder.{part}": 2 for part in STACKS})
AM = Growth({4: 8, 64: 128, 65: 129, 128: 256, 192: 384}, {"embedder.layers": 3})
DGL = Growth({48: 128, 96: 512})
BQ = Growth(
    {4: 12, 6: 16, 24: 192, 48: 512},
    {"encoder": 9},
    kept="input_emb|scores_projection",
    sizes_there={24: 192},
)
SIGD = Growth({24: 128, 48: 512, 72: 384}, {"graph_encoder": 9}, kept="node_embedding", sizes_there={24: 128})
SIGD_CVRP = Growth(
    {24: 192, 48: 512, 72: 576}, {"graph_encoder": 9}, kept="node_embedding", sizes_there={24: 192}
)

FIXTURES: dict[str, tuple[str, Growth]] = {
    "am-official-tsp100": ("am-tsp", AM),
    "am-official-cvrp100": ("am-cvrp", AM),
    "pomo-official-tsp100": ("pomo-tsp", POMO),
    "pomo-official-cvrp100": ("pomo-cvrp", POMO),
    "elg-official-tsp100": ("elg-tsp", POMO),
    "elg-official-cvrp100": ("elg-cvrp", POMO),
    "dgl-official-tsp100": ("dgl-tsp", DGL),
    "dgl-official-cvrp100": ("dgl-cvrp", DGL),
    "invit-2v-official-tsp100": ("invit-tsp-2v", INVIT_2V),
    "invit-2v-official-cvrp100": ("invit-cvrp-2v", INVIT_2V),
    "invit-3v-official-tsp100": ("invit-tsp", INVIT),
    "invit-3v-official-cvrp100": ("invit-cvrp", INVIT),
    "bq-official-tsp100": ("bq-tsp", BQ),
    "bq-official-cvrp100": ("bq-cvrp", BQ),
    "lehd-official-tsp100": ("lehd-tsp", LEHD),
    "lehd-official-cvrp100": ("lehd-cvrp", LEHD),
    "sigd-official-tsp100": ("sigd-tsp", SIGD),
    "sigd-official-cvrp100": ("sigd-cvrp", SIGD_CVRP),
}
"""Official weights to the parity fixture of their architecture, and how that grows. SIGD on LEHD has no fixture."""


def random_state(name: str, parity: Path) -> dict[str, Tensor]:
    """Return a state dict of the official names and the published shapes."""
    fixture, growth = FIXTURES[name]
    shapes: dict[str, list[int]] = {}
    with safe_open(parity / f"{fixture}.safetensors", "np") as content:
        for key in content.keys():  # noqa: SIM118 (no mapping)
            if key.startswith("state_dict."):
                own = key.removeprefix("state_dict.")
                sizes = growth.sizes_there if re.match(growth.kept, own) else growth.sizes
                shapes[own] = [sizes.get(n, n) for n in content.get_slice(key).get_shape()]
    for prefix, depth in growth.layers.items():
        first = {key: shape for key, shape in shapes.items() if key.startswith(f"{prefix}.0.")}
        for layer in range(1, depth):
            shapes |= {
                key.replace(f"{prefix}.0.", f"{prefix}.{layer}.", 1): shape for key, shape in first.items()
            }
    draw = torch.Generator().manual_seed(0)
    return {key: _numbers(key, shape, draw) for key, shape in shapes.items()}


def _numbers(key: str, shape: list[int], draw: torch.Generator) -> Tensor:
    if key.endswith("num_batches_tracked"):
        return torch.tensor(7)
    small = torch.randn(shape, generator=draw) / 16
    return 1 + small.abs() if key.endswith("running_var") else small


def checkpoint(name: str, state: dict[str, Tensor]) -> dict[str, Any]:
    """Return what the authors' trainer would hand to ``torch.save``."""
    network = nn.Linear(2, 2)
    optimiser = torch.optim.Adam(network.parameters())
    network(torch.ones(1, 2)).sum().backward()
    optimiser.step()
    kept = optimiser.state_dict()
    family = name.partition("-")[0]
    if family == "am":
        return {"model": state, "optimizer": kept, "rng_state": torch.get_rng_state(), "cuda_rng_state": []}
    if family == "invit":
        return {
            "epoch": 3,
            "time": 1.5,
            "tot_time": 4.5,
            "model_baseline": state,
            "model_train": state,
            "optimizer": kept,
        }
    if family == "bq":
        return {"net": state, "optimizer": kept, "current_iter": 5, "other": {"current_best": 0.01}}
    if family == "sigd":
        weights = {"model_weights": state, "best_model_weights": state}
        return {**weights, "optimizer_state": kept, "epochs_trained": 2, "validation_opt_gap": 0.5}
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, [2, 4])
    whole = {"epoch": 3, "model_state_dict": state, "optimizer_state_dict": kept}
    if family == "elg":
        return whole
    log = ({"train_score", "train_loss"}, {"train_score": [[1, 7.9], [2, 7.8]], "train_loss": [[1, -0.1]]})
    return {**whole, "scheduler_state_dict": schedule.state_dict(), "result_log": log}

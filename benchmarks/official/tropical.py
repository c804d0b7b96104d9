"""Networks for algorithmic tasks against github.com/Baran-phys/Tropical-Attention: answers, and an update."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import mse_loss

from nco_bench.parity.tropical import official_to_ours
from nco_bench.solvers.sequences.task_networks import build_task_network
from official.checkouts import first_on_path
from official.engine import Case, Pair, Side
from official.stubs import without
from official.updates import close

COMMIT = "e3c12f3e7c401245b9b5577d7181922b0150efc6"
CASES = (
    *(Case(model, "tasks", length, "forward", batch)
      for model in ("tropical", "vanilla", "adaptive") for length, batch in ((8, 512), (64, 64), (512, 1))),
    *(Case(model, "tasks", 8, "update", 512) for model in ("tropical", "vanilla", "adaptive")),
    Case("tropical", "tasks", 64, "update", 16),
)  # fmt: skip


def pair(case: Case, checkout: Path) -> Pair:
    """Prepare both sides."""
    without("schedulefree")
    first_on_path([checkout])
    attention = importlib.import_module("TropicalAttention").TropicalAttention(64, 2, "cpu")
    tropical = case.model == "tropical"
    official = importlib.import_module("models").SimpleTransformerModel(
        1, 64, 2, 1, tropical=tropical, tropical_attention_cls=attention if tropical else None,
        aggregator="adaptive" if case.model == "adaptive" else "softmax",
    )  # fmt: skip
    ours = build_task_network(case.model, 1, pooled=False)
    ours.load_state_dict(official_to_ours(official.state_dict()))
    x = torch.rand(case.batch, case.size, 1) * 10
    if case.decoding == "update":
        return Pair([update(official.train(), x)], update(ours.train(), x, fused=True), close)
    return Pair([forward(official.eval(), x)], forward(ours.eval(), x), same_values)


def forward(network: Any, x: Tensor) -> Side:
    def run() -> Tensor:
        with torch.inference_mode():
            return network(x).reshape(len(x), -1)

    return run


def update(network: Any, x: Tensor, *, fused: bool = False) -> Side:
    """One step of Adam on both sides, each side's as it trains: ours in PyTorch's one kernel for all parameters."""
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, fused=fused)
    goal = x.squeeze(2).sort(dim=1).values

    def run() -> float:
        optimizer.zero_grad()
        loss = mse_loss(network(x).reshape(goal.shape), goal)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return run


def same_values(theirs: Tensor, ours: Tensor) -> float:
    """Return the share of outputs that agree to 1e-4."""
    return float(torch.isclose(theirs, ours, rtol=1e-4, atol=1e-4).float().mean())

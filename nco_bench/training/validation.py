"""The greedy gap on labelled instances that training never sees: what a run is judged by while it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nco_bench.decoding.construct import greedy
from nco_bench.decoding.problem import tour_lengths, tsp_problem


@dataclass(frozen=True)
class Gap:
    """Mean of per-instance gaps in percent.

    Attributes
    ----------
    percent, ci95
        Mean, and half width of its 95 % interval (normal approximation).
    instances
        How many.
    """

    percent: float
    ci95: float
    instances: int


def greedy_gap(policy: Any, ordered: NDArray[np.floating]) -> Gap:
    """Solve instances greedily from node 0 and compare with their labels.

    Parameters
    ----------
    policy
        A path policy for the TSP in evaluation mode.
    ordered
        ``(B, N, 2)`` coordinates in the order of the label tour. A policy is equivariant to the order of nodes, so only the
        choice of the start node depends on it, and that is no information about the tour.
    """
    device = next(policy.parameters()).device
    coords = torch.from_numpy(np.ascontiguousarray(ordered, dtype=np.float32)).to(device)
    order = greedy(policy, tsp_problem(coords)).order
    tours = torch.cat([torch.zeros_like(order[:, :1]), order], dim=1)
    labels = torch.arange(coords.shape[1], device=device).expand(len(coords), -1)
    gaps = (tour_lengths(coords, tours) / tour_lengths(coords, labels) - 1).cpu().numpy() * 100
    spread = float(gaps.std(ddof=1)) if len(gaps) > 1 else 0.0
    return Gap(float(gaps.mean()), 1.96 * spread / len(gaps) ** 0.5, len(gaps))


def gap_of_weights(policy: nn.Module, weights: Mapping[str, Tensor], ordered: NDArray[np.floating]) -> Gap:
    """Return the greedy gap of the policy with other weights (the moving average), and put its own back."""
    own = {name: value.detach().clone() for name, value in policy.state_dict().items()}
    policy.load_state_dict(dict(weights))
    try:
        return greedy_gap(policy, ordered)
    finally:
        policy.load_state_dict(own)

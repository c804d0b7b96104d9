"""The greedy gap on labelled instances that training never sees: what a run is judged by while it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nco_bench.solvers.path.construct import greedy
from nco_bench.solvers.path.problem import cvrp_problem, route_lengths, tour_lengths, tsp_problem
from nco_bench.training.learner import Measure
from nco_bench.training.shards import unpack_routes

Gap = Measure
"""A `Measure` that is a gap."""


def greedy_gap(policy: Any, ordered: NDArray[np.floating]) -> Measure:
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
    return _measure(gaps)


def greedy_cvrp_gap(policy: Any, packed: NDArray[np.floating]) -> Measure:
    """Solve CVRP instances greedily and compare with their labels.

    Parameters
    ----------
    policy
        A path policy for the CVRP in evaluation mode.
    packed
        ``(B, V + 1, 5)`` in the order of the label, see `data.pack_routes`.
    """
    device = next(policy.parameters()).device
    table = torch.from_numpy(np.ascontiguousarray(packed, dtype=np.float32)).to(device)
    coords, demand, capacity, via = unpack_routes(table)
    path = greedy(policy, cvrp_problem(coords, demand, capacity))
    label = torch.arange(1, coords.shape[1], device=device).expand(len(coords), -1)
    found, wanted = route_lengths(coords, path.order, path.flags), route_lengths(coords, label, via)
    return _measure((found / wanted - 1).cpu().numpy() * 100)


def _measure(gaps: NDArray[np.floating]) -> Measure:
    spread = float(gaps.std(ddof=1)) if len(gaps) > 1 else 0.0
    return Measure(float(gaps.mean()), 1.96 * spread / len(gaps) ** 0.5, len(gaps))


def gap_of_weights(
    policy: nn.Module, weights: Mapping[str, Tensor], instances: NDArray[np.floating], problem: str = "tsp"
) -> Measure:
    """Return the greedy gap of the policy with other weights (the moving average), and put its own back."""
    own = {name: value.detach().clone() for name, value in policy.state_dict().items()}
    policy.load_state_dict(dict(weights))
    try:
        return (greedy_cvrp_gap if problem == "cvrp" else greedy_gap)(policy, instances)
    finally:
        policy.load_state_dict(own)

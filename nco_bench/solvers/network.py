"""What solvers around a network have in common: what they refuse, their weights, and how instances are given to them.

Instances are given to a network in the unit square: coordinates that already lie there stay as they are, others
are shifted to the origin and divided by the longer side of their bounding box, one scale for both axes, so
that shapes are kept. Tours are scored on the raw coordinates, by the referee, like everybody's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nco_bench.datasets.dataset import Dataset
from nco_bench.problems import Instance
from nco_bench.weights.store import WeightsFile, load_into

RANDOM_WEIGHTS = "random"
RANDOM_SEED = 1234
"""Of untrained networks, which are the same everywhere."""

Network = TypeVar("Network", bound=nn.Module)


def unsuited(dataset: Dataset, *, fractional: bool = False) -> str | None:
    """Return why a routing network cannot take a dataset, or None: a matrix, a route length limit, fractional demands.

    Parameters
    ----------
    dataset
        Instances of the TSP or CVRP.
    fractional
        Whether the network takes demands that are no whole numbers.
    """
    for instance in dataset.instances:
        arrays = instance.arrays()
        if instance.convention == "explicit":
            return f"needs coordinates, {instance.name} is given by a distance matrix"
        if "max_route_length" in arrays:
            return f"does not know route length limits, {instance.name} has one"
        if not fractional and "demand" in arrays and (arrays["demand"] % 1 != 0).any():
            return f"keeps loads as whole numbers, {instance.name} has fractional demands"
    return None


def facts_of(weights: WeightsFile | None) -> dict[str, Any]:
    """Return what a record says about the weights; None means an untrained network."""
    return {"name": RANDOM_WEIGHTS, "sha256": RANDOM_WEIGHTS} if weights is None else weights.facts()


def built(build: Callable[[], Network], weights: WeightsFile | None) -> Network:
    """Build a network from a fixed seed and load its weights; None leaves it untrained.

    The global generator is left as it was.

    Raises
    ------
    BadWeightsError
        When the weights do not fit.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(RANDOM_SEED)
        network = build()
    if weights is not None:
        load_into(network, weights)
    return network


def to_unit_square(coords: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shift and scale coordinates into the unit square, one scale for both axes.

    Parameters
    ----------
    coords
        ``(N, 2)`` raw coordinates.

    Returns
    -------
    NDArray
        ``(N, 2)``; the same array where it already lies in the unit square; zeros where all points are equal.
    """
    low, high = coords.min(axis=0), coords.max(axis=0)
    if low.min() >= 0.0 and high.max() <= 1.0:
        return coords
    side = float((high - low).max())
    return (coords - low) / (side if side > 0 else 1.0)


def to_tensors(
    batch: Sequence[Instance], scaled: Callable[[NDArray[np.float64]], NDArray[np.float64]] = to_unit_square
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return coordinates ``(B, N, 2)``, and demands ``(B, N)`` and capacities ``(B,)`` for the CVRP, its depot first.

    Parameters
    ----------
    batch
        Instances of one size.
    scaled
        How coordinates ``(N, 2)`` of an instance come into the unit square.
    """
    arrays = [instance.arrays() for instance in batch]
    if batch[0].problem == "tsp":
        return torch.from_numpy(np.stack([scaled(a["coords"]) for a in arrays])), None, None
    nodes = [np.concatenate([a["depot"].reshape(1, 2), a["customers"]]) for a in arrays]
    demand = np.stack([np.concatenate([[0], a["demand"]]) for a in arrays])
    capacity = np.array([float(a["capacity"]) for a in arrays])
    coords = np.stack([scaled(n) for n in nodes])
    return torch.from_numpy(coords), torch.from_numpy(demand), torch.from_numpy(capacity)

"""A batch of instances before any policy sees it: checked, and with ``x8`` in eight versions, the best of which counts."""

from __future__ import annotations

import torch
from torch import Tensor

from nco_bench.errors import BadInputError


def check_instances(
    problem: str,
    coords: Tensor,
    demand: Tensor | None,
    capacity: Tensor | None,
    *,
    whole_numbers: bool = False,
    depot_optional: bool = False,
) -> None:
    """Check what a batch of instances is made of.

    Parameters
    ----------
    problem
        What the policy solves, ``tsp`` or ``cvrp``.
    coords, demand, capacity
        ``(B, N, 2)``; for the CVRP ``(B, N)`` with the depot first, and ``(B,)``.
    whole_numbers
        Whether loads are counted in whole numbers, so that fractions are refused, and a demand above the capacity.
    depot_optional
        Whether demands may leave the depot out, ``(B, N - 1)``.

    Raises
    ------
    BadInputError
        For shapes that do not fit, values that are not finite, demands missing or too many.
    """
    if coords.dim() != 3 or coords.shape[2] != 2 or coords.shape[1] < 2:
        raise BadInputError(f"coords have shape {tuple(coords.shape)}, expected (B, N, 2) with N >= 2.")
    if not bool(coords.isfinite().all()):
        raise BadInputError("coords hold a value that is not finite.")
    if problem == "tsp":
        if demand is not None or capacity is not None:
            raise BadInputError("this policy solves the TSP, but demands or capacities were given.")
        return
    if demand is None or capacity is None:
        raise BadInputError(f"this policy solves the {problem.upper()}: demands and capacities are needed.")
    batch, count = coords.shape[:2]
    widths = (count, count - 1) if depot_optional else (count,)
    if demand.shape not in [(batch, width) for width in widths] or capacity.shape != (batch,):
        raise BadInputError(
            f"demand {tuple(demand.shape)} and capacity {tuple(capacity.shape)} do not fit {count - 1} customers"
            f" of {batch} instances."
        )
    if whole_numbers:
        _check_whole(demand, capacity)


def _check_whole(demand: Tensor, capacity: Tensor) -> None:
    for name, values in (("demand", demand), ("capacity", capacity)):
        if values.is_floating_point() and bool((values != values.round()).any()):
            raise BadInputError(
                f"{name} holds a fraction; loads are counted in whole numbers, so scale it up."
            )
    if bool((demand > capacity[:, None]).any()):
        raise BadInputError(
            "a customer's demand exceeds the vehicle's capacity; the instance has no solution."
        )


SYMMETRIES = 8


def symmetries(coords: Tensor) -> Tensor:
    """Apply all eight symmetries of the unit square (POMO, Table 1).

    Parameters
    ----------
    coords
        ``(B, N, 2)``.

    Returns
    -------
    Tensor
        ``(8 B, N, 2)``: eight versions of the first instance (the first unchanged), then of the second, ...
    """
    x, y = coords.unbind(-1)
    pairs = [(x, y), (y, x), (x, 1 - y), (y, 1 - x), (1 - x, y), (1 - y, x), (1 - x, 1 - y), (1 - y, 1 - x)]
    return torch.stack([torch.stack(pair, dim=-1) for pair in pairs], dim=1).flatten(0, 1)


def best_of(lengths: Tensor, solutions: Tensor, copies: int) -> Tensor:
    """Keep the shortest of `copies` solutions per instance (the first among equals).

    Parameters
    ----------
    lengths
        ``(B copies,)``, instance by instance.
    solutions
        ``(B copies, ...)``.

    Returns
    -------
    Tensor
        ``(B, ...)``.
    """
    best = lengths.view(-1, copies).argmin(1)
    return solutions[best + torch.arange(len(best), device=best.device) * copies]

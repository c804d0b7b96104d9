"""What a batch of instances must be, before any policy sees it."""

from __future__ import annotations

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

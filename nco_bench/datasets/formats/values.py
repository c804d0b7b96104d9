"""Numbers and points as files hold them, checked: what is not finite, whole or of the right shape is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.errors import BadInputError


def points(value: Any, where: str) -> NDArray[np.float64]:
    """Turn nested lists or an array into ``(N, 2)`` float64; raises `BadInputError` for anything else.

    Flat iteration instead of ``np.asarray``, so that a hostile nesting cannot blow up.
    """
    problem_text = f"{where}: expected a list of [x, y] pairs of finite numbers."
    if isinstance(value, np.ndarray):
        if value.ndim == 3 and value.shape[0] == 1:
            value = value[0]
        if value.ndim != 2 or value.shape[1] != 2 or value.dtype.kind not in "iuf":
            raise BadInputError(problem_text)
        coords = np.array(value, dtype=np.float64)
    else:
        if not isinstance(value, (list, tuple)) or not all(
            isinstance(row, (list, tuple, np.ndarray)) and len(row) == 2 for row in value
        ):
            raise BadInputError(problem_text)
        try:
            coords = np.fromiter((x for row in value for x in row), dtype=np.float64, count=2 * len(value))
        except (TypeError, ValueError):
            raise BadInputError(problem_text) from None
        coords = coords.reshape(-1, 2)
    if not np.isfinite(coords).all():
        raise BadInputError(problem_text)
    return coords


def numbers(value: Any, where: str) -> NDArray[Any]:
    """Turn a flat list or array of numbers into int64 where all are whole numbers, else float64."""
    try:
        flat: NDArray[np.float64] | None
        if isinstance(value, np.ndarray) and value.dtype.kind in "iu":
            return value.reshape(-1).astype(np.int64)
        if isinstance(value, np.ndarray):
            flat = np.array(value.reshape(-1), dtype=np.float64)
        elif isinstance(value, (list, tuple)):
            flat = np.fromiter(value, dtype=np.float64, count=len(value))
        else:
            flat = np.asarray([value], dtype=np.float64) if isinstance(value, (int, float)) else None
    except (TypeError, ValueError, OverflowError):
        flat = None
    if flat is None or not np.isfinite(flat).all():
        raise BadInputError(f"{where}: expected a list of finite numbers.")
    return integers_if_whole(flat)


def integers_if_whole(values: NDArray[np.float64]) -> NDArray[Any]:
    """Return int64 where every value is a whole number, else float64, so that integer sources stay integers."""
    if np.all(values == np.floor(values)) and np.all(np.abs(values) < 2**53):
        return values.astype(np.int64)
    return values


def whole_numbers(value: Any, where: str) -> NDArray[np.int64]:
    """Turn a flat list or array into int64; raises `BadInputError` for anything but whole numbers."""
    flat = numbers(value, where)
    if flat.dtype != np.int64:
        raise BadInputError(f"{where}: expected whole numbers.")
    return flat


def one_number(value: Any, where: str) -> float | int:
    """Return a single finite number, an int where it is whole."""
    flat = numbers(value, where)
    if flat.size != 1:
        raise BadInputError(f"{where}: expected one number.")
    return flat[0].item()

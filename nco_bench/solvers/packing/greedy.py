"""Greedy packing as solvers: boxes in an order (by volume), one placement rule, and the best of several orders.

``tries=1`` takes the boxes by the chosen order, largest first. Further tries multiply each box's size by a random
factor, exp(noise x normal), drawn from the seed, and sort again; the highest load rate counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.problems.bpp3d import ORIENTATIONS, BPP3DInstance
from nco_bench.solvers.classical.native import ChildSolver
from nco_bench.solvers.packing.extreme_points import pack_at_extreme_points
from nco_bench.solvers.packing.height_map import pack_deepest_bottom_left
from nco_bench.solvers.protocol import SolverOptions

Int = NDArray[np.int64]
Rule = Callable[[Int, Int, Int], Int]

ORDERS = ("volume", "face", "side", "random")
"""Largest volume, largest face or longest side first; or a random order."""

PARAMS: dict[str, tuple[type, Any]] = {"tries": (int, 1), "order": (str, "volume"), "noise": (float, 0.3)}


class _GreedyPacking(ChildSolver):
    """What both rules share; a subclass names itself and its rule."""

    PARAMS: ClassVar[dict[str, tuple[type, Any]]] = PARAMS
    GRACE = (1.0, 30.0)  # the clock is looked at between tries

    def __init__(self, options: SolverOptions) -> None:
        super().__init__(options)
        if self.params["order"] not in ORDERS:
            raise UnknownNameError(f"order of {self.NAME}", self.params["order"], ORDERS)
        if self.params["tries"] < 1 or self.params["noise"] < 0:
            raise BadInputError(f"{self.NAME}: expected tries of 1 or more and noise of 0 or more.")


class ExtremePoint(_GreedyPacking):
    """First fit at extreme points."""

    NAME = "extreme-point"
    SOLVE = "nco_bench.solvers.packing.greedy:solve_extreme_point"


class DeepestBottomLeft(_GreedyPacking):
    """Lowering boxes to the deepest place."""

    NAME = "deepest-bottom-left"
    SOLVE = "nco_bench.solvers.packing.greedy:solve_deepest_bottom_left"


def solve_extreme_point(
    instance: BPP3DInstance, seed: int, time_limit: float | None, params: dict[str, Any]
) -> NDArray[np.int32]:
    """Pack one instance; runs in the child."""
    return best_of(pack_at_extreme_points, instance, seed, time_limit, params)


def solve_deepest_bottom_left(
    instance: BPP3DInstance, seed: int, time_limit: float | None, params: dict[str, Any]
) -> NDArray[np.int32]:
    """Pack one instance; runs in the child."""
    return best_of(pack_deepest_bottom_left, instance, seed, time_limit, params)


def best_of(
    rule: Rule, instance: BPP3DInstance, seed: int, time_limit: float | None, params: dict[str, Any]
) -> NDArray[np.int32]:
    """Return the lowest packing of several orders; the first order that reaches a height wins."""
    began, rng = time.monotonic(), np.random.default_rng(seed)
    best, lowest = None, np.inf
    for attempt in range(params["tries"]):
        if attempt and time_limit is not None and time.monotonic() - began > time_limit:
            break
        rows = rule(instance.boxes, instance.base, _order(instance.boxes, attempt, rng, params))
        height = _height(instance.boxes, rows)
        if height < lowest:
            best, lowest = rows, height
    assert best is not None
    return best.astype(np.int32).ravel()


def _order(boxes: Int, attempt: int, rng: np.random.Generator, params: dict[str, Any]) -> Int:
    """Return a permutation of the boxes."""
    if params["order"] == "random":
        return rng.permutation(len(boxes))
    ordered = np.sort(boxes, axis=1).astype(np.float64)
    columns = {"volume": (0, 1, 2), "face": (1, 2), "side": (2,)}[params["order"]]
    size = ordered[:, columns].prod(1)
    if attempt:
        size = size * np.exp(params["noise"] * rng.standard_normal(len(boxes)))
    # Equal sizes: the longer box first, then by number.
    return np.lexsort((-ordered[:, 2], -size))


def _height(boxes: Int, rows: Int) -> int:
    up = np.array(ORIENTATIONS)[rows[:, 3], 2]
    return int((rows[:, 2] + boxes[np.arange(len(boxes)), up]).max())

"""Fitting the coordinate scale of a model: ``nco-bench calibrate`` (PENS, section 5 and Figure 3).

Per size: solve held-out uniform instances with a grid of factors, fit a parabola to the mean tour length, take its vertex.
The vertex counts if the parabola is convex and the vertex lies inside the grid; else the best grid point does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from nco_bench.datasets.generate import generate
from nco_bench.errors import BadInputError
from nco_bench.problems import problem as problem_module
from nco_bench.runs.solving import solve_batch
from nco_bench.solvers.base import Failure, Solved, SolverOptions
from nco_bench.solvers.registry import choose, create
from nco_bench.weights.calibration import Calibrated

GRID = (*(round(0.8 + 0.1 * k, 1) for k in range(13)), 2.25, 2.5, 2.75, 3.0)
HELD_OUT_SEED = 4321
"""Kool et al.'s validation seed, so that no test set is touched."""


def calibrate(
    model: str,
    sizes: Sequence[int],
    *,
    weights: str | None = None,
    device: str = "cpu",
    instances: int = 32,
    grid: Sequence[float] = GRID,
    say: Callable[[str], None] = lambda _: None,
) -> list[Calibrated]:
    """Find the best coordinate scale of a model for each size.

    Parameters
    ----------
    model, weights, device
        As for ``nco-bench run``; decoding is greedy.
    sizes
        Numbers of nodes, at least 2 each.
    instances
        Held-out instances per size; 4 suffice at 10,000 nodes.
    grid
        Factors to try, rising.
    say
        Called with one line per size.

    Raises
    ------
    BadInputError
        When the grid has fewer than three factors, or an instance cannot be solved.
    """
    if len(grid) < 3:
        raise BadInputError("calibrate: a parabola needs at least three factors in the grid.")
    found = []
    for n in sizes:
        lengths = [_mean_length(model, n, factor, weights, device, instances) for factor in grid]
        factor, fitted = vertex(grid, lengths)
        say(
            f"{model} at n = {n}: factor {factor:.3f}"
            + ("" if fitted else " (best of the grid; no usable parabola)")
        )
        found.append(Calibrated(n, factor, fitted, tuple(grid), tuple(lengths), instances, HELD_OUT_SEED))
    return found


def vertex(grid: Sequence[float], lengths: Sequence[float]) -> tuple[float, bool]:
    """Return the vertex of the fitted parabola and True, or the best grid point and False where it is no minimum inside."""
    a, b, _ = np.polyfit(grid, lengths, 2)
    if a > 0 and min(grid) <= -b / (2 * a) <= max(grid):
        return float(-b / (2 * a)), True
    return float(grid[int(np.argmin(lengths))]), False


def _mean_length(model: str, n: int, factor: float, weights: str | None, device: str, count: int) -> float:
    dataset = generate("tsp", n, count, "uniform", HELD_OUT_SEED)
    options = SolverOptions(decoding="greedy", weights=weights, coordinate_scale=str(factor), device=device)
    solver = create(choose(model, options))
    solver.prepare(dataset)
    score = problem_module("tsp").score
    lengths = []
    try:
        size = solver.batch_size(dataset)
        for start in range(0, count, size):
            batch = dataset.instances[start : start + size]
            solved = solve_batch(
                solver,
                batch,
                seed=HELD_OUT_SEED + start,
                time_limit=None,
                device=device,
                progress=lambda _: None,
            )
            for instance, outcome in zip(batch, solved.outcomes, strict=True):
                if isinstance(outcome, Failure):
                    raise BadInputError(f"calibrate {model} at n = {n}: {outcome.status}: {outcome.message}")
                lengths.append(score(instance, outcome.solution if isinstance(outcome, Solved) else outcome))
    finally:
        solver.close()
    return float(np.mean(lengths))

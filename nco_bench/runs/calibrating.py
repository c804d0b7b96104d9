"""Fitting the coordinate scale of a model: ``nco-bench calibrate`` (PENS, Section 4.2 and Figure 3).

The paper solves held-out random instances over a range of factors, fits a quadratic curve to the mean tour lengths and takes
its minimum, and prints it to 0.01. Far from the minimum the curve is no parabola (tours soon become random), so here the
fit is to the factors around the best one, and its vertex counts only if tours with it, on the same instances, are not longer
than with the best factor that was tried.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from nco_bench.cards import card, network_card, networks
from nco_bench.cards import find as find_card
from nco_bench.datasets.generate import generate
from nco_bench.errors import BadInputError
from nco_bench.problems import problem as problem_module
from nco_bench.progress import opened, tracked
from nco_bench.runs.solving import solve_batch
from nco_bench.solvers.protocol import Failure, Solved, SolverOptions
from nco_bench.solvers.registry import choose, create
from nco_bench.weights.calibration import Calibrated
from nco_bench.weights.choice import find
from nco_bench.weights.manifest import Manifest, names_seed

COARSE, FINE = 0.2, 0.05
"""Steps of the search where no grid is given: around 1, on to where lengths rise again, then finer around the best."""
LEAST, MOST = 0.2, 6.0
FEWEST = 11
"""Factors that a search tries where 1 is the best coarse one; how many more is not known before."""
WINDOW = 0.2
"""The parabola is fitted to factors within this share of the best, and at least to its two neighbours on either side."""
DIGITS = 2
"""Of a vertex, as in the paper's Table 1."""
HELD_OUT_SEED = 5678
"""Neither Kool et al.'s test set (1234) nor their validation set (4321), which the shipped weights were measured on."""

Measure = Callable[[float], float]
"""Mean tour length with a factor."""


class Found(NamedTuple):
    """A factor, the mean length with it, whether it is a vertex, the window of the fit, and all factors tried."""

    factor: float
    length: float
    fitted: bool
    window: tuple[float, float]
    tried: dict[float, float]


def calibrate(
    model: str,
    sizes: Sequence[int],
    *,
    weights: str | None = None,
    device: str = "cpu",
    instances: int = 32,
    grid: Sequence[float] | None = None,
    seed: int = HELD_OUT_SEED,
    say: Callable[[str], None] = lambda _: None,
    keep: Callable[[Calibrated], object] = lambda _: None,
) -> list[Calibrated]:
    """Find the best coordinate scale of a model for each size.

    Parameters
    ----------
    model, weights, device
        As for ``nco-bench run``; decoding is greedy.
    sizes
        Numbers of nodes, at least 2 each.
    instances
        Held-out uniform instances per size; 4 suffice at 10,000 nodes.
    grid
        Factors to try, rising; None searches in steps of `COARSE` and then `FINE`.
    seed
        Of the instances.
    say
        Called with one line per size.
    keep
        Called with each size as soon as it is found.

    Raises
    ------
    BadInputError
        When the grid has fewer than three factors, the weights were trained on the instances, or one cannot be solved.
    BadWeightsError
        When the weights are missing.
    """
    if grid is not None and len(grid) < 3:
        raise BadInputError("calibrate: a parabola needs at least three factors in the grid.")
    refuse_unscaled(model)
    _refuse_trained_on(find(weights or model, model, "tsp").manifest, sizes, seed)
    found = []
    for n in tracked(sizes, "size", [float(n) ** 2 for n in sizes]):
        lengths = _MeanLength(model, n, weights, device, instances, seed)
        best = search(lengths, grid)
        gain, width = lengths.shorter_percent(best.factor)
        found.append(
            Calibrated(
                n, best.factor, best.length, best.fitted, best.window,
                tuple(sorted(best.tried)), tuple(best.tried[f] for f in sorted(best.tried)), instances, seed,
                gain, width,
            )
        )  # fmt: skip
        say(f"{model} at n = {n}: factor {best.factor:.2f}, {_told(best)}; {_gained(found[-1])}")
        keep(found[-1])
    return found


def refuse_unscaled(model: str) -> None:
    """Refuse what has no coordinates to scale, naming what has: the path models for the TSP.

    Raises
    ------
    BadInputError, UnknownNameError
        For another model or solver, and for a name that nothing answers to.
    """
    able = {name for name, known in networks().items() if known.family == "path" and "tsp" in known.problems}
    known = card(model) if find_card(model) else network_card(model)
    if known.model in able:
        return
    short = dict.fromkeys(re.sub(r"\d+x\d+$", "*", name) for name in sorted(able))
    what = "a model" if known.network else "a solver"
    raise BadInputError(
        f"calibrate {model}: {what} without coordinates to scale; those that can be calibrated: {', '.join(short)}."
    )


def _refuse_trained_on(manifest: Manifest, sizes: Sequence[int], seed: int) -> None:
    data = manifest.data
    if data.size in sizes and data.distribution == "uniform" and any(names_seed(s, seed) for s in data.seeds):
        raise BadInputError(
            f"--seed {seed}: {manifest.name} was trained on instances of {data.size} nodes from it; choose another."
        )


def search(measure: Measure, grid: Sequence[float] | None = None) -> Found:
    """Try the factors of a grid, or search for the best one, and fit the minimum around it.

    The result is never worse, on what `measure` sees, than the best factor that was tried.
    """
    tried = {f: measure(f) for f in tracked(grid, "factor")} if grid is not None else _walk(measure)
    best = min(tried, key=lambda f: tried[f])
    window = around(sorted(tried), best)
    at = vertex(window, [tried[f] for f in window])
    ends = (window[0], window[-1])
    if at is None:
        return Found(best, tried[best], False, ends, tried)
    length = tried[at] if at in tried else measure(at)
    if length > tried[best]:
        return Found(best, tried[best], False, ends, tried)
    return Found(at, length, True, ends, tried)


def _walk(measure: Measure) -> dict[float, float]:
    """Go on from 1 by `COARSE` until two factors on either side of the best are worse, then by `FINE` around it."""
    tried: dict[float, float] = {}

    def best_after(*factors: float) -> float:
        for factor in factors:
            if factor not in tried and LEAST <= factor <= MOST:
                tried[factor] = measure(factor)
                level.within.clear()
                level.reach(min(len(tried), FEWEST))
        return min(tried, key=lambda f: tried[f])

    def steps(centre: float, step: float, reach: int) -> list[float]:
        return [round(centre + k * step, 6) for k in range(-reach, reach + 1)]

    with opened("factor", FEWEST) as level:
        best, before = best_after(*steps(1.0, COARSE, 2)), 1.0
        while best != before:
            best, before = best_after(*steps(best, COARSE, 2)), best
        best_after(*steps(best, FINE, round(COARSE / FINE)))
    return tried


def around(factors: Sequence[float], best: float) -> list[float]:
    """Return the factors within `WINDOW` of the best, at least two on either side where there are any.

    Parameters
    ----------
    factors
        Rising.
    """
    at = factors.index(best)
    return [f for i, f in enumerate(factors) if abs(f - best) <= WINDOW * best + 1e-9 or abs(i - at) <= 2]


def vertex(factors: Sequence[float], lengths: Sequence[float]) -> float | None:
    """Return the minimum of the parabola fitted to lengths, to `DIGITS` digits; None where it has none between the ends."""
    if len(factors) < 3:
        return None
    a, b, _ = np.polyfit(factors, lengths, 2)
    if a <= 0 or not factors[0] < -b / (2 * a) < factors[-1]:
        return None
    return round(float(-b / (2 * a)), DIGITS)


def _told(best: Found) -> str:
    if best.fitted:
        return "vertex of the parabola"
    tried = sorted(best.tried)
    if best.factor in (tried[0], tried[-1]):
        return "at the end of the grid: widen it with --grid"
    return "best of the grid; no vertex was better"


def _gained(found: Calibrated) -> str:
    """Say by how much tours are shorter than with unscaled coordinates, and whether that is more than chance."""
    if found.factor == 1.0:
        return "no other gave shorter tours"
    width, count = found.gain_ci95_percent, found.instances
    within = "" if width is None else f" ± {width:.2f}"
    over = "one instance" if count == 1 else f"95 % interval, {count} instances"
    unsure = "" if found.differs_from_1 else "; not told apart from 1: take more --instances"
    gain = found.gain_percent or 0.0
    way = "longer" if gain < 0 else "shorter"  # than with 1, which the grid may lack
    return f"tours {abs(gain):.2f}{within} % {way} than with 1 ({over}){unsure}"


class _MeanLength:
    """Mean tour length of a model with a factor, on the same instances each time."""

    def __init__(self, model: str, n: int, weights: str | None, device: str, count: int, seed: int) -> None:
        self.model, self.weights, self.device, self.seed = model, weights, device, seed
        self.dataset = generate("tsp", n, count, "uniform", seed)
        self.each: dict[float, NDArray[np.float64]] = {}

    def __call__(self, factor: float) -> float:
        self.each[factor] = np.array(self._all_lengths(factor))
        return float(self.each[factor].mean())

    def shorter_percent(self, factor: float) -> tuple[float, float | None]:
        """Return by how much the mean tour is shorter than with factor 1, in percent, and its 95 % interval's half width.

        Of mean lengths, since the factor was chosen by them. Instances are paired, the ratio's spread is linearised, and the
        interval is Student's, since they may be few. It is None for a single one.
        """
        if 1.0 not in self.each:
            self(1.0)
        scaled, plain = self.each[factor], self.each[1.0]
        ratio, count = scaled.mean() / plain.mean(), len(plain)
        gain = round(100 * (1 - float(ratio)), 4)
        if count == 1:
            return gain, None
        spread = 100 * (scaled - ratio * plain).std(ddof=1) / plain.mean()
        width = stdtrit(count - 1, 0.975) * spread / math.sqrt(count)
        return gain, round(float(width), 4)

    def _all_lengths(self, factor: float) -> list[float]:
        options = SolverOptions(
            decoding="greedy", weights=self.weights, coordinate_scale=str(factor), device=self.device
        )
        solver = create(choose(self.model, options))
        solver.prepare(self.dataset)
        try:
            size = solver.batch_size(self.dataset)
            starts = range(0, len(self.dataset), size)
            return [length for start in starts for length in self._lengths(solver, start, size)]
        finally:
            solver.close()

    def _lengths(self, solver: Any, start: int, size: int) -> list[float]:
        batch = self.dataset.instances[start : start + size]
        solved = solve_batch(
            solver,
            batch,
            seed=self.seed + start,
            time_limit=None,
            device=self.device,
            progress=lambda _: None,
        )
        score, lengths = problem_module("tsp").score, []
        for instance, outcome in zip(batch, solved.outcomes, strict=True):
            if isinstance(outcome, Failure):
                where = f"calibrate {self.model} at n = {instance.n}"
                raise BadInputError(f"{where}: {outcome.status}: {outcome.message}")
            lengths.append(score(instance, outcome.solution if isinstance(outcome, Solved) else outcome))
        return lengths

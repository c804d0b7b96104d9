"""EIE's Tables 5 and 7 and Figures 2 to 5 and 7: lambda and the entropy of attention against n, learned beside exact.

The learned curve is read from its weights file by the network's own code, which needs torch; it is imported when a function
asks for it. Entropies are exact (`nco_bench.nn.entropy`), but for those with dependent queries and keys, which have no
closed form and are sampled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nco_bench.nn.entropy import exact_scale, expected_entropy
from nco_bench.papers.published import load_table
from nco_bench.reports.figures.style import checked_target, figure, legend, look

SETTINGS = {5: (16, 100), 7: (32, 120)}
"""d and N of Tables 5 and 7."""

DEPARTURE = 0.05
"""From here on a published value is named as departing from the exact one."""

HEADS = 8
SCALES = ("1/sqrt(d)", "ln n / d", "EIE, learned", "EIE, exact")


@dataclass(frozen=True)
class LambdaRow:
    """lambda at one n: as published, as our network has it, and exactly; and the entropies of first and last, in nats."""

    n: int
    published: float
    network: float
    exact: float
    entropy_published: float
    entropy_exact: float


def lambda_rows(number: int) -> list[LambdaRow]:
    """Return Table 5 or 7 beside our numbers; raises `BadWeightsError` without the learned curve."""
    head_dim, size = SETTINGS[number]
    learned = _learned()
    rows = []
    for cell in load_table("eie", number).cells:
        n, published = int(cell.column.removeprefix("n=")), float(cell.number or math.nan)
        network, exact = learned(n, head_dim, size), exact_scale(n, head_dim, size)
        entropies = (expected_entropy(n, scale, head_dim) for scale in (published, exact))
        rows.append(LambdaRow(n, published, network, exact, *entropies))
    return rows


def departures_text(rows: Sequence[LambdaRow], head_dim: int) -> str:
    """Say where published values depart from the exact ones by `DEPARTURE` or more."""
    far = [row for row in rows if abs(row.published / row.exact - 1) >= DEPARTURE]
    if not far:
        return f"d = {head_dim}: all published values are within {DEPARTURE:.0%} of the exact solution."
    listing = ", ".join(
        f"n = {row.n}: {row.published:.3f} for {row.exact:.3f} ({row.published / row.exact - 1:+.1%}, "
        f"entropy {row.entropy_published:.2f} for {row.entropy_exact:.2f})"
        for row in far
    )
    return f"d = {head_dim}: published values that depart from H(n, lambda) = H(N, 1/sqrt(d)): {listing}."


def _learned() -> Callable[[float, int, int], float]:
    from nco_bench.nn.eie import learned_scale

    return learned_scale


def lambda_figure(number: int, out: Path | str) -> Path:
    """Plot lambda against n with the published points of Table 5 (Figure 3) or 7 (Figure 4)."""
    target = checked_target(out)
    head_dim, size = SETTINGS[number]
    grid, rows = _grid(size), lambda_rows(number)
    learned = _learned()
    with figure(1, target) as (fig, (axis,)):
        curves = {
            "learned": [learned(n, head_dim, size) for n in grid],
            "exact": [exact_scale(n, head_dim, size) for n in grid],
            "ln n / d": [math.log(n) / head_dim for n in grid],
        }
        for index, (label, values) in enumerate(curves.items()):
            style = look(index)
            axis.plot(grid, values, label=label, color=style.colour, linestyle=style.dash)
        style = look(len(curves))
        axis.plot(
            [row.n for row in rows],
            [row.published for row in rows],
            label="published",
            color=style.colour,
            marker=style.marker,
            linestyle="none",
        )
        axis.set_xlabel("n")
        axis.set_ylabel(f"lambda (d = {head_dim}, N = {size})")
        legend(fig, [axis])
    return target


def scale_curves(number: int) -> dict[str, Callable[[float], float]]:
    """Return lambda(n) of the scales in Figures 2 and 5 by name."""
    head_dim, size = SETTINGS[number]
    learned = _learned()
    return {
        SCALES[0]: lambda n: 1 / math.sqrt(head_dim),
        SCALES[1]: lambda n: math.log(n) / head_dim,
        SCALES[2]: lambda n: learned(n, head_dim, size),
        SCALES[3]: lambda n: exact_scale(n, head_dim, size),
    }


def entropy_table(number: int, sizes: Sequence[int]) -> dict[str, list[float]]:
    """Return the expected entropy in nats at `sizes` for each scale (Figures 2 and 5)."""
    head_dim, _ = SETTINGS[number]
    return {
        name: [expected_entropy(n, scale(n), head_dim) for n in sizes]
        for name, scale in scale_curves(number).items()
    }


def entropy_figure(number: int, out: Path | str) -> Path:
    """Plot the expected entropy against n for all scales: Figure 2 (Table 5's setting) or 5 (Table 7's)."""
    target = checked_target(out)
    head_dim, size = SETTINGS[number]
    grid = _grid(size)
    with figure(1, target) as (fig, (axis,)):
        for index, (name, values) in enumerate(entropy_table(number, grid).items()):
            style = look(index)
            axis.plot(grid, values, label=name, color=style.colour, linestyle=style.dash)
        axis.set_xlabel("n")
        axis.set_ylabel(f"expected entropy in nats (d = {head_dim}, N = {size})")
        legend(fig, [axis])
    return target


@dataclass(frozen=True)
class Sampled:
    """A sampled mean with its standard error."""

    mean: float
    error: float


def dependent_entropy(n: int, scale: float, head_dim: int, draws: int, seed: int = 1234) -> Sampled:
    """Sample the entropy with queries and keys from the same inputs and random projections (Equation 21).

    Parameters
    ----------
    n, scale, head_dim
        Keys, lambda, and width of the head; inputs are eight times as wide.
    draws
        Sets of inputs and projections; each gives n rows, which depend on each other, so errors are over sets.
    seed
        Of all draws.
    """
    rng, width = np.random.default_rng(seed), HEADS * head_dim
    means = []
    for _ in range(draws):
        x = rng.standard_normal((n, width))
        query, key = (x @ rng.standard_normal((width, head_dim)) / math.sqrt(width) for _ in range(2))
        means.append(float(_row_entropies(scale * query @ key.T).mean()))
    return Sampled(float(np.mean(means)), float(np.std(means, ddof=1) / math.sqrt(draws)))


def _row_entropies(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    weight = np.exp(logits - logits.max(axis=1, keepdims=True))
    total = weight.sum(axis=1)
    return np.log(total) - (weight * (logits - logits.max(axis=1, keepdims=True))).sum(axis=1) / total


def dependence_figure(sizes: Sequence[int], draws: int, out: Path | str) -> dict[int, tuple[float, Sampled]]:
    """Plot the entropies of Equations 6 and 21 at 1/sqrt(d), d = 16 (Figure 7), and return them by n."""
    target, head_dim = checked_target(out), SETTINGS[5][0]
    scale = 1 / math.sqrt(head_dim)
    found = {
        n: (expected_entropy(n, scale, head_dim), dependent_entropy(n, scale, head_dim, draws)) for n in sizes
    }
    with figure(1, target) as (fig, (axis,)):
        first, second = look(0), look(1)
        independent = [expected_entropy(n, scale, head_dim) for n in _grid(min(sizes))]
        axis.plot(_grid(min(sizes)), independent, label="independent (Equation 6)", color=first.colour)
        axis.errorbar(
            list(found),
            [sampled.mean for _, sampled in found.values()],
            yerr=[1.96 * sampled.error for _, sampled in found.values()],
            label="dependent (Equation 21)",
            color=second.colour,
            marker=second.marker,
            linestyle="none",
        )
        axis.set_xlabel("n")
        axis.set_ylabel("expected entropy in nats (d = 16)")
        legend(fig, [axis])
    return found


def _grid(size: int) -> list[int]:
    return sorted({round(size * 16 ** (k / 60)) for k in range(61)})

"""Plots of what networks look at: coordinate scales, attention, long-sightedness, feature maps. Arrays in, files out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.errors import BadInputError
from nco_bench.reports.figures.style import COLOURS, checked_target, figure, legend, look
from nco_bench.reports.frame.statistics import interval_of_mean

FloatArray = NDArray[np.float64]


DODGE = 0.1
"""Of a rank, by which the intervals of two networks stand apart."""


@dataclass(frozen=True)
class Sightedness:
    """Hits and cases of one network by the rank of the right node among its neighbours; the last entry is all beyond."""

    label: str
    hits: tuple[int, ...]
    cases: tuple[int, ...]

    @property
    def rates(self) -> list[float]:
        """Share of hits in percent; NaN where there was no case."""
        return [100.0 * h / c if c else float("nan") for h, c in zip(self.hits, self.cases, strict=True)]


@dataclass(frozen=True)
class Features:
    """Features of candidates, ``(M, W)``, sorted by the reference tour; `picked` is the network's own choice."""

    label: str
    values: FloatArray
    picked: int


@dataclass(frozen=True)
class AttentionPanel:
    """Logits from the origin to all cities, ``(T,)``, at ``(T, 2)`` points: first the origin, last the destination."""

    label: str
    scale: float
    points: FloatArray
    logits: FloatArray


@dataclass(frozen=True)
class ScaleCurve:
    """Mean tour lengths of one size by coordinate scale, the factor that was chosen, and the ends of the quadratic fit."""

    n: int
    factors: tuple[float, ...]
    lengths: tuple[float, ...]
    factor: float
    fitted: bool
    window: tuple[float, float]


def coordinate_scales(label: str, curves: Sequence[ScaleCurve], out: Path | str) -> Path:
    """Draw mean tour length against coordinate scale with a quadratic fit, a panel per size (PENS Figure 3).

    Parameters
    ----------
    label
        The model.
    curves
        One per size.
    out
        File; its suffix says the format.
    """
    target = checked_target(out)
    if not curves:
        raise BadInputError(f"{label}: no calibration to draw; make one with 'nco-bench calibrate {label}'.")
    with figure(len(curves), target) as (fig, axes):
        for axis, curve in zip(axes, curves, strict=True):
            style = look(0)
            axis.plot(
                curve.factors,
                curve.lengths,
                style.marker,
                color=style.colour,
                linestyle="none",
                markersize=3.5,
            )
            _draw_fit(axis, curve)
            axis.axvline(curve.factor, color="#888888", linestyle=":", linewidth=1.0)
            kind = "vertex" if curve.fitted else "best of the grid"
            axis.set(
                title=f"TSP{curve.n}: {kind} {curve.factor:.2f}",
                xlabel="coordinate scale",
                ylabel="mean tour length",
            )
        fig.suptitle(label, fontsize=9.0)
    return target


def _draw_fit(axis: Any, curve: ScaleCurve) -> None:
    """Draw the parabola through the points of the window, where there are enough."""
    low, high = curve.window
    factors, lengths = np.array(curve.factors), np.array(curve.lengths)
    inside = (low <= factors) & (factors <= high)
    if inside.sum() < 3:
        return
    fine = np.linspace(low, high, 200)
    axis.plot(fine, np.polyval(np.polyfit(factors[inside], lengths[inside], 2), fine), color="#555555")


def long_sightedness(lines: Sequence[Sightedness], out: Path | str, title: str = "") -> Path:
    """Draw the share of right choices against the rank of the right node (decoder scaling Figure 12).

    Bars are 95 % Wilson intervals; those of several networks stand side by side.
    """
    target = checked_target(out)
    with figure(1, target) as (fig, axes):
        for index, line in enumerate(lines):
            style = look(index)
            ranks = np.arange(1, len(line.hits) + 1)
            low, high = wilson(np.array(line.hits), np.array(line.cases))
            rates = np.array(line.rates)
            known = ~np.isnan(rates)
            reach = np.maximum([rates - 100 * low, 100 * high - rates], 0.0)[:, known]
            beside = ranks[known] + DODGE * (index - (len(lines) - 1) / 2)
            axes[0].errorbar(
                beside, rates[known], yerr=reach, color=style.colour, marker=style.marker,
                linestyle=style.dash, capsize=2.0, elinewidth=0.8, label=f"{line.label} ({sum(line.cases):,} choices)",
            )  # fmt: skip
        last = max(len(line.hits) for line in lines)
        axes[0].set_xticks(range(1, last + 1), [*(str(k) for k in range(1, last)), f"≥{last}"])
        axes[0].set(
            title=title,
            xlabel="rank of the right node among the unvisited neighbours",
            ylabel="right choices (%)",
            xlim=(0.5, last + 0.5),
        )
        legend(fig, axes)
    return target


@dataclass(frozen=True)
class RepeatsGap:
    """Gaps in percent of a SIT network, one per instance, and how often the last node stands among its representatives."""

    repeats: int
    gaps: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean gap."""
        return float(np.mean(self.gaps))

    @property
    def half_width(self) -> float:
        """Half of the mean's 95 % interval, as tables have it; 0 for one instance."""
        low, high = interval_of_mean(np.array(self.gaps)) or (0.0, 0.0)
        return (high - low) / 2


def gaps_by_repeats(points: Sequence[RepeatsGap], out: Path | str, title: str = "") -> Path:
    """Draw the mean gap against the repeats of the last node (SIT, Figure 3), with 95 % intervals."""
    target = checked_target(out)
    with figure(1, target) as (_, axes):
        style = look(0)
        axes[0].errorbar(
            [p.repeats for p in points], [p.mean for p in points], yerr=[p.half_width for p in points],
            color=style.colour, marker=style.marker, linestyle=style.dash, capsize=2.0, elinewidth=0.8,
        )  # fmt: skip
        axes[0].set_xticks([p.repeats for p in points])
        axes[0].set(title=title, xlabel="repeats of the last node", ylabel="optimality gap (%)")
    return target


def wilson(
    hits: NDArray[np.int64], cases: NDArray[np.int64], z: float = 1.959964
) -> tuple[FloatArray, FloatArray]:
    """Wilson's 95 % interval of a share, both ends in 0 .. 1; NaN without cases."""
    n = np.where(cases > 0, cases, np.nan).astype(float)
    p = hits / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    reach = z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return centre - reach, centre + reach


def feature_pca(panels: Sequence[Features], out: Path | str, title: str = "") -> Path:
    """Draw the candidates in the plane of their first two principal components (decoder scaling Figure 10)."""
    target = checked_target(out)
    with figure(len(panels), target) as (fig, axes):
        fig.suptitle(title, fontsize=9.0)
        for axis, panel in zip(axes, panels, strict=True):
            points, share = principal_components(panel.values)
            axis.plot(
                *points[1:].T, "o", color=COLOURS[0], markersize=3.0, alpha=0.7, label="other candidates"
            )
            axis.plot(
                *points[0],
                "*",
                color=COLOURS[1],
                markersize=11,
                label="next node of the reference tour",
                zorder=4,
            )
            if panel.picked != 0:
                axis.plot(
                    *points[panel.picked],
                    "s",
                    color="#000000",
                    fillstyle="none",
                    markersize=8,
                    label="picked",
                )
            axis.set(
                title=f"{panel.label}: {'right' if panel.picked == 0 else 'wrong'} choice",
                xlabel=f"component 1 ({100 * share[0]:.0f} %)",
                ylabel=f"component 2 ({100 * share[1]:.0f} %)",
            )
        legend(fig, axes)
    return target


def principal_components(values: FloatArray) -> tuple[FloatArray, tuple[float, float]]:
    """Return coordinates on the first two principal components, ``(M, 2)``, and their shares of the variance."""
    centred = values - values.mean(axis=0)
    left, singular, _ = np.linalg.svd(centred, full_matrices=False)
    power = singular**2
    total = float(power.sum()) or 1.0
    return left[:, :2] * singular[:2], (float(power[0]) / total, float(power[1]) / total)


def cosine_maps(panels: Sequence[Features], out: Path | str, title: str = "") -> Path:
    """Draw the cosine similarity of all pairs of candidates, sorted by the tour (decoder scaling Figure 11)."""
    target = checked_target(out)
    with figure(len(panels), target, square=len(panels) == 1) as (fig, axes):
        fig.set_layout_engine("compressed")
        fig.suptitle(title, fontsize=9.0)
        image: Any = None
        for axis, panel in zip(axes, panels, strict=True):
            image = axis.imshow(cosine_similarity(panel.values), vmin=-1, vmax=1, cmap="viridis")
            axis.grid(visible=False)
            axis.set(title=panel.label, xlabel="candidate, in tour order", ylabel="candidate, in tour order")
        fig.colorbar(image, ax=list(axes), shrink=0.7, label="cosine similarity")
    return target


def cosine_similarity(values: FloatArray) -> FloatArray:
    """Cosine of all pairs of rows, ``(M, W)`` to ``(M, M)``."""
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    unit = values / np.where(norms > 0, norms, 1.0)
    return unit @ unit.T


def attention_maps(panels: Sequence[AttentionPanel], out: Path | str) -> Path:
    """Draw mean attention logits from the origin to every city, a panel per coordinate scale (PENS Figure 6).

    Each panel has its own colours, from its 1st to its 99th percentile.
    """
    target = checked_target(out)
    with figure(len(panels), target, square=len(panels) == 1) as (fig, axes):
        # Numbers of one panel's colours would touch the next panel.
        fig.set_layout_engine("constrained", wspace=0.08)
        for axis, panel in zip(axes, panels, strict=True):
            low, high = np.percentile(panel.logits, [1, 99])
            image = axis.scatter(
                panel.points[1:-1, 0], panel.points[1:-1, 1], c=panel.logits[1:-1], vmin=low, vmax=high, cmap="viridis",
                s=max(0.5, min(12.0, 4000.0 / len(panel.points))), linewidths=0, rasterized=len(panel.points) > 2000,
            )  # fmt: skip
            axis.plot(*panel.points[0], "o", color=COLOURS[1], markersize=6, label="origin")
            axis.plot(*panel.points[-1], "*", color=COLOURS[1], markersize=10, label="destination")
            axis.grid(visible=False)
            axis.set(title=f"{panel.label}, scale {panel.scale:g}", aspect="equal", xticks=[], yticks=[])
            fig.colorbar(image, ax=axis, shrink=0.75, label="mean logit" if axis is axes[-1] else "")
        legend(fig, axes)
    return target

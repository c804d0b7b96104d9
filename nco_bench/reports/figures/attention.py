"""Plots of attention over growing lengths, and of scores against lengths. Arrays in, files out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.errors import BadInputError
from nco_bench.files import write
from nco_bench.reports.figures.style import STYLE, checked_target, figure, legend, look

Map = NDArray[np.floating]
LARGEST_PICTURE = 64
"""Rows and columns of a map as drawn; larger maps show the maximum of each block, so that spikes stay visible: a map is
about 0.9 inches wide, where a single key of 1,024 would be thinner than a dot of a screen."""


@dataclass(frozen=True)
class MapRow:
    """Attention of one network: a map per length, rows are queries (or instances) and columns keys, from 0 to 1."""

    label: str
    maps: Mapping[int, Map]


@dataclass(frozen=True)
class LengthCurve:
    """Scores of one method by length."""

    label: str
    scores: Mapping[int, float]
    trivial: bool = False


def shrink(values: Map, largest: int = LARGEST_PICTURE) -> Map:
    """Return the maxima of equal blocks, so that no side exceeds `largest`; a ragged edge is padded with 0."""
    rows, columns = (max(1, -(-side // largest)) for side in values.shape)
    padded = np.pad(values, ((0, -values.shape[0] % rows), (0, -values.shape[1] % columns)))
    blocks = padded.reshape(padded.shape[0] // rows, rows, padded.shape[1] // columns, columns)
    result: Map = blocks.max(axis=(1, 3))
    return result


def length_maps(title: str, rows: Sequence[MapRow], columns: str, side: str, out: Path | str) -> Path:
    """Draw maps in a grid, a row per network and a column per length, all on one colour scale from 0 to 1.

    Parameters
    ----------
    title
        Above all.
    columns, side
        What the horizontal and the vertical axis of a map are.
    out
        File; its suffix says the format.

    Raises
    ------
    BadInputError
        For another suffix, or nothing to draw.
    MissingDependencyError
        Without matplotlib.
    """
    target = checked_target(out)
    if not rows or not rows[0].maps:
        raise BadInputError(f"{target}: no attention maps to draw.")
    lengths = sorted(rows[0].maps)
    with figure(1, target) as (fig, axes):
        axes[0].remove()
        fig.set_size_inches(1.1 * len(lengths) + 1.0, 1.15 * len(rows) + 0.85)
        grid = fig.subplots(len(rows), len(lengths), squeeze=False)
        image: Any = None
        for row, line in zip(rows, grid, strict=True):
            for length, axis in zip(lengths, line, strict=True):
                image = axis.imshow(
                    shrink(row.maps[length]), vmin=0.0, vmax=1.0, cmap="viridis", aspect="auto", interpolation="nearest"
                )  # fmt: skip
                axis.grid(visible=False)
                axis.set(xticks=[], yticks=[])
            line[0].set_ylabel(f"{row.label}\n{side}", fontsize=STYLE["axes.labelsize"])
        for length, axis in zip(lengths, grid[0], strict=True):
            axis.set_title(f"n = {length:,}")
        blocks = max(max(values.shape) for values in rows[0].maps.values()) > LARGEST_PICTURE
        hint = (
            f" (beyond {LARGEST_PICTURE} rows or columns: the largest value of each block)" if blocks else ""
        )
        fig.supxlabel(columns + hint, fontsize=8.0)
        fig.suptitle(title, fontsize=9.0)
        fig.colorbar(image, ax=list(grid.flat), aspect=25, pad=0.01, label=_colours(rows))
    return target


def _colours(rows: Sequence[MapRow]) -> str:
    """Return what the colours mean: tropical attention has no weights, but keys that provide channels."""
    share = "share of the context's channels"
    labels = {row.label for row in rows}
    if "tropical" not in labels:
        return "attention weight"
    return share if labels == {"tropical"} else f"attention weight; tropical: {share}"


def length_sweep(
    title: str, curves: Sequence[LengthCurve], trained: int, ylabel: str, out: Path | str
) -> Path:
    """Draw scores against lengths, a line per method; trivial predictors are grey, the training length a vertical line.

    The numbers are written beside the picture, as a CSV of the same name.
    """
    target = checked_target(out)
    if not curves:
        raise BadInputError(f"{target}: no scores to draw.")
    with figure(1, target) as (fig, axes):
        axis = axes[0]
        for index, curve in enumerate(curves):
            style = look(index)
            lengths = sorted(curve.scores)
            values = [curve.scores[n] for n in lengths]
            if curve.trivial:
                axis.plot(lengths, values, color="#888888", linestyle=style.dash, label=curve.label, zorder=1)
            else:
                axis.plot(
                    lengths, values, color=style.colour, marker=style.marker, linestyle=style.dash, label=curve.label
                )  # fmt: skip
        axis.axvline(trained, color="#888888", linestyle=":", linewidth=1.0)
        axis.set_xscale("log", base=2)
        ticks = sorted({n for curve in curves for n in curve.scores})
        axis.set_xticks(ticks, [f"{n:,}" for n in ticks])
        axis.minorticks_off()
        axis.set(title=title, xlabel=f"length n (trained on {trained})", ylabel=ylabel)
        legend(fig, axes)
    _write_scores(curves, ylabel, numbers_of(target))
    return target


def numbers_of(picture: Path) -> Path:
    """Return where the numbers of a sweep stand: beside its picture, as CSV."""
    return picture.with_suffix(".csv")


def _write_scores(curves: Sequence[LengthCurve], score: str, target: Path) -> None:
    """Write the numbers of a sweep, a line per method and length; raises `ResultsError`."""
    lines = [f"method,n,{score}"]
    lines += [f"{curve.label},{n},{curve.scores[n]:.6g}" for curve in curves for n in sorted(curve.scores)]
    write(target, "\n".join(lines) + "\n", sync=False)

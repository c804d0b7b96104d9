"""Figures for print: one style, colour-blind safe looks, suffix decides the format, written whole or not at all.

Colours are Okabe and Ito's, and every line has its own marker and dash too, so that a plot survives grey print.
Nothing here touches pyplot or matplotlib's global state.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nco_bench.errors import BadInputError, MissingDependencyError
from nco_bench.files import READABLE, replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".pdf", ".svg")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito (2008) without yellow, which is too pale for lines on white."""

SOLVER_COLOURS = (*COLOURS, "#AA4499", "#999933", "#8C564B")
"""One per solver: with purple and olive of Tol's muted scheme and a brown, which read on white and on black."""

NOISE_PERCENT = 0.01
"""Gaps below this are drawn beside zero, not over decades of their own: published tables print two or three decimals, and
references of heuristics are no surer."""

LEAST_RATIO = 4.0
"""Ends of an axis of gaps are at least this factor apart, so that a difference looks as large as it is."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)), (0, (9, 2)))
FILLS = ("full", "left", "bottom", "right", "top")
WIDTH_INCHES = 5.5
STYLE: dict[Any, Any] = {
    "font.size": 9.0, "axes.titlesize": 9.0, "axes.labelsize": 9.0, "legend.fontsize": 7.5, "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.color": "#dddddd", "grid.linewidth": 0.5, "lines.linewidth": 1.2, "lines.markersize": 4.5,
    "legend.frameon": False, "pdf.fonttype": 42, "ps.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "nco-bench",
}  # fmt: skip
"""Type 42 keeps text text in PDF, as most venues ask; the hash salt makes SVG the same every time."""


LETTERS_PER_INCH = 16
"""Of a legend."""
TITLE_LETTERS_PER_INCH = 11.5
"""Of a panel's title, which stands over its axes and not over its labels."""
LEGEND_LINE_INCHES = 0.165
HANDLE_LETTERS = 3.6
"""Length of a line in the legend: enough to see its dashes."""
SIZE_DIGIT_INCHES = 0.07
"""Width of a digit below an axis."""
SLANTED_INCHES = 0.17
"""From one slanted number below an axis to the next, whatever their digits."""


@dataclass(frozen=True)
class Look:
    """Colour, marker and dash of one line, and how much of its markers is filled where points are not joined."""

    colour: str
    marker: str
    dash: Any
    fill: Any = "full"


def look(index: int) -> Look:
    """Return the look of the n-th line; neighbours differ in all three, and 70 lines in one of them."""
    return Look(COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)], DASHES[index % len(DASHES)])


def solver_looks(lines: Mapping[str, str], solvers: Sequence[str]) -> dict[str, tuple[str, int]]:
    """Give every line the colour of its solver, and a number that no other line of this colour has.

    Parameters
    ----------
    lines
        Label to solver, of all lines of a plot or a report.
    solvers
        All solvers of the results, whatever is drawn of them: their order decides the colours, so that a solver looks
        the same in every plot of these results.

    Returns
    -------
    dict
        By label: the colour, and the number of its marker and dash.
    """
    order = list(dict.fromkeys([*solvers, *lines.values()]))
    drawn: Counter[int] = Counter()
    found = {}
    for label, solver in lines.items():
        place = order.index(solver) % len(SOLVER_COLOURS)
        found[label] = (SOLVER_COLOURS[place], place + drawn[place])
        drawn[place] += 1
    return found


def apart(looks: Mapping[str, tuple[str, int]]) -> dict[str, tuple[str, int]]:
    """Give the second and later lines of a solver colours that no solver drawn has, as long as there are any.

    Curves of one colour cross, and neither dash nor marker tells then which is which.
    """
    free = [colour for colour in SOLVER_COLOURS if colour not in {taken for taken, _ in looks.values()}]
    seen: set[str] = set()
    found = {}
    for label, (colour, number) in looks.items():
        found[label] = (free.pop(0) if colour in seen and free else colour, number)
        seen.add(colour)
    return found


def solver_look(colour: str, number: int) -> Look:
    """Return the look of a line as `solver_looks` numbers it."""
    around = number // len(MARKERS)  # the markers are used up: another dash and half of a marker with each
    dash, fill = DASHES[(number + around) % len(DASHES)], FILLS[around % len(FILLS)]
    return Look(colour, MARKERS[number % len(MARKERS)], dash, fill)


def checked_target(out: Path | str) -> Path:
    """Check the suffix before any work is done."""
    target = Path(out)
    if target.suffix.lower() not in FORMATS:
        given = f"not {target.suffix!r}" if target.suffix else "and this name ends in none of them"
        raise BadInputError(f"{target}: plots are written as .png, .pdf or .svg, {given}.")
    return target


@contextmanager
def figure(
    panels: int, target: Path, *, square: bool = False, dpi: int = 300
) -> Iterator[tuple[Figure, list[Axes]]]:
    """Make a figure with a row of panels (three at most beside each other), and save it whole or not at all.

    Raises
    ------
    MissingDependencyError
        Without matplotlib.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError(
            "Plots need matplotlib; install it with: pip install 'nco-bench[plots]'"
        ) from error
    with rc_context(STYLE):
        columns = min(panels, 3)
        rows = -(-panels // columns)
        width = 3.6 if square else WIDTH_INCHES if columns < 3 else 7.2
        height = 3.7 if square else rows * (3.0 if columns == 1 else 2.4)
        fig = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(fig)
        axes = list(fig.subplots(rows, columns, squeeze=False).flat)
        for spare in axes[panels:]:
            spare.remove()
        yield fig, axes[:panels]
        if not square:  # whose captions have lines of their own
            _wrap_titles(fig.axes, int(fig.get_figwidth() / columns * TITLE_LETTERS_PER_INCH))
        _save(fig, target, dpi)


def _wrap_titles(axes: Sequence[Axes], letters: int) -> None:
    """Break titles, often long names of datasets, after spaces and colons; what is in smaller type is broken already."""
    for axis in axes:
        if axis.title.get_fontsize() != STYLE["axes.titlesize"]:
            continue
        lines: list[str] = []
        for line in axis.get_title().split("\n"):
            lines.append("")
            for piece in re.split("(?<=[ :])", line):
                if lines[-1] and len(lines[-1] + piece.rstrip()) > letters:
                    lines.append("")
                lines[-1] += piece
        axis.set_title("\n".join(line.rstrip() for line in lines))


def _save(fig: Figure, target: Path, dpi: int) -> None:
    metadata: dict[str, Any] = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}.get(
        target.suffix.lower(), {}
    )
    with replacing(target, sync=False, mode=READABLE) as temporary:
        fig.savefig(temporary, dpi=dpi, format=target.suffix[1:].lower() or "png", metadata=metadata)


def legend(fig: Figure, axes: Sequence[Axes]) -> None:
    """One legend below all panels, every label once; the figure grows by it, so that it never covers a panel."""
    entries: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if not entries:
        return
    letters = int(fig.get_figwidth() * LETTERS_PER_INCH)
    labels = [textwrap.fill(label, letters - 8) for label in entries]
    columns = max(1, min(len(labels), letters // (max(map(len, labels)) + 10)))
    rows = -(-len(labels) // columns)
    lines = sum(max(label.count("\n") + 1 for label in labels[row::rows]) for row in range(rows))
    fig.set_figheight(fig.get_figheight() + LEGEND_LINE_INCHES * (lines + 1))
    fig.legend(
        entries.values(), labels, loc="outside lower center", ncols=columns, handlelength=HANDLE_LETTERS
    )


def gap_scale(axis: Axes, gaps: Sequence[float], least: float = NOISE_PERCENT) -> None:
    """Logarithmic where all gaps are above `least` percent; linear near zero where some are not."""
    from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, StrMethodFormatter

    above = [g for g in gaps if g > least]
    if not above:
        if gaps:
            axis.set_ylim(min(-0.05, 1.2 * min(gaps)), 1.0)
        return
    low, high = min(above), max(above)
    narrow = high < LEAST_RATIO * low  # too narrow for 1, 2, 5, 10 to give two ticks
    margin = max(1.2, math.sqrt(LEAST_RATIO * low / high)) if narrow else 1.5
    known = (
        MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]).tick_values(low / margin, high * margin)
        if narrow
        else decade_ticks(low / margin, high * margin)
    )
    ticks = [float(t) for t in known if low / margin <= t <= high * margin]
    if len(above) == len(gaps):
        axis.set_yscale("log")
        axis.set_ylim(low / margin, high * margin)
    else:
        threshold = max(least, 10.0 ** math.floor(math.log10(low)))
        lowest = min(gaps)
        axis.set_yscale("symlog", linthresh=threshold, linscale=0.5)
        axis.set_ylim(
            -0.3 * threshold if lowest > -0.2 * threshold else 1.5 * min(lowest, -threshold), high * 1.5
        )
        below = (
            [-t for t in decade_ticks(threshold, -lowest) if t <= -1.5 * lowest]
            if lowest < -threshold
            else []
        )
        ticks = [*below, 0.0, *(t for t in ticks if t >= threshold)]
    axis.yaxis.set_major_locator(FixedLocator(ticks))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))


def size_ticks(axis: Axes, sizes: Sequence[int]) -> None:
    """Make the x axis logarithmic with a tick and its number at every size.

    Where numbers would touch they slant, and those that would touch even then are left out; the ends have one.
    """
    known = sorted(set(sizes))
    grid = axis.get_subplotspec().get_gridspec()  # type: ignore[union-attr]
    inches = 0.8 * axis.figure.get_figwidth() / grid.ncols  # type: ignore[union-attr]
    per_inch = math.log(known[-1] / known[0]) / inches or 1.0

    def upright(size: int, other: int) -> float:
        return SIZE_DIGIT_INCHES * (len(f"{size:,}") + len(f"{other:,}") + 2) / 2

    shown = _apart(known, upright, per_inch)
    slanted = shown != set(known)
    if slanted:
        shown = _apart(known, lambda *_: SLANTED_INCHES, per_inch)
    turned: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if slanted else {}
    axis.set_xscale("log")
    axis.set_xticks(known, [f"{size:,}" if size in shown else "" for size in known], **turned)
    axis.minorticks_off()


def _apart(sizes: Sequence[int], reach: Callable[[int, int], float], per_inch: float) -> set[int]:
    """Choose sizes further apart than `reach` says in inches, of an axis with so much of their logarithm in each."""
    shown = {sizes[-1]}
    for size in sizes:
        if all(abs(math.log(size / other)) > reach(size, other) * per_inch for other in shown):
            shown.add(size)
    return shown


def wide_log_scale(axis: Axes, values: Sequence[float]) -> None:
    """Make the x axis logarithmic over at least a decade, with few ticks in plain digits."""
    from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

    axis.set_xscale("log")
    known = [v for v in values if v > 0]
    if not known:
        return
    low, high = min(known), max(known)
    margin = max(1.5, math.sqrt(12.0 * low / high))
    left, right = low / margin, high * margin
    ticks = [t for t in decade_ticks(left, right) if left <= t <= right]
    every = -(-len(ticks) // 5)
    axis.set_xlim(left, right)
    axis.xaxis.set_major_locator(FixedLocator(ticks[::every]))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))


def decade_ticks(low: float, high: float) -> list[float]:
    """Powers of ten from `low` to `high`, with 2 and 5 between them where the range is below two decades."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps = (1.0, 2.0, 5.0) if high / low < 100 else (1.0,)
    return [step * 10.0**power for power in range(first, last + 1) for step in steps]

"""Spending a budget on open cells, cheapest each first: each run is an ordinary one, so a second start goes on behind it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from nco_bench.datasets.identity import stream_of
from nco_bench.errors import BadInputError
from nco_bench.papers.judging import Verdict
from nco_bench.papers.kept import RUNS_NETWORKS
from nco_bench.papers.preset import CellPreset, load_preset
from nco_bench.papers.reproducing import answer
from nco_bench.papers.running import Runner
from nco_bench.papers.standing import Standing

TIMES = ("seconds", "latency")
"""Metrics that a busy machine does not answer; no run is made for them alone."""
PATIENCE = 10.0
"""Times its estimate, and a minute, that a run may take; a wrong estimate must not take the whole budget."""


class BudgetSpentError(BaseException):
    """The time of a run is used up; like an interruption, it keeps what is stored."""


@dataclass(frozen=True)
class Filled:
    """What a budget bought.

    Attributes
    ----------
    answered
        Cells whose run is stored now.
    refused
        A line for each run that could not be made.
    left
        Runnable cells that are still open.
    seconds
        Wall time that was used.
    stopped
        Whether a run was cut short at the end of the budget; its solved instances are stored.
    """

    answered: int
    refused: tuple[str, ...]
    left: int
    seconds: float
    stopped: bool


def fill(found: Sequence[Standing], runner: Runner, budget: float, tell: Callable[[str], None]) -> Filled:
    """Answer open cells, those first that cost least each, until the next would not fit into the budget.

    A run whose estimate is larger than what is left is not begun; one that takes much longer than estimated is cut short,
    at the latest when the budget is used up, and its solved instances are kept. Functions that run networks come last:
    what they take is not known, and one that is cut short begins anew.

    Parameters
    ----------
    found
        From `nco_bench.papers.standing.standings`.
    runner
        Where results and instances are.
    budget
        Seconds of wall time.
    tell
        Called with a line per run.

    Raises
    ------
    BadInputError
        Where the system has no timer that could end a run.
    """
    if not hasattr(signal, "setitimer"):
        raise BadInputError("--fill needs a timer of the system, which there is none of here; use --table.")
    began, tally = time.monotonic(), _Tally(tell)
    stopped = _answer_runs(found, runner, began + budget, tally)
    if not stopped:
        stopped = _answer_functions(found, runner, began + budget, tally)
    runnable = sum(one.runnable for one in found) + sum(len(cells) for _, cells in _functions(found))
    left = runnable - tally.answered
    return Filled(tally.answered, tuple(tally.refused), left, time.monotonic() - began, stopped)


@dataclass
class _Tally:
    """What was got so far, and who is told what was not."""

    tell: Callable[[str], None]
    answered: int = 0
    refused: list[str] = field(default_factory=list)

    def refuse(self, line: str) -> None:
        """Note and tell what could not be made."""
        self.refused.append(line)
        self.tell(f"not run: {line}")


def _answer_runs(found: Sequence[Standing], runner: Runner, end: float, tally: _Tally) -> bool:
    """Make runs until the end; return whether one was cut short there. One that takes too long is left half done."""
    crowded = _crowded()
    for preset, cells in _runs([one for one in found if one.runnable and one.seconds is not None]):
        seconds, left = cells[0].seconds or 0.0, end - time.monotonic()
        if seconds > left:
            continue
        if crowded and all(one.entry.preset.metric in TIMES for one in cells):
            tally.refuse(f"{_title(preset)}: times alone, and {crowded}")
            continue
        tally.tell(f"{_title(preset)}: {len(cells)} cells, about {seconds:.3g} s")
        most = PATIENCE * seconds + 60.0
        try:
            with _until(min(left, most)):
                reason = answer(preset, runner)
        except BudgetSpentError:
            if left <= most:
                return True
            reason = f"cut short after {most:.0f} s, far above its estimate; what it solved is stored"
        if reason:
            tally.refuse(f"{_title(preset)}: {reason}")
        else:
            tally.answered += len(cells)
    return False


def _answer_functions(found: Sequence[Standing], runner: Runner, end: float, tally: _Tally) -> bool:
    """Call functions until the end; return whether one was cut short there."""
    for preset, cells in _functions(found):
        table, left = cells[0].table, end - time.monotonic()
        if left <= 0:
            return False
        name = f"{table.paper} {table.label}"
        tally.tell(f"{name}: {len(cells)} cells by a function that runs networks itself")
        try:
            with _until(left):
                rules = load_preset(table.paper, table.number)
                computed = runner.compute(preset.compute, rules, table, "cpu")
        except BudgetSpentError:
            return True
        if isinstance(computed, Verdict):
            tally.refuse(f"{name}: {computed.reason}")
        else:
            tally.answered += sum((c.entry.cell.row, c.entry.cell.column) in computed for c in cells)
    return False


def _runs(cells: Sequence[Standing]) -> list[tuple[CellPreset, list[Standing]]]:
    """The runs behind cells, most cells for the time first; cells that differ in what they read of the records share one.

    One repeat each; a reference is made for gaps alone, which it may cost more than the run.
    """
    runs: dict[str, tuple[CellPreset, list[Standing]]] = {}
    for one in cells:
        preset = one.entry.preset
        plain = replace(
            preset, metric="gap", count=one.instances, repeats=1, printed_count=0, note="", readings={}, trained_on=0,
            same_instances=False, paper_instances=0, gap_unstated=False,
            reference=preset.reference if preset.needs_reference and _generated(preset) else "",
        )  # fmt: skip
        key = replace(plain, batch_size=plain.batch_size if plain.batch_size > 1 else 0)
        runs.setdefault(repr(key), (plain, []))[1].append(one)
    return sorted(runs.values(), key=lambda run: (run[1][0].seconds or 0.0) / len(run[1]))


def _functions(found: Sequence[Standing]) -> list[tuple[CellPreset, list[Standing]]]:
    """Open cells by the function that computes them, one call per table; what it takes is not known before."""
    calls: dict[tuple[str, str, str], tuple[CellPreset, list[Standing]]] = {}
    for one in found:
        preset = one.entry.preset
        if one.entry.verdict.status == "not run" and preset.compute.startswith(RUNS_NETWORKS):
            key = (preset.compute, one.table.paper, str(one.table.number))
            calls.setdefault(key, (preset, []))[1].append(one)
    return list(calls.values())


def _crowded() -> str:
    """Say that this machine has more to do than cores; an empty string where it has not, or nobody knows."""
    if not hasattr(os, "getloadavg"):
        return ""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    return f"the machine has a load of {load:.0f} on {cores} cores" if load > cores else ""


def _generated(preset: CellPreset) -> bool:
    """Whether any of a cell's sets has no references of its own."""
    return any(stream_of(name) is not None for name in preset.mean_of or preset.data[:1])


def _title(preset: CellPreset) -> str:
    sets = ", ".join(preset.mean_of or preset.data[:1])
    return f"{' '.join(filter(None, (preset.solver, preset.decoding)))} on {sets}, {preset.count} instances"


@contextmanager
def _until(budget: float) -> Iterator[None]:
    """Raise `BudgetSpentError` in this thread after so many seconds."""

    def spent(*_: object) -> None:
        raise BudgetSpentError

    before = signal.signal(signal.SIGALRM, spent)
    signal.setitimer(signal.ITIMER_REAL, budget)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

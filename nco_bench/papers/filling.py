"""Spending a budget on open cells, cheapest each first: each run is an ordinary one, so a second start goes on behind it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise

from nco_bench.datasets.generate import generated_once
from nco_bench.datasets.names import stream_of
from nco_bench.errors import BadInputError, counted, debugging
from nco_bench.papers.courses import OF_COURSES, search_of
from nco_bench.papers.judging import Verdict
from nco_bench.papers.kept import RUNS_NETWORKS
from nco_bench.papers.measuring import TIMES
from nco_bench.papers.preset import CellPreset, load_preset
from nco_bench.papers.reproducing import answer
from nco_bench.papers.running import Runner
from nco_bench.papers.standing import Standing

PATIENCE, LEAST_PATIENCE, SHARE = 5.0, 2.0, 0.25
"""Times its estimate that a run may take, but no more than this share of the budget, unless it is within twice its estimate;
a wrong estimate must not take the whole budget. The estimate is that of this machine beside its load; a minute is added."""
BATCH_SECONDS, BATCH_SHARE = 120.0, 0.1
"""How long one batch may take on a CPU, and for which share of the budget: an end keeps nothing of a batch in hand."""
AGAIN_SECONDS = 10.0
"""Between two calls for the end of a run."""


class BudgetSpentError(BaseException):
    """The time of a run is used up; like an interruption, it keeps what is stored."""


class KilledError(BaseException):
    """The fill itself is to end, by a signal."""


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
    unknown
        Those of `left` that are not begun, since nothing near is stored to tell what they cost.
    cheapest
        Seconds that the cheapest run of `left` is to take; None where there is no estimate.
    """

    answered: int
    refused: tuple[str, ...]
    left: int
    seconds: float
    stopped: bool
    unknown: int = 0
    cheapest: float | None = None


def fill(found: Sequence[Standing], runner: Runner, budget: float, tell: Callable[[str], None]) -> Filled:
    """Answer open cells, those first that cost least each, until the next would not fit into the budget.

    A run whose estimate is larger than what is left is not begun; one that takes much longer than estimated is cut short,
    at the latest when the budget is used up, and its solved instances are kept. One search answers the cells of shorter ones
    with it, by its course. Functions that run networks come last: what they take is not known, and one that is cut short
    begins anew.

    Parameters
    ----------
    found
        From `nco_bench.papers.standing.standings`.
    runner
        Where results and instances are; its `batch_seconds` is set, so that what an end comes to costs one small batch.
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
    runner.batch_seconds = min(BATCH_SECONDS, BATCH_SHARE * budget)
    began, tally = time.monotonic(), _Tally(tell)
    with _ended_by_signals(), generated_once():
        try:
            stopped = _answer_runs(found, runner, began + budget, tally)
            if not stopped:
                stopped = _answer_functions(found, runner, began + budget, tally)
        except KilledError:
            stopped = True
    runnable = sum(one.runnable for one in found) + sum(len(cells) for _, cells in _functions(found))
    left = runnable - len(tally.answered)
    waiting = [one.seconds for one in tally.still_open(found) if one.runnable]
    return Filled(
        len(tally.answered), tuple(tally.refused), left, time.monotonic() - began, stopped,
        unknown=waiting.count(None), cheapest=min((s for s in waiting if s is not None), default=None),
    )  # fmt: skip


@dataclass
class _Tally:
    """What was got so far, by the ids of cells, and who is told what was not."""

    tell: Callable[[str], None]
    answered: set[int] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)

    def refuse(self, line: str) -> None:
        """Note and tell what could not be made."""
        self.refused.append(line)
        self.tell(f"not run: {line}")

    def still_open(self, cells: Sequence[Standing]) -> list[Standing]:
        """Those that no run has answered."""
        return [one for one in cells if id(one) not in self.answered]


@dataclass
class _Run:
    """A run that cells wait for: what it costs, and which cells it answers, by its course too."""

    preset: CellPreset
    seconds: float
    cells: list[Standing]


def _answer_runs(found: Sequence[Standing], runner: Runner, end: float, tally: _Tally) -> bool:
    """Make runs until the end; return whether one was cut short there. One that takes too long is left half done."""
    budget, slowed = end - time.monotonic(), _slowed()
    crowded = (
        f"the machine has a load of {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores" if slowed > 1 else ""
    )
    beside = f" on an idle machine, and {crowded}" if crowded else ""
    waiting = _runs([one for one in found if one.runnable and one.seconds is not None])
    while waiting := [run for run in waiting if tally.still_open(run.cells)]:
        run = min(waiting, key=lambda run: run.seconds / len(tally.still_open(run.cells)))
        waiting.remove(run)
        cells, left = tally.still_open(run.cells), end - time.monotonic()
        if run.seconds > left:
            continue
        title = _title(run.preset)
        if crowded and all(one.entry.preset.metric in TIMES for one in cells):
            tally.refuse(f"{title}: times alone, and {crowded}")
            continue
        tally.tell(f"{title}: {counted(len(cells), 'cell')}, about {run.seconds:.3g} s{beside}")
        most = _most(run.seconds, budget, slowed)
        reason, ended = _answered(run.preset, runner, min(left, most))
        if ended and left <= most:
            return True
        if ended:
            reason = f"cut short after {most:.0f} s, far above its estimate; what it solved is stored"
        if reason:
            tally.refuse(f"{title}: {reason}")
        else:
            tally.answered |= {id(one) for one in cells}
    return False


def _answered(preset: CellPreset, runner: Runner, most: float) -> tuple[str, bool]:
    """Make a run for at most so many seconds; return why it gave no answer, and whether the time ended it."""
    try:
        with _until(most):
            return answer(preset, runner), False
    except BudgetSpentError:
        return "", True
    except Exception as error:  # whatever goes wrong with one run must not end the others
        if debugging():
            raise
        return f"{type(error).__name__}: {' '.join(str(error).split())}", False


def _most(seconds: float, budget: float, slowed: float) -> float:
    """Seconds that a run may take: some times its estimate, but of the whole budget a share unless it was to need more."""
    expected = seconds * slowed
    return max(min(PATIENCE * expected, SHARE * budget), LEAST_PATIENCE * expected) + 60.0


def _answer_functions(found: Sequence[Standing], runner: Runner, end: float, tally: _Tally) -> bool:
    """Call functions until the end; return whether one was cut short there."""
    for preset, cells in _functions(found):
        table, left = cells[0].table, end - time.monotonic()
        if left <= 0:
            return False
        name = f"{table.paper} {table.label}"
        tally.tell(f"{name}: {counted(len(cells), 'cell')} by a function that runs networks itself")
        try:
            with _until(left):
                rules = load_preset(table.paper, table.number)
                computed = runner.compute(preset.compute, rules, table, "cpu")
        except BudgetSpentError:
            return True
        if isinstance(computed, Verdict):
            tally.refuse(f"{name}: {computed.reason}")
        else:
            tally.answered |= {id(c) for c in cells if (c.entry.cell.row, c.entry.cell.column) in computed}
    return False


def _runs(cells: Sequence[Standing]) -> list[_Run]:
    """The runs behind cells; cells that differ in what they read of the records share one.

    One repeat each; a reference is made for gaps alone, which it may cost more than the run.
    """
    runs: dict[str, _Run] = {}
    for one in cells:
        preset = one.entry.preset
        plain = replace(
            preset, metric="gap", count=one.instances, repeats=1, printed_count=0, note="", readings={},
            trained_on=0, trained_samples=0, same_instances=False, paper_sets=(), paper_instances=0, full_limit=0.0,
            gap_unstated=False,
            reference=preset.reference if preset.needs_reference and _generated(preset) else "",
        )  # fmt: skip
        plain = replace(plain, batch_size=plain.batch_size if plain.batch_size > 1 else 0)
        runs.setdefault(repr(plain), _Run(plain, one.seconds or 0.0, [])).cells.append(one)
    searches: dict[str, list[_Run]] = {}
    for run in runs.values():
        if known := search_of(run.preset.decoding):
            searches.setdefault(repr(replace(run.preset, decoding=known[0])), []).append(run)
    for alike in searches.values():
        alike.sort(key=lambda run: (search_of(run.preset.decoding) or ("", 0))[1])
        for shorter, longer in pairwise(alike):
            told = (one for one in shorter.cells if one.entry.preset.metric in OF_COURSES)
            longer.cells = [*longer.cells, *told]
    return list(runs.values())


def _functions(found: Sequence[Standing]) -> list[tuple[CellPreset, list[Standing]]]:
    """Open cells by the function that computes them, one call per table; what it takes is not known before."""
    calls: dict[tuple[str, str, str], tuple[CellPreset, list[Standing]]] = {}
    for one in found:
        preset = one.entry.preset
        if one.entry.verdict.status == "not run" and preset.compute.startswith(RUNS_NETWORKS):
            key = (preset.compute, one.table.paper, str(one.table.number))
            calls.setdefault(key, (preset, []))[1].append(one)
    return list(calls.values())


def _slowed() -> float:
    """How many times longer work takes beside what else this machine has to do; 1 where nobody knows."""
    if not hasattr(os, "getloadavg"):
        return 1.0
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def _generated(preset: CellPreset) -> bool:
    """Whether any of a cell's sets has no references of its own."""
    return any(stream_of(name) is not None for name in preset.mean_of or preset.data[:1])


def _title(preset: CellPreset) -> str:
    sets = ", ".join(preset.mean_of or preset.data[:1])
    return f"{' '.join(filter(None, (preset.solver, preset.decoding)))} on {sets}, {counted(preset.count, 'instance')}"


@contextmanager
def _until(budget: float) -> Iterator[None]:
    """Raise `BudgetSpentError` in this thread after so many seconds, and again while Python swallows it.

    An exception out of a destructor or of a callback of C code goes nowhere, and the run would go on for good.
    """
    before = signal.signal(signal.SIGALRM, _spent)
    signal.setitimer(signal.ITIMER_REAL, max(budget, 1e-3), AGAIN_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let a polite kill and a terminal that goes away end the budget, so that what was got is still told."""
    ending = [
        number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_DFL
    ]
    for number in ending:
        signal.signal(number, _killed)
    try:
        yield
    finally:
        for number in ending:
            signal.signal(number, signal.SIG_DFL)


def _spent(*_: object) -> None:
    raise BudgetSpentError


def _killed(*_: object) -> None:
    raise KilledError

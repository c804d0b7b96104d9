"""What an open cell would cost: seconds of the nearest stored record, scaled by size and number by one stated rule."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from nco_bench.cards import cards
from nco_bench.datasets.libraries import select
from nco_bench.datasets.names import parse_generated, stream_of
from nco_bench.papers.measuring import crowding
from nco_bench.papers.preset import CellPreset
from nco_bench.papers.stored import Stored, configuration
from nco_bench.reports.frame.result_frame import OK

EXPONENT = 2.0
"""Time grows with the size to this power where two stored sizes do not say otherwise."""
BOUNDS = (1.0, 2.5)
"""Between which a power that stored sizes say is believed."""
APART, PROOF = 3.0, 5.0
"""How far apart the two sizes are that say how an exact solver's time grows, and up to which power that is believed."""
KNEE = 1000.0
"""Nodes below which the power of a network's card says nothing yet."""
RULE = (
    "seconds of an instance of the nearest stored size, same solver, decoding and problem, of the quickest run, less what "
    "else the machine had to do, times (size / stored size)^p, p from the smallest and the largest stored size, kept "
    f"between {BOUNDS[0]:g} and {BOUNDS[1]:g}, {EXPONENT:g} where one is stored, beyond all stored sizes and {KNEE:,.0f} "
    "nodes at least what the solver's card says (3 where a step attends to all pairs of nodes); times the instances that "
    "are missing, with those of references that are not there; without records of the decoding those of the solver's other "
    "decodings, by the tours each makes (an iteration of RRC is one of at most 1,000 nodes, of PRC as many of these as the "
    "tour has); without records of the solver the middle one of its family; a time limit bounds it. Of exact solvers, "
    "whose time differs a hundredfold between instances of a size, the mean of all stored runs of the nearest size, those "
    f"that a limit ended among them, p between that and the next one of at most 1/{APART:g} of it, up to {PROOF:g}"
)
LONGEST_PART = 1000
"""Nodes that an iteration of RRC or PRC solves again, at most."""
_SIZE = re.compile(r"[a-z]+[-_]?[a-z]*?(\d+)")
_TOURS = re.compile(r"(?:beam|sample|rrc|prc|x|multistart)[:]?(\d+)")


@dataclass(frozen=True)
class Seen:
    """Mean seconds of an instance of one stored configuration at one mean size."""

    solver: str
    family: str
    decoding: str
    problem: str
    params: tuple[tuple[str, str], ...]
    n: float
    seconds: float
    limit: float
    count: int = 1


@dataclass(frozen=True)
class Cost:
    """Expected seconds of one instance, and what that comes from."""

    seconds: float
    basis: str


class Costs:
    """The stored times, asked for the nearest."""

    def __init__(self, stored: Stored) -> None:
        self._seen: list[Seen] = []
        self._sizes: dict[str, float] = {}
        if stored.frame is None:
            return
        records = stored.frame.records
        answered = records[(records["seconds"] > 0) & (records["status"] == OK)]  # a crash comes soon
        means = answered.groupby("group").agg(
            n=("n", "mean"), seconds=("seconds", "mean"), count=("seconds", "size")
        )
        for code, n, seconds, count in means.itertuples():
            group = stored.frame.groups[int(code)]
            cell, known = group.cell, cards().get(group.cell.solver)
            self._sizes |= dict.fromkeys([*group.whole.names, *group.sources], float(n))
            params = tuple(sorted((cell.options.get("params") or {}).items()))
            family = "" if known is None else known.family
            limit = float(cell.options.get("time_limit") or 0.0)
            alone = float(seconds) / crowding(group.environments)
            self._seen.append(
                Seen(cell.solver, family, cell.decoding, cell.problem, params, n, alone, limit, int(count))
            )

    def size(self, name: str) -> float | None:
        """Return the size of a dataset's instances by its name (of a library's, root mean square), or by what is stored."""
        if stream_of(name) is not None:
            spec = parse_generated(name)
            return None if spec is None else float(spec.n)
        if name in self._sizes:
            return self._sizes[name]
        if name.startswith(("tsplib", "cvrplib")):
            return math.sqrt(sum(entry.n**2 for entry in select(name)) / len(select(name)))
        found = _SIZE.match(name)
        return float(found[1]) if found else None

    def of_instance(self, preset: CellPreset) -> Cost | None:
        """Return what one instance of a preset's first dataset would cost; None where nothing near is stored."""
        if not preset.data or (n := self.size(preset.data[0])) is None:
            return None
        solver, decoding, _, _, params, limit = configuration(preset)
        known = cards().get(solver)
        problem = next((p for p in ("cvrp", "bpp3d") if p in preset.data[0]), "tsp")
        alike = [s for s in self._seen if s.problem == problem]
        if known is not None and known.kind == "exact" and (own := [s for s in alike if s.solver == solver]):
            seconds, seen = _proven(own, n)
            return Cost(min(seconds, limit or seconds), f"{solver}: all runs at n = {seen.n:.0f}")
        near = [s for s in alike if not s.limit]  # a limit says nothing of other sizes
        for fitting, said in (
            ([s for s in near if (s.solver, s.decoding, s.params) == (solver, decoding, params)], solver),
            ([s for s in near if s.solver == solver], f"{solver}, another decoding or parameter"),
            ([s for s in near if known is not None and s.family == known.family], "its family"),
        ):
            if fitting:
                seconds, seen = _scaled(fitting, n, decoding, 0.0 if known is None else known.growth)
                return Cost(
                    min(seconds, limit or seconds),
                    f"{said}: {seen.solver} {seen.decoding} at n = {seen.n:.0f}",
                )
        return Cost(limit, "its time limit") if limit else None


def _scaled(fitting: list[Seen], n: float, decoding: str, growth: float) -> tuple[float, Seen]:
    """Of those of the nearest size the quickest, or the middle one of several solvers, scaled to size and tours."""
    nearest = min(abs(math.log(seen.n / n)) for seen in fitting)
    here = [seen for seen in fitting if abs(math.log(seen.n / n)) <= nearest + 1e-9]
    power, knee = _power(fitting), max(KNEE, max(seen.n for seen in fitting))

    def tour(size: float) -> float:
        beyond = max(size / knee, 1.0)
        return float(size**power * beyond ** max(growth - power, 0.0))

    found = [(s.seconds * _work(decoding, n, tour) / _work(s.decoding, s.n, tour), s) for s in here]
    several = len({seen.solver for _, seen in found}) > 1
    return sorted(found, key=lambda pair: pair[0])[len(found) // 2 if several else 0]


def _proven(fitting: list[Seen], n: float) -> tuple[float, Seen]:
    """Of an exact solver: the mean of all instances of the nearest size, scaled as time grew towards that size."""
    seen = min(fitting, key=lambda s: abs(math.log(s.n / n)))
    smaller = [s.n for s in fitting if s.n * APART <= seen.n]
    here, power = _mean(fitting, seen.n), EXPONENT
    if smaller:
        power = math.log(here / _mean(fitting, max(smaller))) / math.log(seen.n / max(smaller))
    return here * (n / seen.n) ** min(max(power, BOUNDS[0]), PROOF), seen


def _mean(fitting: list[Seen], n: float) -> float:
    here = [s for s in fitting if s.n == n]
    return sum(s.seconds * s.count for s in here) / sum(s.count for s in here)


def _power(fitting: list[Seen]) -> float:
    """By what power the time grows from the smallest stored size to the largest, at equal settings."""
    small, large = min(fitting, key=lambda s: s.n), max(fitting, key=lambda s: s.n)
    alike = (small.solver, small.decoding) == (large.solver, large.decoding)
    if not alike or large.n < 1.5 * small.n:
        return EXPONENT
    power = math.log(large.seconds / small.seconds) / math.log(large.n / small.n)
    return min(max(power, BOUNDS[0]), BOUNDS[1])


def _work(decoding: str, n: float, tour: Callable[[float], float]) -> float:
    """Work of one decoding, in units of `tour`, which is that of a tour of so many nodes."""
    found = _TOURS.match(decoding)
    # One start per node where no number says how many.
    starts = round(n) if decoding.startswith("multistart") else 1
    tours = max(1, int(found[1])) if found else starts
    if decoding.endswith("+x8"):
        tours *= 8
    part = tour(min(n, LONGEST_PART))
    if decoding.startswith("rrc"):
        return tour(n) + tours * part
    if decoding.startswith("prc"):  # all parts of the tour at a time
        return tour(n) + tours * max(1.0, n / LONGEST_PART) * part
    return tours * tour(n)

"""No step of a construction makes the host wait for the device, or the device for the host.

A wait is a value that is read back (``item``, ``tolist``, ``bool``, a copy to the CPU) or an operation whose result has a
shape that the host must know (``nonzero``, masks as indices). A longer construction must have no more of them. Copies
from the host are counted in the same way.
"""

from __future__ import annotations

import math
from collections import Counter

import pytest
import second
from sweep import solved
from test_solvers import BOTH, PATH, STEPWISE

SIZES = 5, 9
OUTSIDE = Counter(tour_arrays=1, route_arrays=2, solution_arrays=1, cvrp_demands=3, _checked=1)
"""Waits that every construction may have, before its first step and behind its last, by function."""

LOOKS = {"am": "to_come", "pomo": "to_come", "elg": "to_come", "invit-2v": "move"}
"""CVRP with visits of the depot as moves of their own: only the device knows when all vehicles are done. It is asked once
nobody can be said to have moves left, and then again after as many moves as the slowest needs at least."""


@pytest.mark.parametrize(("problem", "names"), [("tsp", (*PATH, *STEPWISE)), ("cvrp", BOTH)])
def test_no_step_of_greedy_waits(problem: str, names: tuple[str, ...]) -> None:
    for name in names:
        seen, uploads = [], []
        for size in SIZES:
            with second.watching() as watch:
                solved(name, f"{problem}{size}:count=2", second.NAME, "greedy")
            seen.append(by_function(watch.waits))
            uploads.append(sum(watch.uploads.values()))
        assert uploads[0] == uploads[1], f"{name}: {watch.uploads}"
        allowed = LOOKS.get(name) if problem == "cvrp" else None
        for size, waits in zip(SIZES, seen, strict=True):
            looks = waits.pop(allowed or "", 0)
            assert looks <= 2 + math.log2(size), f"{name}: {looks} looks"
            assert waits <= OUTSIDE, f"{name}: {waits}"


@pytest.mark.parametrize("decoding", ["beam:2", "sample:2", "rrc:2", "prc:2"])
def test_no_step_of_other_decodings_waits(decoding: str) -> None:
    seen = []
    for size in SIZES:
        with second.watching() as watch:
            solved("lehd", f"tsp{size}:count=2", second.NAME, decoding)
        seen.append(by_function(watch.waits))
    assert seen[0] == seen[1]
    assert seen[0] <= OUTSIDE + Counter(report=3), "costs are told once per iteration"


def by_function(waits: Counter[tuple[str, str]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for (_, place), count in waits.items():
        found[place.rpartition(" ")[2]] += count
    return found


@pytest.mark.parametrize("name", ["lehd", "pens-a", "am", "dgl", "invit-2v"])
def test_no_recorded_step_waits(name: str) -> None:
    seen, uploads = [], []
    for size in (9, 13):  # candidates up to 8, and up to 16: a shape more
        with second.watching() as watch:
            solved(name, f"tsp{size}:count=2", second.NAME, "greedy", {"graphs": "on"})
        seen.append(by_function(watch.waits))
        uploads.append(sum(watch.uploads.values()))
    assert uploads[0] == uploads[1], watch.uploads
    assert seen[0] == seen[1]
    assert seen[0] <= OUTSIDE

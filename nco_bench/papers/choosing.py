"""Which open numbers a command is about, and how much of each a run solves: by solver, instances and time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from nco_bench.errors import UnknownNameError
from nco_bench.papers.courses import search_of
from nco_bench.papers.standing import Standing
from nco_bench.papers.stored import Stored

OPEN = ("not run", "too long", "weights missing")
"""Statuses of cells that records could still answer."""


def of_solvers(found: Sequence[Standing], only: Sequence[str], skip: Sequence[str]) -> list[Standing]:
    """Keep the numbers of some solvers, or leave those of some out; ``*`` in a name stands for anything.

    Raises
    ------
    UnknownNameError
        For a name that fits no solver of these numbers.
    """
    names = dict.fromkeys(one.solver for one in found if one.solver)
    for pattern in (*only, *skip):
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UnknownNameError("solver of these tables", pattern, names)

    def wanted(name: str) -> bool:
        asked = not only or any(fnmatchcase(name, pattern) for pattern in only)
        return asked and not any(fnmatchcase(name, pattern) for pattern in skip)

    return [one for one in found if wanted(one.solver)]


def at_most(found: Sequence[Standing], limit: int) -> list[Standing]:
    """Let runs solve no more than so many instances, and cost as much less; a number that needs the whole set stays."""
    return [
        replace(
            one, instances=limit, seconds=None if one.seconds is None else one.seconds * limit / one.instances
        )
        if one.instances > limit and not one.entry.preset.reference_mean
        else one
        for one in found
    ]


def within(found: Sequence[Standing], limit: float, stored: Stored) -> list[Standing]:
    """Let searches that would take longer end after so many seconds an instance; what they have found then is stored.

    One of which a stored run made no iteration in that time cannot run: it would be the same again.
    """
    return [_within(one, limit, stored) for one in found]


def _within(one: Standing, limit: float, stored: Stored) -> Standing:
    most = one.instances * limit * max(1, len(one.entry.preset.mean_of)) + one.reference_seconds
    preset = one.entry.preset
    if search_of(preset.decoding) is None or preset.time_limit or one.seconds is None or one.seconds <= most:
        return one
    if stored.fruitless(preset, limit):
        return replace(one, instances=0, needs=f"a --time-limit above {limit:g} s")
    return replace(one, seconds=most, entry=replace(one.entry, preset=replace(preset, time_limit=limit)))


def document(found: Sequence[Standing]) -> dict[str, list[dict[str, Any]]]:
    """Return counts per paper, table and status, and the open cells, cheapest first."""
    counts: dict[tuple[str, str, str], int] = {}
    for one in found:
        key = (one.table.paper, str(one.table.number), one.entry.verdict.status)
        counts[key] = counts.get(key, 0) + 1
    return {
        "counts": [{"paper": p, "table": t, "status": s, "cells": n} for (p, t, s), n in counts.items()],
        "open": [one.as_dict() for one in cheapest_first(found)],
    }


def cheapest_first(found: Sequence[Standing]) -> list[Standing]:
    """Return the open cells: those that can run by cost, unknown costs behind, then those without weights."""
    left = [one for one in found if one.entry.verdict.status in OPEN or (one.few and one.runnable)]

    def place(one: Standing) -> tuple[bool, bool, float]:
        return not one.runnable, one.seconds is None, one.seconds or 0.0

    return sorted(left, key=place)

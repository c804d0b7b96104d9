"""What a shorter search would have found, from the stored course of a longer one: its first iterations are the same.

What an iteration of RRC or PRC draws depends on its number and the instance's seed alone
(`nco_bench.solvers.path.reconstruction`), so what ``prc:k`` ends with is where a longer one stands after k iterations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import pandas as pd

from nco_bench.reports.figures.anytime import traces_of
from nco_bench.reports.frame.best_known import gap_percents
from nco_bench.runs.stored_run import Run

OF_COURSES = ("gap", "gap-of-means", "cost", "seconds")
"""Metrics that a course tells; the memory and the latency of a shorter search it does not."""
_SEARCH = re.compile(r"(?P<name>rrc|prc):(?P<iterations>\d+)(?P<rest>,.*)?")


def search_of(decoding: str) -> tuple[str, int] | None:
    """Return what searches of any length share of a decoding, and its iterations; None for what keeps no course."""
    found = _SEARCH.fullmatch(decoding)
    return (found["name"] + (found["rest"] or ""), int(found["iterations"])) if found else None


def shortened(records: pd.DataFrame, runs: tuple[Run, ...], iterations: int) -> pd.DataFrame:
    """Return the records of a search as they would be after fewer iterations.

    Parameters
    ----------
    records, runs
        Rows of one group of a `nco_bench.reports.frame.result_frame.ResultFrame`, and its runs.
    iterations
        Of the shorter search.

    Returns
    -------
    DataFrame
        The records whose course is stored that far, with cost, gap and seconds of that moment. The solver's own lengths are
        scaled so that the last is the scored cost, as in curves of anytime solvers, and its times so that the last is
        the instance's share of its batch.
    """
    places, costs, seconds = [], [], []
    columns = (records[name] for name in ("run", "solution_offset", "cost", "seconds"))
    for place, (run, offset, cost, whole) in enumerate(zip(*columns, strict=True)):
        points = _courses(runs[int(run)]).get(int(offset), [])
        if len(points) > iterations and cost > 0:
            (since, length), (until, last) = points[iterations], points[-1]
            places.append(place)
            costs.append(cost * length / last)
            seconds.append(whole * since / until)
    part, found = records.iloc[places], np.array(costs)
    gaps = gap_percents(found, part["reference"].to_numpy(), 1.0)  # lengths: the lower the better
    return part.assign(cost=found, gap_percent=gaps, seconds=np.array(seconds))


def iterations_made(records: pd.DataFrame, runs: tuple[Run, ...]) -> list[int]:
    """Return how many iterations each record's search has made by its course; parameters as `shortened`.

    That is 0 where a solution has no course: archives may leave out what a search only began with.
    """
    solved = records[records["cost"].notna()]
    columns = (solved[name] for name in ("run", "solution_offset"))
    found = (_courses(runs[int(run)]).get(int(offset), []) for run, offset in zip(*columns, strict=True))
    return [max(0, len(points) - 1) for points in found]


@lru_cache(maxsize=64)
def _courses(run: Run) -> Mapping[int, list[tuple[float, float]]]:
    return traces_of(run)

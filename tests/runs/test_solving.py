"""Seeds, seconds and gaps of what a solver returned, by hand: nothing else would tell if one were another's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nco_bench.datasets.dataset import Reference
from nco_bench.datasets.generate import generate
from nco_bench.reports.frame.best_known import gap_percents
from nco_bench.runs import solving
from nco_bench.runs.judge import gap_percent
from nco_bench.runs.request import SEEDS, seed_of
from nco_bench.runs.runner import _batches, gaps_of
from nco_bench.solvers.protocol import Solved

SET = generate("tsp", 5, 4, "uniform", 7)


class OneAtATime:
    """Runs out of memory with more than one instance, and notes the seeds it is given."""

    def __init__(self) -> None:
        self.seeds: list[int] = []

    def solve(self, batch: Any, *, seed: int, time_limit: Any, progress: Any) -> Any:
        if len(batch) > 1:
            raise MemoryError
        self.seeds.append(seed)
        progress(1)
        return [np.arange(instance.n) for instance in batch]


def test_each_part_of_a_halved_batch_keeps_the_seeds_and_times_of_its_instances(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    solver, reached, clock = OneAtATime(), list[int](), iter([0.5, 1.0, 2.0, 4.0])
    monkeypatch.setattr(solving, "timed", lambda call, device: (call(), next(clock)))
    done: Any = solving.solve_batch(
        solver,  # type: ignore[arg-type]
        SET.instances,
        seed=10,
        time_limit=None,
        device="cpu",
        progress=reached.append,
    )
    assert solver.seeds == [10, 11, 12, 13]
    assert reached == [1, 2, 3, 4]
    assert (done.seconds, done.elapsed) == ([0.5, 1.0, 2.0, 4.0], 7.5)


def test_a_batch_is_shared_evenly_or_by_the_solvers_own_clock() -> None:
    """Of 6 s: 2 for each of three; by their own 1, 2 and 9 s a half, 1 and 4.5; one without a clock leaves none."""
    tour = np.arange(5)
    assert solving._split([tour, tour, tour], 6.0) == [2.0, 2.0, 2.0]
    own = [Solved(tour, seconds=seconds) for seconds in (1.0, 2.0, 9.0)]
    assert solving._split(own, 6.0) == pytest.approx([0.5, 1.0, 4.5])
    assert solving._split([*own[:2], tour], 6.0) == [2.0, 2.0, 2.0]


def test_the_latency_is_the_median_without_the_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([9.0, 1.0, 6.0, 2.0])
    monkeypatch.setattr(solving, "timed", lambda call, device: (call(), next(clock)))
    request: Any = SimpleNamespace(seed=3, time_limit=None)
    assert solving.time_alone(OneAtATime(), SET.slice(1, 3), request, "cpu") == 2.0  # type: ignore[arg-type]


def test_seeds_of_repeats_never_meet_and_stay_below_their_limit() -> None:
    assert [seed_of(1234, 5, repeat) for repeat in (0, 1, 2)] == [1239, 1_001_242, 2_001_245]
    assert seed_of(SEEDS - 2, 3, 0) == 1


def test_what_is_stored_of_one_repeat_is_not_done_in_another() -> None:
    request: Any = SimpleNamespace(repeats=2, seed=1)
    cell: Any = SimpleNamespace(batch_size=2, objective="min")
    blocks = list(_batches(request, cell, SET.slice(1, 4), {(0, 2): 1.0, (1, 1): 1.0}))
    assert blocks == [(0, range(1, 2)), (0, range(3, 4)), (1, range(2, 4))]


def test_the_gap_that_goes_on_is_that_of_what_was_stored_with_a_reference() -> None:
    """Gaps of 10 and 20 % of instances 1 and 3; of instance 2 no reference is known, one solve failed."""
    cell: Any = SimpleNamespace(objective="min")
    part = SET.with_references([Reference(99.0, "x"), Reference(10.0, "x"), None, Reference(5.0, "x")]).slice(
        1, 4
    )
    found = gaps_of(cell, part, {(0, 1): 11.0, (0, 2): 7.0, (0, 3): 6.0, (1, 1): None})
    assert (found.total, found.number) == (pytest.approx(30.0), 2)


@pytest.mark.parametrize(
    ("cost", "reference", "objective", "expected"),
    [
        (12.0, 10.0, "min", 20.0),
        (8.0, 10.0, "min", -20.0),
        (8.0, 10.0, "max", 20.0),
        (-8.0, -10.0, "min", 20.0),
        (0.0, 0.0, "min", 0.0),
        (1.0, 0.0, "min", None),
    ],
)
def test_a_gap_is_to_the_size_of_the_reference_and_positive_where_worse(
    cost: float, reference: float, objective: str, expected: float | None
) -> None:
    assert gap_percent(cost, reference, objective) == expected
    sign = 1.0 if objective == "min" else -1.0
    table = float(gap_percents(np.array([cost]), np.array([reference]), sign)[0])
    assert table == expected or (np.isnan(table) and expected is None)

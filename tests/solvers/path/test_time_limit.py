"""A time limit ends a construction within a step: with what is whole by then, else as a failure that says so."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from nco_bench.cli import app
from nco_bench.runs.finding import find_runs
from nco_bench.solvers.decoding.spec import parse_decoding
from nco_bench.solvers.path import step
from nco_bench.solvers.path.decode import Trace, decode_path
from nco_bench.solvers.path.problem import tour_lengths
from nco_bench.solvers.path.step import TimeIsUpError

Make = Callable[..., nn.Module]
COORDS = torch.rand(2, 11, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def slow_clock(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let each step of a construction take so many seconds."""
    begun, steps = time.monotonic(), count(1)
    clock = SimpleNamespace(monotonic=lambda: begun + seconds * next(steps))
    monkeypatch.setattr(step, "time", clock)


@pytest.mark.parametrize("text", ["greedy", "beam:3", "sample:4", "multistart:3", "x8", "prc:3,init=greedy"])
def test_a_construction_that_the_limit_ends_says_how_far_it_was(
    text: str, make_policy: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_clock(monkeypatch, 100.0)
    monkeypatch.setattr("torch.get_num_threads", lambda: 1)
    with pytest.raises(TimeIsUpError, match=r"the time limit came after 4 of 10 steps of a construction"):
        decode_path(make_policy("lehd"), COORDS, decoding=parse_decoding(text), time_limit=450.0)


def test_what_is_whole_when_the_limit_comes_is_kept(
    make_policy: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = make_policy("lehd")
    first = decode_path(policy, COORDS, decoding=parse_decoding("greedy"))
    monkeypatch.setattr("torch.get_num_threads", lambda: 1)
    slow_clock(monkeypatch, 100.0)  # nine steps a construction: the last node is not asked for
    kept = decode_path(policy, COORDS, decoding=parse_decoding("multistart:3"), time_limit=1_150.0)
    assert [tour.tolist() for tour in kept] == [tour.tolist() for tour in first]  # that from node 0


@pytest.mark.parametrize("text", ["greedy", "rrc:5", "prc:5"])
def test_a_limit_that_is_not_reached_changes_nothing(text: str, make_policy: Make) -> None:
    policy, decoding = make_policy("lehd"), parse_decoding(text)
    plain, limited = (decode_path(policy, COORDS, decoding=decoding, time_limit=t) for t in (None, 1e6))
    assert [tour.tolist() for tour in plain] == [tour.tolist() for tour in limited]


def test_a_record_says_that_the_limit_ended_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = ["run", "decoder-6x128", "--weights", "random", "--data", "tsp10:count=2"]
    places = ["--results", str(tmp_path), "--instances", str(tmp_path / "none")]
    assert app.run([*command, "--time-limit", "1e-9", *places]) == 1
    (run,) = find_runs(tmp_path)
    records = list(run.records())
    assert [(one.status, one.cost) for one in records] == [("timeout", None)] * 2
    assert {one.message for one in records} == {"the time limit came after 0 of 9 steps of a construction"}
    assert "timeout: the time limit came after 0 of 9 steps" in capfd.readouterr().err


@pytest.mark.parametrize("text", ["rrc:9,init=insertion", "prc:9,init=insertion"])
def test_an_iteration_that_the_limit_ends_counts_for_nothing(
    text: str, make_policy: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, seconds = make_policy("lehd"), 100.0
    monkeypatch.setattr("torch.get_num_threads", lambda: 1)
    whole, cut = Trace(), Trace()
    decode_path(policy, COORDS, decoding=parse_decoding(text), trace=whole)
    slow_clock(monkeypatch, seconds)
    found = decode_path(policy, COORDS, decoding=parse_decoding(text), trace=cut, time_limit=20 * seconds)
    done = len(cut.costs) - 1  # after the initial solution
    assert 0 < done < 9
    assert [costs.tolist() for costs in cut.costs] == [costs.tolist() for costs in whole.costs[: done + 1]]
    tours = torch.tensor(np.stack(found))
    assert tour_lengths(COORDS, tours).tolist() == pytest.approx(cut.costs[-1].tolist())

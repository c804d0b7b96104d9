"""Spending a budget: one run that goes wrong takes no more than its share, and the end is always told."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nco_bench.cli import app
from nco_bench.datasets.load import Places
from nco_bench.papers import filling
from nco_bench.papers.choosing import of_solvers
from nco_bench.papers.costs import Cost, Costs
from nco_bench.papers.filling import BudgetSpentError, _most, _until, fill
from nco_bench.papers.preset import CellPreset
from nco_bench.papers.reproducing import tables_of
from nco_bench.papers.running import Runner
from nco_bench.papers.standing import Standing, standings
from nco_bench.papers.stored import stored_in
from nco_bench.reports.frame.load import load_frame
from nco_bench.runs.display import QuietDisplay


def nco(*arguments: str, results: Path) -> int:
    none = (results.parent if results.is_file() else results) / "none"
    return app.run([*arguments, "--results", str(results), "--instances", str(none)])


def cells(results: Path) -> list[Standing]:
    assert nco("run", "nearest-neighbor", "--data", "tsp30:count=1", results=results) == 0
    return standings(tables_of("tropical", "2"), stored_in([results], None))


def runner(results: Path) -> Runner:
    return Runner(results, Places(results / "none"), QuietDisplay())


def test_a_run_that_would_not_fit_is_not_begun_and_one_that_takes_longer_is_cut_short(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert nco("run", "nearest-neighbor", "--data", "tsp30:count=1", results=small) == 0
    found = standings(tables_of("tropical", "2"), stored_in([small], None))
    (cell,) = [one for one in found if one.runnable]
    runner = Runner(small, Places(small / "none"), QuietDisplay())
    dear = fill([replace(cell, seconds=61.0)], runner, 60.0, lambda _: None)
    assert (dear.answered, dear.left, dear.stopped) == (0, 1, False)
    slow = replace(cell.entry.preset, solver="two-opt", data=("tsp3000:count=4000",))
    longer = replace(cell, entry=replace(cell.entry, preset=slow), seconds=0.01, instances=4000)
    cut = fill([longer], runner, 2.0, lambda _: None)
    assert (cut.answered, cut.stopped) == (0, True)
    assert cut.seconds < 8


def test_an_archive_is_refused_at_once(small: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Each run was refused by itself, and the status was that of success."""
    archive = small.parent / "archive.parquet"
    archive.write_bytes(b"PAR1")
    assert nco("reproduce", "tropical", "--table", "2", "--fill", "--budget", "1m", results=archive) == 2
    assert "archive.parquet: an archive is never added to" in capfd.readouterr().err


def test_what_is_left_says_why(
    small: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It said "0 cells answered, 12 left that can run here", whatever the budget."""
    (cell,) = [one for one in cells(small) if one.runnable]
    for seconds, said in (
        (61.0, "1 left that can run here; the cheapest takes about 61 s"),
        (
            None,
            "1 left that can run here; 1 without an estimate, as nothing near is stored: --table N without --fill",
        ),
    ):
        found = [replace(cell, seconds=seconds)]
        monkeypatch.setattr("nco_bench.papers.standing.standings", lambda *_, found=found, **__: found)
        assert nco("reproduce", "tropical", "--table", "2", "--fill", "--budget", "1m", results=small) == 0
        assert said in capfd.readouterr().err


def test_the_end_of_a_budget_costs_one_small_batch(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a batch holds is kept when all of it is solved, so all 16 instances of a cell were lost together."""
    asked: list[float | None] = []

    def ends(preset: CellPreset, runner: Runner) -> str:
        job = runner.job(preset, runner.dataset(preset)[0])
        asked.append(runner.request(job, "tsp20").batch_seconds)
        return "ended"

    found = cells(small)
    monkeypatch.setattr(filling, "answer", ends)
    fill(found, runner(small), 600.0, lambda _: None)
    fill(found, runner(small), 36_000.0, lambda _: None)
    assert asked == [60.0, 120.0]


def test_a_busy_machine_makes_no_run_for_times_alone(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert nco("run", "nearest-neighbor", "--data", "tsp30:count=1", results=small) == 0
    (cell,) = [one for one in standings(tables_of("tropical", "2"), stored_in([small], None)) if one.runnable]
    runner = Runner(small, Places(small / "none"), QuietDisplay())
    monkeypatch.setattr("os.getloadavg", lambda: (1000.0, 0.0, 0.0))
    done = fill([cell], runner, 60.0, lambda _: None)
    assert (done.answered, done.left) == (0, 1)
    assert "times alone, and the machine has a load of 1000" in done.refused[0]


def test_a_run_that_breaks_is_told_and_does_not_end_the_others(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> str:
        raise RuntimeError("broken\nhere")

    found = cells(small)
    monkeypatch.setattr(filling, "answer", breaks)
    done = fill(found, runner(small), 60.0, lambda _: None)
    assert (done.answered, done.stopped) == (0, False)
    assert done.refused == ("nearest-neighbor on tsp20, 16 instances: RuntimeError: broken here",)


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="signals of Unix")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_polite_kill_ends_the_budget_and_what_was_got_is_told(
    small: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> str:
        os.kill(os.getpid(), number)
        time.sleep(5)
        return ""

    found = cells(small)
    monkeypatch.setattr(filling, "answer", killed)
    before = signal.signal(number, signal.SIG_DFL)
    try:
        done = fill(found, runner(small), 600.0, lambda _: None)
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before)
    assert (done.answered, done.stopped) == (0, True)


def test_the_end_comes_again_where_python_swallowed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception out of a destructor goes nowhere: a fill whose end fell into one ran on for good."""
    swallowed: list[type[BaseException]] = []
    monkeypatch.setattr("sys.unraisablehook", lambda found: swallowed.append(found.exc_type))
    monkeypatch.setattr(filling, "AGAIN_SECONDS", 0.05)

    class Slow:
        def __del__(self) -> None:
            time.sleep(5)  # the end comes here

    def work() -> None:
        Slow()
        time.sleep(5)

    with pytest.raises(BudgetSpentError), _until(0.05):
        work()
    assert swallowed[:1] == [BudgetSpentError]


def test_one_run_takes_no_more_than_its_share() -> None:
    assert _most(10.0, 10_000.0, 1.0) == 5 * 10 + 60
    assert _most(10.0, 10_000.0, 3.0) == 5 * 30 + 60  # beside a load
    assert _most(1_000.0, 8_000.0, 1.0) == 0.25 * 8_000 + 60
    assert _most(7_000.0, 8_000.0, 1.0) == 2 * 7_000 + 60  # it was known to need most of the budget


def test_numbers_of_some_solvers_are_chosen(small: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = cells(small)
    assert [one.solver for one in of_solvers(found, ["near*"], [])] == ["nearest-neighbor"]
    assert not any(one.solver for one in of_solvers(found, [], ["nearest-neighbor"]))
    assert of_solvers(found, [], []) == found
    arguments = ("reproduce", "tropical", "--table", "2", "--status", "--json")
    capfd.readouterr()
    assert nco(*arguments, "--only", "nearest-neighbor", results=small) == 0
    counted: dict[str, Any] = json.loads(capfd.readouterr().out)
    assert [one["needs"] for one in counted["open"]] == ["a run"]
    assert sum(one["cells"] for one in counted["counts"]) == 1


def test_numbers_of_few_instances_are_answered_by_more(
    small: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rules = small.parent / "tropical" / "presets" / "table-2.toml"
    rules.write_text(rules.read_text().replace('"seconds"', '"cost"'))
    assert nco("run", "nearest-neighbor", "--data", "tsp20", "--limit", "2", results=small) == 0

    def few(*arguments: str) -> list[str]:
        capfd.readouterr()
        table = ("reproduce", "tropical", "--table", "2", "--status", "--json")
        assert nco(*table, *arguments, results=small) == 0
        found = json.loads(capfd.readouterr().out)["open"]
        return [one["needs"] for one in found if "stored" in one["needs"]]

    assert few() == few("--least", "2") == few("--least", "16", "--limit", "2") == []
    assert few("--least", "3") == few("--least", "16") == ["16 instances, 2 stored"]
    fill = ("reproduce", "tropical", "--table", "2", "--fill", "--budget", "60s")
    assert nco(*fill, results=small) == 0
    assert "0 cells answered" in capfd.readouterr().err
    assert nco(*fill, "--least", "16", results=small) == 0
    assert len(load_frame(small).select(datasets=["tsp20"]).records) == 16
    assert few("--least", "16") == []
    assert few("--least", "20") == ["20 instances, 16 stored"]


def test_what_other_folders_hold_is_not_solved_again(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Costs, "of_instance", lambda *_: Cost(10.0, "a guess"))
    rules = small.parent / "tropical" / "presets" / "table-2.toml"
    rules.write_text(rules.read_text().replace('"seconds"', '"cost"'))
    packed = tmp_path / "packed"
    assert nco("run", "nearest-neighbor", "--data", "tsp20", "--limit", "5", results=packed) == 0
    found = standings(tables_of("tropical", "2"), stored_in([small, packed], None), least=16)
    (cell,) = [one for one in found if one.few]
    assert cell.seconds == 110.0  # of eleven instances: one of all 16 would not fit into the budget
    adds = replace(runner(small), known=(packed,))
    assert fill([cell], adds, 120.0, lambda _: None).answered == 1
    assert load_frame(small).records["instance"].tolist() == list(range(5, 16))
    assert len(load_frame(packed).records) == 5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--status", "--only", "nearest-neighbour"), "nearest-neighbour"),
        (("--least", "16"), "--least is what --status counts as open"),
        (("--scale", "cpu", "--skip", "nearest-neighbor"), "--only and --skip choose what --status counts"),
    ],
)
def test_a_choice_that_means_nothing_is_refused(
    arguments: tuple[str, ...], said: str, small: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cells(small)
    capfd.readouterr()
    assert app.run(["reproduce", "tropical", "--table", "2", *arguments, "--results", str(small)]) == 2
    assert said in capfd.readouterr().err


def test_the_records_of_most_instances_count_whether_of_one_run_or_of_several(small: Path) -> None:
    run = ("run", "decoder-6x128", "--data", "tsp8")
    assert nco(*run, "--weights", "decoder-6x128", "--limit", "4", results=small) == 0
    assert nco(*run, "--limit", "2", results=small) == 0
    assert nco(*run, "--limit", "3-5", results=small) == 0
    stored = stored_in([small], None)
    asked = CellPreset("cost", "decoder-6x128", decoding="greedy", data=("tsp8",))
    for count, instances in ((16, 5), (5, 5), (4, 4), (2, 2)):
        found = stored.measure(replace(asked, count=count))
        assert found is not None
        assert found.instances == instances

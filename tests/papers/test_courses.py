"""A longer search that is stored answers what a shorter one would find: its first iterations are the same."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from nco_bench.cli import app
from nco_bench.datasets.load import Places
from nco_bench.papers import preset
from nco_bench.papers.choosing import within
from nco_bench.papers.courses import search_of
from nco_bench.papers.filling import _runs, fill
from nco_bench.papers.judging import judge
from nco_bench.papers.published import PublishedCell
from nco_bench.papers.reproducing import tables_of
from nco_bench.papers.running import Runner
from nco_bench.papers.standing import standings
from nco_bench.papers.stored import stored_in
from nco_bench.reports.frame.load import load_frame
from nco_bench.runs.display import QuietDisplay

pytest.importorskip("torch")
SEARCH = preset.CellPreset(
    metric="cost", solver="decoder-6x128", weights=("random",), decoding="prc:4", data=("tsp10",), count=3
)


def nco(*arguments: str, results: Path) -> int:
    return app.run([*arguments, "--results", str(results), "--instances", str(results / "none")])


def run(
    decoding: str, results: Path, data: str = "tsp10:count=3", solver: str = "decoder-6x128", *more: str
) -> None:
    command = ("run", solver, "--weights", "random", "--data", data, "--decoding", decoding, *more)
    assert nco(*command, results=results) == 0


@pytest.mark.parametrize("name", ["prc", "rrc"])
@pytest.mark.parametrize(("solver", "data"), [("decoder-6x128", "tsp10"), ("lehd", "cvrp10")])
def test_a_short_search_is_the_beginning_of_a_long_one(
    name: str, solver: str, data: str, tmp_path: Path
) -> None:
    run(f"{name}:9,init=insertion", tmp_path / "long", f"{data}:count=3", solver)
    run(f"{name}:4,init=insertion", tmp_path / "short", f"{data}:count=3", solver)
    wanted = replace(SEARCH, solver=solver, decoding=f"{name}:4,init=insertion", data=(data,))
    long, short = (stored_in([tmp_path / one], None).measure(wanted) for one in ("long", "short"))
    assert long is not None
    assert short is not None
    assert long.value == pytest.approx(short.value, rel=1e-6)
    assert (long.instances, short.instances) == (3, 3)
    assert (long.course, short.course) == (f"where {name}:9,init=insertion stands after 4 iterations", "")


def test_a_course_tells_costs_and_times_alone_and_of_the_same_search(tmp_path: Path) -> None:
    run("prc:9", tmp_path)
    stored = stored_in([tmp_path], None)
    whole, part = (stored.measure(replace(SEARCH, decoding=f"prc:{k}", metric="seconds")) for k in (9, 4))
    assert whole is not None
    assert part is not None
    assert 0 < (part.value or 0) < (whole.value or 0)
    for other in ("prc:10", "prc:4,init=nearest", "rrc:4", "prc:4+x8", "greedy"):
        assert stored.measure(replace(SEARCH, decoding=other)) is None
    assert stored.measure(replace(SEARCH, metric="memory")) is None
    costs = [stored.measure(replace(SEARCH, decoding=f"prc:{k}")) for k in range(1, 10)]
    values = [round(one.value, 9) for one in costs if one is not None and one.value is not None]
    assert values == sorted(values, reverse=True)
    assert values[-1] == pytest.approx(load_frame(tmp_path).records["cost"].mean(), abs=1e-9)


def test_a_search_that_a_time_limit_has_ended_answers_with_that_said(tmp_path: Path) -> None:
    run("prc:1000000", tmp_path, "tsp10:count=3", "decoder-6x128", "--time-limit", "1.5")
    stored = stored_in([tmp_path], None)
    ended, reached = (stored.measure(replace(SEARCH, decoding=f"prc:{k}")) for k in (500_000, 2))
    assert ended is not None
    assert ended.limited
    assert re.fullmatch(
        r"ended by a time limit of 1.5 s an instance after \d+( to \d+)? of 500000 iterations", ended.course
    )
    assert reached is not None
    assert not reached.limited  # every instance came that far: nothing of a shorter search is missing
    assert reached.course == "where prc:1000000 stands after 2 iterations"
    assert stored.measure(replace(SEARCH, decoding="prc:2000000")) is None
    cell = PublishedCell("row", "cost", "1.0", 1.0, "", None)
    official = replace(ended, instances=20, cell=replace(ended.cell, weights=None))
    verdict = judge(cell, SEARCH, official)
    assert (verdict.status, verdict.reason) == ("not comparable", "a time limit ended the search early")
    assert judge(cell, SEARCH, replace(official, limited=False)).status == "differs"


def test_enough_instances_of_a_search_that_was_ended_come_before_few_of_a_whole_one(tmp_path: Path) -> None:
    run("prc:3", tmp_path, "tsp10:count=1")
    run("prc:1000000", tmp_path, "tsp10:count=3", "decoder-6x128", "--time-limit", "0.3")
    stored = stored_in([tmp_path], None)
    more, times = (stored.measure(replace(SEARCH, decoding="prc:3", metric=m)) for m in ("cost", "seconds"))
    one = stored.measure(replace(SEARCH, decoding="prc:3", count=1))
    assert more is not None
    assert times is not None
    assert one is not None
    assert (more.instances, times.instances, one.instances) == (3, 1, 1)
    assert one.course == "" != more.course


def test_a_search_that_ends_before_its_first_iteration_answers_nothing(tmp_path: Path) -> None:
    run("prc:9,init=insertion", tmp_path, "tsp10:count=3", "decoder-6x128", "--time-limit", "1e-9")
    records = load_frame(tmp_path).records
    assert records["cost"].notna().all()  # the inserted tours
    stored = stored_in([tmp_path], None)
    assert stored.measure(replace(SEARCH, decoding="prc:9,init=insertion")) is None


def test_a_fill_does_not_repeat_a_search_that_made_no_iteration_in_that_time(rows: Path) -> None:
    run("prc:3", rows, "tsp12:count=1")
    run("prc:5", rows, "tsp10:count=2", "decoder-6x128", "--time-limit", "1e-9")
    stored = stored_in([rows], None)
    found = standings(tables_of("tropical", "2"), stored)
    dear = [replace(one, seconds=3600.0) if one.runnable else one for one in found]
    assert len([one for one in dear if one.runnable]) == 2
    again = within(dear, 1e-9, stored)
    stopped = [one.needs for one, was in zip(again, dear, strict=True) if was.runnable]
    assert stopped == ["a --time-limit above 1e-09 s"] * 2
    assert not [one for one in again if one.runnable]
    assert len([one for one in within(dear, 1e-3, stored) if one.runnable]) == 2


def test_the_name_of_a_search_is_split_from_its_length() -> None:
    assert search_of("prc:1000") == ("prc", 1000)
    assert search_of("rrc:50,init=nearest,knn=20") == ("rrc,init=nearest,knn=20", 50)
    assert search_of("prc:10+x8") is None  # the versions keep no course of their own
    assert search_of("greedy") is search_of("sample:10") is None


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A preset of three searches that differ in length alone; the folder for results."""
    folder = tmp_path / "tropical" / "presets"
    folder.mkdir(parents=True)
    (folder / "table-2.toml").write_text("""
        [[rule]]
        cannot = "not here"
        [[rule]]
        column = "(?P<unit>CPU|GPU) time"
        row = "Tropical .*"
        metric = "cost"
        solver = "decoder-6x128"
        weights = "random"
        decoding = "prc:2"
        data = "tsp10"
        count = 2
        [[rule]]
        column = "CPU time"
        decoding = "prc:5"
    """)
    monkeypatch.setattr(preset, "paper_room", lambda paper: tmp_path / paper)
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    return tmp_path / "results"


def test_one_run_answers_the_cells_of_shorter_searches(rows: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run("prc:3", rows, "tsp12:count=1")
    found = standings(tables_of("tropical", "2"), stored_in([rows], None))
    runs = {one.preset.decoding: len(one.cells) for one in _runs([one for one in found if one.runnable])}
    assert runs == {"prc:2": 1, "prc:5": 2}
    dear = [replace(one, seconds=1.0 if one.entry.preset.decoding == "prc:2" else 1.5) for one in found]
    said: list[str] = []
    done = fill(dear, Runner(rows, Places(rows / "none"), QuietDisplay()), 100.0, said.append)
    assert (done.answered, done.left, done.refused) == (2, 0, ())
    assert [line for line in said if "prc" in line] == [
        "decoder-6x128 prc:5 on tsp10, 2 instances: 2 cells, about 1.5 s"
    ]
    capfd.readouterr()
    arguments = ("reproduce", "tropical", "--table", "2", "--status", "--json")
    assert nco(*arguments, results=rows) == 0
    assert not [one for one in json.loads(capfd.readouterr().out)["open"] if one["needs"] == "a run"]


def test_a_fill_ends_long_searches_at_the_time_limit(rows: Path) -> None:
    run("prc:3", rows, "tsp12:count=1")
    stored = stored_in([rows], None)
    found = standings(tables_of("tropical", "2"), stored)
    dear = [replace(one, seconds=3600.0) if one.runnable else one for one in found]
    limited = within(dear, 0.05, stored)
    assert [one.seconds for one in limited if one.runnable] == [2 * 0.05] * 2
    assert within(found, 1e6, stored) == found
    done = fill(limited, Runner(rows, Places(rows / "none"), QuietDisplay()), 100.0, lambda _: None)
    assert (done.answered, done.left, done.refused) == (2, 0, ())
    (cell,) = {
        one.cell.decoding: one.cell for one in load_frame(rows).groups if one.cell.options.get("time_limit")
    }.values()
    assert (cell.decoding, cell.options["time_limit"]) == ("prc:5", 0.05)
    left = standings(tables_of("tropical", "2"), stored_in([rows], None))
    assert not [one for one in left if one.runnable]

"""Stored runs as things: listed, shown, removed whole or not at all, merged without loss, exported row by row."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nco_bench.cli.app import run
from nco_bench.runs.finding import find_runs

Command = Callable[..., tuple[str, str]]
RESULTS = Path("results/runs")


@pytest.fixture
def nco_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """The command line in this process, in an empty folder; returns what it prints on stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    for name in ("NCO_BENCH_MIRROR", "NCO_BENCH_RESULTS", "NCO_BENCH_INSTANCES"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: str, status: int = 0) -> tuple[str, str]:
        capfd.readouterr()
        found = run(list(arguments))
        out, err = capfd.readouterr()
        assert found == status, err
        return out, err

    return call


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def keys(folder: Path) -> Counter[str]:
    return Counter(record.key for one in find_runs(folder) for record in one.records())


def cells(nco_bench: Command, *arguments: str) -> list[dict[str, Any]]:
    (table,) = json.loads(nco_bench("report", "--json", *arguments)[0])["tables"]
    return table["cells"]


def test_runs_are_listed_and_filtered(nco_bench: Command) -> None:
    nco_bench("run", "nearest-neighbor", "two-opt", "--data", "tsp30", "--limit", "3")
    nco_bench("run", "nearest-neighbor", "--data", "tsp20:count=5", "--seed", "7")
    first, second = json.loads(nco_bench("runs", "list", "--json")[0])
    assert (first["records"], first["solvers"]) == (6, ["nearest-neighbor", "two-opt"])
    assert (second["records"], second["datasets"], second["seeds"]) == (5, ["tsp20:count=5"], [7])
    assert first["run"] < second["run"]
    assert first["started"] == f"{first['run'][:4]}-{first['run'][4:6]}-{first['run'][6:8]} " + ":".join(
        first["run"][i : i + 2] for i in (9, 11, 13)
    )

    def listed(*arguments: str) -> list[str]:
        return [one["run"] for one in json.loads(nco_bench("runs", "list", "--json", *arguments)[0])]

    assert listed("--solver", "two-*") == [first["run"]]
    assert listed("--data", "tsp2*") == [second["run"]]
    assert listed("--data", "tsp2*", "--data", "tsp30") == [first["run"], second["run"]]
    assert listed("--data", "tsp2*", "--solver", "two-opt") == []
    printed, _ = nco_bench("runs", "list")
    assert [line.split()[0] for line in printed.splitlines()[1:]] == [first["run"], second["run"]]


def test_a_mistyped_folder_beside_a_good_one_is_said(nco_bench: Command) -> None:
    nco_bench("run", "nearest-neighbor", "--data", "tsp9:count=2")
    both = ("--results", str(RESULTS), "--results", "reslts/more")
    asked: tuple[tuple[str, ...], ...] = (
        ("report",),
        ("compare", "a", "b", "--data", "tsp9"),
        ("runs", "list"),
    )
    for command in asked:
        out, err = nco_bench(*command, *both, status=2)
        assert (out, err.count("\n")) == ("", 1)
        assert "reslts/more: no such results folder" in err


def test_a_run_is_shown_by_the_beginning_of_its_id(nco_bench: Command) -> None:
    nco_bench("run", "nearest-neighbor", "--data", "tsp30", "--limit", "3", "--repeats", "2")
    (name,) = os.listdir(RESULTS)
    shown = json.loads(nco_bench("runs", "show", name[:-3], "--json")[0])
    assert shown["run"] == name
    assert shown["cells"][0]["records"] == {"ok": 6}
    assert shown["environment"]["packages"]["numpy"]
    nco_bench("run", "nearest-neighbor", "--data", "tsp30", "--limit", "4", "--seed", "2")
    _, error = nco_bench("runs", "show", "2", status=2)
    assert "beginning of 2 runs" in error
    assert len(json.loads(nco_bench("runs", "show", "2*", "--json")[0])) == 2
    _, error = nco_bench("runs", "show", "nothing", status=2)
    assert "Unknown run 'nothing'" in error


def test_nothing_is_removed_without_consent_or_where_a_name_is_wrong(nco_bench: Command) -> None:
    nco_bench("run", "nearest-neighbor", "--data", "tsp30", "--limit", "3")
    before = contents(RESULTS)
    (name,) = os.listdir(RESULTS)
    _, error = nco_bench("runs", "rm", name, status=2)
    assert "--yes" in error
    _, error = nco_bench("runs", "rm", name, "another", "--yes", status=2)
    assert "'another'" in error
    assert contents(RESULTS) == before


class Terminal(io.StringIO):
    """Somebody who answers."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "left"), [("n", 1), ("", 1), ("y", 0)])
def test_a_person_is_asked(
    nco_bench: Command, monkeypatch: pytest.MonkeyPatch, answer: str, left: int
) -> None:
    nco_bench("run", "nearest-neighbor", "--data", "tsp30", "--limit", "3")
    monkeypatch.setattr("sys.stdin", Terminal(f"{answer}\n"))
    _, talk = nco_bench("runs", "rm", "*")
    assert "3 records" in talk
    assert ("nothing was removed" in talk) == (left == 1)
    assert len(os.listdir(RESULTS)) == left


def test_whole_runs_are_removed_and_what_is_left_is_sound(nco_bench: Command) -> None:
    for seed in ("1", "2", "3"):
        nco_bench("run", "nearest-neighbor", "--data", "tsp30", "--limit", "3", "--seed", seed)
    first, second, third = sorted(os.listdir(RESULTS))
    answer = json.loads(nco_bench("runs", "rm", first, third, "--yes", "--json")[0])
    assert answer == {"removed": [first, third], "records": 6}
    assert os.listdir(RESULTS) == [second]
    assert json.loads(nco_bench("verify", "--json")[0]) == {
        "runs": 1,
        "records": 3,
        "unscored": 0,
        "ok": True,
        "findings": [],
    }
    assert [cell["seed"] for cell in cells(nco_bench)] == [2]


def test_a_run_in_progress_is_not_removed(nco_bench: Command) -> None:
    nco_bench("run", "nearest-neighbor", "--data", "tsp30", "--limit", "3")
    nco_bench("run", "nearest-neighbor", "--data", "tsp20", "--limit", "3")
    before = contents(RESULTS)
    with (RESULTS / sorted(os.listdir(RESULTS))[1] / "records.jsonl").open("ab"):
        _, error = nco_bench("runs", "rm", "*", "--yes", status=2)
    assert f"process {os.getpid()} is writing it" in error
    assert contents(RESULTS) == before


def overlapping(nco_bench: Command) -> None:
    """Two folders: instances 1-4 and 3-6 of one solver, and another solver in the second."""
    nco_bench("run", "nearest-neighbor", "--data", "tsp30", "--limit", "4", "--results", "a")
    nco_bench("run", "nearest-neighbor", "two-opt", "--data", "tsp30", "--limit", "3-6", "--results", "b")


def test_merging_loses_nothing_and_doubles_nothing(nco_bench: Command) -> None:
    overlapping(nco_bench)
    done = json.loads(nco_bench("runs", "merge", "a", "b", "--results", "all", "--json")[0])
    assert (len(done["added"]), done["extended"], done["present"]) == (2, [], [])
    assert contents(Path("all")) == contents(Path("a")) | contents(Path("b"))
    assert keys(Path("all")) == keys(Path("a")) + keys(Path("b"))
    assert cells(nco_bench, "--results", "all") == cells(nco_bench, "--results", "a", "--results", "b")
    rows = {cell["label"]: cell["solves"] for cell in cells(nco_bench, "--results", "all")}
    assert rows == {"nearest-neighbor": 6, "two-opt": 4}
    assert json.loads(nco_bench("verify", "--results", "all", "--json")[0])["ok"]
    before = contents(Path("all"))
    again = json.loads(nco_bench("runs", "merge", "b", "a", "--results", "all", "--json")[0])
    assert (again["added"], again["extended"], sorted(again["present"])) == ([], [], sorted(done["added"]))
    assert contents(Path("all")) == before


def test_a_run_that_went_on_after_it_was_merged_is_taken_anew(nco_bench: Command) -> None:
    nco_bench("run", "nearest-neighbor", "--data", "tsp30", "--limit", "4", "--results", "a")
    (name,) = os.listdir("a")
    shutil.copytree("a", "half")
    records = Path("half") / name / "records.jsonl"
    lines = records.read_bytes().splitlines(keepends=True)
    records.write_bytes(b"".join(lines[:2]) + lines[2][:20])  # torn, as a copy of a run in progress may be
    nco_bench("runs", "merge", "half", "--results", "all")
    assert keys(Path("all")).total() == 2
    done = json.loads(nco_bench("runs", "merge", "a", "--results", "all", "--json")[0])
    assert done["extended"] == [name]
    assert contents(Path("all")) == contents(Path("a"))
    done = json.loads(nco_bench("runs", "merge", "half", "--results", "all", "--json")[0])
    assert done["present"] == [name]
    assert contents(Path("all")) == contents(Path("a"))
    fresh = json.loads(nco_bench("runs", "merge", "half", "a", "--results", "new", "--json")[0])
    assert fresh == {"added": [name], "extended": [], "present": []}
    assert contents(Path("new")) == contents(Path("a"))


def test_runs_of_one_id_that_differ_are_not_merged(nco_bench: Command) -> None:
    overlapping(nco_bench)
    (name,) = os.listdir("a")
    shutil.copytree("a", "other")
    records = Path("other") / name / "records.jsonl"
    records.write_bytes(records.read_bytes().replace(b'"status":"ok"', b'"status":"no"'))
    nco_bench("runs", "merge", "a", "--results", "all")
    before = contents(Path("all"))
    _, error = nco_bench("runs", "merge", "b", "other", "--results", "all", status=2)
    assert "nothing was copied" in error
    assert contents(Path("all")) == before
    for source, said in (("all", "is the folder"), ("absent", "no such folder")):
        assert said in nco_bench("runs", "merge", source, "--results", "all", status=2)[1]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_records_are_exported_row_by_row(nco_bench: Command, suffix: str) -> None:
    """Every number of the file is recomputed from the runs' own lines, and the gap from the ledger's references."""
    nco_bench("run", "nearest-neighbor", "--data", "tsp30:count=4", "--repeats", "2")
    nco_bench("run", "two-opt", "--data", "tsp20", "--limit", "2")
    nco_bench("reference", "tsp30:count=3", "--solver", "two-opt")
    answer = json.loads(nco_bench("runs", "export", "--out", f"x/all.{suffix}", "--json")[0])
    assert answer["rows"] == 10
    path = Path(answer["path"])
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    frame = pd.read_csv(path) if suffix == "csv" else pd.read_parquet(path)
    assert list(frame.columns) == answer["columns"]
    references = {
        r.instance: r.cost for one in find_runs(Path("instances/references")) for r in one.records()
    }
    stored = {
        (r.seed - 1_000_003 * r.repeat - r.instance, r.n, r.instance, r.repeat): r
        for one in find_runs(RESULTS)
        for r in one.records()
    }
    assert len(stored) == 10
    for row in frame.to_dict("records"):
        record = stored[row["seed"], row["n"], row["instance"], row["repeat"]]
        assert (row["name"], row["status"], row["cost"]) == (record.name, "ok", record.cost)
        assert (row["seconds"], row["instance_sha256"]) == (record.seconds, record.instance_sha256)
        known = references.get(row["instance"]) if row["n"] == 30 else None
        if known is None:
            assert pd.isna(row["gap_percent"])
            assert pd.isna(row["reference_solver"])
        else:
            assert row["gap_percent"] == pytest.approx(100 * (record.cost / known - 1), rel=1e-9)
            assert row["reference_solver"].startswith("two-opt")
    assert set(zip(frame["solver"], frame["dataset"], strict=True)) == {
        ("nearest-neighbor", "tsp30:count=4"),
        ("two-opt", "tsp20"),
    }
    nco_bench("runs", "export", "--out", f"some.{suffix}", "--data", "tsp2*")
    some = pd.read_csv("some.csv") if suffix == "csv" else pd.read_parquet("some.parquet")
    assert len(some) == 2


def test_a_csv_has_one_header_and_no_index(nco_bench: Command) -> None:
    nco_bench("run", "nearest-neighbor", "--data", "tsp30", "--limit", "2")
    nco_bench("runs", "export", "--out", "all.csv")
    header, *rows = csv.reader(Path("all.csv").read_text().splitlines())
    assert header[0] == "solver"
    assert [row[header.index("instance")] for row in rows] == ["0", "1"]


def test_an_export_that_cannot_be_written_leaves_what_was_there(nco_bench: Command) -> None:
    nco_bench("run", "nearest-neighbor", "--data", "tsp30", "--limit", "2")
    Path("file").write_text("in the way")
    _, error = nco_bench("runs", "export", "--out", "file/all.csv", status=2)
    assert "file/all.csv: cannot be written" in error
    assert Path("file").read_text() == "in the way"
    assert sorted(os.listdir()) == ["file", "results"]


def test_parquet_without_pyarrow_is_one_clear_line(
    nco_bench: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    _, error = nco_bench("runs", "export", "--out", "all.parquet", status=2)
    assert error.splitlines() == [
        "error: all.parquet: Parquet needs pyarrow: pip install 'nco-bench[parquet]'; or name a .csv file."
    ]
    _, error = nco_bench("runs", "export", "--out", "all.xlsx", status=2)
    assert "ends in .csv or .parquet" in error


def test_references_of_a_slice_are_of_its_instances_alone(nco_bench: Command) -> None:
    """Two more, then those of all five: the stored ones are found again."""
    command = ("reference", "tsp20:count=5", "--solver", "two-opt", "--json")
    part = json.loads(nco_bench(*command, "--limit", "3-4")[0])
    assert (part["instances"], part["known_before"], part["improved"]) == (2, 0, 2)
    solving = ("run", "nearest-neighbor", "--data", "tsp20:count=5", "--limit", "2-4", "--json")
    (cell,) = json.loads(nco_bench(*solving)[0])["cells"]
    assert (cell["instances"], cell["gap_instances"]) == (3, 2)
    whole = json.loads(nco_bench(*command)[0])
    assert (whole["instances"], whole["known_before"], whole["improved"]) == (5, 2, 3)
    assert "expected K or A-B" in nco_bench(*command, "--limit", "0-x", status=2)[1]


@pytest.mark.parametrize("relative", [True, False])
def test_a_link_to_a_run_is_not_removed_for_the_run(nco_bench: Command, relative: bool) -> None:
    """The link went, half or wholly, and the run was said to be removed."""
    nco_bench("run", "nearest-neighbor", "--data", "tsp8:count=1", "--results", "runs")
    (one,) = find_runs(Path("runs"))
    Path("links").mkdir()
    target = Path("..") / one.folder if relative else one.folder.resolve()
    (Path("links") / one.run_id).symlink_to(target, target_is_directory=True)
    _, error = nco_bench("runs", "rm", "*", "--yes", "--results", "links", status=2)
    assert "is a link to" in error
    assert [run.run_id for run in find_runs(Path("links"))] == [one.run_id]


def test_a_results_folder_that_is_not_there_is_said_to_be_absent(nco_bench: Command, tmp_path: Path) -> None:
    """A misspelt name read like an empty folder, and 'runs wait' said that all was done."""
    for command in (["list"], ["show", "*"], ["rm", "*"], ["export", "--out", "a.csv"], ["status"], ["wait"]):
        _, error = nco_bench("runs", *command, "--results", "nowhere", status=2)
        assert error.startswith("error: nowhere: no such folder, so no "), command
    assert "no such folder, so no runs to verify" in nco_bench("verify", "--results", "nowhere", status=2)[1]
    (tmp_path / "empty").mkdir()
    _, error = nco_bench("runs", "list", "--results", "empty", status=2)
    assert error == "error: empty: no runs here; 'nco-bench run' makes them.\n"
    assert "empty: no submissions to wait for" in nco_bench("runs", "wait", "--results", "empty")[1]

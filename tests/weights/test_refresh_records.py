"""`tools/refresh_records.py`: what is stored of weights that no longer ship is run again as it was asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nco_bench.api import run
from nco_bench.errors import BadInputError
from nco_bench.runs.archives import archived_runs
from nco_bench.runs.packing import pack
from nco_bench.runs.stored_run import Run
from nco_bench.seals import seal_line, unseal_line
from tools import refresh_records

pytest.importorskip("torch")
pytest.importorskip("pyarrow")
NAME = "lehd"


def stored(folder: Path, archive: Path, *, former: bool) -> None:
    """Pack the runs of a folder, with another hash of the weights where they are to be `former`."""
    runs = sorted(path.parent for path in folder.glob("*/run.json"))
    for one in runs if former else ():
        lines = (one / "cells.jsonl").read_bytes().splitlines(keepends=True)
        cells = [json.loads(unseal_line(line)) for line in lines]
        for cell in cells:
            if cell.get("weights"):
                cell["weights"]["sha256"] = "0" * 64
        (one / "cells.jsonl").write_bytes(
            b"".join(seal_line(json.dumps(cell, separators=(",", ":")).encode() + b"\n") for cell in cells)
        )
    archive.parent.mkdir(parents=True, exist_ok=True)
    pack([Run(one) for one in runs], archive, {}, allow_dirty=True)


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two archives: in one, stale runs of one cell and one of two solvers; in the other a run of what ships."""
    monkeypatch.setenv("NCO_BENCH_INSTANCES", str(tmp_path / "instances"))
    monkeypatch.setattr(refresh_records, "code_revision", dict)
    old, new, results = tmp_path / "old", tmp_path / "new", tmp_path / "results"
    run(NAME, "tsp20:count=3", limit="2-3", param={"axes": "common"}, results=old)
    run([NAME, "random-insertion"], "tsp20:count=3", limit=1, results=old)
    run(NAME, "tsp20:count=3", limit=1, results=new)
    stored(old, results / "cpu" / "runs.parquet", former=True)
    stored(new, results / "fill" / "runs.parquet", former=False)
    return results


def test_stale_runs_are_made_anew_and_take_the_places_of_the_old(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {run.run_id for run in archived_runs(results / "fill" / "runs.parquet")}
    common = [NAME, str(tmp_path / "again"), "--results", str(results)]
    refresh_records.main([*common, "--list"])
    assert capsys.readouterr().out.count("cpu/runs.parquet") == 2
    refresh_records.main(common)
    assert "random-insertion" not in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2 instances are not solved"):
        refresh_records.main([*common, "--pack"])
    refresh_records.main([*common, "--together"])
    refresh_records.main([*common, "--pack"])

    runs = archived_runs(results / "cpu" / "runs.parquet")
    cells = [cell for run in runs for cell in run.cells()]
    assert {cell.weights["sha256"] == "0" * 64 for cell in cells if cell.weights} == {False}
    assert {(cell.label, tuple(cell.asked or ()), *cell.options["params"]) for cell in cells} == {
        (NAME, (1, 3), "axes"), (NAME, (0, 1)), ("random-insertion", (0, 1)),
    }  # fmt: skip
    assert {run.run_id for run in archived_runs(results / "fill" / "runs.parquet")} == before
    capsys.readouterr()
    refresh_records.main([*common, "--list"])
    assert capsys.readouterr().out == ""


def test_parts_take_about_as_long_as_each_other(tmp_path: Path) -> None:
    class Timed:
        def __init__(self, seconds: float) -> None:
            self.seconds = seconds

    found = [Timed(seconds) for seconds in (1.0, 8.0, 3.0, 4.0)]
    shares = [refresh_records.part_of(found, number, 2) for number in (1, 2)]  # type: ignore[arg-type]
    assert [[one.seconds for one in share] for share in shares] == [[8.0], [4.0, 3.0, 1.0]]


def test_what_cannot_be_made_is_told_and_may_be_dropped(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(study: object) -> None:
        raise BadInputError("these weights have no calibration")

    common = [NAME, str(tmp_path / "again"), "--results", str(results)]
    with monkeypatch.context() as broken:
        broken.setattr(refresh_records, "run_study", refused)
        with pytest.raises(SystemExit, match="1 run could not be made"):
            refresh_records.main(common)
    assert "these weights have no calibration" in capsys.readouterr().err
    refresh_records.main([*common, "--together"])
    refresh_records.main([*common, "--pack", "--partly"])
    assert (
        "2 instances are not solved; what is stored of them is stale and dropped" in capsys.readouterr().out
    )
    cells = [cell for run in archived_runs(results / "cpu" / "runs.parquet") for cell in run.cells()]
    assert [(cell.label, tuple(cell.asked or ())) for cell in cells] == [
        (NAME, (0, 1)),
        ("random-insertion", (0, 1)),
    ]

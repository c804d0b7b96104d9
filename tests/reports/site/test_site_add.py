"""Records of a stranger: those that hold arrive with a receipt, of the others nothing does, and each is told in a line."""

from __future__ import annotations

import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from site_records import edit, solve

from nco_bench.cli.app import run
from nco_bench.files import writing_together
from nco_bench.reports.site import receipts
from nco_bench.runs import archive_check, archives
from nco_bench.runs.finding import find_runs
from nco_bench.runs.packing import pack
from nco_bench.runs.stored_run import Run


@pytest.fixture(scope="module")
def submitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("stranger") / "runs"
    solve(results, ["nearest-neighbor"], "tsp20:count=4")
    return results


@pytest.fixture
def copy(submitted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(submitted, tmp_path / "submitted"))


def added(source: Path, tmp_path: Path) -> int:
    return run(
        ["site", "add", str(source), "--results", str(tmp_path / "board"), "--instances", str(tmp_path / "i")]
    )


def test_records_that_hold_arrive_verified(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert added(copy, tmp_path) == 0
    (one,) = find_runs(tmp_path / "board")
    assert receipts.verified([one], [tmp_path / "board"]) == {one.run_id}
    said = capsys.readouterr().err
    assert f"added: {one.run_id}, 4 records" in said
    assert "1 run added, 0 refused" in said


def test_receipts_that_another_writes_meanwhile_are_kept(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "board").mkdir()
    (one,) = find_runs(copy)
    with ThreadPoolExecutor(1) as threads:
        with writing_together(tmp_path / "board"):
            adding = threads.submit(receipts.add, tmp_path / "board", [one])
            time.sleep(0.5)
            (tmp_path / "board" / "verified.json").write_text('{"runs": {"other": {"digest": "0"}}}')
        adding.result(timeout=30)
    assert set(receipts.read(tmp_path / "board")) == {"other", one.run_id}


CLEAN = {"commit": "0" * 40, "dirty": False}


def packed(source: Path, revision: dict[str, Any], largest: int | None = None) -> Path:
    pytest.importorskip("pyarrow", reason="archives need pyarrow: pip install 'nco-bench[parquet]'")
    archive = source.with_suffix(".parquet")
    pack(find_runs(source), archive, revision, allow_dirty=True, largest=largest)
    return archive


def test_an_archive_that_holds_arrives_as_its_folders_would(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert added(packed(copy, CLEAN), tmp_path) == 0
    (one,) = find_runs(tmp_path / "board")
    assert [one.run_id] == [path.name for path in copy.iterdir()]
    assert receipts.verified([one], [tmp_path / "board"]) == {one.run_id}
    assert "1 run added, 0 refused" in capsys.readouterr().err
    assert added(copy, tmp_path) == 0  # the very same records
    assert find_runs(tmp_path / "board")[0].count() == 4


def test_a_folder_may_hold_an_archive(copy: Path, tmp_path: Path) -> None:
    archive = packed(copy, CLEAN)
    shutil.rmtree(copy)
    copy.mkdir()
    archive.rename(copy / "runs.parquet")
    assert added(copy, tmp_path) == 0
    assert len(find_runs(tmp_path / "board")) == 1


def test_an_archive_whose_records_do_not_hold_is_refused_in_a_line(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder,) = copy.iterdir()
    edit(folder, "records.jsonl", better_cost)
    assert added(packed(copy, CLEAN), tmp_path) == 1
    assert f"refused: {folder.name}" in capsys.readouterr().out
    assert not find_runs(tmp_path / "board")


def test_an_archive_without_its_solutions_is_refused(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert added(packed(copy, CLEAN, largest=19), tmp_path) == 1
    assert "4 records keep the hash of their solution alone" in capsys.readouterr().out
    assert not find_runs(tmp_path / "board")


def test_an_archive_from_a_changed_checkout_is_refused(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert added(packed(copy, CLEAN | {"dirty": True}), tmp_path) == 2
    assert "packed from a changed checkout" in capsys.readouterr().err


def test_an_archive_of_other_bytes_is_refused(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = packed(copy, CLEAN)
    data = bytearray(archive.read_bytes())
    data[len(data) // 3] ^= 1
    archive.write_bytes(data)
    assert added(archive, tmp_path) == 2
    assert "damaged" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["../outside", "..", "/outside", ".hidden", "a/b"])
def test_an_archive_writes_nowhere_else(
    copy: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Run, "run_id", property(lambda self: name))
    monkeypatch.setattr(archive_check, "RUN_ID", re.compile(".*", re.DOTALL))  # packing reads what it wrote
    archive = packed(copy, CLEAN)
    monkeypatch.undo()
    archives._opened.cache_clear()
    before = sorted(tmp_path.iterdir())
    assert added(archive, tmp_path) == 2
    assert "is no name of a run" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before


def test_an_archive_that_would_unpack_to_too_much_is_refused(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = packed(copy, CLEAN)
    monkeypatch.setattr(archive_check, "MAX_FACTS_BYTES", 100)
    archives._opened.cache_clear()
    assert added(archive, tmp_path) == 2
    assert "refused, what it says of its runs takes more than" in capsys.readouterr().err


def better_cost(line: dict[str, Any]) -> None:
    line["cost"] *= 0.9


def no_time(line: dict[str, Any]) -> None:
    line["seconds"] = -1.0


def too_good_reference(line: dict[str, Any]) -> None:
    line["reference"] = 0.001


def other_instance(line: dict[str, Any]) -> None:
    line["instance_sha256"] = "0123456789abcdef"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (better_cost, "the stored solution costs"),
        (no_time, "-1.0 s is no time"),
        (too_good_reference, "its reference 0.001 cannot be checked"),
        (other_instance, "its key"),
    ],
)
def test_what_does_not_hold_is_refused_in_a_line(
    change: Any, said: str, copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder,) = copy.iterdir()
    edit(folder, "records.jsonl", change)
    assert added(copy, tmp_path) == 1
    lines = capsys.readouterr().out.splitlines()
    assert said in lines[0]
    assert all(line.startswith(f"refused: {folder.name}: ") for line in lines)
    assert lines[-1].endswith("more like these (--json lists all)")
    assert not (tmp_path / "board").exists()


def test_a_solution_that_was_changed_is_refused(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder,) = copy.iterdir()
    nodes = np.fromfile(folder / "solutions.bin", "<i4")
    nodes[[0, 1]] = nodes[[1, 0]]
    nodes.tofile(folder / "solutions.bin")
    assert added(copy, tmp_path) == 1
    assert "the stored solution has hash" in capsys.readouterr().out


def test_a_set_from_a_file_is_refused_before_the_file_is_opened(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trap = tmp_path / "trap.pkl"
    trap.write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    (folder,) = copy.iterdir()
    edit(folder, "cells.jsonl", lambda line: line.update(source=str(trap)) if "source" in line else None)
    assert added(copy, tmp_path) == 1
    assert "only sets that go by a name are compared" in capsys.readouterr().out


def test_a_reference_better_than_the_best_known_is_refused(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The board holds solutions of 2-opt; a stranger's reference may be as good as they are, not better."""
    board = tmp_path / "board"
    solve(board, ["nearest-neighbor"], "tsp20:count=4", seed=9)
    costs = {r.instance: r.cost for one in find_runs(board) for r in one.records()}
    (folder,) = copy.iterdir()
    edit(folder, "records.jsonl", lambda line: line.update(reference=costs[line["instance"]]))
    assert added(copy, tmp_path) == 0
    for path in board.iterdir():
        if path.name == folder.name:
            shutil.rmtree(path)
    edit(folder, "records.jsonl", lambda line: line.update(reference=0.99 * line["reference"]))
    assert added(copy, tmp_path) == 1
    assert "is better than the best known" in capsys.readouterr().out


def test_of_two_runs_the_one_that_holds_is_taken(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (good,) = copy.iterdir()
    bad = copy / "20260101-000000-000000-1-abcdef"
    shutil.copytree(good, bad)
    edit(bad, "records.jsonl", better_cost)
    assert added(copy, tmp_path) == 1
    assert [one.run_id for one in find_runs(tmp_path / "board")] == [good.name]


def test_a_damaged_run_does_not_keep_the_others_out(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = copy / "20260101-000000-aaaaaa"
    damaged.mkdir()
    (damaged / "run.json").write_text("{")
    assert added(copy, tmp_path) == 1
    assert len(find_runs(tmp_path / "board")) == 1
    said = capsys.readouterr()
    assert said.out.startswith(f"refused: {damaged.name}")
    assert said.out.count("\n") == 1
    assert "1 run added, 1 refused" in said.err


def test_a_source_without_runs_is_the_users_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    assert added(tmp_path / "empty", tmp_path) == 2
    assert "holds no runs" in capsys.readouterr().err

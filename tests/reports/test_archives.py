"""Archives: what is packed reads as it did, comes back as it was, and no flipped byte passes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from run_folders import make_cell, make_records

from nco_bench.datasets.load import Places
from nco_bench.errors import ResultsError
from nco_bench.papers.courses import iterations_made
from nco_bench.reports.frame import best_known
from nco_bench.reports.frame.load import load_frame
from nco_bench.reports.site.adding import add
from nco_bench.runs import folders, packing
from nco_bench.runs.archives import archived_runs, facts_of_archive
from nco_bench.runs.finding import find_runs
from nco_bench.runs.merging import merge
from nco_bench.runs.packing import pack
from nco_bench.runs.records import solution_bytes, solution_sha256
from nco_bench.runs.store import RunWriter
from nco_bench.runs.stored_run import Run
from nco_bench.runs.verify import verify
from nco_bench.seals import seal_line, unseal_line

CLEAN = {"commit": "0" * 40, "dirty": False}
ROOT = Path(__file__).resolve().parents[2]


def write(results: Path, *, dirty: bool = False, traced: bool = True) -> str:
    """A run of two cells as the runner writes it: solutions of several lengths, a failure, counts, a trace."""
    revision = {"commit": "c" * 40, "dirty": dirty}
    with RunWriter(results, {"command": "nco-bench run a", "environment": {"revision": revision}}) as writer:
        for index, solver in enumerate(("a", "b")):
            cell = make_cell(index, solver, "tsp100")
            writer.cell(cell)
            records = make_records(cell, [8.1, "failed", 7.9, 7.0], [8.0, 8.0, None, 7.0], seconds=0.25)
            for length, record in enumerate(records):
                record.instance_sha256 = f"{length:016x}"
                record.counts = {"tp": 1.0 + length} if index else None
                if record.status == "ok":
                    record.solution, record.solution_sha256 = writer.store(np.arange(length * 3)[::-1])
            writer.append(records)
            writer.cell({"cell": index, "seconds_total": 2.5})
        if traced:
            writer.trace(records[2].key, ((0.1, 9.0), (0.2, 7.9)))
            writer.trace(records[3].key, ((0.1, 7.0),))
        return writer.run_id


def change_lines(path: Path, old: bytes, new: bytes) -> None:
    """Put something else where a file first says something, and let its lines have their checksums."""
    lines = b"".join(map(unseal_line, path.read_bytes().splitlines(keepends=True))).replace(old, new, 1)
    path.write_bytes(b"".join(map(seal_line, lines.splitlines(keepends=True))))


def told(run: Run) -> tuple[object, ...]:
    """All that a run says, solutions included."""
    records = list(run.records())
    solutions = [run.solution(record).tolist() for record in records if record.solution is not None]
    return (
        run.run_id,
        run.info,
        run.cells(),
        [asdict(r) for r in records],
        solutions,
        list(run.lines("traces.jsonl")),
    )


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    write(tmp_path / "runs")
    write(tmp_path / "runs", dirty=True, traced=False)
    pack(find_runs(tmp_path / "runs"), tmp_path / "all.parquet", CLEAN)
    return tmp_path / "all.parquet"


def test_what_is_packed_is_read_as_it_stood_in_folders(packed: Path) -> None:
    assert [told(run) for run in archived_runs(packed)] == [
        told(run) for run in find_runs(packed.parent / "runs")
    ]


def test_what_is_unpacked_is_what_was_packed_to_the_byte(packed: Path) -> None:
    merge([packed], packed.parent / "again", unpack=True)
    for run in find_runs(packed.parent / "runs"):
        for name in ("records.jsonl", "cells.jsonl", "solutions.bin", "run.json"):
            again = packed.parent / "again" / run.run_id / name
            assert again.read_bytes() == (run.folder / name).read_bytes()


def test_a_frame_of_an_archive_is_that_of_its_folders(packed: Path) -> None:
    one, other = load_frame(packed.parent / "runs"), load_frame(packed)
    pd.testing.assert_frame_equal(one.records, other.records)
    assert (one.groups, one.names, one.messages) == (other.groups, other.names, other.messages)


@pytest.mark.parametrize("rows", [1, 3, 7])
def test_a_frame_does_not_depend_on_row_groups_and_parts(
    packed: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """Row groups end within runs, begin with them, or hold several."""
    monkeypatch.setattr(packing, "GROUP_ROWS", rows)
    monkeypatch.setattr(best_known, "PART", rows)
    pack(find_runs(packed.parent / "runs"), packed.parent / "small.parquet", CLEAN)
    one, other = load_frame(packed), load_frame(packed.parent / "small.parquet")
    pd.testing.assert_frame_equal(one.records, other.records)
    assert (one.groups, one.names, one.references) == (other.groups, other.names, other.references)
    assert [told(run) for run in archived_runs(packed)] == [
        told(run) for run in archived_runs(packed.parent / "small.parquet")
    ]


def test_loose_runs_beside_archives_count_with_them_and_those_in_both_once(packed: Path) -> None:
    later = write(packed.parent / "more")
    folder = packed.parent / "folder"
    merge([packed.parent / "runs", packed.parent / "more"], folder)
    (folder / "all.parquet").write_bytes(packed.read_bytes())
    pd.DataFrame({"an": [1]}).to_parquet(folder / "export.parquet")
    assert [run.run_id for run in find_runs(folder)][-1] == later
    assert len(find_runs(folder)) == 3
    assert all(run.folder.is_dir() for run in find_runs(folder))


def test_solutions_that_repeat_far_apart_are_stored_once(tmp_path: Path) -> None:
    tours = [np.random.default_rng(i).permutation(1000) for i in range(600)]  # more than Parquet's usual page
    for repeats in (1, 2):
        with RunWriter(tmp_path / str(repeats), {"command": "nco-bench run a"}) as writer:
            cell = make_cell(0, "a", "tsp1000")
            writer.cell(cell)
            records = make_records(cell, [8.0] * len(tours) * repeats, [8.0] * len(tours) * repeats)
            for record, tour in zip(records, tours * repeats, strict=True):
                record.solution, record.solution_sha256 = writer.store(tour)
            writer.append(records)
            writer.cell({"cell": 0, "seconds_total": 2.5})
        pack(find_runs(tmp_path / str(repeats)), tmp_path / f"{repeats}.parquet", CLEAN)
    once, twice = ((tmp_path / f"{repeats}.parquet").stat().st_size for repeats in (1, 2))
    assert twice < 1.1 * once


def test_the_same_runs_give_the_same_bytes_also_from_archives(packed: Path) -> None:
    pack(archived_runs(packed), packed.parent / "again.parquet", CLEAN)
    assert (packed.parent / "again.parquet").read_bytes() == packed.read_bytes()


def test_every_flipped_byte_is_noticed(packed: Path) -> None:
    data = packed.read_bytes()
    path = packed.parent / "flipped.parquet"
    for place in [*range(0, len(data), max(1, len(data) // 150)), *range(len(data) - 8, len(data))]:
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        path.touch()
        os.utime(path, ns=(place, place))
        with pytest.raises(ResultsError, match=r"flipped\.parquet: (damaged|no archive)"):
            archived_runs(path)


@pytest.mark.parametrize("kept", [0, 3, 1000])
def test_a_torn_archive_in_a_results_folder_is_named(packed: Path, kept: int) -> None:
    folder = packed.parent / "folder"
    folder.mkdir()
    (folder / "torn.parquet").write_bytes(packed.read_bytes()[:kept])
    with pytest.raises(ResultsError, match=r"torn\.parquet: damaged"):
        load_frame(folder)


def test_packing_from_a_changed_checkout_is_refused_unless_it_is_to_be_marked(packed: Path) -> None:
    out, changed = packed.parent / "dirty.parquet", {"commit": "1" * 40, "dirty": True}
    with pytest.raises(ResultsError, match="--allow-dirty"):
        pack(archived_runs(packed), out, changed)
    assert not out.exists()
    pack(archived_runs(packed), out, changed, allow_dirty=True)
    assert (facts_of_archive(out).commit, facts_of_archive(out).dirty) == ("1" * 40, True)


def test_runs_keep_the_mark_of_a_dirty_tree(packed: Path) -> None:
    facts = facts_of_archive(packed)
    assert facts.dirty_runs == (find_runs(packed.parent / "runs")[1].run_id,)
    assert not facts.dirty


def test_a_solution_that_its_hash_does_not_fit_is_not_packed(packed: Path) -> None:
    path = find_runs(packed.parent / "runs")[0].folder / "solutions.bin"
    path.write_bytes(b"\1" + path.read_bytes()[1:])
    with pytest.raises(ResultsError, match="not what its hash says"):
        pack(find_runs(packed.parent / "runs"), packed.parent / "bad.parquet", CLEAN)
    assert [p.name for p in packed.parent.glob("*bad*")] == []


def test_verify_scores_what_an_archive_holds_again(tmp_path: Path) -> None:
    """A wrong cost, packed with a sound hash of the file, is found by scoring."""
    results, places = tmp_path / "runs", Places(tmp_path / "instances")
    command = ["run", "nearest-neighbor", "--data", "tsp10:count=2", "--results", str(results)]
    subprocess.run(
        [sys.executable, "-m", "nco_bench", *command, "--instances", str(tmp_path / "instances")], check=True
    )
    pack(find_runs(results), tmp_path / "good.parquet", CLEAN)
    assert verify(tmp_path / "good.parquet", (), places).findings == ()
    path = next(results.glob("*/records.jsonl"))
    cost = next(find_runs(results)[0].records()).cost
    change_lines(path, f'"cost":{cost}'.encode(), b'"cost":1.5')
    pack(find_runs(results), tmp_path / "bad.parquet", CLEAN)
    (finding,) = verify(tmp_path / "bad.parquet", (), places).findings
    assert "the record says cost 1.5" in finding.problem


def test_solutions_of_large_instances_may_be_left_out_and_are_counted_as_such(tmp_path: Path) -> None:
    results, places = tmp_path / "runs", Places(tmp_path / "instances")
    command = [sys.executable, "-m", "nco_bench", "run", "nearest-neighbor", "--data", "tsp10:count=2"]
    where = ["--data", "tsp30:count=3", "--results", str(results), "--instances", str(tmp_path / "instances")]
    subprocess.run([*command, *where], check=True)
    archive = tmp_path / "small.parquet"
    pack(find_runs(results), archive, CLEAN, largest=10)
    (run,), (whole,) = archived_runs(archive), find_runs(results)
    assert [(r.n, r.solution is None) for r in run.records()] == [(10, False)] * 2 + [(30, True)] * 3
    assert [r.solution_sha256 for r in run.records()] == [r.solution_sha256 for r in whole.records()]
    assert load_frame(archive).records["cost"].tolist() == load_frame(results).records["cost"].tolist()
    checked = verify(archive, (), places)
    assert (checked.records, checked.findings, checked.unscored) == (5, (), {run.run_id: 3})
    with pytest.raises(ResultsError, match="the hash of its solution alone"):
        run.solution(list(run.records())[-1])
    pack(archived_runs(archive), tmp_path / "again.parquet", CLEAN)
    assert (tmp_path / "again.parquet").read_bytes() == archive.read_bytes()


def test_what_keeps_the_course_of_a_search_keeps_its_solution(tmp_path: Path) -> None:
    write(tmp_path / "runs")
    pack(find_runs(tmp_path / "runs"), tmp_path / "small.parquet", CLEAN, largest=0)
    (run,) = archived_runs(tmp_path / "small.parquet")
    courses = {line["key"]: len(line["points"]) for line in run.lines("traces.jsonl")}
    assert sorted(courses.values()) == [
        1,
        2,
    ]  # of these the first is what a search began with, without an iteration
    assert {r.key for r in run.records() if r.solution is not None} == {
        key for key, points in courses.items() if points > 1
    }


def test_what_only_began_counts_as_no_iteration_with_its_solution_or_without(tmp_path: Path) -> None:
    write(tmp_path / "runs")
    pack(find_runs(tmp_path / "runs"), tmp_path / "small.parquet", CLEAN, largest=0)
    for frame in (load_frame(tmp_path / "runs"), load_frame(tmp_path / "small.parquet")):
        records = frame.records[frame.records["group"] == 1]
        traced = records.iloc[1:]  # the first of these failed
        assert iterations_made(traced, frame.runs) == [1, 0]


def test_a_killed_pack_leaves_no_archive(tmp_path: Path) -> None:
    for _ in range(3):
        write(tmp_path / "runs")
    script = (
        "import sys, pathlib, os, time\n"
        "from nco_bench.runs import packing\n"
        "check = packing._check\n"
        "def slow(*given):\n"
        "    print('written', flush=True); time.sleep(60)\n"
        "packing._check = slow\n"
        "from nco_bench.runs.finding import find_runs\n"
        "packing.pack(find_runs(pathlib.Path('runs')), pathlib.Path('runs/all.parquet'), {})\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"written\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not (tmp_path / "runs" / "all.parquet").exists()
    assert len(find_runs(tmp_path / "runs")) == 3
    pack(find_runs(tmp_path / "runs"), tmp_path / "runs" / "all.parquet", CLEAN)
    assert facts_of_archive(tmp_path / "runs" / "all.parquet").runs == 3


def test_archives_are_merged_like_folders(packed: Path) -> None:
    results = packed.parent / "runs"
    done = merge([packed], results)
    assert (done.added, len(done.present)) == ((), 2)
    into = packed.parent / "into"
    assert len(merge([packed], into).added) == 2
    assert [told(run) for run in find_runs(into)] == [told(run) for run in find_runs(results)]
    other = find_runs(into)[0].folder / "cells.jsonl"
    change_lines(other, b'"tsp100"', b'"tsp200"')
    with pytest.raises(ResultsError, match="say different things"):
        merge([packed], into)


@pytest.mark.parametrize("name", ["records.jsonl", "cells.jsonl", "solutions.bin"])
def test_a_damaged_run_arrives_nowhere(packed: Path, name: str) -> None:
    runs = find_runs(packed.parent / "runs")
    file = runs[1].folder / name
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(ResultsError):
        merge([packed.parent / "runs"], packed.parent / "into")
    assert not (packed.parent / "into").exists()


def test_an_archive_is_not_replaced_by_one_that_lacks_its_runs(packed: Path) -> None:
    before = packed.read_bytes()
    write(packed.parent / "more")
    with pytest.raises(ResultsError, match=r"holds runs that are not packed now .* 1 more"):
        pack(find_runs(packed.parent / "more"), packed, CLEAN)
    assert packed.read_bytes() == before
    pack([*archived_runs(packed), *find_runs(packed.parent / "more")], packed, CLEAN)
    assert facts_of_archive(packed).runs == 3


def test_nothing_is_removed_from_or_added_to_an_archive(packed: Path) -> None:
    with pytest.raises(ResultsError, match="nothing was removed"):
        folders.remove(archived_runs(packed))
    before = packed.read_bytes()
    with pytest.raises(ResultsError, match="never added to"):
        write(packed)
    write(packed.parent / "more")
    with pytest.raises(ResultsError, match="is a file, and runs go to a folder"):
        merge([packed.parent / "more"], packed)
    with pytest.raises(ResultsError, match="is a file, and runs go to a folder"):
        add([packed.parent / "more"], packed, Places(packed.parent))
    assert packed.read_bytes() == before


ARCHIVES = sorted(path for path in (ROOT / "results").glob("**/*.parquet") if not path.is_symlink())


@pytest.mark.parametrize("path", ARCHIVES, ids=lambda path: str(path.relative_to(ROOT)))
def test_archives_that_ship_are_sound_and_were_made_from_a_clean_commit(path: Path) -> None:
    facts = facts_of_archive(path)
    assert len(facts.commit or "") == 40, f"{path}: names no commit"
    assert not facts.dirty, f"{path}: packed from a changed checkout; pack it again from a clean commit"
    for run in archived_runs(path):
        for record in run.records():
            if record.solution is not None:
                assert solution_sha256(solution_bytes(run.solution(record))) == record.solution_sha256


def tracked(*folder: str) -> list[Path]:
    """Files that git keeps."""
    asked = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", *folder], capture_output=True, text=True, check=False
    )
    if asked.returncode:
        pytest.skip("needs the git checkout")
    return [path for name in asked.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_results_stay_small() -> None:
    """What a clone brings: under 20 MB in 150 files; runs are packed, and logs and tables that serve nobody are dropped."""
    kept = tracked("results")
    assert len(kept) < 150
    assert sum(path.lstat().st_size for path in kept) < 20e6


def test_the_tree_stays_small() -> None:
    """Under 60 MB, weights and results included; weights are shipped by tools/ship_weights.py, which packs them."""
    assert 1e6 < sum(path.lstat().st_size for path in tracked()) < 60e6


def test_archives_name_no_folder_of_one_machine() -> None:
    """What a run was asked for can be asked again, anywhere."""
    archives = [path for path in tracked("results") if path.suffix == ".parquet" and not path.is_symlink()]
    commands = [str(run.info.get("command")) for path in archives for run in archived_runs(path)]
    assert len(commands) > 100
    assert not [one for one in commands if re.search(r"(?<![\w.:/])/(tmp|home|root|work|Users)/", one)]


def test_archives_ship() -> None:
    assert ARCHIVES

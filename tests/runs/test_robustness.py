"""What may happen around a run: interrupts, clocks set back, foreign or vanished files, seeds at the end of their range."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from nco_bench.datasets.generate import generate
from nco_bench.datasets.load import Places, load_dataset
from nco_bench.datasets.storage import save_dataset
from nco_bench.errors import BadInputError, NcoBenchError, ResultsError
from nco_bench.reports.frame.load import load_frame
from nco_bench.runs.display import QuietDisplay
from nco_bench.runs.executors import execute
from nco_bench.runs.finding import find_runs
from nco_bench.runs.generating import GenerateRequest
from nco_bench.runs.label_shards import generate_shards
from nco_bench.runs.packing import pack
from nco_bench.runs.records import Record, record_key, record_keys
from nco_bench.runs.request import RunRequest
from nco_bench.runs.runner import run
from nco_bench.runs.store import RunWriter, done
from nco_bench.runs.verify import verify

SOLVER = """
import time
import numpy as np
from nco_bench.solvers import register

@register("{name}", problems=("tsp",))
class Solver:
    def __init__(self, options): pass
    def unsupported(self, dataset): return None
    def prepare(self, dataset): pass
    def solve(self, batch, *, seed, time_limit, progress):
        {body}
        return [np.random.default_rng(seed + j).permutation(i.n) for j, i in enumerate(batch)]
"""


def solver_file(folder: Path, name: str, body: str = "pass") -> Path:
    path = folder / f"{name}.py"
    path.write_text(SOLVER.format(name=name, body=body))
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return save_dataset(generate("tsp", 8, 30, "uniform", 7), tmp_path / "set.npz")


def request(solver: Path | str, data: Path, folder: Path, **changes: object) -> RunRequest:
    return RunRequest((str(solver),), (str(data),), folder / "runs", Places(folder), **changes)  # type: ignore[arg-type]


def test_keys_of_neighbours_are_the_keys_of_their_parts() -> None:
    config, hashes = "c" * 32, [f"{i:016x}" for i in range(95, 105)]
    parts = {"config": config, "seed": -3, "repeat": 2}
    expected = [record_key({**parts, "instance": i, "instance_sha256": f"{i:016x}"}) for i in range(95, 105)]
    assert record_keys(config, hashes, -3, range(95, 105), 2) == expected


def test_batches_are_so_small_that_what_is_solved_before_an_end_is_kept(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Solutions are those of one large batch; what the times are of is said."""
    solver = solver_file(tmp_path, "tired", "time.sleep(0.05 * len(batch))")
    whole = run(request(solver, data, tmp_path / "whole", batch_size=8), QuietDisplay())
    ended = request(solver, data, tmp_path / "ended", batch_size=8, batch_seconds=0.16)
    appended: list[int] = []
    append = RunWriter.append

    def counted(writer: RunWriter, records: list[Record]) -> None:
        appended.append(len(records))
        append(writer, records)
        if len(appended) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(RunWriter, "append", counted)
    with pytest.raises(KeyboardInterrupt):
        run(ended, QuietDisplay())
    monkeypatch.undo()
    assert appended in ([3, 3], [2, 2], [1, 1])  # an instance takes 0.05 s, on a busy machine longer
    cell = run(ended, QuietDisplay()).cells[0]
    assert cell.batch_size in (1, 2, 3)
    assert cell.notes[-1].startswith(f"timed in batches of {cell.batch_size}, not 8, ")
    assert solutions(tmp_path / "ended") == solutions(tmp_path / "whole")
    assert whole.cells[0].batch_size == 8


def solutions(folder: Path) -> list[tuple[str, str]]:
    records = [line for one in find_runs(folder / "runs") for line in one.raw_records()]
    return [(one["key"], one["solution_sha256"]) for one in records]


def test_runs_are_in_order_even_if_the_clock_was_set_back(tmp_path: Path) -> None:
    (tmp_path / "20991231-235959-999999-7-abcdef").mkdir()
    ids = []
    for _ in range(3):
        with RunWriter(tmp_path, {}) as writer:
            writer.cell({"cell": 0})
        ids.append(writer.run_id)
    assert ids == sorted(ids)
    assert ids[0] > "20991231-235959-999999-7-abcdef"


def test_the_later_record_counts_even_if_the_clock_was_set_back(data: Path, tmp_path: Path) -> None:
    solver = solver_file(tmp_path, "plain")
    run(request(solver, data, tmp_path), QuietDisplay())
    first = next((tmp_path / "runs").iterdir())
    late = first.rename(first.with_name("2099" + first.name[4:]))
    run(request(solver, data, tmp_path, fresh=True), QuietDisplay())
    frame = load_frame(tmp_path / "runs")
    assert {frame.runs[code].run_id for code in frame.records["run"]}.isdisjoint({late.name})
    assert len(frame.records) == 30


def test_a_run_that_vanishes_while_runs_are_listed_is_no_error(data: Path, tmp_path: Path) -> None:
    run(request(solver_file(tmp_path, "plain"), data, tmp_path), QuietDisplay())
    gone = tmp_path / "runs" / "20990101-000000-000000-1-abcdef"
    gone.mkdir()
    (gone / "run.json").symlink_to(gone / "nowhere")
    assert len(find_runs(tmp_path / "runs")) == 1


@pytest.mark.parametrize("line", [b"17\n", b"{}\n", b'"text"\n', b'{"cell":0,"key":"k"}\n', b"{broken\n"])
def test_a_line_that_is_no_record_is_named_when_a_run_resumes(
    line: bytes, data: Path, tmp_path: Path
) -> None:
    solver = solver_file(tmp_path, "plain")
    run(request(solver, data, tmp_path), QuietDisplay())
    records = next((tmp_path / "runs").glob("*/records.jsonl"))
    with records.open("ab") as file:
        file.write(line)
    with pytest.raises(ResultsError, match=r"records\.jsonl.*move the run's folder away"):
        run(request(solver, data, tmp_path), QuietDisplay())
    with pytest.raises(ResultsError, match=r"records\.jsonl"):
        list(find_runs(tmp_path / "runs")[0].records())


@pytest.mark.parametrize("text", [b"[]", b"", b"{"])
def test_damaged_facts_of_a_run_are_named(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_bytes(text)
    with pytest.raises(ResultsError, match=r"run\.json: damaged.*move the run's folder away"):
        find_runs(tmp_path)


def test_where_all_is_stored_no_run_is_made_or_told(data: Path, tmp_path: Path) -> None:
    solver = solver_file(tmp_path, "plain")
    first = run(request(solver, data, tmp_path), QuietDisplay())
    second = run(request(solver, data, tmp_path), QuietDisplay())
    assert first.run_ids == [path.name for path in (tmp_path / "runs").iterdir()]
    assert second.run_ids == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_another_name_of_what_is_stored_is_kept_once(jobs: int, data: Path, tmp_path: Path) -> None:
    """Tables find it under both; who solved, where and how long stay those of the records."""
    for ending in (".npz", ".json"):
        shutil.copy(data.with_suffix(ending), tmp_path / f"copy{ending}")
    solver = solver_file(tmp_path, "plain")
    first = run(request(solver, data, tmp_path), QuietDisplay())
    before = load_frame(tmp_path / "runs").groups
    for _ in range(2):
        again = execute(request(solver, tmp_path / "copy.npz", tmp_path, jobs=jobs), QuietDisplay())
    assert again.run_ids == []
    runs = find_runs(tmp_path / "runs")
    assert [one.count() for one in runs] == [30, 0]
    assert verify(tmp_path / "runs", (), Places(tmp_path)).findings == ()
    frame = load_frame(tmp_path / "runs")
    assert [(g.cell, g.runs, g.environments) for g in frame.groups] == [
        (g.cell, g.runs, g.environments) for g in before
    ]
    assert before[0].runs == tuple(first.run_ids)
    for name in (data, tmp_path / "copy.npz"):
        assert len(frame.select(datasets=[str(name)]).records) == 30


def test_another_label_of_what_is_stored_is_kept(data: Path, tmp_path: Path) -> None:
    solver = solver_file(tmp_path, "plain")
    run(request(solver, data, tmp_path, params={"a": "1"}), QuietDisplay())
    run(request(f"{solver}:a=1", data, tmp_path), QuietDisplay())
    frame = load_frame(tmp_path / "runs")
    for label in ("plain", "plain:a=1"):
        assert len(frame.select(solvers=[label]).records) == 30
    (group,) = frame.groups
    assert group.cell.label == "plain"


def test_an_archive_that_holds_all_is_not_added_to(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    for ending in (".npz", ".json"):
        shutil.copy(data.with_suffix(ending), tmp_path / f"copy{ending}")
    solver = solver_file(tmp_path, "plain")
    run(request(solver, data, tmp_path), QuietDisplay())
    pack(find_runs(tmp_path / "runs"), tmp_path / "all.parquet", {})
    asked = replace(request(solver, tmp_path / "copy.npz", tmp_path), results=tmp_path / "all.parquet")
    assert run(asked, QuietDisplay()).run_ids == []


@pytest.mark.parametrize("weights", ["absent", "torn.safetensors"])
def test_bad_weights_leave_no_folder_of_results(weights: str, tmp_path: Path) -> None:
    """Nor one above it that would be made for it; what was there stays."""
    torn = tmp_path / "torn.safetensors"
    torn.write_bytes(b"torn")
    name = str(torn) if weights.startswith("torn") else weights
    asked = RunRequest((f"am:weights={name}",), ("tsp9:count=1",), tmp_path / "a" / "b", Places(tmp_path))
    with pytest.raises(NcoBenchError):
        run(asked, QuietDisplay())
    assert not (tmp_path / "a").exists()
    (tmp_path / "a").mkdir()
    with pytest.raises(NcoBenchError):
        run(asked, QuietDisplay())
    assert list((tmp_path / "a").iterdir()) == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_scale_that_takes_no_instance_is_refused_before_others_solve(
    data: Path, jobs: int, tmp_path: Path
) -> None:
    """EIE's lambda begins at the training size, 100; the set has 8 nodes."""
    asked = RunRequest(
        ("nearest-neighbor", "am:weights=random"), (str(data),), tmp_path / "runs", Places(tmp_path),
        logit_scale="eie-exact", jobs=jobs,
    )  # fmt: skip
    with pytest.raises(BadInputError, match="n=8, below the training size N=100"):
        execute(asked, QuietDisplay())
    assert not (tmp_path / "runs").exists()


def test_instances_that_a_scale_does_not_take_fail_alone(tmp_path: Path) -> None:
    coords = np.random.default_rng(1).random((100, 2)).ravel()
    lines = (" ".join(f"{x:.6f}" for x in part) for part in (coords[:16], coords))
    (tmp_path / "mixed.txt").write_text("".join(f"{line}\n" for line in lines))
    asked = request("am:weights=random", tmp_path / "mixed.txt", tmp_path, logit_scale="eie-exact")
    assert run(asked, QuietDisplay()).failed == 1
    records = sorted(find_runs(tmp_path / "runs")[0].records(), key=lambda record: record.instance)
    assert [record.status for record in records] == ["failed", "ok"]
    assert "n=8, below the training size N=100" in records[0].message


def test_a_failed_start_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        RunWriter(tmp_path, {"not": {"json": object()}})
    with pytest.raises(ResultsError, match="--results"):
        RunWriter(Path(os.devnull) / "runs", {})
    assert find_runs(tmp_path) == []


def test_the_environment_is_complete_once_there_are_records(data: Path, tmp_path: Path) -> None:
    run(request(solver_file(tmp_path, "plain"), data, tmp_path), QuietDisplay())
    stored = find_runs(tmp_path / "runs")[0]
    assert sorted(path.name for path in stored.folder.iterdir()) == [
        "cells.jsonl", "records.jsonl", "run.json", "solutions.bin",
    ]  # fmt: skip
    environment = stored.info["environment"]
    assert environment["packages"]["numpy"] == np.__version__
    root = Path(__file__).resolve().parents[2]
    head = subprocess.run(
        ["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    if (root / ".git").exists() and head.returncode == 0:
        assert environment["revision"]["commit"] == head.stdout.strip()


def test_the_time_that_a_failure_took_is_no_latency(data: Path, tmp_path: Path) -> None:
    solver = solver_file(tmp_path, "broken", "raise ValueError('no')")
    outcome = run(request(solver, data, tmp_path, batch_size=5), QuietDisplay())
    assert outcome.failed == 30
    assert outcome.cells[0].latency_seconds is None


def test_only_the_first_failures_are_told(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    run(request(solver_file(tmp_path, "broken", "raise ValueError('no')"), data, tmp_path), QuietDisplay())
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 21
    assert "further failures are in the records only" in lines[-1]
    assert len(list(find_runs(tmp_path / "runs")[0].records())) == 30


def test_batches_do_not_matter_where_seeds_start_again(data: Path, tmp_path: Path) -> None:
    solver, seed = solver_file(tmp_path, "plain"), 2**31 - 1 - 13
    tours = []
    for size in (1, 10, 30):
        folder = tmp_path / str(size)
        run(request(solver, data, folder, seed=seed, batch_size=size), QuietDisplay())
        stored = find_runs(folder / "runs")[0]
        records = list(stored.records())
        assert [r.seed for r in records] == [*range(seed, 2**31 - 1), *range(17)]
        tours.append([stored.solution(r).tolist() for r in records])
    assert tours[0] == tours[1] == tours[2]


def test_cells_say_that_jobs_ran_at_once(data: Path, tmp_path: Path) -> None:
    outcome = execute(request(solver_file(tmp_path, "plain"), data, tmp_path, jobs=2), QuietDisplay())
    assert outcome.cells[0].notes == ["timed with 2 jobs at once"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interrupt_ends_a_run_and_all_its_processes_and_keeps_what_was_done(
    jobs: int, data: Path, tmp_path: Path
) -> None:
    # Instance 0 of each shard is quick; the rest would take hours.
    solver = solver_file(tmp_path, "endless", "time.sleep(0 if seed in (1234, 1249) else 3600)")
    command = [
        sys.executable, "-m", "nco_bench", "run", str(solver), "--data", str(data), "--data", str(data),
        "--jobs", str(jobs), "--results", str(tmp_path / "runs"), "--instances", str(tmp_path), "--batch-size", "1",
    ]  # fmt: skip
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # a shell's background job ignores it
    )  # fmt: skip
    deadline = time.monotonic() + 300
    while len(records_of(tmp_path)) < jobs:
        assert time.monotonic() < deadline, "the run wrote no records"
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        time.sleep(0.05)
    below = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    _, talk = process.communicate(timeout=300)
    assert process.returncode == 130, talk
    assert "Traceback" not in talk
    assert psutil.wait_procs(below, timeout=60)[1] == []
    assert len(records_of(tmp_path)) == jobs
    cell = find_runs(tmp_path / "runs")[0].cells()[0]
    stored = done(
        tmp_path / "runs", cell.config_sha256, cell.seed, load_dataset(cell.source, Places(tmp_path))
    )
    assert stored.keys() == {(r.repeat, r.instance) for r in records_of(tmp_path)}


def records_of(folder: Path) -> list:
    return [record for one in find_runs(folder / "runs") for record in one.records()]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"measured": "lkh3"}', '{"gap_percent": "x", "measured": ""}']
)
def test_a_damaged_measure_of_labels_is_named(text: str, tmp_path: Path) -> None:
    made = GenerateRequest(
        "tsp", 6, 2, "uniform", 7, {}, "nearest-neighbor", None, 1, tmp_path / "labels", ""
    )
    places = Places(tmp_path)
    generate_shards(made, 1, places, QuietDisplay())
    (tmp_path / "labels" / "labels.quality.json").write_text(text)
    with pytest.raises(BadInputError, match=r"labels\.quality\.json: damaged"):
        generate_shards(made, 1, places, QuietDisplay())

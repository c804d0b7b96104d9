"""Records survive anything: kill -9, two processes, a torn line, a second start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import nco_bench
from nco_bench.datasets.generate import generate
from nco_bench.datasets.load import Places
from nco_bench.datasets.storage import save_dataset
from nco_bench.errors import BadInputError, ResultsError
from nco_bench.runs.display import QuietDisplay
from nco_bench.runs.executors import execute
from nco_bench.runs.finding import find_runs
from nco_bench.runs.request import RunRequest, parse_limit
from nco_bench.runs.runner import run
from nco_bench.runs.stored_run import Run

SLOW_SOLVER = '''
import time
import numpy as np
from nco_bench.solvers import register

@register("slow", problems=("tsp",))
class Slow:
    """Takes 20 ms an instance; its tour depends on the seed alone."""
    def __init__(self, options): pass
    def unsupported(self, dataset): return None
    def prepare(self, dataset): pass
    def solve(self, batch, *, seed, time_limit, progress):
        time.sleep(0.02 * len(batch))
        return [np.random.default_rng(seed + j).permutation(i.n) for j, i in enumerate(batch)]
'''

BROKEN_SOLVER = '''
import numpy as np
from nco_bench.solvers import register

@register("broken", problems=("tsp",))
class Broken:
    """Instance 1 raises, instance 2 gives nonsense, instance 3 runs out of memory."""
    def __init__(self, options): pass
    def unsupported(self, dataset): return None
    def prepare(self, dataset): pass
    def batch_size(self, dataset): return 4
    def solve(self, batch, *, seed, time_limit, progress):
        for j, instance in enumerate(batch):
            if instance.name.endswith("1"):
                raise ValueError("cannot do this one")
            if instance.name.endswith("3"):
                raise MemoryError
        return [np.zeros(i.n, dtype=int) if i.name.endswith("2") else np.arange(i.n) for i in batch]
'''


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return save_dataset(generate("tsp", 10, 40, "uniform", 7), tmp_path / "set.npz")


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    path = tmp_path / "slow.py"
    path.write_text(SLOW_SOLVER)
    return path


def request(solver: Path | str, dataset: Path, folder: Path, **changes: object) -> RunRequest:
    return RunRequest((str(solver),), (str(dataset),), folder / "runs", Places(folder), **changes)  # type: ignore[arg-type]


def tours(folder: Path) -> dict[tuple[int, int], bytes]:
    """Every stored tour by (instance, repeat); fails if one is stored twice."""
    out: dict[tuple[int, int], bytes] = {}
    for one in find_runs(folder / "runs"):
        for record in one.records():
            assert (record.instance, record.repeat) not in out, "solved twice"
            out[record.instance, record.repeat] = one.solution(record).tobytes()
    return out


def command(solver: Path, dataset: Path, folder: Path) -> list[str]:
    return [
        sys.executable, "-m", "nco_bench", "run", str(solver), "--data", str(dataset), "--results", str(folder / "runs"),
        "--instances", str(folder), "--batch-size", "1",
    ]  # fmt: skip


def test_a_killed_run_resumes_with_nothing_lost_and_nothing_twice(dataset: Path, tmp_path: Path) -> None:
    # Instance 20 waits as long as the file is there, so that the run is killed in its middle at any speed.
    hold, slow = tmp_path / "hold", tmp_path / "slow.py"
    hold.touch()
    wait = f"while seed == 1234 + 20 and __import__('os').path.exists({str(hold)!r}): time.sleep(0.01)"
    slow.write_text(SLOW_SOLVER.replace("time.sleep(0.02 * len(batch))", wait))
    process = subprocess.Popen(
        command(slow, dataset, tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 300
    while len(list_records(tmp_path)) < 5:
        assert time.monotonic() < deadline, "the run wrote no records"
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    hold.unlink()
    before = tours(tmp_path)
    assert 5 <= len(before) <= 20
    run(request(slow, dataset, tmp_path, batch_size=1), QuietDisplay())
    after = tours(tmp_path)
    assert len(after) == 40
    assert all(after[key] == value for key, value in before.items())
    other = tmp_path / "uninterrupted"
    run(request(slow, dataset, other, batch_size=1), QuietDisplay())
    assert tours(other) == after


def list_records(folder: Path) -> list[object]:
    return [record for one in find_runs(folder / "runs") for record in one.records()]


def test_a_second_start_computes_nothing_and_fresh_computes_all(
    slow: Path, dataset: Path, tmp_path: Path
) -> None:
    run(request(slow, dataset, tmp_path), QuietDisplay())
    run(request(slow, dataset, tmp_path), QuietDisplay())
    assert len(find_runs(tmp_path / "runs")) == 1
    run(request(slow, dataset, tmp_path, fresh=True), QuietDisplay())
    assert len(find_runs(tmp_path / "runs")) == 2


def test_stored_solutions_of_another_batch_size_are_told(
    slow: Path, dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their times are those of the other batches, which nothing said."""
    run(request(slow, dataset, tmp_path, batch_size=4, limit=parse_limit("8")), QuietDisplay())
    for size, told in ((2, "what is stored was solved in batches of 4, not 2"), (4, ""), (None, "")):
        run(request(slow, dataset, tmp_path, batch_size=size, limit=parse_limit("8")), QuietDisplay())
        said = capsys.readouterr().err
        assert told in said if told else "batches" not in said
    run(request(slow, dataset, tmp_path, batch_size=2, limit=parse_limit("8"), fresh=True), QuietDisplay())
    run(request(slow, dataset, tmp_path, batch_size=2), QuietDisplay())
    assert "batches" not in capsys.readouterr().err


def test_jobs_tell_of_other_batches_once_and_of_their_shares_nothing(
    slow: Path, dataset: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A share of 4 took batches of 8 for its own, and several shares told of their own solutions only."""
    eight = parse_limit("8")
    run(request(slow, dataset, tmp_path, batch_size=8, limit=eight), QuietDisplay())
    for size, times in ((2, 1), (4, 1), (8, 0)):
        execute(request(slow, dataset, tmp_path, batch_size=size, limit=eight, jobs=2), QuietDisplay())
        assert capfd.readouterr().err.count(f"solved in batches of 8, not {size}, ") == times
    execute(request(slow, dataset, tmp_path / "shares", batch_size=8, limit=eight, jobs=2), QuietDisplay())
    execute(request(slow, dataset, tmp_path / "shares", batch_size=8, limit=eight, jobs=2), QuietDisplay())
    assert "in batches of" not in capfd.readouterr().err


def test_a_slice_solves_the_same_as_the_whole(slow: Path, dataset: Path, tmp_path: Path) -> None:
    run(request(slow, dataset, tmp_path / "part", limit=parse_limit("11-20")), QuietDisplay())
    run(request(slow, dataset, tmp_path / "whole"), QuietDisplay())
    part, whole = tours(tmp_path / "part"), tours(tmp_path / "whole")
    assert sorted(part) == [(i, 0) for i in range(10, 20)]
    assert all(whole[key] == value for key, value in part.items())


def test_repeats_use_other_seeds(slow: Path, dataset: Path, tmp_path: Path) -> None:
    run(request(slow, dataset, tmp_path, repeats=2), QuietDisplay())
    found = tours(tmp_path)
    assert len(found) == 80
    assert any(found[i, 0] != found[i, 1] for i in range(40))


def test_jobs_change_where_it_runs_not_what_comes_out(slow: Path, dataset: Path, tmp_path: Path) -> None:
    execute(request(slow, dataset, tmp_path / "two", jobs=2), QuietDisplay())
    execute(request(slow, dataset, tmp_path / "one"), QuietDisplay())
    assert tours(tmp_path / "two") == tours(tmp_path / "one")


def test_two_processes_share_a_folder(slow: Path, dataset: Path, tmp_path: Path) -> None:
    both = [
        subprocess.Popen(
            command(slow, dataset, tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for _ in range(2)
    ]
    assert [process.wait() for process in both] == [0, 0]
    assert {record.instance for record in list_records(tmp_path)} == set(range(40))  # type: ignore[attr-defined]


def test_a_torn_last_line_is_left_out_and_solved_again(slow: Path, dataset: Path, tmp_path: Path) -> None:
    run(request(slow, dataset, tmp_path), QuietDisplay())
    records = next((tmp_path / "runs").glob("*/records.jsonl"))
    records.write_bytes(records.read_bytes()[:-20])
    assert len(list_records(tmp_path)) == 39
    run(request(slow, dataset, tmp_path), QuietDisplay())
    assert len(list_records(tmp_path)) == 40


def test_a_bad_instance_is_one_record_not_the_end(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text(BROKEN_SOLVER)
    data = save_dataset(generate("tsp", 6, 4, "uniform", 7), tmp_path / "four.npz")
    outcome = run(request(path, data, tmp_path), QuietDisplay())
    assert outcome.failed == 3
    status = {record.instance: (record.status, record.message) for record in list_records(tmp_path)}  # type: ignore[attr-defined]
    assert status[0][0] == "ok"
    assert status[1][0] == "failed"
    assert "cannot do this one" in status[1][1]
    assert status[2] == ("infeasible", "node 0 is visited 6 times, node 1 never")
    assert status[3][0] == "oom"


def test_cost_is_recomputed_from_the_raw_instance(slow: Path, dataset: Path, tmp_path: Path) -> None:
    run(request(slow, dataset, tmp_path), QuietDisplay())
    coords = np.load(dataset)["x_coords"]
    stored: Run = find_runs(tmp_path / "runs")[0]
    for record in stored.records():
        tour = stored.solution(record)
        points = coords[record.instance][tour]
        length = np.linalg.norm(points - np.roll(points, -1, axis=0), axis=1).sum()
        assert record.cost == pytest.approx(length, rel=1e-12)


@pytest.mark.parametrize("text", ["0", "x", "5-2", "0-3", "1.5", "-3"])
def test_limits_that_hold_nothing_are_refused(text: str) -> None:
    with pytest.raises(BadInputError, match="--limit"):
        parse_limit(text)


def test_a_results_folder_that_is_a_file_is_refused(slow: Path, dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("not a folder")
    with pytest.raises(ResultsError, match="--results"):
        run(request(slow, dataset, tmp_path), QuietDisplay())


def test_an_edited_solver_file_is_not_answered_with_the_records_of_the_old_one(
    tmp_path: Path, dataset: Path
) -> None:
    solver = tmp_path / "mine.py"
    text = (
        "import numpy as np\nfrom nco_bench.solvers import register\n"
        '@register("mine", problems=("tsp",))\nclass Mine:\n'
        "    def __init__(self, options): pass\n    def unsupported(self, dataset): return None\n"
        "    def prepare(self, dataset): pass\n"
        "    def solve(self, batch, *, seed, time_limit, progress):\n"
        "        return [np.arange(i.n) for i in batch]\n"
    )
    keys = []
    for version in (text, text.replace("np.arange(i.n)", "np.arange(i.n)[::-1]"), text):
        solver.write_text(version)
        done = subprocess.run(
            [sys.executable, "-m", "nco_bench", "run", "mine.py", "--data", "set.npz", "--limit", "1", "--json"],
            cwd=tmp_path, capture_output=True, check=True,
        )  # fmt: skip
        keys.append(len(done.stdout) > 0 and "stored before" in done.stderr.decode())
    assert keys == [False, False, True]


def test_records_of_a_copy_without_references_have_the_gaps_of_the_set_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The square's boundary is 4 long, the order of the file crosses it. All is stored before the second run."""
    monkeypatch.chdir(tmp_path)
    Path("slow.py").write_text(SLOW_SOLVER)
    np.savez("bare.npz", locs=np.array([[[0, 0], [1, 1], [0, 1], [1, 0]]], dtype=np.float64))
    Path("solved.txt").write_text("0 0 1 1 0 1 1 0 output 1 3 2 4 1\n")
    bare = nco_bench.run("slow.py", "bare.npz", results="runs").cells[0]
    assert (bare["mean_reference"], bare["mean_gap_percent"]) == (None, None)
    for jobs in (1, 2):
        (cell,) = nco_bench.run("slow.py", "solved.txt", jobs=jobs, results="runs").cells
        assert (cell["solves"], cell["mean_reference"]) == (1, 4)
        assert cell["mean_gap_percent"] == pytest.approx(25 * (bare["mean_cost"] - 4), abs=1e-9)
        assert cell["reference_solver"] == "file (concorde-line)"
    for name in ("solved.txt", "bare"):
        stored = nco_bench.records(data=name, results="runs")
        assert stored["gap_percent"].tolist() == [pytest.approx(cell["mean_gap_percent"], abs=1e-9)]
        assert stored["reference_solver"].tolist() == ["file (concorde-line)"]
    Path("solved.txt").unlink()
    assert nco_bench.records(results="runs")["reference_solver"].isna().all()


def test_a_file_that_gets_references_gives_its_stored_records_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name is known already; what the second run stores is that it has references now, once."""
    monkeypatch.chdir(tmp_path)
    Path("slow.py").write_text(SLOW_SOLVER)
    for text in ("0 0 1 1 0 1 1 0\n", "0 0 1 1 0 1 1 0 output 1 3 2 4 1\n", None):
        if text is not None:
            Path("set.txt").write_text(text)
        nco_bench.run("slow.py", "set.txt", results="runs")
    assert len(find_runs(Path("runs"))) == 2
    assert nco_bench.records(results="runs")["reference"].tolist() == [4]

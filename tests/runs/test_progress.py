"""What is told while a run works, in one process and in several, and what an interrupt leaves."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from nco_bench.cli.output import RunDisplay
from nco_bench.datasets.dataset import Reference
from nco_bench.datasets.generate import generate
from nco_bench.datasets.load import Places
from nco_bench.datasets.storage import load_saved, save_dataset
from nco_bench.progress import Batch, opened, per_second, tracked
from nco_bench.reports.frame.aggregate import summarise
from nco_bench.reports.frame.load import load_frame
from nco_bench.runs.display import NO_GAPS, Gaps, QuietDisplay, Titled, Working, title_of
from nco_bench.runs.executors import execute
from nco_bench.runs.generating import GenerateRequest, generate_dataset
from nco_bench.runs.references import Improved, ReferenceRun, improve_references
from nco_bench.runs.relay import Announced, Relay, WorkerDisplay
from nco_bench.runs.request import RunRequest

SLOW = """
import time
import numpy as np
from nco_bench.solvers import register

@register("slow", problems=("tsp",))
class Slow:
    def __init__(self, options): pass
    def unsupported(self, dataset): return None
    def prepare(self, dataset): pass
    def solve(self, batch, *, seed, time_limit, progress):
        time.sleep(1.0)
        return [np.random.default_rng(seed + j).permutation(i.n) for j, i in enumerate(batch)]
"""


class Kept:
    """A display that keeps what it is told."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        self.done: list[int] = []
        self.gaps = NO_GAPS
        self.messages: list[str] = []
        self.working: list[Working] = []

    def start_cell(self, cell: Titled, total: int, done: int, gaps: Gaps = NO_GAPS) -> None:
        self.totals[title_of(cell)] = total
        self.done.append(done)

    def advance(self, count: int, gaps: Gaps, title: str = "", stored: int = 0) -> None:
        self.done.append(self.done[-1] + count + stored)
        self.gaps = gaps

    def within(self, title: str, working: Working) -> None:
        self.working.append(working)

    def message(self, text: str) -> None:
        self.messages.append(text)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Eight instances with references by nearest neighbours."""
    made = GenerateRequest(
        "tsp", 10, 8, "uniform", 3, {}, "nearest-neighbor", None, 1, tmp_path / "set.npz", "test"
    )
    return generate_dataset(made, Places(tmp_path), QuietDisplay()).path


class Meanwhile(QuietDisplay):
    """Stores references by another once solving begins."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def start_cell(self, cell: Titled, total: int, done: int, gaps: Gaps = NO_GAPS) -> None:
        bare = load_saved(self.path)
        save_dataset(bare.with_references([Reference(0.5, "another")] * len(bare)), self.path)


def test_references_that_another_stores_while_these_are_computed_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    made = GenerateRequest("tsp", 10, 8, "uniform", 3, {}, "nearest-neighbor", None, 1, path, "test")
    generate_dataset(made, Places(tmp_path), Meanwhile(path))
    assert {r.solver for r in load_saved(path).references if r is not None} == {"another"}


@pytest.mark.parametrize("jobs", [1, 2])
def test_progress_counts_instance_by_instance_and_ends_with_the_gap_of_the_table(
    jobs: int, data: Path, tmp_path: Path
) -> None:
    """Half of the set was solved before: the gap that is shown is that of the whole set."""
    asked = {"solvers": ("random-insertion",), "datasets": (str(data),), "results": tmp_path / "runs"}
    execute(RunRequest(**asked, places=Places(tmp_path), limit=(0, 4)), QuietDisplay())
    kept = Kept()
    execute(RunRequest(**asked, places=Places(tmp_path), batch_size=1, jobs=jobs), kept)
    assert list(kept.totals.values()) == [8]
    assert kept.done[-1] == 8
    assert len(set(kept.done)) > 4
    (summary,) = summarise(load_frame(tmp_path / "runs"))
    assert kept.gaps.number == 8
    assert kept.gaps.mean == pytest.approx(summary.mean_gap_percent)


def test_plain_lines_hold_rate_time_left_and_gap(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    from nco_bench.cli.app import run

    status = run(["run", "random-insertion", "--data", str(data), "--results", str(tmp_path / "runs")])
    assert status == 0
    told = capfd.readouterr().err
    assert re.search(r"8/8 in [0-9.]+ s, [0-9.e+]+/s, gap -?[0-9.]+ %$", told, re.MULTILINE), told


def test_a_worker_that_takes_two_shards_of_a_cell_counts_for_both() -> None:
    """One process may be quicker to start than the other, and do all the work."""
    kept, cell = Kept(), Announced("mine", "", "tsp20")
    relay = Relay(multiprocessing.get_context("spawn"), kept, {cell: 8})
    worker = WorkerDisplay(relay.told, 1)
    worker.start_cell(cell, 4, 4, Gaps(2.0, 4))
    worker.start_cell(cell, 4, 0)
    worker.advance(4, Gaps(6.0, 4))
    while kept.done[-1:] != [8]:
        relay.show(1.0)
    assert kept.gaps == Gaps(8.0, 8)


def test_what_is_stored_is_not_to_solve_and_a_gap_of_nothing_has_no_sign(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cell = Announced("mine", "greedy", "tsp20")
    with RunDisplay() as display:
        display.start_cell(cell, 16, 4, Gaps(-1e-12, 4))
        display.advance(12, Gaps(-3e-12, 16))
    first, last = capsys.readouterr().err.splitlines()
    assert first == "mine greedy on tsp20: 12 to solve (4 of 16 stored before)"
    assert last.endswith("gap 0.000 %")


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [(None, 4.491685524729999, "mean 4.49169"), (4.5, 4.4916, "mean 4.5 -> 4.4916"), (None, None, "")],
)
def test_references_say_the_means_that_there_are(
    before: float | None, after: float | None, told: str
) -> None:
    known = 5 if before else 0
    found = Improved("tsp30:count=5", 5, known, 5, (), before, after).describe()
    assert found == (
        f"tsp30:count=5: 5 of 5 references are new or better ({known} were known)"
        + (f", {told}" if told else "")
    )


def test_references_computed_in_parallel_say_nothing_of_times(tmp_path: Path) -> None:
    """All cores are their default, and no time of theirs is shown."""
    kept = Kept()
    how = ReferenceRun("nearest-neighbor", jobs=2)
    improve_references("tsp10:count=4", how, Places(tmp_path), kept)
    assert kept.messages == ["2 jobs: 4 to solve, less what is stored"]


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_an_interrupt_says_what_is_kept_and_how_to_go_on(jobs: str, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    save_dataset(generate("tsp", 8, 60, "uniform", 7), tmp_path / "set.npz")
    line = ["run", "slow.py", "--data", "set.npz", "--batch-size", "1", "--jobs", jobs]
    process = subprocess.Popen(
        [sys.executable, "-m", "nco_bench", *line], cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    deadline = time.monotonic() + 240
    while not any(path.stat().st_size for path in (tmp_path / "results").rglob("records.jsonl")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.1)
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    lines = told.splitlines()
    stored = sum(p.read_text().count("\n") for p in (tmp_path / "results").rglob("records.jsonl"))
    (kept,) = [match for text in lines if (match := re.search(r"(\d+) of 60 are solved and kept", text))]
    assert 1 <= int(kept[1]) <= stored
    assert lines[-1].endswith(f"The same command goes on from there: nco-bench {' '.join(line)}")


def test_lkh_says_its_budget_on_a_cvrp_before_it_starts(tmp_path: Path) -> None:
    """Kool et al. give 10,000 trials on 20 to 100 customers; here two, so that the test ends."""
    pytest.importorskip("LKHpy")
    kept = Kept()
    request = RunRequest(("lkh3:max_trials=2",), ("cvrp20:count=1",), tmp_path / "runs", Places(tmp_path))
    execute(request, kept)
    assert kept.messages[0].startswith("lkh3:max_trials=2 on cvrp20")
    assert "1 x 2 trials for 1 instance, about 0.0036 s each" in kept.messages[0]


@pytest.mark.parametrize(
    ("n", "trials"), [(20, 10_000), (100, 10_000), (200, 5_000), (1000, 1_000), (20_000, 100)]
)
def test_the_budget_of_a_cvrp_follows_its_size(n: int, trials: int) -> None:
    """Kool et al. (2019) up to 100; TAM prints 6.2 s for LKH3 on 1,000 (SIT, appendix), ours is estimated alike."""
    from nco_bench.solvers.classical.lkh3 import cvrp_seconds, cvrp_trials

    assert cvrp_trials(n) == trials
    assert 3 < cvrp_seconds(1000, cvrp_trials(1000)) < 12.4


def test_what_has_no_bar_shows_on_a_terminal_that_it_is_alive_and_nothing_elsewhere() -> None:
    code = "import time; from nco_bench.progress import heartbeat\n"
    code += "with heartbeat('verify'): time.sleep(3.5)\nprint('done')"
    quiet = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (quiet.stdout, quiet.stderr) == ("done\n", "")
    ours, theirs = os.openpty()
    subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=theirs, check=True)
    os.close(theirs)
    shown = ""
    with suppress(OSError):  # what is written arrives bit by bit, and the end of a terminal is an error
        while part := os.read(ours, 10_000):
            shown += part.decode()
    assert "verify 2 s" in shown
    assert "verify 3 s" in shown
    assert shown.endswith("\x1b[K")


COUNTED = """
import time
from nco_bench import progress as shown
from nco_bench.progress import tracked
shown.PLAIN_SECONDS = 0.5
with shown.heartbeat('verify'):
    for _ in tracked(range(8), 'run'):
        time.sleep(0.45)
"""


def test_a_rate_is_no_power_of_ten() -> None:
    assert [per_second(rate) for rate in (1234.5, 77.84, 0.01234)] == ["1,234/s", "77.8/s", "0.0123/s"]


def test_a_count_has_rate_and_time_left_on_a_terminal_and_lines_elsewhere() -> None:
    plain = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, check=True)
    assert plain.stdout == ""
    assert re.search(r"^verify \d s, [1-7]/8 runs, [0-9.]+/s, 0:00:0\d left$", plain.stderr, re.MULTILINE)
    ours, theirs = os.openpty()
    subprocess.run([sys.executable, "-c", COUNTED], stdout=subprocess.DEVNULL, stderr=theirs, check=True)
    assert re.search(r"verify 2 s, [1-7]/8 runs, [0-9.]+/s, 0:00:0\d left", os.read(ours, 10_000).decode())


def test_the_display_moves_within_a_batch(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nco_bench.cli.output.PLAIN_INTERVAL_SECONDS", 0.0)
    with RunDisplay() as display:
        display.start_cell(Announced("mine", "greedy", "tsp20"), 100, 0)
        with opened("", 100, kind=Batch) as batch:
            batch.began -= 10.0
            for _ in tracked(range(4), "step"):
                last = capsys.readouterr().err
                display._tick(0, None)
        assert re.search(r"0/100 in [0-9.]+ s, 5/s, 0:00:10 left, batch 50 % \(2/4 steps\)", last), last
        display.advance(100, NO_GAPS)
    assert "batch" not in capsys.readouterr().err.splitlines()[-1]


def test_workers_tell_how_far_their_batches_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nco_bench.runs.relay.WORKING_SECONDS", 0.0)
    kept, cell = Kept(), Announced("mine", "", "tsp20")
    relay = Relay(multiprocessing.get_context("spawn"), kept, {cell: 8})
    for number in (1, 2):
        worker = WorkerDisplay(relay.told, number)
        worker.start_cell(cell, 4, 0)
        with worker.root, opened("", 4, kind=Batch) as batch:
            batch.reach(number)
    deadline = time.monotonic() + 60
    while kept.working[-1:] != [Working(3.0, 8)]:
        assert time.monotonic() < deadline
        relay.show(1.0)
    assert kept.working[-1].words() == "batch 38 %"


@pytest.mark.parametrize(("name", "said"), [("tsp100:count=4", False), ("tsp1000:count=4", True)])
def test_lkh_says_what_a_large_tsp_will_take(name: str, said: bool, tmp_path: Path) -> None:
    from nco_bench.datasets.load import load_dataset
    from nco_bench.solvers.protocol import SolverOptions
    from nco_bench.solvers.registry import choose, create

    solver = create(choose("lkh3", SolverOptions(solver="lkh3")))
    told = solver.budget(load_dataset(name, Places(tmp_path)), None)
    assert bool(told) == said
    assert not said or told.startswith("1 x 1,000 trials for 4 instances, about 9.2 s each")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("run lkh3 --data tsp20", "the same command goes on"),
        ("weights pull bq", "the same command goes on"),
        ("verify", "nothing was written"),
        ("instances verify", "nothing was written"),
        ("calibrate pens-a", "for the other sizes, give --sizes"),
        ("plot pareto --out a.png", "what was written before is kept"),
        ("train am --out a.safetensors", "training had not begun: leave --resume out)"),
        ("train --campaign a.toml", "to go on: nco-bench train --campaign a.toml"),
    ],
)
def test_every_interrupted_command_says_what_it_leaves(line: str, told: str) -> None:
    from nco_bench.cli.app import _interrupted

    assert told in _interrupted(line.split()).lower()

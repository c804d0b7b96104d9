"""What closed runs say of themselves: who asks opens few of them, and never misses one whatever becomes of the file."""

from __future__ import annotations

import multiprocessing
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from test_store_and_resume import request

from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.generate import generate
from nco_bench.datasets.storage import save_dataset
from nco_bench.errors import ResultsError
from nco_bench.runs import closed
from nco_bench.runs.display import QuietDisplay
from nco_bench.runs.finding import find_runs
from nco_bench.runs.records import SUBMISSIONS
from nco_bench.runs.request import RunRequest, load_datasets
from nco_bench.runs.runner import run
from nco_bench.runs.store import done

PARTS = ((0, 4), (4, 8), (8, 12))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> RunRequest:
    """A results folder that jobs are submitted from, with a run for each part of a set, and a run of another seed."""
    folder = tmp_path_factory.mktemp("closed")
    path = save_dataset(generate("tsp", 8, 16, "uniform", 7), folder / "set.npz")
    whole = request("nearest-neighbor", path, folder)
    (whole.results / SUBMISSIONS).mkdir(parents=True)
    for part in PARTS:
        run(replace(whole, limit=part), QuietDisplay())
    run(replace(whole, seed=99, limit=(0, 4)), QuietDisplay())
    return whole


@pytest.fixture
def asked(made: RunRequest, tmp_path: Path) -> RunRequest:
    """A folder like `made` of one's own."""
    return replace(made, results=shutil.copytree(made.results, tmp_path / "runs"))


def index(asked: RunRequest) -> Path:
    return asked.results / SUBMISSIONS / closed.NAME


def stored(asked: RunRequest, part: tuple[int, int]) -> set[int]:
    """Instances of a part that `done` finds."""
    config = find_runs(asked.results)[0].cells()[0].config_sha256
    return found(asked, config, part)


def found(asked: RunRequest, config: str, part: tuple[int, int]) -> set[int]:
    dataset: Dataset = load_datasets(replace(asked, limit=part))[0]
    return {place[1] for place in done(asked.results, config, asked.seed, dataset)}


def test_a_run_that_cannot_answer_is_not_opened(asked: RunRequest) -> None:
    config = find_runs(asked.results)[0].cells()[0].config_sha256
    runs = sorted(path.parent for path in asked.results.glob("*/run.json"))
    assert len(runs) == 4
    for folder in (runs[0], runs[2], runs[3]):  # other instances, and another seed
        (folder / "run.json").write_text("nobody reads this")
    assert found(asked, config, PARTS[1]) == {4, 5, 6, 7}
    with pytest.raises(ResultsError, match="damaged"):
        found(asked, config, (7, 9))
    index(asked).unlink()
    with pytest.raises(ResultsError, match="damaged"):
        found(asked, config, PARTS[1])


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "none": lambda raw: raw,
    "empty": lambda raw: b"",
    "torn": lambda raw: raw[:-20],
    "torn in the middle": lambda raw: raw[: len(raw) // 2] + raw[len(raw) // 2 + 7 :],
    "mixed": lambda raw: raw[: len(raw) // 2] + raw[: len(raw) // 3] + raw[len(raw) // 3 :],
    "zeros": lambda raw: bytes(len(raw)),
    "a changed digit": lambda raw: raw.replace(b",4,7]", b",4,6]"),
    "no checksums": lambda raw: raw.replace(b',"crc"', b',"crd"'),
    "not JSON": lambda raw: b"\xff\xfe\n" + raw,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_nothing_is_missed_whatever_became_of_the_file(asked: RunRequest, damage: str) -> None:
    index(asked).write_bytes(DAMAGE[damage](index(asked).read_bytes()))
    for part in (*PARTS, (2, 10), (0, 16)):
        assert stored(asked, part) == set(range(*part)) & set(range(12))
    run(replace(asked, limit=(0, 16)), QuietDisplay())
    assert stored(asked, (0, 16)) == set(range(16)), "a line behind a torn one is whole"
    assert [sum(1 for _ in one.records()) for one in find_runs(asked.results)] == [4, 4, 4, 4, 4]


def test_runs_that_were_not_closed_are_opened(asked: RunRequest) -> None:
    lines = index(asked).read_bytes().split(b"\n")
    index(asked).write_bytes(b"\n".join(line for line in lines if b",4,7]" not in line))
    assert stored(asked, PARTS[1]) == {4, 5, 6, 7}


def test_a_run_that_was_moved_away_is_missed_by_nobody(asked: RunRequest) -> None:
    config = find_runs(asked.results)[0].cells()[0].config_sha256
    second = sorted(asked.results.glob("*/run.json"))[1].parent
    shutil.move(second, asked.results.parent / second.name)
    assert found(asked, config, PARTS[1]) == set()
    shutil.move(asked.results.parent / second.name, second)
    assert found(asked, config, PARTS[1]) == {4, 5, 6, 7}


def test_folders_that_nothing_is_submitted_from_have_no_such_file(tmp_path: Path) -> None:
    path = save_dataset(generate("tsp", 8, 4, "uniform", 7), tmp_path / "set.npz")
    asked = request("nearest-neighbor", path, tmp_path)
    run(asked, QuietDisplay())
    assert not (asked.results / SUBMISSIONS).exists()


def _tell(folder: Path, worker: int) -> None:
    for number in range(200):
        held = closed.Held({0: ("config", 7)})
        held.record(0, number)
        held.tell(folder, f"{worker}-{number}")


def test_many_may_write_at_once(tmp_path: Path) -> None:
    (tmp_path / SUBMISSIONS).mkdir()
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_tell, args=(tmp_path, number)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(closed.others(tmp_path, "config", 8, range(1))) == 600
    assert len(closed.others(tmp_path, "config", 7, range(10, 20))) == 600 - 3 * 10

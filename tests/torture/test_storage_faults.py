"""Storage that fails: a full or read-only place, a folder that vanishes, a clock set back, names, links, folders of 0.1."""

from __future__ import annotations

import shutil
import subprocess
import sys
import unicodedata
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import pytest
from schema_1 import as_schema_1

from nco_bench.datasets.generate import generate
from nco_bench.datasets.load import Places
from nco_bench.datasets.storage import load_saved, save_dataset
from nco_bench.errors import NcoBenchError
from nco_bench.runs import store
from nco_bench.runs.display import QuietDisplay
from nco_bench.runs.finding import find_runs
from nco_bench.runs.records import Cell
from nco_bench.runs.request import RunRequest
from nco_bench.runs.runner import run
from nco_bench.runs.store import RunWriter
from nco_bench.runs.verify import verify


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return save_dataset(generate("tsp", 8, 4, "uniform", 7), tmp_path / "set.npz")


def solve(data: Path, results: Path) -> None:
    run(RunRequest(("nearest-neighbor",), (str(data),), results, Places(data.parent)), QuietDisplay())


def indices(results: Path) -> list[int]:
    return [record.instance for one in find_runs(results) for record in one.records()]


@pytest.mark.parametrize("place", ["/proc/nco-bench", "/dev/null/runs"])
def test_a_place_that_cannot_be_written_is_one_line(data: Path, place: str) -> None:
    with pytest.raises(NcoBenchError) as caught:
        solve(data, Path(place))
    assert place in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_full_device_is_one_line_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    with pytest.raises(NcoBenchError, match="cannot be written"):
        save_dataset(generate("tsp", 8, 4, "uniform", 7), Path("/proc/self/set.npz"))
    assert list(tmp_path.iterdir()) == []


def _cell() -> Cell:
    return Cell(
        0, "x", "x", "1", "", "classical", {"params": {}}, "c" * 64, None, "set", "d" * 64, "tsp", "1", "min", "euclidean",
        {}, 1, 1, 1, None, "cpu", 1,
    )  # fmt: skip


def test_a_results_folder_that_vanishes_ends_with_one_line(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "runs", {})
    writer.cell(_cell())
    shutil.rmtree(tmp_path / "runs")
    with pytest.raises(NcoBenchError, match="cannot be written") as caught:
        writer.trace("k", ((0.1, 1.0),))
    assert "\n" not in str(caught.value)
    writer._release()


def test_a_second_process_that_sees_an_old_listing_solves_again_and_reads_agree(
    data: Path, tmp_path: Path
) -> None:
    # What NFS does: the other's run appears late. Both then hold all records, and readers count each once.
    solve(data, tmp_path / "one")
    solve(data, tmp_path / "two")
    for folder in (tmp_path / "one").iterdir():
        folder.rename(tmp_path / "two" / folder.name)
    assert sorted(indices(tmp_path / "two")) == sorted([*range(4)] * 2)
    assert verify(tmp_path / "two", (), Places(tmp_path)).findings == ()
    solve(data, tmp_path / "two")
    assert len(find_runs(tmp_path / "two")) == 2


def test_records_that_are_visible_before_their_facts_wait(data: Path, tmp_path: Path) -> None:
    solve(data, tmp_path / "runs")
    (folder,) = (tmp_path / "runs").iterdir()
    (folder / "run.json").rename(tmp_path / "late.json")
    assert indices(tmp_path / "runs") == []
    solve(data, tmp_path / "runs")
    (tmp_path / "late.json").rename(folder / "run.json")
    assert len(indices(tmp_path / "runs")) == 8
    assert verify(tmp_path / "runs", (), Places(tmp_path)).findings == ()


@pytest.mark.parametrize("letters", [251, 300])
def test_names_at_and_beyond_255_bytes_are_kept_or_refused_in_one_line(
    data: Path, tmp_path: Path, letters: int
) -> None:
    path = tmp_path / ("n" * letters + ".npz")
    try:
        save_dataset(load_saved(data), path)
    except NcoBenchError as error:
        assert "\n" not in str(error)  # noqa: PT017
        assert not any(one.name.startswith(("n", ".n")) for one in tmp_path.iterdir())
    else:
        assert load_saved(path).sha256 == load_saved(data).sha256


def test_names_in_either_unicode_form_are_the_file_that_they_name(data: Path, tmp_path: Path) -> None:
    composed = tmp_path / f"{unicodedata.normalize('NFC', 'größe')}.npz"
    save_dataset(load_saved(data), composed)
    solve(composed, tmp_path / "runs")
    assert indices(tmp_path / "runs") == [0, 1, 2, 3]
    decomposed = tmp_path / f"{unicodedata.normalize('NFD', 'größe')}.npz"
    if not decomposed.exists():
        with pytest.raises(NcoBenchError):
            load_saved(decomposed)
    assert verify(tmp_path / "runs", (), Places(tmp_path)).findings == ()


def test_links_that_lead_out_or_nowhere_or_round_are_survived(data: Path, tmp_path: Path) -> None:
    solve(data, tmp_path / "elsewhere")
    (folder,) = (tmp_path / "elsewhere").iterdir()
    results = tmp_path / "runs"
    results.mkdir()
    (results / folder.name).symlink_to(folder)
    (results / "nowhere").symlink_to(tmp_path / "gone")
    (results / "round").symlink_to(results / "round")
    assert indices(results) == [0, 1, 2, 3]
    assert verify(results, (), Places(tmp_path)).findings == ()
    solve(data, results)
    assert len(find_runs(results)) == 1


SMALL_DISK = """
set -e
mount -t tmpfs -o size=64k none small
python=$1 data=$2 fault=$3
run="$python -m nco_bench run nearest-neighbor --data $data --results small/runs --instances ."
mkdir small/runs
if [ $fault = full ]; then dd if=/dev/zero of=small/ballast bs=512 2>/dev/null || true; else mount -o remount,ro small; fi
$run 2>first || echo $? >status
if [ $fault = full ]; then rm small/ballast; else mount -o remount,rw small; fi
$run 2>second
cp -r small/runs runs
"""


@pytest.mark.parametrize("fault", ["full", "read-only"])
def test_a_disk_that_is_full_or_read_only_is_one_line_and_the_same_command_goes_on(
    fault: str, data: Path, tmp_path: Path
) -> None:
    (tmp_path / "small").mkdir()
    if subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode:
        pytest.skip("nothing may be mounted here")
    script = ["unshare", "-rm", "sh", "-c", SMALL_DISK, "sh", sys.executable, str(data), fault]
    ended = subprocess.run(script, cwd=tmp_path, check=False, capture_output=True, text=True)
    first = (tmp_path / "first").read_text()
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "status").read_text() == "2\n", first
    (told,) = [line for line in first.splitlines() if line.startswith("error: ")]
    assert {"full": "space", "read-only": "ead-only"}[fault] in told
    assert "Traceback" not in first
    assert sorted(indices(tmp_path / "runs")) == [0, 1, 2, 3]
    assert verify(tmp_path / "runs", (), Places(tmp_path)).findings == ()


def test_a_clock_that_steps_back_loses_no_order_and_makes_no_negative_time(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    solve(data, tmp_path / "runs")

    class Earlier(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.now(tz) - timedelta(days=400)

    monkeypatch.setattr(store, "datetime", Earlier)
    monkeypatch.setattr("time.time", lambda: 0.0)
    request = RunRequest(("random-insertion",), (str(data),), tmp_path / "runs", Places(tmp_path))
    run(request, QuietDisplay())
    first, second = find_runs(tmp_path / "runs")
    assert [cell.solver for one in (first, second) for cell in one.cells()] == [
        "nearest-neighbor",
        "random-insertion",
    ]
    assert all(record.seconds >= 0 for one in (first, second) for record in one.records())
    assert verify(tmp_path / "runs", (), Places(tmp_path)).findings == ()


def test_a_folder_of_0_1_is_read_gone_on_with_and_verified(data: Path, tmp_path: Path) -> None:
    results = tmp_path / "runs"
    run(
        RunRequest(("nearest-neighbor",), (str(data),), results, Places(tmp_path), limit=(0, 2)),
        QuietDisplay(),
    )
    as_schema_1(results)
    assert sorted(indices(results)) == [0, 1]
    solve(data, results)
    assert sorted(indices(results)) == [0, 1, 2, 3]
    assert verify(results, (), Places(tmp_path)).findings == ()

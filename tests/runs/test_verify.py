"""Verification catches a changed solution, cost, gap and dataset, and names the place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import orjson
import pytest

from nco_bench.cli.app import run as command
from nco_bench.datasets.generate import generate
from nco_bench.datasets.load import Places
from nco_bench.datasets.storage import save_dataset
from nco_bench.errors import ResultsError
from nco_bench.reports.frame.load import load_frame
from nco_bench.runs.display import QuietDisplay
from nco_bench.runs.request import RunRequest
from nco_bench.runs.runner import run
from nco_bench.runs.verify import verify
from nco_bench.seals import seal_line, unseal_document, unseal_line

SOLVER = """
import numpy as np
from nco_bench.solvers import register

@register("identity-tour", problems=("tsp",))
class Identity:
    def __init__(self, options): pass
    def unsupported(self, dataset): return None
    def prepare(self, dataset): pass
    def solve(self, batch, *, seed, time_limit, progress): return [np.arange(i.n) for i in batch]
"""


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    (tmp_path / "identity.py").write_text(SOLVER)
    data = save_dataset(generate("tsp", 8, 5, "uniform", 3), tmp_path / "set.npz")
    run(
        RunRequest((str(tmp_path / "identity.py"),), (str(data),), tmp_path / "runs", Places(tmp_path)),
        QuietDisplay(),
    )
    return tmp_path


def findings(folder: Path) -> list[str]:
    return [str(f) for f in verify(folder / "runs", (), Places(folder)).findings]


def only(folder: Path, pattern: str) -> Path:
    return next((folder / "runs").glob(pattern))


def test_an_untouched_run_has_no_findings(stored: Path) -> None:
    checked = verify(stored / "runs", (), Places(stored))
    assert (checked.runs, checked.records, checked.findings) == (1, 5, ())


def test_a_changed_solution_is_named(stored: Path) -> None:
    path = only(stored, "*/solutions.bin")
    tours = np.fromfile(path, dtype="<i4")
    tours[[8, 10]] = tours[[10, 8]]
    tours.tofile(path)
    (first, second) = findings(stored)
    assert "instance 1" in first
    assert "hash" in first
    assert "instance 1" in second
    assert "costs" in second


def test_a_changed_cost_is_named(stored: Path) -> None:
    path = only(stored, "*/records.jsonl")
    lines = [orjson.loads(unseal_line(line)) for line in path.read_bytes().splitlines(keepends=True)]
    lines[3]["cost"] *= 0.99
    path.write_bytes(b"".join(seal_line(orjson.dumps(line) + b"\n") for line in lines))
    (finding,) = findings(stored)
    assert "instance 3" in finding
    assert "the stored solution costs" in finding


def test_a_changed_dataset_is_named(stored: Path) -> None:
    save_dataset(generate("tsp", 8, 5, "uniform", 4), stored / "set.npz")
    assert any("its content has hash" in finding for finding in findings(stored))


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    """Nothing can be scored again without it; a name alone would be one of a dataset that nobody knows."""
    file = tmp_path / "own.txt"
    file.write_text("0 0 1 0 1 1 0 1 output 1 2 3 4 1\n")
    run(RunRequest(("nearest-neighbor",), (str(file),), tmp_path / "runs", Places(tmp_path)), QuietDisplay())
    assert findings(tmp_path) == []
    file.unlink()
    (found,) = findings(tmp_path)
    assert f"the file {file} is not here; put it back" in found


def test_a_damaged_dataset_is_named(stored: Path) -> None:
    raw = bytearray((stored / "set.npz").read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    (stored / "set.npz").write_bytes(raw)
    assert any("set.npz" in finding for finding in findings(stored))


def test_a_moved_record_is_named(stored: Path) -> None:
    path = only(stored, "*/records.jsonl")
    lines = [orjson.loads(unseal_line(line)) for line in path.read_bytes().splitlines(keepends=True)]
    lines[0]["instance"] = 2
    path.write_bytes(b"".join(seal_line(orjson.dumps(line) + b"\n") for line in lines))
    assert any("does not follow from its configuration" in finding for finding in findings(stored))


def test_records_that_are_gone_from_a_finished_run_are_missed(stored: Path) -> None:
    only(stored, "*/records.jsonl").write_bytes(b"")
    (found,) = findings(stored)
    assert "identity-tour on " in found
    assert "holds 0 records, and the run had written 5 when it ended" in found
    without_counts(stored)
    (found,) = findings(stored)
    assert "its records are gone" in found


def without_counts(stored: Path) -> None:
    """Make of a run one of before: cells that do not tell how many records they have."""
    path = only(stored, "*/cells.jsonl")
    lines = [orjson.loads(unseal_line(line)) for line in path.read_bytes().splitlines(keepends=True)]
    for line in lines:
        del line["records"]
    path.write_bytes(b"".join(seal_line(orjson.dumps(line) + b"\n") for line in lines))


def test_a_record_that_was_taken_out_is_missed(stored: Path) -> None:
    path = only(stored, "*/records.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2] + lines[3:]))
    (found, _) = findings(stored)
    assert "holds 4 records, and the run had written 5 when it ended" in found
    without_counts(stored)
    (found,) = findings(stored)
    assert "solutions.bin: 8 integers before number 24 belong to no record: a line was taken out" in found


def test_a_record_that_stands_twice_is_named(stored: Path) -> None:
    path = only(stored, "*/records.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, lines[1]]))
    (twice, count) = findings(stored)
    assert "(instance 1, repeat 0): has another record of the same cell in this run" in twice
    assert "holds 6 records" in count


def test_a_folder_of_another_name_is_told(stored: Path) -> None:
    """Runs count in the order of their names, so two that changed places would change tables."""
    folder = only(stored, "*")
    folder.rename(folder.with_name("20200101-000000-000000-1-abcdef"))
    (found,) = findings(stored)
    assert f"run.json: is of the run {folder.name}: the folder was given another name" in found


def test_what_follows_a_damaged_line_is_checked(stored: Path) -> None:
    path = only(stored, "*/records.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    record = orjson.loads(unseal_line(lines[4]))
    record["cost"] *= 0.99
    lines[4] = seal_line(orjson.dumps(record) + b"\n")
    lines[1] = lines[1].replace(b'"instance":1', b'"instance":3')
    path.write_bytes(b"".join(lines))
    (changed, damaged) = findings(stored)
    assert "instance 4" in changed
    assert "the stored solution costs" in changed
    assert "records.jsonl:2: damaged record" in damaged


def test_a_torn_last_record_of_a_finished_run_is_missed(stored: Path) -> None:
    path = only(stored, "*/records.jsonl")
    path.write_bytes(path.read_bytes()[:-40])
    (found,) = findings(stored)
    assert found.endswith("records.jsonl: the last line is torn, and the run had ended: a record was lost")


def test_cells_that_are_gone_are_told_once(stored: Path) -> None:
    """It was a line for each record, and in reports a KeyError."""
    only(stored, "*/cells.jsonl").unlink()
    (found,) = findings(stored)
    assert "its cells.jsonl is gone; bring it back" in found
    with pytest.raises(ResultsError, match=r"its cells\.jsonl is gone"):
        load_frame(stored / "runs")


def test_a_line_without_its_checksum_is_named(stored: Path) -> None:
    """Whichever it is, and if all are: only a run whose facts have no seal either was written without."""
    path = only(stored, "*/records.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    bare = [unseal_line(line) for line in lines]
    for changed in ([*lines[:2], bare[2], *lines[3:]], [bare[0], *lines[1:]], [*lines[:4], bare[4]], bare):
        path.write_bytes(b"".join(changed))
        (finding,) = findings(stored)
        assert "damaged record (its checksum is gone)" in finding
        with pytest.raises(ResultsError, match="damaged record"):
            load_frame(stored / "runs")
    facts = only(stored, "*/run.json")
    facts.write_bytes(orjson.dumps(unseal_document(facts.read_bytes())))
    assert findings(stored) == []


@pytest.mark.parametrize("name", ["run.json", "records.jsonl"])
def test_a_run_whose_file_is_gone_is_named(name: str, stored: Path, capsys: pytest.CaptureFixture) -> None:
    """Reports say that they leave it out."""
    request = RunRequest(("nearest-neighbor",), (str(stored / "set.npz"),), stored / "runs", Places(stored))
    path = only(stored, f"*/{name}")
    run(request, QuietDisplay())
    path.unlink()
    (finding,) = findings(stored)
    assert f"its {name} is gone" in finding
    assert finding.startswith(path.parent.name)
    assert command(["report", "--results", str(stored / "runs")]) == 0
    assert f"warning: left out {path.parent}: its {name} is gone" in capsys.readouterr().err


def test_a_folder_that_never_was_a_run_is_none(stored: Path) -> None:
    """One of somebody's own, and one whose process was killed before it had written anything."""
    (stored / "runs" / "notes").mkdir()
    (stored / "runs" / "notes" / "list.txt").write_text("x")
    (stored / "runs" / "killed").mkdir()
    (stored / "runs" / "killed" / "records.jsonl").touch()
    assert findings(stored) == []


def test_an_unknown_run_is_refused(stored: Path) -> None:
    with pytest.raises(ResultsError, match="no run 'nothing'"):
        verify(stored / "runs", ("nothing",), Places(stored))

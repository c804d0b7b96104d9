"""Reading records in pieces and by several processes: the columns do not depend on how the files are cut."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from run_folders import Results, make_cell, make_records

from nco_bench.errors import ResultsError
from nco_bench.reports.frame import lines as lines_of_files
from nco_bench.reports.frame.columns import read_columns

IN_FORKS = """
import sys
from pathlib import Path
from nco_bench.reports.frame import columns, lines
lines.PIECE_BYTES = 500
columns.decoded = lambda pieces: lines.decoded_by(2, pieces)
found = columns.read_columns([(Path(path), {0: 0}) for path in sys.argv[1:]])
print(found.records.to_csv(), found.names, found.conventions, found.messages)
"""


@pytest.fixture
def files(results: Results) -> list[Path]:
    """Two runs of 40 instances; 10 of the second are those of the first, and both have records of all kinds."""
    cell = make_cell(0, "lkh3", "tsp100")
    first = make_records(cell, [8.0 + i / 64 for i in range(40)], [8.0] * 40)
    second = make_records(cell, [7.0 + i / 64 for i in range(40)], [None] * 40, first=30)
    for i, record in enumerate([*first, *second]):
        record.solution = (3 * i, 3)
        if i % 7 == 3:
            record.status, record.cost, record.message, record.solution = (
                "failed",
                None,
                f"reason {i % 3}",
                None,
            )
        if i % 5 == 0:
            record.counts = {"tp": float(i), **({"fp": 1.0} if i % 2 else {})}
        record.instance_sha256 = f"{2**60 + i:016x}" if i < 40 else ""
    return [
        results.run(name, (cell, records)) / "records.jsonl"
        for name, records in (("r1", first), ("r2", second))
    ]


def described(files: list[Path]) -> str:
    found = read_columns([(path, {0: 0}) for path in files])
    return f"{found.records.to_csv()} {found.names} {found.conventions} {found.messages}"


def test_pieces_of_any_size_give_the_same_columns(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = described(files)
    for size in (1, 300, 1000, 5000):
        monkeypatch.setattr(lines_of_files, "PIECE_BYTES", size)
        assert described(files) == whole


def test_columns_hold_what_the_lines_say(files: list[Path]) -> None:
    found = read_columns([(path, {0: 0}) for path in files])
    records = found.records
    assert records["cost"].isna().sum() == 11  # every seventh of 80 from the fourth on
    assert records["cost"].iloc[41] == 7.0 + 1 / 64
    assert records["reference"].isna().sum() == 40
    assert records["count_tp"].dropna().tolist() == [5.0 * i for i in range(16)]
    assert records["count_fp"].notna().sum() == 8
    assert found.messages == ("", "reason 0", "reason 1", "reason 2")
    assert (records["solution_offset"] == -1).sum() == 11
    assert records["content"].tolist() == [2**60 + i for i in range(40)] + [0] * 40


@pytest.mark.skipif(sys.platform != "linux", reason="forks are used on Linux alone")
def test_forks_read_the_same_columns(files: list[Path]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_FORKS, *map(str, files)], capture_output=True, text=True, check=True
    )
    assert done.stdout == described(files) + "\n"


def test_damaged_line_is_named_wherever_its_piece_begins(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_of_files, "PIECE_BYTES", 1000)
    lines = files[0].read_bytes().splitlines(keepends=True)
    lines[28] = lines[28][:50] + b"\n"
    files[0].write_bytes(b"".join(lines))
    with pytest.raises(ResultsError, match=r"records\.jsonl:29: damaged record"):
        described(files)


def test_file_that_ends_within_its_only_line_has_no_records(tmp_path: Path) -> None:
    torn = tmp_path / "records.jsonl"
    torn.write_bytes(b'{"key": "torn')
    assert read_columns([(torn, {0: 0}), (tmp_path / "absent", {})]).records.empty

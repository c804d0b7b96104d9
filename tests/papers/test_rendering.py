"""`reproduce --stored`: tables of what is stored, on a machine that could run none of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nco_bench.cli import app
from nco_bench.papers import running, standing
from nco_bench.papers.rendering import from_records
from nco_bench.papers.reproducing import tables_of
from nco_bench.papers.standing import standings
from nco_bench.papers.stored import stored_in

REPOSITORY = Path(__file__).resolve().parents[2]


def nco(*arguments: str, results: Path) -> int:
    return app.run([*arguments, "--results", str(results), "--instances", str(results / "none")])


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_what_is_stored_stands_in_the_table_and_nothing_is_run(
    small: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert nco("run", "nearest-neighbor", "--data", "tsp20:count=16", results=small) == 0
    before = files_of(small)
    out = small.parent / "tables"
    command = ("reproduce", "tropical", "--table", "2", "--stored")
    assert nco(*command, "--markdown", "--out", str(out), results=small) == 0
    assert [path.name for path in files_of(out)] == ["tropical-table-2-stored.md"]
    assert files_of(small) == before
    (row,) = [line for line in (out / "tropical-table-2-stored.md").read_text().splitlines() if "CPU time" in line
              and "Tropical" in line]  # fmt: skip
    assert "not comparable" in row  # a time on another machine
    capfd.readouterr()
    assert nco(*command, "--json", results=small) == 0
    shown: dict[str, Any] = json.loads(capfd.readouterr().out)
    assert shown["statuses"]["not comparable"] == 1


def test_what_is_not_installed_here_changes_no_table(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables, stored = tables_of("tropical", "2"), stored_in([small], None)
    (here,) = from_records(tables, stored)
    for module in (running, standing):
        monkeypatch.setattr(module, "solver_missing", lambda name: f"{name} is not installed")
    (elsewhere,) = from_records(tables, stored)
    assert [one.verdict for one in here.entries] == [one.verdict for one in elsewhere.entries]
    assert any("is not installed" in one.entry.verdict.reason for one in standings(tables, stored))


def test_other_readings_stand_below_their_rows_and_are_not_counted() -> None:
    tables = tables_of("eie", "2")
    stored = stored_in([REPOSITORY / "results" / "cpu"], REPOSITORY / "instances")
    (table,) = from_records(tables, stored)
    read = [one for one in table.entries if one.reading]
    assert len(table.entries) - len(read) == len(standings(tables, stored))
    assert read
    assert all(one.cell.row.endswith(f"({one.reading})") for one in read)
    assert any(one.value is not None for one in read)


@pytest.mark.parametrize(
    "more", [("--status",), ("--scale", "cpu"), ("--limit", "3"), ("--fill", "--budget", "1m")]
)
def test_options_that_mean_nothing_beside_it_are_refused(
    more: tuple[str, ...], small: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert nco("reproduce", "tropical", "--table", "2", "--stored", *more, results=small) == 2
    assert "--stored makes tables of all that is stored" in capfd.readouterr().err

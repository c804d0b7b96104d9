"""``reproduce --list`` counts what ``reproduce`` then does."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from nco_bench.cli.app import run
from nco_bench.papers.preset import DECLARED, has_preset
from nco_bench.papers.published import list_tables, paper_room


def printed(capfd: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capfd.readouterr()
    assert run(list(arguments)) == 0
    return json.loads(capfd.readouterr().out)


def test_every_table_with_a_preset_is_listed(capfd: pytest.CaptureFixture[str]) -> None:
    listed = printed(capfd, "reproduce", "--list", "--json")
    known = [(t.paper, str(t.number), t.title) for t in list_tables() if has_preset(t.paper, t.number)]
    assert [(one["paper"], one["table"], one["title"]) for one in listed] == known
    of_one = printed(capfd, "reproduce", "sit", "--list", "--json")
    assert of_one == [one for one in listed if one["paper"] == "sit"]
    for one in listed:
        smoke, cpu, full = (one["answered"][scale] for scale in ("smoke", "cpu", "full"))
        assert 0 <= smoke <= cpu <= full <= one["printed"]


@pytest.mark.parametrize(
    ("paper", "table"), [("decoder-scaling", "1"), ("tropical", "4"), ("decoder-scaling", "10")]
)
def test_what_is_answered_is_what_reproduce_answers(
    paper: str, table: str, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (one,) = printed(capfd, "reproduce", paper, "--table", table, "--list", "--json")
    path = paper_room(paper) / "published" / f"table-{table}.csv"
    with path.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["number"] or row["value"] == "OOM"]
    assert one["printed"] == len(rows)
    statuses = printed(capfd, "reproduce", paper, "--table", table, "--json")["statuses"]
    # That weights are missing shows when it is run.
    without = sum(statuses.get(status, 0) for status in DECLARED if status != "weights missing")
    assert one["answered"]["smoke"] == one["printed"] - without


def test_without_a_paper_there_is_nothing_to_reproduce(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce"]) == 2
    assert "Name a paper, or all" in capfd.readouterr().err

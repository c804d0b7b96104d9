"""The tables under results/tables are what the records under results/ give: `reproduce all --stored`."""

from __future__ import annotations

from pathlib import Path

import pytest

from nco_bench.papers.rendering import from_records
from nco_bench.papers.reproducing import tables_of
from nco_bench.papers.stored import stored_in
from nco_bench.papers.tables import table_name
from nco_bench.papers.writing import render

ROOT = Path(__file__).resolve().parents[2]
TABLES = ROOT / "results" / "tables"
COMMAND = "nco-bench reproduce all --stored --markdown --out results/tables"


def test_the_tables_are_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")  # parameters are counted on the networks
    monkeypatch.setenv(
        "NCO_BENCH_CACHE", str(tmp_path)
    )  # weights that one machine pulled are not everybody's
    monkeypatch.delenv("NCO_BENCH_MIRROR", raising=False)
    folders = sorted(path for path in (ROOT / "results").iterdir() if path.is_dir() and path.name != "runs")
    made = from_records(tables_of("all", None), stored_in(folders, ROOT / "instances"))
    wanted = {f"{table_name(one)}.md": render("markdown", one) for one in made}
    there = {path.name: path.read_text(encoding="utf-8") for path in TABLES.glob("*-stored.md")}
    stale = sorted(name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name))
    assert stale == [], f"make them with: NCO_BENCH_CACHE=/none {COMMAND}"

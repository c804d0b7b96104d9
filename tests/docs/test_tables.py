"""What the records under results/ give stands in results/tables (`reproduce all --stored`) and docs/fidelity.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nco_bench.papers.rendering import from_records
from nco_bench.papers.reproducing import tables_of
from nco_bench.papers.stored import Stored
from nco_bench.papers.tables import table_name
from nco_bench.papers.writing import render
from tools import fidelity

ROOT = Path(__file__).resolve().parents[2]
TABLES = ROOT / "results" / "tables"
COMMAND = "nco-bench reproduce all --stored --markdown --out results/tables"


@pytest.fixture(scope="module")
def stored() -> Iterator[Stored]:
    """Read all records once: it takes longer than the pages do."""
    pytest.importorskip("torch")  # parameters are counted on the networks
    with pytest.MonkeyPatch.context() as patch:
        for name in ("NCO_BENCH_CACHE", "NCO_BENCH_MIRROR"):  # which it sets for its own process
            patch.setenv(name, "")
        yield fidelity.kept()


def test_the_tables_are_up_to_date(stored: Stored) -> None:
    made = from_records(tables_of("all", None), stored)
    wanted = {f"{table_name(one)}.md": render("markdown", one) for one in made}
    there = {path.name: path.read_text(encoding="utf-8") for path in TABLES.glob("*-stored.md")}
    stale = sorted(name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name))
    assert stale == [], f"make them with: NCO_BENCH_CACHE=/none {COMMAND}"


def test_the_page_on_fidelity_is_up_to_date(stored: Stored) -> None:
    there = fidelity.PAGE.read_text(encoding="utf-8")
    assert there == fidelity.made(stored), "make it with: python tools/fidelity.py"


def test_another_argument_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert fidelity.main(["--chek"]) == 2
    assert capsys.readouterr().err.startswith("usage: ")

"""``reproduce --executor slurm``: one submission, and the numbers that the command finds without SLURM."""

from __future__ import annotations

import json
from typing import Any

import pytest
from one_node import Place

from nco_bench.papers.judging import Verdict
from nco_bench.papers.kept import as_document, from_document

pytest.importorskip("torch")
SLURM = ("--executor", "slurm", "--slurm", "memory=1800M")


def numbers(printed: str) -> list[Any]:
    """Return what a command with --json says of each printed number: its verdict and ours."""
    (table,) = json.loads(printed)["tables"]
    return [table["columns"], table["rows"]]


def test_computed_numbers_survive_their_way_through_a_file() -> None:
    of = Verdict("other weights", "2 training seeds")
    computed: dict[tuple[str, str], Any] = {("a", "b"): 1.5, ("a", "c"): of, ("b", "b"): (2.5, of)}
    assert from_document(json.loads(json.dumps(as_document(computed)))) == computed
    assert from_document(as_document(of)) == of


@pytest.mark.slow
@pytest.mark.parametrize(
    "table", [("decoder-scaling", "20"), ("eie", "figure-6")], ids=lambda table: " ".join(table)
)
def test_a_table_by_jobs_is_the_table_without(place: Place, table: tuple[str, str]) -> None:
    paper, number = table
    line = ("reproduce", paper, "--table", number, "--limit", "1", "--json")
    here = numbers(place.call(*line, "--results", "here").stdout)
    done = place.call(*line, *SLURM)
    assert "submitted" in done.stderr
    assert "nothing was submitted" not in done.stderr
    assert numbers(done.stdout) == here
    again = place.call(*line, *SLURM)
    assert "stored; nothing was submitted" in again.stderr
    assert numbers(again.stdout) == here

"""EIE's published scales beside ours: what the report says about them."""

from __future__ import annotations

from pathlib import Path

import pytest

from nco_bench.nn.entropy import expected_entropy
from nco_bench.papers.eie.figures import (
    SETTINGS,
    departures_text,
    dependent_entropy,
    entropy_table,
    lambda_figure,
    lambda_rows,
)


@pytest.mark.parametrize("number", [5, 7])
def test_the_learned_values_are_within_two_percent_of_the_exact_ones(number: int) -> None:
    rows = lambda_rows(number)
    assert len(rows) == 5
    assert all(abs(row.network / row.exact - 1) < 0.02 for row in rows)


def test_the_report_names_the_published_values_that_depart() -> None:
    # The specification: -6.6 % at n = 200 (d = 16); -19.2 % and -15 % at n = 240 and 480 (d = 32).
    assert departures_text(lambda_rows(5), 16).count("n = ") == 1
    text = departures_text(lambda_rows(7), 32)
    assert text.count("n = ") == 2
    assert "n = 240: 0.227" in text
    assert "n = 480: 0.306" in text


def test_entropies_are_those_of_the_specification() -> None:
    table = entropy_table(5, (200, 1600))
    assert table["1/sqrt(d)"] == pytest.approx([4.81, 6.88], abs=0.01)
    assert table["ln n / d"] == pytest.approx([4.46, 5.74], abs=0.01)
    assert table["EIE, exact"] == pytest.approx([4.1254] * 2, abs=0.0005)


def test_dependence_of_queries_and_keys_hardly_changes_the_entropy() -> None:
    # Figure 7: the two curves lie on each other.
    sampled = dependent_entropy(100, 0.25, SETTINGS[5][0], 40)
    assert abs(sampled.mean - expected_entropy(100, 0.25, 16)) < 4 * sampled.error + 0.01


@pytest.mark.slow
def test_a_figure_is_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert lambda_figure(5, tmp_path / "lambda.png").read_bytes().startswith(b"\x89PNG")

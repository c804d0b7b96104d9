"""Tables of the leaderboard beside their plots, in headless Chromium."""

from __future__ import annotations

from pathlib import Path

import pytest
from chromium import CHROMIUM, browse

LONG = "document.querySelectorAll('td.number.quiet').forEach((cell) => { cell.textContent = '−10.015 … −10.001'; })"
TABLES = """Array.from(document.querySelectorAll('.pair > .scroll'), (table) => {
  const plot = table.nextElementSibling, top = (element) => element.getBoundingClientRect().top;
  return [table.scrollWidth - table.clientWidth, top(plot) - top(table), plot.clientWidth];
})"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; apt-get install chromium")
def test_no_column_is_cut_beside_a_plot(site: Path, tmp_path: Path) -> None:
    """The plot took 420 pixels first, and the last column of the table stood half outside at 1,200."""
    with browse(tmp_path / "profile") as page:
        for width in (1200, 1000, 900):
            page.open(site / "index.html", width=width)
            page.wait("document.querySelectorAll('.pair > .scroll').length")
            page.evaluate(LONG)
            for cut, below, plot in page.evaluate(TABLES):
                assert cut == 0, width
                assert plot >= 300, width
                assert (below == 0) == (width == 1200)
            assert page.evaluate("document.documentElement.scrollWidth") <= width

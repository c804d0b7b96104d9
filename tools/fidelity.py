"""Write docs/fidelity.md: how the papers' numbers stand by the records in results/, and what is known of differences.

Usage: python tools/fidelity.py [--check]. With --check nothing is written, and status 1 says that the page is out of date.
What was tried on cells that differ is written by hand in tools/fidelity_causes.md; earlier counts in
docs/fidelity-history.csv.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from nco_bench.papers.judging import ENOUGH, STATUSES, TOLERANCE
from nco_bench.papers.reproducing import tables_of
from nco_bench.papers.standing import LONGEST, WIDE, Standing, standings
from nco_bench.papers.stored import Stored, stored_in

ROOT = Path(__file__).resolve().parents[1]
PAGE, HISTORY = ROOT / "docs" / "fidelity.md", ROOT / "docs" / "fidelity-history.csv"
CAUSES = ROOT / "tools" / "fidelity_causes.md"
WORST = 20
WORDS = (
    "Other weights: the number is ours, the network is not the paper's (trained less, or elsewhere). Weights missing: no "
    "file is at hand; `reproduce --status --json` names the command that gets it. Not comparable: a time or the memory of "
    "another machine, or too few instances. No result: a printed condition or a definition, such as the hardware of a "
    "training or the zero gap of a reference to itself. No code: a method whose code is not public. Too long: one core "
    f"would take more than {LONGEST / 3600:.0f} hours for {ENOUGH} instances, or for one of a network beyond {WIDE:,} "
    "nodes. Not run: nobody did yet."
)


def page(found: Sequence[Standing], causes: str, history: str) -> str:
    """Return the page's text; the same records give the same bytes."""
    parts = [
        "# How far the papers' numbers are reproduced",
        "Made by `python tools/fidelity.py` from the records under `results/` (`nco-bench reproduce --status`); nothing is "
        "run for it.",
        f"{TOLERANCE}.",
        WORDS,
        "## Counts",
        _counts(found),
        "## What is open",
        "Hours of one core for the run behind a cell, the least and the most of a table. Tables share runs, and a run "
        "answers several cells.",
        _open(found),
        "## The worst differences",
        _worst(found),
        "## Causes",
        causes.strip(),
        "## By version",
        "Up to a199cc7 numbers that agree without a run, and printed settings of tables, counted as reproduced (127), "
        "and EIE's learned curves as differing (8).",
        _table([line.split(",") for line in history.split()]),
    ]
    return "\n\n".join(parts) + "\n"


def _counts(found: Sequence[Standing]) -> str:
    statuses = [s for s in STATUSES if any(one.entry.verdict.status == s for one in found)]
    tables = list(dict.fromkeys((one.table.paper, str(one.table.number)) for one in found))
    counts = Counter((one.table.paper, str(one.table.number), one.entry.verdict.status) for one in found)
    rows = [[p, t, *(str(counts[p, t, s] or "") for s in statuses)] for p, t in tables]
    total = Counter(one.entry.verdict.status for one in found)
    return _table([["paper", "table", *statuses], *rows, ["all", "", *(str(total[s]) for s in statuses)]])


def _open(found: Sequence[Standing]) -> str:
    places: dict[tuple[str, str, str], list[float | None]] = {}
    for one in found:
        status = one.entry.verdict.status
        if status in ("not run", "too long"):
            seconds = places.setdefault((one.table.paper, str(one.table.number), status), [])
            seconds.append(one.seconds)
    rows = []
    for (paper, table, status), seconds in places.items():
        known = [s / 3600 for s in seconds if s is not None]
        ends = [_hours(min(known)), _hours(max(known))] if known else ["", ""]
        rows.append([paper, table, status, str(len(seconds)), *ends])
    return _table([["paper", "table", "status", "cells", "least hours", "most hours"], *rows])


def _hours(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 10 else f"{hours:.1g}"


def _worst(found: Sequence[Standing]) -> str:
    def relative(one: Standing) -> float:
        printed, ours = one.entry.cell.number, one.entry.value
        return 0.0 if printed is None or ours is None else abs(ours - printed) / max(abs(printed), 1e-12)

    differing = [one for one in found if one.entry.verdict.status.startswith("differs")]
    worst = sorted(differing, key=lambda one: -relative(one))[:WORST]
    rows = [
        [
            f"{one.table.paper} {one.table.number}", one.entry.cell.row, one.entry.cell.column,
            one.entry.cell.value, f"{one.entry.value:.4g}", f"{100 * relative(one):.1f} %",
            one.entry.verdict.status, one.entry.verdict.reason,
        ]
        for one in worst
    ]  # fmt: skip
    return _table([["table", "row", "column", "printed", "ours", "relative", "status", "why"], *rows])


def _table(rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])


def kept() -> Stored:
    """Read the records that are kept under results/."""
    # Weights that one machine pulled are not everybody's.
    os.environ["NCO_BENCH_CACHE"] = str(ROOT / "no-cache")
    os.environ.pop("NCO_BENCH_MIRROR", None)
    folders = sorted(path for path in (ROOT / "results").iterdir() if path.is_dir() and path.name != "runs")
    return stored_in(folders, ROOT / "instances")


def made(stored: Stored) -> str:
    """Return the page by the kept records."""
    found = standings(tables_of("all", None), stored, anywhere=True)
    return page(found, CAUSES.read_text(encoding="utf-8"), HISTORY.read_text(encoding="utf-8"))


def main(arguments: Sequence[str]) -> int:
    """Write the page, or say whether it is up to date."""
    if arguments not in ([], ["--check"]):
        print("usage: python tools/fidelity.py [--check]", file=sys.stderr)
        return 2
    text = made(kept())
    if arguments:
        if not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text:
            print("docs/fidelity.md is out of date; make it with: python tools/fidelity.py", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

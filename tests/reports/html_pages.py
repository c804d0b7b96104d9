"""Pages of small results that several tests look at."""

from __future__ import annotations

from pathlib import Path

from run_folders import Results, make_cell, make_records

from nco_bench.datasets.load import Places
from nco_bench.reports.frame.load import load_frame
from nco_bench.reports.html import page as render_html


def three_solvers(results: Results) -> None:
    """Gaps of lkh3 0 %, net greedy 10 and 20 %, <b>solver 30 % and a failure; net on set-200 too."""
    weights = {"name": "net-weights", "sha256": "f" * 64}
    net = {"kind": "neural", "decoding": "greedy", "weights": weights}
    cells = [
        (make_cell(0, "lkh3", "set-100"), [10.0, 10.0], 100),
        (make_cell(1, "net", "set-100", **net), [11.0, 12.0], 100),
        (make_cell(2, "<b>solver", "set-100"), [13.0, "oom"], 100),
        (make_cell(3, "net", "set-200", **net), [12.0, 12.5], 200),
        (make_cell(4, "lkh3", "set-200"), [10.0, 10.0], 200),
    ]
    results.run("r1", *((c, make_records(c, costs, [10.0, 10.0], n=n)) for c, costs, n in cells))


def page_of(results: Results) -> str:
    return render_html.render(load_frame(results.folder), places=Places(results.folder.parent / "instances"))


def page_of_three_solvers(folder: Path) -> str:
    """The page of three solvers, and of a dataset whose name now stands for other data."""
    results = Results(folder / "runs")
    three_solvers(results)
    other = make_cell(0, "lkh3", "tsp10:count=2", dataset_sha256="0" * 64)
    results.run("r2", (other, make_records(other, [3.0, 4.0], [3.0, 3.0], n=10)))
    return page_of(results)

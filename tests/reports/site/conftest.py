"""A site of real records: three solvers on small sets, and one whose names and messages are hostile."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from site_records import LENGTH, edit, make_hostile, solve

from nco_bench.datasets.load import Places
from nco_bench.reports.site.build import build_site


@pytest.fixture(scope="session")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nearest neighbour, insertion and 2-opt on tsp20, two of them on a CVRP, and a hostile copy; with references."""
    results = tmp_path_factory.mktemp("site") / "runs"
    solve(results, ["nearest-neighbor", "two-opt", "farthest-insertion"], f"tsp20:count={LENGTH}")
    other = results.parent / "hostile"
    (run,) = solve(other, ["nearest-neighbor"], f"tsp20:count={LENGTH}", seed=5)
    make_hostile(run)
    shutil.copytree(run, results / run.name)
    solve(results, ["nearest-neighbor"], "cvrp20:count=2")
    for folder in results.iterdir():
        edit(folder, "records.jsonl", lambda line: line.update(reference=3.0 if line["n"] == 20 else None))
    return results


@pytest.fixture(scope="session")
def site(records: Path) -> Path:
    """The site of these records."""
    out = records.parent / "site"
    build_site([records], out, Places(records.parent / "instances"))
    return out

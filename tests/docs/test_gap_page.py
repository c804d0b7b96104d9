"""The page of gap against seconds is what its stored solves give, and gaps are to the best of each instance."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture(scope="module")
def page() -> ModuleType:
    name = "gap_against_seconds_page"
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_page_is_made_from_what_is_stored(page: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    lines = (BENCHMARKS / "gap_against_seconds.jsonl").read_text().splitlines()
    (tmp_path / "images").mkdir()
    page.write_page([page.Solve(**json.loads(line)) for line in lines], tmp_path)
    assert (tmp_path / page.PAGE).read_text() == (ROOT / "docs" / page.PAGE).read_text()
    assert b"<svg" in (tmp_path / page.PICTURE).read_bytes()


def test_gaps_are_means_over_instances_of_the_gap_to_the_best_of_each(page: ModuleType) -> None:
    def solve(instance: int, solver: str, limit: float | None, cost: float | None, cpu: float) -> object:
        return page.Solve("tsp", 10, instance, solver, limit, cost, cpu, 2 * cpu)

    rows, failed = page.rows_of(
        [
            solve(0, "slow", 5.0, 10.0, 6.0),
            solve(1, "slow", 5.0, 30.0, 4.0),
            solve(0, "quick:k=2", None, 12.0, 0.1),
            solve(1, "quick:k=2", None, 20.0, 0.3),
            solve(0, "broken", None, None, 1.0),
        ]
    )
    assert [(row.name, row.solver, row.solved) for row in rows] == [
        ("quick:k=2", "quick", 2),
        ("slow (5 s)", "slow", 2),
    ]
    assert [row.gap for row in rows] == pytest.approx([10.0, 25.0])  # (20 + 0) / 2, (0 + 50) / 2
    assert [row.cpu for row in rows] == pytest.approx([0.2, 5.0])
    assert [row.wall for row in rows] == pytest.approx([0.4, 10.0])
    assert [one.solver for one in failed] == ["broken"]

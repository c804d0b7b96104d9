"""Stored solutions as pictures: the title says who found it, at what cost, and how far from the best that is known."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from nco_bench.datasets.dataset import Dataset, Reference
from nco_bench.datasets.generate import generate
from nco_bench.datasets.load import Places, load_dataset
from nco_bench.datasets.storage import save_dataset
from nco_bench.errors import ResultsError, UnknownNameError
from nco_bench.problems import tsp
from nco_bench.reports.figures.solutions import draw_solution
from nco_bench.runs.display import QuietDisplay
from nco_bench.runs.finding import find_runs
from nco_bench.runs.request import RunRequest
from nco_bench.runs.runner import run

pytest.importorskip("matplotlib")


def title(path: Path) -> str:
    """The title, a line per comment of the SVG."""
    return " ".join(re.findall(r"<!-- (.*?) -->", path.read_text(), flags=re.DOTALL)).replace("\n", " ")


def solved(tmp_path: Path) -> tuple[Dataset, float]:
    """A set of two instances that nearest-neighbor has solved, and the cost of the second."""
    dataset = generate("tsp", 12, 2, "uniform", 3)
    data = save_dataset(dataset.with_references([Reference(4.0, "old")] * 2), tmp_path / "set.npz")
    run(RunRequest(("nearest-neighbor",), (str(data),), tmp_path / "runs", Places(tmp_path)), QuietDisplay())
    [stored] = find_runs(tmp_path / "runs")
    record = next(r for r in stored.records() if r.instance == 1)
    return dataset, tsp.score(dataset.instances[1], stored.solution(record))  # type: ignore[arg-type]


@pytest.mark.parametrize(("cost", "who"), [(2.5, "new"), (5.0, "old")])
def test_title_has_solver_cost_and_gap_to_the_better_of_two_references(
    tmp_path: Path, cost: float, who: str
) -> None:
    """The run knew a reference of 4; the set now holds another one."""
    dataset, found = solved(tmp_path)
    now = dataset.with_references([Reference(cost, "new")] * 2)
    drawn = draw_solution(now, 1, "nearest-neighbor", None, tmp_path / "runs", tmp_path / "tour.svg")
    gap = 100 * (found / min(cost, 4.0) - 1)
    words = f"nearest-neighbor on {now.instances[1].name}, n = 12, cost {found:.6g} (euclidean), gap {gap:.3f} % to {who}"
    assert words in title(drawn)


def test_an_unknown_solver_is_told_whose_solutions_there_are(tmp_path: Path) -> None:
    """It was advised to run the name, which is refused."""
    solved(tmp_path)
    dataset = load_dataset(str(tmp_path / "set.npz"), Places(tmp_path))
    out = tmp_path / "tour.svg"
    with pytest.raises(UnknownNameError, match=r"tsp12:seed=3:count=2 are stored of: nearest-neighbor\."):
        draw_solution(dataset, 0, "nosuch", None, tmp_path / "runs", out)
    with pytest.raises(UnknownNameError, match="Did you mean 'nearest-neighbor'"):
        draw_solution(dataset, 0, "nearest", None, tmp_path / "none", out)


def test_a_reference_names_who_found_it(tmp_path: Path) -> None:
    dataset, _ = solved(tmp_path)
    tour = Reference(4.0, "lkh3", solution=dataset.instances[1].coords[:, 0].argsort())  # type: ignore[attr-defined]
    drawn = draw_solution(
        dataset.with_references([tour] * 2), 1, "reference", None, tmp_path / "runs", tmp_path / "tour.svg"
    )
    assert "reference of lkh3 on " in title(drawn)


def test_a_reference_packing_is_drawn_as_a_packing(tmp_path: Path) -> None:
    boxes = generate("bpp3d", 1, 1)
    packed = Reference(10.0, "extreme-point", solution=np.zeros(4, dtype=np.int64))
    drawn = draw_solution(
        boxes.with_references([packed]), 0, "reference", None, tmp_path / "runs", tmp_path / "packing.svg"
    )
    assert "reference of extreme-point on " in drawn.read_text()
    assert "load rate" in drawn.read_text()


def test_the_command_that_makes_what_is_missing_names_the_decoding(tmp_path: Path) -> None:
    """Without it the command made another decoding's solution, and the same advice came again."""
    dataset, _ = solved(tmp_path)
    with pytest.raises(ResultsError, match="run lehd --decoding rrc:10 --data "):
        draw_solution(dataset, 0, "lehd", "rrc:10", tmp_path / "runs", tmp_path / "tour.svg")


def test_the_row_of_that_very_name_is_drawn_and_not_a_later_one_of_other_settings(tmp_path: Path) -> None:
    dataset = generate("cvrp", 12, 2, "uniform", 3)
    data = str(save_dataset(dataset, tmp_path / "set.npz"))
    rows = ("random-insertion", "random-insertion:order=sit")
    for solver in rows:
        run(RunRequest((solver,), (data,), tmp_path / "runs", Places(tmp_path)), QuietDisplay())
    for asked in rows:
        drawn = draw_solution(dataset, 1, asked, None, tmp_path / "runs", tmp_path / "tour.svg")
        assert title(drawn).startswith(f"{asked} on ")

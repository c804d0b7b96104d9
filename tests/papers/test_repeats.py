"""SIT's Figure 3: gaps are those of the referee, in the order of the repeats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from nco_bench.datasets.dataset import Dataset, Origin, Reference  # noqa: E402
from nco_bench.errors import BadInputError  # noqa: E402
from nco_bench.papers.sit.figure_3 import gaps_by_repeats  # noqa: E402
from nco_bench.problems.tsp import TSPInstance  # noqa: E402
from nco_bench.reports.figures import networks as network_plots  # noqa: E402
from nco_bench.training.campaign import read_campaign  # noqa: E402
from nco_bench.training.learners.self_improved_course import COURSE  # noqa: E402
from nco_bench.training.options import model_options  # noqa: E402
from nco_bench.training.run import train  # noqa: E402

CAMPAIGN = Path(__file__).parents[2] / "campaigns" / "sit-figure-3.toml"
TINY = {
    "size": "6", "instances": "4", "batch": "4", "steps": "1", "validation_instances": "2", "longest": "7",
    "longest_start": "7", "auxiliary": "0", "model.width": "8", "model.heads": "1", "model.head_dim": "8",
    "model.ffn": "8", "model.layers": "1",
}  # fmt: skip


def test_gaps_are_to_the_references_and_sorted_by_repeats(tmp_path: Path) -> None:
    """Squares: whatever a network does, its tour has length 4 or 2 + 2 sqrt(2); references 2 give gaps of 100 or 141.4 %."""
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    instances = [
        TSPInstance(f"i{k}", corners[list(p)])
        for k, p in enumerate([(0, 1, 2, 3), (2, 0, 1, 3), (0, 2, 1, 3)])
    ]
    dataset = Dataset("squares", "tsp", instances, [Reference(2.0, "by hand")] * 3, Origin("test"))
    solvers = []
    for repeats in (3, 1):
        file = tmp_path / f"sit-{repeats}.safetensors"
        train("sit", (), {**TINY, "model.repeats": str(repeats)}, out=file, progress="silent")
        solvers.append(f"sit:weights={file}")
    points = gaps_by_repeats(solvers, dataset, 3)
    assert [point.repeats for point in points] == [1, 3]
    possible = (100.0, 100 * (np.sqrt(2) + 1 - 1))
    for point in points:
        assert all(min(abs(gap - value) for value in possible) < 1e-4 for gap in point.gaps)
        assert point.mean == pytest.approx(sum(point.gaps) / 3)
    text = network_plots.gaps_by_repeats(points, tmp_path / "f.svg").read_text()
    assert "repeats of the last node" in text
    with pytest.raises(BadInputError, match="references"):
        gaps_by_repeats(solvers, Dataset("squares", "tsp", instances, [None] * 3, Origin("test")), 3)


def test_the_campaign_is_two_iterations_of_the_paper_with_each_number_of_repeats() -> None:
    """SIT, appendix C; an iteration has 20 epochs of 79 batches, each of 500 decisions on average."""
    stages = read_campaign(CAMPAIGN)
    assert [stage.config["model.repeats"] for stage in stages] == ["1", "5", "10", "15", "20"]
    for stage in stages:
        config = {k: v for k, v in model_options(stage.config)[0].items() if k != "learner"}
        assert COURSE.recipe(stage.model, config).steps == 2 * 20 * 79 * 500

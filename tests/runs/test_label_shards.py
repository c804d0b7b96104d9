"""Labels in shards: made once, resumed where one is missing, judged against a better solver."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from nco_bench.cli.output import RunDisplay
from nco_bench.datasets.load import Places
from nco_bench.errors import BadInputError
from nco_bench.runs.generating import GenerateRequest
from nco_bench.runs.label_shards import generate_shards
from nco_bench.training.data import LabelStream, describe


def test_shards_are_made_once_and_judged(tmp_path: Path) -> None:
    places = dataclasses.replace(Places.from_environment(), instances=tmp_path / "instances")
    folder = tmp_path / "labels"
    request = GenerateRequest("tsp", 8, 5, "uniform", 3, {}, "nearest-neighbor", None, 1, folder, "test")
    with RunDisplay() as display:
        first = generate_shards(request, 2, places, display, check="two-opt")
        assert first.made == 2
        assert first.gap_percent is not None
        assert first.gap_percent > 0  # two-opt is better than nearest neighbour
        first.files[1].unlink()
        again = generate_shards(request, 2, places, display)
    assert (again.made, again.gap_percent) == (1, first.gap_percent)
    stream = LabelStream([folder], 0)
    assert sorted(len(stream.take(9).ordered) for _ in range(2)) == [2, 3]
    assert describe(stream).label_gap_percent == first.gap_percent
    with pytest.raises(BadInputError, match="name a solver with --reference"), RunDisplay() as display:
        generate_shards(dataclasses.replace(request, reference=None), 2, places, display)

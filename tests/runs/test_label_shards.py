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


def test_shards_of_other_instances_in_the_folder_are_not_taken_for_those_asked_for(tmp_path: Path) -> None:
    places = dataclasses.replace(Places.from_environment(), instances=tmp_path / "instances")
    request = GenerateRequest(
        "tsp", 8, 2, "uniform", 3, {}, "nearest-neighbor", None, 1, tmp_path / "labels", "test"
    )
    with RunDisplay() as display:
        generate_shards(request, 1, places, display)
        clustered = dataclasses.replace(request, distribution="clustered")
        with pytest.raises(BadInputError, match=r"holds tsp8.*, not tsp8:clustered"):
            generate_shards(clustered, 1, places, display)


def test_labels_that_a_better_packing_beats_have_a_positive_gap(tmp_path: Path) -> None:
    places = dataclasses.replace(Places.from_environment(), instances=tmp_path / "instances")
    request = GenerateRequest(
        "bpp3d", 12, 3, "120x100", 3, {}, "deepest-bottom-left", None, 1, tmp_path / "labels", "test"
    )
    with RunDisplay() as display:
        labels = generate_shards(request, 1, places, display, check="deepest-bottom-left:tries=20")
    assert labels.gap_percent is not None
    assert labels.gap_percent > 0  # the best of 20 orders fills the bin at least as well, and here better


def test_a_damaged_measurement_of_labels_is_named(tmp_path: Path) -> None:
    places = dataclasses.replace(Places.from_environment(), instances=tmp_path / "instances")
    request = GenerateRequest(
        "tsp", 8, 2, "uniform", 3, {}, "nearest-neighbor", None, 1, tmp_path / "labels", "test"
    )
    with RunDisplay() as display:
        generate_shards(request, 1, places, display)
        (tmp_path / "labels" / "labels.quality.json").write_text("{")
        with pytest.raises(BadInputError, match=r"labels\.quality\.json: damaged"):
            generate_shards(request, 1, places, display)

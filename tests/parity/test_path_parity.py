"""Parity with official code: every fixture of the path models, and that the check can fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from nco_bench.errors import BadInputError, BadWeightsError, UnknownNameError
from nco_bench.parity import check_fixture

SMALL = Path(__file__).parent / "fixtures"
FIXTURES = [
    "lehd-tsp", "lehd-cvrp", "bq-tsp", "bq-cvrp", "esf-tsp", "sigd-tsp", "sigd-cvrp",
    "sigd_lehd-tsp", "sigd_lehd-cvrp", "sil-tsp", "sil-cvrp",
]  # fmt: skip


@pytest.mark.parametrize("name", FIXTURES)
def test_ours_computes_what_the_official_code_computes(name: str, official: Callable[[str], Path]) -> None:
    """Logits and probabilities, greedy, kNN and beam tours, RRC and PRC replayed, training steps replayed."""
    result = check_fixture(official(name))
    assert result.details["failed"] == []
    assert result.max_relative_error < 1e-4
    assert result.tours_identical
    assert result.ok


@pytest.mark.parametrize("file", sorted(SMALL.glob("*.safetensors")), ids=lambda file: file.stem)
def test_ours_computes_what_the_small_fixtures_here_hold(file: Path) -> None:
    result = check_fixture(file)
    assert result.details["failed"] == []
    assert (result.ok, result.tours_identical, result.not_compared) == (True, True, ())
    assert result.max_relative_error < 1e-4


@pytest.fixture
def lehd_copy(tmp_path: Path) -> tuple[Path, dict[str, torch.Tensor]]:
    """A copy of the LEHD fixture that a test may damage."""
    (tmp_path / "copy.json").write_text((SMALL / "lehd-tsp.json").read_text())
    return tmp_path / "copy.safetensors", load_file(SMALL / "lehd-tsp.safetensors")


def test_a_changed_weight_fails_the_check(lehd_copy: tuple[Path, dict[str, torch.Tensor]]) -> None:
    path, tensors = lehd_copy
    tensors["state_dict.decoder.layers.1.Wv.weight"][0, 0] += 1.0
    save_file(tensors, path)
    result = check_fixture(path)
    assert not result.ok
    assert result.max_relative_error > 1e-4


def test_a_changed_tour_fails_the_check(lehd_copy: tuple[Path, dict[str, torch.Tensor]]) -> None:
    path, tensors = lehd_copy
    tensors["expected.greedy.tours"] = tensors["expected.greedy.tours"].roll(1, dims=1)
    save_file(tensors, path)
    assert not check_fixture(path).tours_identical


def test_left_over_and_missing_weights_are_named(lehd_copy: tuple[Path, dict[str, torch.Tensor]]) -> None:
    path, tensors = lehd_copy
    save_file(tensors | {"state_dict.decoder.extra": torch.zeros(1)}, path)
    with pytest.raises(BadWeightsError, match=r"decoder\.extra"):
        check_fixture(path)
    del tensors["state_dict.decoder.layers.0.Wk.weight"]
    save_file(tensors, path)
    with pytest.raises(BadWeightsError, match=r"decoder\.layers\.0\.Wk\.weight"):
        check_fixture(path)


def test_incomplete_and_unknown_fixtures_are_named(lehd_copy: tuple[Path, dict[str, torch.Tensor]]) -> None:
    path, tensors = lehd_copy
    with pytest.raises(BadInputError, match="no such file"):
        check_fixture(path)
    del tensors["input.step_b.selected"]
    save_file(tensors, path)
    with pytest.raises(BadInputError, match=r"input\.step_b\.selected"):
        check_fixture(path)
    meta = json.loads(path.with_suffix(".json").read_text()) | {"model": "Leh"}
    path.with_suffix(".json").write_text(json.dumps(meta))
    with pytest.raises(UnknownNameError, match="Did you mean 'lehd'"):
        check_fixture(path)

"""Copies of weights say what they are; a page about weights says what their manifest says."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nco_bench.errors import ResultsError, UnknownNameError
from nco_bench.weights.exporting import describe, export_copy, find
from nco_bench.weights.manifest import Manifest, TrainingData, Validation
from nco_bench.weights.shelf import export
from nco_bench.weights.store import WeightsFile, load_state, verify


@pytest.fixture
def weights(tmp_path: Path) -> WeightsFile:
    """Two tensors with a manifest."""
    state = {"a": torch.tensor([1.0, 1.0 + 2**-12]), "n": torch.tensor([3])}
    manifest = Manifest(
        "mine", "bq", {"layers": 9}, "tsp", 3, "", 10, 5120, TrainingData("uniform", 100, 1000, "lkh3"), {"lr": 0.1},
        7, 1.5, {"cpu": "some"}, "0.1.0", validation=(Validation(3.5, 0.2, 64, "tsp100"),), share_of_paper=0.25,
    )  # fmt: skip
    return export(state, manifest, tmp_path / "mine.safetensors")


def test_a_copy_has_the_same_values(weights: WeightsFile, tmp_path: Path) -> None:
    copy = verify(export_copy(str(weights.path), tmp_path / "copy").path)
    assert copy.manifest.name == "copy"
    assert copy.sha256 == weights.sha256
    assert copy.manifest.parent == ""


def test_a_bf16_copy_names_its_parent(weights: WeightsFile, tmp_path: Path) -> None:
    copy = export_copy(str(weights.path), tmp_path / "half.safetensors", "bf16")
    state = load_state(verify(copy.path))
    assert state["a"].dtype == torch.bfloat16
    assert state["a"].tolist() == [1.0, 1.0]  # bf16 keeps eight bits
    assert state["n"].tolist() == [3]
    assert copy.manifest.parent == weights.sha256


def test_fp32_of_half_precision_is_fp32_and_what_is_bf16_is_not_rounded_again(
    weights: WeightsFile, tmp_path: Path
) -> None:
    """Shipped weights are bf16: their copy "as fp32" was bf16, and a copy as bf16 named itself as its parent."""
    half = export_copy(str(weights.path), tmp_path / "half", "bf16")
    full = export_copy(str(half.path), tmp_path / "full", "fp32")
    state = load_state(verify(full.path))
    assert state["a"].dtype == torch.float32
    assert state["a"].tolist() == [1.0, 1.0]
    assert state["n"].dtype == torch.int64
    assert (full.manifest.parent, full.manifest.rounded_from) == (half.sha256, weights.sha256)
    for precision in ("bf16", None):
        again = export_copy(str(half.path), tmp_path / f"again-{precision}", precision)
        assert again.sha256 == half.sha256
        assert (again.manifest.parent, again.manifest.notes) == (weights.sha256, half.manifest.notes)


def test_fp16_keeps_more_bits_and_refuses_what_it_cannot_hold(weights: WeightsFile, tmp_path: Path) -> None:
    state = load_state(verify(export_copy(str(weights.path), tmp_path / "fine", "fp16").path))
    assert state["a"].dtype == torch.float16
    large = {"a": torch.tensor([1.0 + 2**-10, 7e4]), "n": torch.tensor([3])}
    huge = export(large, weights.manifest, tmp_path / "huge.safetensors")
    with pytest.raises(ResultsError, match="fp16: values of a are too large"):
        export_copy(str(huge.path), tmp_path / "not", "fp16")
    assert not (tmp_path / "not.safetensors").exists()


def test_nothing_is_overwritten_and_names_are_checked(weights: WeightsFile, tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"mine\.safetensors: is there already"):
        export_copy(str(weights.path), weights.path)
    with pytest.raises(ResultsError, match=r"x\.txt: weights are written as \.safetensors"):
        export_copy(str(weights.path), tmp_path / "x.txt")
    with pytest.raises(UnknownNameError, match="precision 'fp8'"):
        export_copy(str(weights.path), tmp_path / "x", "fp8")
    with pytest.raises(UnknownNameError, match="Unknown weights 'nothing-like-it'"):
        find("nothing-like-it")


def test_a_page_says_what_the_manifest_says(weights: WeightsFile) -> None:
    page = describe(weights)
    for told in (
        "5,120 samples, 25 % of the paper's, 1.5 h",
        "1,000 x uniform of size 100",
        "lkh3",
        "layers=9",
    ):
        assert told in page
    assert "3.500 +- 0.200 % on 64 tsp100" in page

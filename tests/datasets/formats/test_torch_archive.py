"""Files of torch.save, read without torch; torch itself is the oracle."""

from __future__ import annotations

import collections
import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nco_bench.datasets.formats import read_file
from nco_bench.datasets.formats.pomo import torch_bytes, whole_demands
from nco_bench.datasets.formats.torch_archive import read_torch_archive
from nco_bench.errors import BadInputError

torch = pytest.importorskip("torch")
BOTH = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])


def save(value: Any, path: Path, zipped: bool = True) -> Path:
    torch.save(value, path, _use_new_zipfile_serialization=zipped)
    return path


@BOTH
def test_a_training_checkpoint_comes_back_as_arrays(tmp_path: Path, zipped: bool) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.rand(5, 3)).sum().backward()
    optimizer.step()
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 5])
    saved = {
        "epoch": 3,
        "model_state_dict": model.state_dict(),
        "parameters": list(model.parameters()),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "log": collections.defaultdict(list, {"loss": [1.0]}),
        "score": np.float64(0.5),
        "random": torch.get_rng_state(),
    }
    back = read_torch_archive(save(saved, tmp_path / "c.pt", zipped))
    for key, tensor in model.state_dict().items():
        np.testing.assert_array_equal(back["model_state_dict"][key], tensor.numpy())
    np.testing.assert_array_equal(back["parameters"][0], model[0].weight.detach().numpy())
    assert back["optimizer"]["param_groups"][0]["lr"] == 0.001
    np.testing.assert_array_equal(back["random"], torch.get_rng_state().numpy())
    assert (back["epoch"], back["log"], back["score"]) == (3, {"loss": [1.0]}, 0.5)


@BOTH
@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"]
)
def test_every_type_and_layout_keeps_its_numbers(tmp_path: Path, dtype: str, zipped: bool) -> None:
    base = (
        (torch.arange(24) % 2 if dtype == "bool" else torch.arange(24))
        .to(getattr(torch, dtype))
        .reshape(4, 6)
    )
    saved = [base, base.T, base[1:, ::2], base[0, 0], base[:0], base[2].expand(3, 6)]
    back = read_torch_archive(save(saved, tmp_path / "t.pt", zipped))
    for ours, theirs in zip(back, saved, strict=True):
        assert ours.dtype == theirs.numpy().dtype
        np.testing.assert_array_equal(ours, theirs.numpy())


@BOTH
def test_bfloat16_becomes_float32_exactly(tmp_path: Path, zipped: bool) -> None:
    tensor = torch.tensor([[1.0, -2.5, 3.1415], [float("inf"), 1e-30, 0.0]]).to(torch.bfloat16)
    back = read_torch_archive(save(tensor.T, tmp_path / "b.pt", zipped))
    np.testing.assert_array_equal(back, tensor.T.float().numpy())


class Hostile:
    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.flag}",)


@BOTH
def test_code_hidden_among_tensors_is_refused_and_not_run(tmp_path: Path, zipped: bool) -> None:
    flag = tmp_path / "flag"
    path = save({"node_xy": torch.rand(2, 3, 2), "x": [Hostile(flag)]}, tmp_path / "evil.pt", zipped)
    with pytest.raises(BadInputError, match=r"evil\.pt: refused, the pickle holds the name .*system"):
        read_torch_archive(path)
    with pytest.raises(BadInputError, match="refused"):
        read_file(path)
    assert not flag.exists()


def test_code_hidden_in_a_nested_storage_is_refused(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    inner = io.BytesIO()
    torch.save(Hostile(flag), inner, _use_new_zipfile_serialization=False)

    class Nested:
        def __reduce__(self) -> Any:
            return torch.storage._load_from_bytes, (inner.getvalue(),)

    (tmp_path / "evil.pkl").write_bytes(pickle.dumps(Nested()))
    with pytest.raises(BadInputError, match="refused"):
        read_file(tmp_path / "evil.pkl", "elg")
    assert not flag.exists()


def test_a_pickled_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"refused, the pickle holds the name torch\.nn"):
        read_torch_archive(save(torch.nn.Linear(2, 2), tmp_path / "model.pt"))


def test_a_view_that_leaves_its_storage_is_refused(tmp_path: Path) -> None:
    path = save(torch.arange(4.0), tmp_path / "t.pt")
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    program = next(name for name in members if name.endswith("data.pkl"))
    assert b"K\x04\x85" in members[program]  # the shape (4,)
    members[program] = members[program].replace(b"K\x04\x85", b"K\x40\x85")
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(BadInputError, match="larger than its data"):
        read_torch_archive(path)


def test_damaged_archives_are_one_line_errors(tmp_path: Path) -> None:
    whole = save({"a": torch.rand(50)}, tmp_path / "t.pt").read_bytes()
    for size in (4, 100, len(whole) - 30):
        (tmp_path / "cut.pt").write_bytes(whole[:size])
        with pytest.raises(BadInputError):
            read_torch_archive(tmp_path / "cut.pt")


def test_what_we_write_torch_reads_with_weights_only(tmp_path: Path) -> None:
    arrays = {
        "node_xy": np.random.default_rng(0).random((2, 3, 2), dtype=np.float32),
        "node_demand": np.ones((2, 3), np.float32),
    }
    (tmp_path / "w.pt").write_bytes(torch_bytes(arrays))
    back = torch.load(tmp_path / "w.pt", weights_only=True)
    for key, array in arrays.items():
        np.testing.assert_array_equal(back[key].numpy(), array)


def test_float32_quotients_give_the_whole_demands_back() -> None:
    demand = np.random.default_rng(1).integers(1, 10, size=(50, 100))
    for capacity in (30, 40, 50, 250):
        found, found_capacity = whole_demands((demand / capacity).astype(np.float32))
        assert found_capacity == capacity
        np.testing.assert_array_equal(found, demand)
    fractions = np.random.default_rng(2).random((5, 10), dtype=np.float32)
    found, found_capacity = whole_demands(fractions)
    assert found_capacity == 1
    np.testing.assert_array_equal(found, fractions.astype(np.float64))

"""Packed weights are the plain ones to the bit, and a damaged or hostile file is refused in one line."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from safetensors.torch import save

from nco_bench.errors import BadWeightsError
from nco_bench.papers import stored
from nco_bench.weights import store
from nco_bench.weights.manifest import Manifest, TrainingData, manifest_path
from nco_bench.weights.packed import MARK, forget, pack, unpack
from nco_bench.weights.shelf import export
from nco_bench.weights.store import SHIPPED, WeightsFile, load_state, verify
from tools.ship_weights import pack_all, ship

MANIFEST = Manifest(
    "mine", "decoder-6x128", {}, "tsp", 3, "", 10, 5120, TrainingData("uniform", 100, 1000), {}, 7, 1.5, {}, "0.2.0"
)  # fmt: skip


def mixed() -> bytes:
    """All kinds of tensors, with every special value."""
    values = torch.randn(500, generator=torch.Generator().manual_seed(3))
    values[:5] = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan")])
    return save(
        {
            "a": values, "b": values.bfloat16(), "c": values.half(), "d": values.double(),
            "e": torch.arange(7), "f": torch.tensor([True, False]), "g": torch.zeros(0), "h": torch.tensor(0.5).half(),
        },
        {"some": "words"},
    )  # fmt: skip


@pytest.fixture
def weights(tmp_path: Path) -> WeightsFile:
    """Weights in full precision."""
    values = torch.randn(64, 64, generator=torch.Generator().manual_seed(4))
    return export({"w": values, "n": torch.tensor([3])}, MANIFEST, tmp_path / "mine.safetensors")


def test_what_is_packed_unpacks_to_the_bit() -> None:
    plain = mixed()
    packed = pack(plain)
    assert json.loads(packed[8 : 8 + packed[0] + 256 * packed[1]])["__metadata__"] == MARK
    assert unpack(packed) == plain
    assert unpack(plain) == plain


@pytest.mark.parametrize(
    ("kind", "share"), [(torch.bfloat16, 0.68), (torch.float16, 0.87), (torch.float32, 0.86)]
)
def test_exponents_repeat(kind: torch.dtype, share: float) -> None:
    values = torch.randn(100_000, generator=torch.Generator().manual_seed(5)) * 0.05
    plain = save({"w": values.to(kind)})
    assert len(pack(plain)) < share * len(plain)


def test_what_would_not_shrink_stays_as_it_is() -> None:
    plain = save({"n": torch.arange(3)})
    assert pack(plain) == plain


def test_every_flipped_byte_is_noticed(weights: WeightsFile) -> None:
    packed = pack(weights.path.read_bytes())
    weights.path.write_bytes(packed)
    assert load_state(verify(weights.path))["n"].tolist() == [3]
    for place in [*range(0, len(packed), len(packed) // 400), *range(300)]:
        weights.path.write_bytes(packed[:place] + bytes([packed[place] ^ 4]) + packed[place + 1 :])
        forget()
        with pytest.raises(BadWeightsError, match=r"mine\.safetensors: (damaged|changed)"):
            verify(weights.path)


@pytest.mark.parametrize("part", ["header", "exponents", "rest"])
def test_hostile_parts_are_refused(part: str) -> None:
    honest = load_arrays(pack(mixed()))
    bomb = np.frombuffer(zlib.compress(bytes(64 << 20)), np.uint8)
    for hostile in (bomb, bomb[:-9], np.zeros(3, np.uint8), np.zeros(0, np.uint8), np.ones(9)):
        with pytest.raises(ValueError, match=r"."):
            unpack(save_arrays({**honest, part: hostile}, metadata=MARK))
    with pytest.raises(ValueError, match=part):
        unpack(save_arrays({k: v for k, v in honest.items() if k != part}, metadata=MARK))


@pytest.mark.parametrize(
    "header",
    [
        b"[]", b"{", b'{"a": 1}', b'{"a": {"dtype": "F32"}}', b'{"a": {"dtype": "F32", "data_offsets": ["x", 4]}}',
        b'{"a": {"dtype": "F32", "data_offsets": [4, 8]}}', b'{"a": {"dtype": "F32", "data_offsets": [0, 1000000000000]}}',
    ],
)  # fmt: skip
def test_headers_that_lie_are_refused(header: bytes) -> None:
    parts = load_arrays(pack(mixed()))
    parts["header"] = np.frombuffer(zlib.compress(header), np.uint8)
    with pytest.raises(ValueError, match=r"."):
        unpack(save_arrays(parts, metadata=MARK))


def test_shipping_rounds_what_is_in_full_precision_and_names_it(weights: WeightsFile, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    made = ship(str(weights.path), "net", "fp16", tmp_path / "files")
    assert (made.manifest.name, made.manifest.rounded_from) == ("net", weights.sha256)
    state, full = load_state(made), load_state(weights)
    assert torch.equal(state["w"], full["w"].half())
    assert made.path.stat().st_size < 0.5 * weights.path.stat().st_size
    again = ship(str(made.path), "net", "bf16", tmp_path / "files")
    assert (again.sha256, again.manifest.rounded_from) == (
        made.sha256,
        weights.sha256,
    )  # half is kept as it is


def test_packing_what_ships_keeps_its_hash(weights: WeightsFile, capsys: pytest.CaptureFixture[str]) -> None:
    before = weights.path.stat().st_size
    pack_all(weights.path.parent)
    assert verify(weights.path).sha256 == weights.sha256
    assert weights.path.stat().st_size < before
    capsys.readouterr()
    pack_all(weights.path.parent)
    assert not capsys.readouterr().out


def test_what_ships_is_packed() -> None:
    files = sorted(SHIPPED.glob("*.safetensors"))
    assert files
    for path in files:
        assert unpack(data := path.read_bytes()) != data or len(data) < 20_000, path.name


def test_records_of_weights_count_for_their_rounded_form(
    weights: WeightsFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SHIPPED", tmp_path / "files")
    (tmp_path / "files").mkdir()
    made = ship(str(weights.path), "net", "fp16", tmp_path / "files")
    assert stored.unchanged("net", made.sha256)
    assert stored.unchanged("net", weights.sha256)
    assert not stored.unchanged("net", "0" * 64)
    assert manifest_path(made.path).is_file()

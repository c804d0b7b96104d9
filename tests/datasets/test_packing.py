"""Packing datasets: names parse back, prefixes and bins share their boxes, files come back, damage is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from nco_bench.datasets.generate import generate
from nco_bench.datasets.load import Places, load_dataset
from nco_bench.datasets.names import parse_generated
from nco_bench.datasets.storage import load_saved, save_dataset
from nco_bench.errors import BadInputError


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("bpp3d400:120x100", "bpp3d400:120x100"),
        ("bpp3d400", "bpp3d400:120x100"),
        ("bpp3d20:count=3:140x110:seed=7", "bpp3d20:140x110:seed=7:count=3"),
        ("bpp3d20:sides=20..80:100x100", "bpp3d20:100x100:sides=20..80"),
        ("bpp3d20:sides=10..50:0120x100", "bpp3d20:120x100"),
    ],
)
def test_names_have_one_canonical_spelling(given, canonical):
    spec = parse_generated(given)
    assert spec is not None
    assert spec.name == canonical
    assert parse_generated(canonical).name == canonical


def test_sides_are_whole_numbers_from_10_to_50_with_both_ends():
    boxes = np.concatenate([i.boxes for i in generate("bpp3d", 100, 100)])
    counts = np.bincount(boxes.ravel(), minlength=51)
    assert counts[:10].sum() == 0
    assert len(counts) == 51
    # 30,000 draws over 41 values: each within 6 standard deviations of its share.
    assert abs(counts[10:] - 30_000 / 41).max() < 6 * np.sqrt(30_000 / 41)


def test_a_longer_set_begins_with_the_shorter_and_another_bin_keeps_the_boxes():
    short, long = generate("bpp3d", 15, 3, "120x100"), generate("bpp3d", 15, 8, "160x120")
    for a, b in zip(short, long, strict=False):
        assert (a.boxes == b.boxes).all()
    assert tuple(long.instances[0].base) == (160, 120)
    assert (generate("bpp3d", 15, 3, seed=5).instances[0].boxes != short.instances[0].boxes).any()


def test_a_stored_set_comes_back_and_serves_its_name(tmp_path):
    made = generate("bpp3d", 12, 4, "140x110")
    save_dataset(made, tmp_path / "bpp3d12_140x110_count=4.npz")
    assert load_saved(tmp_path / "bpp3d12_140x110_count=4.npz").sha256 == made.sha256
    assert load_dataset("bpp3d12:140x110:count=4", Places(tmp_path)).sha256 == made.sha256


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bpp3d10:12by10", "LENGTHxWIDTH"),
        ("bpp3d10:0x10", "LENGTHxWIDTH"),
        ("bpp3d10:120x100:sides=50..10", "LO..HI"),
        ("bpp3d10:120x100:sides=0..10", "LO..HI"),
        ("bpp3d0:120x100", "at least 1"),
        ("bpp3d10:20x20", "bpp3d10-00000: box 0 with sides 46 x 39 x 49 does not fit"),
    ],
)
def test_names_that_make_no_sense_are_refused_in_one_line(name, message):
    with pytest.raises(BadInputError) as caught:
        load_dataset(name, Places(Path("nowhere")))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_damaged_and_edited_files_are_refused(tmp_path):
    path = save_dataset(generate("bpp3d", 12, 2), tmp_path / "set.npz")
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(BadInputError, match="not a readable"):
        load_saved(path)
    path.write_bytes(content)
    with np.load(path) as file:
        arrays = dict(file)
    for change, message in (
        (lambda boxes: boxes.__setitem__((1, 3, 0), 7), "the content has hash"),
        (lambda boxes: boxes.__setitem__((1, 3, 0), -7), "box 3 has sides -7"),
        (
            lambda boxes: boxes.__setitem__((1, 3), (121, 122, 9)),
            "box 3 with sides 121 x 122 x 9 does not fit",
        ),
    ):
        edited = arrays["x_boxes"].copy()
        change(edited)
        np.savez(path, **{**arrays, "x_boxes": edited})
        with pytest.raises(BadInputError, match=message):
            load_saved(path)
    manifest = json.loads(path.with_suffix(".json").read_text())
    np.savez(path, **{k: v for k, v in arrays.items() if k != "x_base"})
    with pytest.raises(BadInputError, match="damaged or not a dataset"):
        load_saved(path)
    assert manifest["problem"] == "bpp3d"

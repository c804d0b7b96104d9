"""From names to datasets: a name means the same set everywhere, stored references serve, all else is refused with advice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nco_bench.datasets.dataset import Reference
from nco_bench.datasets.generate import generate
from nco_bench.datasets.load import Places, load_dataset, stored_path
from nco_bench.datasets.storage import save_dataset
from nco_bench.errors import BadInputError, UnknownNameError


@pytest.fixture
def stored(tmp_path: Path) -> Places:
    """A folder that holds tsp20 with 30 instances, each with a made-up reference of cost 5."""
    made = generate("tsp", 20, 30)
    save_dataset(made.with_references([Reference(5.0, "by hand")] * 30), stored_path(made.name, tmp_path))
    return Places(tmp_path)


def test_a_name_means_the_same_instances_whatever_is_stored(stored: Places, tmp_path: Path) -> None:
    found, elsewhere = load_dataset("tsp20", stored), load_dataset("tsp20", Places(tmp_path / "empty"))
    assert (found.name, len(found), found.sha256) == ("tsp20", 10_000, elsewhere.sha256)
    assert [r is not None and r.cost for r in found.references[:31]] == [5.0] * 30 + [False]


def test_a_longer_set_has_the_references_of_all_its_stored_beginnings(stored: Places) -> None:
    made = generate("tsp", 20, 10)
    better = made.with_references([Reference(4.0, "by hand")] * 10)
    save_dataset(better, stored_path(made.name, stored.instances))
    save_dataset(generate("tsp", 20, 40), stored_path("tsp20:count=40", stored.instances))
    costs = [r and r.cost for r in load_dataset("tsp20:count=40", stored).references]
    assert costs == [4.0] * 10 + [5.0] * 20 + [None] * 10


@pytest.mark.parametrize(
    ("file", "content"),
    [("tsp20", "tsp20:count=5"), ("tsp20:count=5", "tsp20:seed=9:count=5"), ("tsp20:count=5", "older")],
)
def test_a_file_that_holds_another_set_than_its_name_says_is_refused(
    tmp_path: Path, file: str, content: str
) -> None:
    made = generate("tsp", 20, 5, seed=9 if "seed" in content else 1234)
    if content == "older":
        made = replace(made, origin=replace(made.origin, version="0"))
    save_dataset(made, stored_path(file, tmp_path))
    with pytest.raises(BadInputError, match=r"holds tsp20.*, not tsp20.*; move it"):
        load_dataset(file, Places(tmp_path))


def test_a_shorter_set_is_the_beginning_of_the_stored_one(stored: Places) -> None:
    found = load_dataset("tsp20:count=7", stored)
    assert found.sha256 == generate("tsp", 20, 7).sha256
    assert [r.cost for r in found.references if r] == [5.0] * 7


@pytest.mark.parametrize("name", ["tsp20:seed=9:count=5", "tsp20:clustered:count=5", "tsp21:count=5"])
def test_other_sets_are_generated(stored: Places, name: str) -> None:
    assert not any(load_dataset(name, stored).references)


def test_a_damaged_stored_set_is_not_silently_generated_anew(stored: Places) -> None:
    stored_path("tsp20:count=30", stored.instances).write_bytes(b"damaged")
    with pytest.raises(BadInputError, match="damaged"):
        load_dataset("tsp20", stored)


def test_unknown_names_are_refused_with_the_nearest(stored: Places) -> None:
    with pytest.raises(UnknownNameError, match="tsplib"):
        load_dataset("tsplip", stored)


def test_kools_set_hashes_to_the_published_value(tmp_path: Path, shared: Path) -> None:
    import hashlib
    import json

    import numpy as np

    known = json.loads((shared / "instances" / "testsets" / "kool.json").read_text())["datasets"]
    entry = next(d for d in known if (d["problem"], d["n"], d["seed"]) == ("tsp", 100, 1234))
    found = load_dataset("kool-tsp100", Places(tmp_path))
    coords = np.stack([instance.arrays()["coords"] for instance in found])
    assert coords.shape == tuple(entry["shape"])
    assert hashlib.sha256(coords.tobytes()).hexdigest() == entry["sha256_float64"]

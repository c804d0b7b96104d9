"""From names to datasets: stored sets win, prefixes of longer sets serve, everything else is refused with advice."""

from __future__ import annotations

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


def test_a_bare_name_takes_the_stored_set(stored: Places) -> None:
    found = load_dataset("tsp20", stored)
    assert (found.name, len(found)) == ("tsp20:count=30", 30)
    assert all(r is not None and r.cost == 5.0 for r in found.references)


def test_a_shorter_set_is_the_beginning_of_the_stored_one(stored: Places) -> None:
    found = load_dataset("tsp20:count=7", stored)
    assert found.sha256 == generate("tsp", 20, 7).sha256
    assert [r.cost for r in found.references if r] == [5.0] * 7


@pytest.mark.parametrize(
    "name", ["tsp20:count=31", "tsp20:seed=9:count=5", "tsp20:clustered:count=5", "tsp21:count=5"]
)
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

"""What the content hash of an instance is taken over, spelt out: it must never change, records are found by it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from nco_bench.datasets.dataset import Reference, content_sha256, instance_sha256
from nco_bench.datasets.generate import generate


@dataclass
class Arrays:
    """An instance that is nothing but its arrays."""

    held: dict[str, Any]
    problem: str = "tsp"
    convention: str = "euclidean"

    def arrays(self) -> dict[str, Any]:
        return self.held


def test_the_hash_is_over_problem_convention_and_every_arrays_name_type_shape_and_bytes() -> None:
    instance = generate("tsp", 7, 1, "uniform", 3).instances[0]
    raw = instance.arrays()["coords"].tobytes()
    expected = hashlib.sha256(b"tsp\n1\neuclidean\ncoords <f8 (7, 2)\n" + raw)
    assert content_sha256("tsp", [instance]) == expected.hexdigest()
    assert instance_sha256(instance) == expected.hexdigest()[:16]


@pytest.mark.parametrize(
    ("given", "head"),
    [
        (np.arange(6, dtype=">i4").reshape(2, 3), b"a <i4 (2, 3)\n"),
        (np.arange(6, dtype="<i4").reshape(3, 2).T, b"a <i4 (2, 3)\n"),
        (np.array(5, dtype=">i2"), b"a <i2 (1,)\n"),
        (np.array(5, dtype="<i2"), b"a <i2 (1,)\n"),
        (np.array([True, False]), b"a |b1 (2,)\n"),
    ],
)
def test_byte_order_and_memory_layout_do_not_count(given: np.ndarray[Any, Any], head: bytes) -> None:
    plain = np.array(given, dtype=given.dtype.newbyteorder("<"), order="C").tobytes()
    expected = hashlib.sha256(b"tsp\n1\neuclidean\n" + head + plain).hexdigest()[:16]
    instance: Any = Arrays({"a": given})
    assert instance_sha256(instance) == expected


def test_a_part_and_a_copy_with_references_have_the_hashes_of_their_own_instances() -> None:
    whole = generate("tsp", 6, 5, "uniform", 4)
    each = tuple(map(instance_sha256, whole))
    assert content_sha256("tsp", whole.instances) == whole.sha256
    assert whole.instance_hashes == each
    part = whole.slice(1, 4).slice(1, 3)
    assert (part.instance_hashes, part.sha256) == (each[2:4], whole.sha256)
    copy = whole.with_references([Reference(1.0, "someone")] * 5)
    assert (copy.instance_hashes, copy.sha256) == (each, whole.sha256)
    fresh = generate("tsp", 6, 5, "uniform", 4)  # no hash of it is known yet
    assert fresh.slice(3, 5).instance_hashes == each[3:]

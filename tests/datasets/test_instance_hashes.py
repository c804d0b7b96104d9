"""What the content hash of an instance is taken over, spelt out: it must never change, records are found by it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from nco_bench.datasets.dataset import content_sha256, instance_sha256
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

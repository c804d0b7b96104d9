"""What compiled loops share, against the same in float64."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba")

from nco_bench.nn.compiled import F32, fast, sigmoid


@fast
def each(row):
    for i in range(len(row)):
        row[i] = sigmoid(row[i])


def test_sigmoid_is_that_of_float64_in_vectors_and_far_out():
    x = np.linspace(-80, 80, 100_003, dtype=np.float32)
    found, expected = x.copy(), 1 / (1 + np.exp(-x.astype(np.float64)))
    each(found)
    assert np.abs(found - expected).max() < 1.2e-7
    assert np.abs(found / expected - 1).max() < 4e-6
    far = np.array([-3e38, -1000, -88, 88, 1000, 3e38], np.float32)
    each(far)
    assert (far[:3] < 2e-38).all()
    assert (far[:3] > 0).all()
    assert (far[3:] == 1).all()
    assert sigmoid(F32(0.0)) == 0.5

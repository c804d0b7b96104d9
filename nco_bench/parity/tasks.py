"""Parity of the algorithmic tasks (Baran-phys/Tropical-Attention): our labellers on the inputs of the public generators."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from nco_bench.errors import BadInputError
from nco_bench.parity.fixture import Checks, Fixture, ParityResult, result
from nco_bench.problems.tasks import (
    balanced_partition,
    bin_packing,
    convex_hull,
    floyd_warshall,
    fractional_knapsack,
    knapsack,
    min_coin_change,
    quickselect,
    scc,
    subset_sum,
    three_sum,
)

Labels = dict[str, NDArray[np.generic]]


def check(fixture: Fixture) -> ParityResult:
    """Label every case of a fixture anew, from its clean inputs, and compare with what the public code said."""
    task, checks = str(fixture.meta.get("task")), Checks()
    if task not in _LABELS:
        raise BadInputError(f"{fixture.path}: unknown task {task!r}; known: {', '.join(sorted(_LABELS))}.")
    for case in sorted({key.split(".")[1] for key in fixture.tensors if key.startswith("input.")}):
        names = [key.split(".", 2)[2] for key in fixture.tensors if key.startswith(f"expected.{case}.")]
        if not names:
            continue
        if task == "quickselect" and not fixture.has(f"input.{case}.raw"):
            # Normalisation hides k; the case is labelled from its normalised values and rank.
            labels = _from_normalised(_numpy(fixture, case, "x_clean"))
        else:
            labels = _LABELS[task](fixture, case)
        for name in names:
            ours, expected = torch.from_numpy(labels[name].copy()), fixture.expected(f"{case}.{name}")
            compare = checks.same if name in ("y", "pred", "assignment") else checks.close
            compare(f"{case}.{name}", ours, expected)
    return result(fixture, f"tasks ({task})", task, checks)


def _numpy(fixture: Fixture, case: str, name: str = "") -> NDArray[np.float32]:
    """Return the clean tokens of a case: ``x_clean`` where there is noise, else ``x``."""
    if not name:
        name = "x_clean" if fixture.has(f"input.{case}.x_clean") else "x"
    return fixture.input(f"{case}.{name}").numpy()


def _integers(fixture: Fixture, case: str) -> NDArray[np.int64]:
    return np.rint(_numpy(fixture, case)).astype(np.int64)


def _subset_sum(fixture: Fixture, case: str) -> Labels:
    x = _integers(fixture, case)
    return {"y": subset_sum.label(x[..., 0], x[:, 0, 1])}


def _knapsack(fixture: Fixture, case: str) -> Labels:
    x = _integers(fixture, case)
    mask, value = knapsack.label(x[..., 0], x[..., 1], x[:, 0, 2])
    return {"y": mask, "best_value": value}


def _fractional_knapsack(fixture: Fixture, case: str) -> Labels:
    x = _integers(fixture, case)
    fractions = fractional_knapsack.label(x[..., 0], x[..., 1], x[:, 0, 2])
    return {"fractions": fractions, "log1p_value": fractional_knapsack.log_value(x[..., 0], fractions)}


def _min_coin_change(fixture: Fixture, case: str) -> Labels:
    x = _integers(fixture, case)
    mask = min_coin_change.label(x[..., 0], x[:, 0, 1])
    return {"y": mask, "count": mask.sum(axis=1)}


def _quickselect(fixture: Fixture, case: str) -> Labels:
    raw = np.rint(_numpy(fixture, case, "raw")).astype(np.int64)
    values, k = raw[..., 0], raw[:, 0, 1]
    return {
        "y": quickselect.label(values, k),
        "kth_value": np.sort(values, axis=1)[np.arange(len(values)), k - 1],
    }


def _from_normalised(x: NDArray[np.float32]) -> Labels:
    """Label from ``[(x - min) / (max - min), (k - 1) / (n - 1)]``: neither order nor ties depend on the scale."""
    k = np.rint(x[:, 0, 1] * (x.shape[1] - 1)).astype(np.int64) + 1
    return {"y": quickselect.label(x[..., 0], k)}


def _balanced_partition(fixture: Fixture, case: str) -> Labels:
    mask, difference = balanced_partition.label(_integers(fixture, case)[..., 0])
    return {"y": mask, "diff": difference}


def _bin_packing(fixture: Fixture, case: str) -> Labels:
    x = _integers(fixture, case)
    opens, assignment = bin_packing.label(x[..., 0], x[:, 0, 1])
    return {"y": opens, "assignment": assignment, "bins": opens.sum(axis=1)}


def _convex_hull(fixture: Fixture, case: str) -> Labels:
    x = _integers(fixture, case)
    return {"y": convex_hull.label(x[..., 0], x[..., 1])}


def _three_sum(fixture: Fixture, case: str) -> Labels:
    x = _integers(fixture, case)
    return {"y": three_sum.label(x[..., 0], x[:, 0, 1])}


def _square(x: NDArray[np.float32]) -> NDArray[np.float64]:
    count, length = x.shape[:2]
    n = int(np.sqrt(length))
    return x[..., 0].astype(np.float64).reshape(count, n, n)


def _floyd_warshall(fixture: Fixture, case: str) -> Labels:
    weights = _square(_numpy(fixture, case))
    count, n = weights.shape[:2]
    if case.startswith("legacy"):
        edges = np.minimum(weights, weights.transpose(0, 2, 1))
        return {"dist": floyd_warshall.distances(edges).reshape(count, n * n)}
    edges = np.where((weights > 0) | np.eye(n, dtype=bool), weights, np.inf)
    length, before = floyd_warshall.distances_and_predecessors(edges)
    high = fixture.fact("ranges")["ood" if case == "value" else "value"][1]
    reached = np.where(np.isfinite(length), length, n * high + 1)
    return {"dist": reached.reshape(count, n * n), "pred": before.reshape(count, n * n)}


def _scc(fixture: Fixture, case: str) -> Labels:
    edges = _square(_numpy(fixture, case)) > 0.5
    return {"y": scc.label(edges).reshape(len(edges), -1)}


_LABELS = {
    "subset-sum": _subset_sum,
    "knapsack": _knapsack,
    "fractional-knapsack": _fractional_knapsack,
    "min-coin-change": _min_coin_change,
    "quickselect": _quickselect,
    "balanced-partition": _balanced_partition,
    "bin-packing": _bin_packing,
    "convex-hull": _convex_hull,
    "three-sum": _three_sum,
    "floyd-warshall": _floyd_warshall,
    "scc": _scc,
}

"""Solve tiny data sets with untrained networks on any device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nco_bench.api import load
from nco_bench.solvers.protocol import Outcome, SolverOptions
from nco_bench.solvers.registry import choose, create


def solved(
    text: str, data: str, device: str, decoding: str | None = None, params: Mapping[str, str] | None = None,
    logit_scale: str | None = None, seed: int = 7,
) -> list[Outcome]:  # fmt: skip
    """Return what an untrained network answers."""
    options = SolverOptions(
        decoding=decoding, weights="random", device=device, params=dict(params or {}), logit_scale=logit_scale
    )
    solver = create(choose(text, options))
    dataset = load(data)
    reason = solver.unsupported(dataset)
    assert reason is None, reason
    solver.prepare(dataset)
    try:
        return list(solver.solve(dataset.instances, seed=seed, time_limit=None, progress=lambda count: None))
    finally:
        solver.close()


def plain(outcome: Any) -> Any:
    """Return a solution's array, without its trace."""
    return np.asarray(getattr(outcome, "solution", outcome))

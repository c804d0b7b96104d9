"""SIT's Figure 3: the greedy gap against how often the last node stands among the representatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import BadInputError
from nco_bench.papers.representations import load_policy
from nco_bench.problems import problem
from nco_bench.reports.figures.networks import RepeatsGap
from nco_bench.solvers.decoding.spec import parse_decoding
from nco_bench.solvers.network import to_unit_square
from nco_bench.solvers.path.decode import decode_path


def gaps_by_repeats(solvers: Sequence[str], dataset: Dataset, limit: int) -> list[RepeatsGap]:
    """Solve TSP instances greedily with SIT networks, and hold the tours against the references.

    Parameters
    ----------
    solvers
        Such as ``sit:weights=FILE``, see `representations.load_policy`.
    dataset
        TSP instances of one size with references.
    limit
        The first instances to use.

    Raises
    ------
    BadInputError
        For instances of another problem, without references or of several sizes, and for networks other than SIT's.
    """
    chosen = list(zip(dataset.instances, dataset.references, strict=True))[:limit]
    known = [(instance, reference.cost) for instance, reference in chosen if reference is not None]
    if dataset.problem != "tsp" or len(known) < len(chosen) or len({i.n for i, _ in known}) != 1:
        raise BadInputError(
            f"{dataset.name}: needs TSP instances of one size with references; make them with "
            f"'nco-bench reference {dataset.name} --solver lkh3'."
        )
    coords = np.stack([to_unit_square(instance.arrays()["coords"]) for instance, _ in known])
    found = []
    for solver in solvers:
        policy: Any = load_policy(solver)[1]
        repeats = getattr(policy.config, "repeats", None)
        if repeats is None:
            raise BadInputError(f"{solver}: has no representatives to repeat; name weights of sit.")
        tours = decode_path(
            policy, torch.from_numpy(coords.astype(np.float32)), None, None, decoding=parse_decoding("greedy"),
            seed=1234,
        )  # fmt: skip
        score = problem("tsp").score
        gaps = [100 * (score(i, tour) / cost - 1) for (i, cost), tour in zip(known, tours, strict=True)]
        found.append(RepeatsGap(repeats, tuple(gaps)))
    return sorted(found, key=lambda point: point.repeats)

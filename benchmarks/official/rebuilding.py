"""Iterations of random (RRC, LEHD) and of parallel (PRC, SIT) re-construction, with the same draws on both sides."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from nco_bench.nn.build import build_path_policy, load_official
from nco_bench.solvers.path.policy import PathPolicy
from nco_bench.solvers.path.problem import path_lengths
from nco_bench.solvers.path.reconstruction_tsp import prc_tsp_step, rrc_tsp_step, turned
from official.ciam import Decide, encoded
from official.engine import Case, Pair, same_rows
from official.instances import Instances, drawn

DRAWS = {"rrc": ((False, 11, 40), (True, 57, 80), (False, 83, 20)), "prc": ((False, 11, 40), (True, 333, 25))}
"""Per iteration: whether tours are reversed, where the first segment begins, nodes per segment."""


def rebuilding_pair(case: Case, official: nn.Module, decide: Decide) -> Pair:
    """Prepare the iterations of `DRAWS`, from tours in the order of the nodes."""
    policy = build_path_policy(case.model, case.problem)
    load_official(policy, case.model, official.state_dict())
    coords = drawn(case.problem, case.size, case.batch).coords
    kind = case.decoding.split(":")[0]
    begun = torch.arange(case.size).expand(case.batch, -1)
    step = rrc_tsp_step if kind == "rrc" else prc_tsp_step

    def theirs() -> Any:
        tours = begun
        with torch.no_grad():
            for flip, start, length in DRAWS[kind]:
                tours = turned(tours, flip, start)
                segments = 1 if kind == "rrc" else case.size // length
                old = tours[:, : segments * length].reshape(-1, length)
                points = coords.repeat_interleave(segments, dim=0)
                new = old.gather(
                    1, rebuilt(official, decide, points.gather(1, old[..., None].expand(-1, -1, 2)))
                )
                better = path_lengths(points, new) < path_lengths(points, old)
                kept = torch.where(better[:, None], new, old).view(case.batch, -1)
                tours = torch.cat([kept, tours[:, segments * length :]], dim=1)
        return tours.tolist()

    def ours() -> Any:
        tours = begun
        with torch.inference_mode():
            for flip, start, length in DRAWS[kind]:
                tours, _ = step(
                    cast("PathPolicy", policy), coords, tours, flip=flip, start=start, length=length
                )
        return tours.tolist()

    return Pair([theirs], ours, same_rows)


def rebuilt(model: Any, decide: Decide, coords: Tensor) -> Tensor:
    """Build paths from the first to the last row of each segment ``(S, L, 2)`` as the official loop does, ``(S, L)``."""
    some = Instances(coords)
    known, last = encoded(model, some), coords.shape[1] - 1
    visited = torch.tensor([last, 0]).repeat(len(coords), 1)
    while visited.shape[1] <= last:
        best = decide(known, some, visited, None).argmax(dim=1, keepdim=True)
        visited = torch.cat([visited, best], dim=1)
    return visited.roll(-1, dims=1)

"""One iteration of random re-construction (RRC, LEHD) or parallel local re-construction (PRC, SIT) on the TSP.

RRC rebuilds one segment per tour, PRC cuts the whole tour into consecutive segments.
Each step is deterministic given its random draws; segments are replaced where the new one is strictly shorter.

Letters in shapes: B batch, N nodes, V customers, L segment length, F segments of one instance, S segments of the batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nco_bench.solvers.path.policy import PathPolicy
from nco_bench.solvers.path.reconstruction_segments import Rebuilt, rebuild_tsp

MAX_SEGMENTS = 250
"""Segments of one instance that PRC rebuilds in an iteration; the rest of the tour keeps.

As in the official code. The paper (Section 4.3) has all of the n // length segments, which are more where they are
short: beyond 1,000 nodes at the least length of 4, at 50,000 nodes below 200."""


def turned(tours: Tensor, flip: bool | Tensor, start: int | Tensor) -> Tensor:
    """Reverse tours ``(B, N)`` where `flip` says so, then rotate position `start` to the front; one for all or ``(B,)``."""
    batch, count = tours.shape
    backwards = torch.as_tensor(flip, device=tours.device).expand(batch)[:, None]
    first = torch.as_tensor(start, device=tours.device).expand(batch)[:, None]
    position = (torch.arange(count, device=tours.device) + first) % count
    return tours.gather(1, torch.where(backwards, count - 1 - position, position))


def rrc_tsp_step(
    policy: PathPolicy,
    coords: Tensor,
    tours: Tensor,
    *,
    flip: bool | Tensor,
    start: int | Tensor,
    length: int,
    knn: int | None = None,
    deadline: float | None = None,
) -> tuple[Tensor, Rebuilt]:
    """One iteration of RRC on TSP tours, ``(B, N)``.

    Parameters
    ----------
    flip, start
        Whether tours are reversed first, and the position of the segment; one for all or ``(B,)``.
    length
        Number of nodes of the segment (4 ... N).
    knn, deadline
        As in `greedy`, which may raise `TimeIsUpError`.

    Returns
    -------
    tours, rebuilt
        Tours that begin with the segment, and what happened to it.
    """
    tours = turned(tours, flip, start)
    rebuilt = rebuild_tsp(policy, coords, tours[:, None, :length], knn, deadline)
    segment = torch.where(rebuilt.accepted[:, None], rebuilt.order, tours[:, :length])
    return torch.cat([segment, tours[:, length:]], dim=1), rebuilt


def prc_tsp_step(
    policy: PathPolicy,
    coords: Tensor,
    tours: Tensor,
    *,
    flip: bool | Tensor,
    start: int | Tensor,
    length: int,
    knn: int | None = None,
    deadline: float | None = None,
) -> tuple[Tensor, Rebuilt]:
    """One iteration of PRC on TSP tours, ``(B, N)``: all consecutive segments of `length` nodes, the tail untouched.

    Parameters and returns are as for `rrc_tsp_step`, with F = min(N // length, 250) segments per instance.
    """
    tours = turned(tours, flip, start)
    batch, count = tours.shape
    segments = min(count // length, MAX_SEGMENTS)
    old = tours[:, : segments * length].view(batch, segments, length)
    rebuilt = rebuild_tsp(policy, coords, old, knn, deadline)
    taken = rebuilt.accepted.view(batch, segments, 1)
    new = torch.where(taken, rebuilt.order.view(batch, segments, length), old).flatten(1)
    return torch.cat([new, tours[:, segments * length :]], dim=1), rebuilt

"""Many trajectories of one instance at a time, as `nco_bench.solvers.stepwise.rollout` constructs them on the CPU.

Where many trajectories share their nodes, a move of all of them takes two products of matrices; what lies between these is
compiled, see `nco_bench.solvers.stepwise.together_kernels`. Instances and trajectories are cut into parts by their number
alone, and a part is one thread's, so solutions are the same with any number of threads.

Letters in shapes: B instances, P trajectories, N nodes (depot first for the CVRP), S places in a row (N and some), D width,
H heads, K head width, T moves.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from nco_bench.nn.compiled import LINE
from nco_bench.nn.threads import in_threads
from nco_bench.solvers.stepwise import together_kernels as kernels
from nco_bench.solvers.stepwise.glimpse import Glimpse, pair_logits

PART = 200
"""Trajectories of a part: what they hold stays in a core's cache, and calls cost little beside what is done in them."""


class Shared(NamedTuple):
    """What the trajectories of an instance share, of B instances.

    Attributes
    ----------
    pairs
        Logits, see `together_kernels.Pairs`.
    values, pointer
        ``(B, H, S, K)`` and ``(B, D, S)``, see `Glimpse`; 0 beyond N.
    offset
        ``(B, S)``, added to the scores.
    clip
        Half range of the logits.
    """

    pairs: kernels.Pairs
    values: Tensor
    pointer: Tensor
    offset: NDArray[np.float32]
    clip: np.float32

    def take(self, rows: slice) -> Shared:
        """Return what belongs to some instances."""
        pairs = kernels.Pairs(*(table[rows] for table in self.pairs))
        return Shared(pairs, self.values[rows], self.pointer[rows], self.offset[rows], self.clip)


def shared_of(glimpse: Glimpse) -> Shared:
    """Take the logits of all pairs of nodes, and fill rows up to whole lines of the cache.

    Where the policy opens tours, the last row of either table is that of a tour without nodes.
    """
    batch, _, nodes, _ = glimpse.keys.shape
    filled, pairs = -nodes % LINE, glimpse
    if glimpse.opening is not None and glimpse.first is not None:
        opening = glimpse.opening.expand(batch, 1, -1)
        pairs = replace(
            glimpse,
            current=torch.cat([glimpse.current, opening], dim=1),
            first=torch.cat([glimpse.first, torch.zeros_like(opening)], dim=1),
        )
    current, other = (table.mul_(kernels.SCALE).numpy() for table in pair_logits(pairs, filled))
    offset = glimpse.pointer.new_zeros(batch, nodes) if glimpse.offset is None else glimpse.offset[:, 0]
    return Shared(
        kernels.Pairs(current, other),
        F.pad(glimpse.values, (0, 0, 0, filled)).contiguous(),
        F.pad(glimpse.pointer, (0, filled)).contiguous(),
        F.pad(offset, (0, filled)).contiguous().numpy(),
        np.float32(glimpse.clip),
    )


class Part:
    """Some trajectories of some instances, and the memory for a move of them."""

    def __init__(self, shared: Shared, nodes: int, trajectories: int) -> None:
        batch, heads, places, width = shared.values.shape
        self.shared, self.values = shared, shared.values.flatten(0, 1)
        closed = torch.zeros(batch, trajectories, places)
        closed[..., nodes:] = float(kernels.CLOSED)
        self.weights = torch.zeros(batch * heads, trajectories, places)
        self.means = torch.zeros(batch * heads, trajectories, width)
        self.mixed = torch.zeros(batch, trajectories, heads * width)
        self.scores = torch.zeros(batch, trajectories, places)
        self.under = kernels.Under(
            here=np.zeros((batch, trajectories), np.int64),
            row=np.zeros((batch, trajectories), np.int64),
            share=np.ones((batch, trajectories), np.float32),
            closed=closed.numpy(),
        )
        self.room = kernels.Room(
            weights=self.weights.unflatten(0, (batch, heads)).numpy(),
            totals=np.zeros((batch, trajectories, heads), np.float32),
            means=self.means.unflatten(0, (batch, heads)).numpy(),
            mixed=self.mixed.numpy(),
            scores=self.scores.numpy(),
            nodes=np.arange(nodes),
        )

    def score(self) -> None:
        """Score all nodes for all trajectories, but for `Shared.offset`."""
        room = self.room
        kernels.attend(self.shared.pairs, self.under, room.weights, room.totals)
        torch.bmm(self.weights, self.values, out=self.means)
        kernels.join(room.means, room.totals, room.mixed)
        torch.bmm(self.mixed, self.shared.pointer, out=self.scores)

    def tours(self, given: bool, draws: NDArray[np.float32], out: NDArray[np.int64]) -> None:
        """Write tours ``(B, P, N)``, the first nodes of which may be in `out`."""
        fixed = self.shared.offset, self.shared.clip, draws
        self.under.here[:] = self.under.row[:] = out.shape[2]  # nowhere
        for step in range(out.shape[2]):
            known = given and step == 0
            if not known:
                self.score()
            kernels.move_tours(self.under, self.room, *fixed, step, known, out)
            if step == 0:
                self.under.row[:] = out[:, :, 0]

    def routes(
        self, load: tuple[Any, Any, Any], given: bool, draws: NDArray[np.float32], out: NDArray[np.int64]
    ) -> int:
        """Write routes ``(B, P, T)``, the first nodes of which may be in `out`; return the most moves of a trajectory."""
        amount, fixed = load[0], (self.shared.offset, self.shared.clip, draws)
        batch, trajectories, _ = out.shape
        loads = kernels.Loads(
            *load,
            open=np.repeat(amount[:, None], trajectories, axis=1),
            used=np.repeat(amount[:, :1], trajectories, axis=1),
            left=np.full((batch, trajectories), amount.shape[1] - 1),
        )
        self.under.closed[..., 0] = kernels.CLOSED
        step, undone = 0, 1
        while undone:
            if step > 0 or not given:
                self.score()
            undone = kernels.move_routes(self.under, self.room, loads, *fixed, step, given and step == 0, out)
            step += 1
        return step + 1  # and back to the depot


def moved_together(
    glimpse: Glimpse,
    load: tuple[Any, Any, Any] | None,
    given: bool,
    draws: NDArray[np.float32],
    out: NDArray[np.int64],
) -> int:
    """Construct P whole trajectories of each instance.

    Parameters
    ----------
    glimpse
        What was encoded; float32 on the CPU.
    load
        Demands ``(B, N)``, capacities and limits ``(B,)`` of the CVRP.
    given
        Whether the first nodes are in `out`.
    draws
        ``(B, P, T)`` numbers in [0, 1), or ``(B, P, 0)`` for the likeliest nodes.
    out
        ``(B, P, T)``: here the moves are written; zeros where there is none.

    Returns
    -------
    int
        The most moves of a trajectory.
    """
    batch, trajectories, moves = out.shape
    nodes, shared = glimpse.keys.shape[2], shared_of(glimpse)

    def work(part: tuple[slice, slice], stopped: Any) -> int:
        rows, _ = part
        here, drawn = out[part], draws[part]
        own = Part(shared.take(rows), nodes, here.shape[1])
        if load is None:
            own.tours(given, drawn, here)
            return moves
        return own.routes(tuple(table[rows] for table in load), given, drawn, here)  # type: ignore[arg-type]

    return max(in_threads(work, parts_of(batch, trajectories)))


def parts_of(batch: int, trajectories: int) -> list[tuple[slice, slice]]:
    """Cut instances and their trajectories into parts of `PART` trajectories or a little fewer."""

    def cut(count: int, most: int) -> list[slice]:
        bounds = np.linspace(0, count, math.ceil(count / most) + 1).astype(int).tolist()
        return [slice(*pair) for pair in pairwise(bounds)]

    return [
        (rows, columns)
        for rows in cut(batch, max(1, PART // trajectories))
        for columns in cut(trajectories, PART)
    ]

"""ELG's local policy without gradients on the CPU: the same scores by tables and one compiled loop per step.

Which nodes are near a node, how far and in which direction never changes, so it is sorted once for all roll-outs. The
local policy is one query over tokens that are linear in few features: behind the softmax all is linear, and one small
matrix takes what the heads see to the scores.

Letters in shapes as in `nco_bench.solvers.stepwise.elg_kernels`; W local width.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from nco_bench.nn.layers import works_in_place
from nco_bench.nn.threads import in_threads
from nco_bench.solvers.stepwise.glimpse import KERNELS
from nco_bench.solvers.stepwise.policy import RouteState, RoutingNodes

if TYPE_CHECKING:
    from nco_bench.solvers.stepwise.elg import Elg, LocalPolicy
    from nco_bench.solvers.stepwise.elg_kernels import Surroundings

PAIRED_NODES = 1024
"""Up to this many nodes tables of all pairs of nodes are worth their memory."""
ROWS_AT_A_TIME = 256
"""Trajectories that a thread goes on with."""
LANES = 8
"""What is added up has a multiple of so many terms."""


def surroundings(policy: Elg, nodes: RoutingNodes) -> Surroundings | None:
    """Make the tables of a batch; None where the network itself is to be asked at every step."""
    coords = nodes.coords
    if (
        not KERNELS
        or not works_in_place(coords)
        or not policy.local.query_token.dtype == coords.dtype == torch.float32
        or coords.shape[1] > PAIRED_NODES
    ):
        return None
    from nco_bench.solvers.stepwise.elg_kernels import Surroundings

    depots = int(nodes.demand is not None)
    offsets = coords[:, None, depots:] - coords[:, :, None]  # (B, N, C, 2)
    distance, order = in_order(offsets.norm(dim=3))
    angle = torch.atan2(offsets[..., 1], offsets[..., 0]).gather(2, order)
    demand = coords[:, 0, :0] if nodes.demand is None else nodes.demand
    tables = ((order + depots).int(), distance, angle, demand)
    maps = maps_of(policy.local, min(policy.config.neighbours, order.shape[2]) + depots)
    fields: list[Any] = [table.detach().contiguous().numpy() for table in (*tables, *maps)]
    fields.append(np.float32(policy.config.far_penalty))
    return Surroundings(*fields)


def in_order(distance: Tensor) -> tuple[Tensor, Tensor]:
    """Sort distances along the last axis; return them and the places that they had, the first among equals in front.

    Whole numbers that hold a distance's bits and its place are sorted five times as fast as by torch's stable sort.
    """
    keys = (distance.view(torch.int32).long() << 32) | torch.arange(distance.shape[-1])
    keys.numpy().sort(axis=-1)
    return (keys >> 32).int().view(torch.float32), keys & 0xFFFFFFFF


def maps_of(local: LocalPolicy, places: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return `Surroundings.asking`, `Surroundings.codes` and `Surroundings.maps` for so many tokens.

    With the rows ``X = [constant parts of the tokens; maps of the features]``, a head that sees v (weights of the tokens,
    and the mean of their features) has the mean token ``v X``; ``z = sum of the heads' v X V C + bias``, and ``u = z X^T``.
    """
    width = len(local.query_token)
    asked, constant = local.asked(), local.constant(places)
    tokens = torch.cat([constant, local.embedding.weight.T])  # (T + F, W)
    value = local.value.weight.view(local.heads, -1, width)
    combine = local.combine.weight.view(width, local.heads, -1)
    each = torch.einsum("jw,adw,vad,kv->ajk", tokens, value, combine, tokens)
    each[0, :places] += local.combine.bias @ tokens.T  # weights of a head add up to 1
    each = each.flatten(0, 1) / math.sqrt(width)
    maps = F.pad(each, (0, -each.shape[1] % LANES, 0, -len(each) % LANES))
    return asked @ local.embedding.weight, asked @ constant.T, maps


def add_nearby(around: Surroundings, state: RouteState, scores: Tensor) -> Tensor:
    """Add penalty and local score to the scores ``(B, P, N)``, in place.

    Returns
    -------
    Tensor
        Rows of ``(B P, N)`` to which nothing was added: of nodes that are as far `Elg.neighbourhood` takes those that the
        official code does, by the way in which ``topk`` searches.
    """
    from nco_bench.solvers.stepwise import elg_kernels as kernels

    assert state.current is not None
    count = scores.shape[2]
    rows = scores.numel() // count
    room, tied = torch.ones(rows) if state.room is None else state.room, torch.empty(rows, dtype=torch.bool)
    given = (state.blocked.view(rows, count), state.current.reshape(rows), room.reshape(rows))
    arrays, out = [one.numpy() for one in given], (scores.view(rows, count).numpy(), tied.numpy())

    def work(first: int, _: threading.Event) -> None:
        kernels.add_nearby(around, *arrays, first, min(first + ROWS_AT_A_TIME, rows), *out)

    in_threads(work, range(0, rows, ROWS_AT_A_TIME))
    return tied.nonzero().squeeze(1)

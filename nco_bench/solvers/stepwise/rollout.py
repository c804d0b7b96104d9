"""Whole greedy or sampled constructions of AM and POMO in compiled loops, where the CPU decodes in float32.

A step of these decoders is a few short products and a dozen small operations; called one by one, those cost more than the
products. `nco_bench.solvers.stepwise.rollout_kernels` makes all moves of a tour in one call, `rollout_routes` those of CVRP
routes; `together` makes a move of many trajectories at a time. Choices are those of
`nco_bench.solvers.decoding.search.construct`, which does the same step by step for everything else: other devices and types,
gradients, beams, policies with more to say than the pointer.

Letters in shapes: B instances, P trajectories, N nodes (depot first for the CVRP), D width, H heads, K head width, T moves.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from nco_bench.nn.device import on_cpu
from nco_bench.nn.threads import in_threads
from nco_bench.solvers.decoding.draws import coarse_uniform, streams
from nco_bench.solvers.decoding.search import Trajectories, construct, greedy_choice, sampling
from nco_bench.solvers.stepwise.glimpse import FACTORED_NODES, KERNELS, Glimpse
from nco_bench.solvers.stepwise.problem import Demands
from nco_bench.solvers.stepwise.steps import EncodeOnce

if TYPE_CHECKING:
    from nco_bench.solvers.stepwise.rollout_kernels import Encoded

MANY_TRAJECTORIES, NODES_OF_EACH = 8, 16
"""From so many trajectories on, one to so many nodes, products for all at once pay for the visited nodes in them."""
TERMS = 8
"""Head widths are multiples of it, see `rollout_kernels.TERMS`."""


def completed(
    steps: EncodeOnce,
    trajectories: int,
    starts: Tensor | None,
    seeds: Tensor | None = None,
    first_sample: int = 0,
) -> Trajectories:
    """Construct P whole trajectories of each instance, in compiled loops where they fit, else step by step.

    Parameters
    ----------
    steps
        A policy at work.
    trajectories
        P.
    starts
        ``(B, P)`` first nodes, or None where the policy chooses them.
    seeds
        ``(B,)`` int64 of samples, see `nco_bench.solvers.decoding.search.sampling`; None takes the likeliest nodes.
    first_sample
        Number of the first sample.
    """
    if fits(steps):
        stream = None if seeds is None else streams(seeds, first_sample, trajectories)
        return rolled_out(steps, trajectories, starts, stream)
    choose = greedy_choice if seeds is None else sampling(seeds, first_sample, trajectories)
    return construct(steps, steps.begin(trajectories, starts), choose)


def fits(steps: EncodeOnce) -> bool:
    """Tell whether the compiled loops decode as this policy does."""
    glimpse = steps.encoded
    return (
        KERNELS
        and isinstance(glimpse, Glimpse)
        and glimpse.clip is not None
        and on_cpu(glimpse.keys.device)
        and glimpse.keys.dtype == glimpse.pointer.dtype == glimpse.current.dtype == torch.float32
        and glimpse.keys.shape[3] % TERMS == 0
        and not torch.is_grad_enabled()
    )


def many_together(steps: EncodeOnce, trajectories: int) -> bool:
    """Tell whether so many trajectories are faster a move of all at a time."""
    nodes = steps.problem.coords.shape[1]
    return trajectories >= MANY_TRAJECTORIES and nodes <= min(FACTORED_NODES, NODES_OF_EACH * trajectories)


def rolled_out(
    steps: EncodeOnce, trajectories: int, starts: Tensor | None, stream: Tensor | None = None
) -> Trajectories:
    """Construct P whole trajectories of each instance.

    Parameters
    ----------
    steps
        A policy at work that `fits`.
    trajectories
        P.
    starts
        ``(B, P)`` first nodes, or None where the policy chooses them.
    stream
        ``(B, P)`` keys of what is drawn, see `nco_bench.solvers.decoding.draws.streams`; None takes the likeliest nodes.
    """
    batch, size, _ = steps.problem.coords.shape
    demands = steps.problem.demands
    moves = size if demands is None else 2 * (size - 1)
    begun = torch.full((batch, trajectories), -1) if starts is None else starts.contiguous()
    draws = torch.empty(batch, trajectories, 0)
    if stream is not None:
        draws = coarse_uniform(stream[..., None], torch.arange(moves))
    nodes = torch.zeros(batch, trajectories, moves, dtype=torch.int64)
    if many_together(steps, trajectories):
        from nco_bench.solvers.stepwise.together import moved_together

        if starts is not None:
            nodes[..., 0] = starts
        load = None if demands is None else load_of(demands)
        longest = moved_together(steps.encoded, load, starts is not None, draws.numpy(), nodes.numpy())
        return Trajectories(nodes[..., :longest])
    given, out = (begun.numpy(), draws.numpy()), nodes.numpy()
    encoded = encoded_of(steps.encoded)
    write, facts = loop_for(steps)

    def work(part: tuple[int, int], _: Any) -> int:
        return write(encoded, *facts, *given, *part, out) or moves

    bounds = np.linspace(0, batch * trajectories, torch.get_num_threads() + 1).astype(int).tolist()
    parts = [part for part in pairwise(bounds) if part[0] < part[1]]
    return Trajectories(nodes[..., : max(in_threads(work, parts))])


def loop_for(steps: EncodeOnce) -> tuple[Callable[..., int | None], tuple[Any, ...]]:
    """Return the compiled loop for these problems, and what it wants to know beside what was encoded.

    Each reads its own file: compiled code of the others need not be loaded.
    """
    if steps.problem.demands is not None:
        from nco_bench.solvers.stepwise.rollout_routes import routes

        return routes, load_of(steps.problem.demands)
    from nco_bench.solvers.stepwise.rollout_kernels import tours

    return tours, ()


def encoded_of(glimpse: Glimpse) -> Encoded:
    """Lay out what was encoded as the compiled loops read it."""
    from nco_bench.solvers.stepwise.rollout_kernels import Encoded

    batch, heads, nodes, _ = glimpse.keys.shape
    width, current = glimpse.pointer.shape[1], glimpse.current
    none = current.new_zeros(width)
    base = current.new_zeros(batch, width) if glimpse.base is None else glimpse.base[:, 0]
    offset = current.new_zeros(batch, nodes) if glimpse.offset is None else glimpse.offset[:, 0]
    tensors = (
        glimpse.keys_across.flatten(1, 2),
        glimpse.values.transpose(2, 3).flatten(1, 2),
        glimpse.pointer.transpose(1, 2),
        offset,
        current,
        current if glimpse.first is None else glimpse.first,
        base,
        none if glimpse.opening is None else glimpse.opening,
        none if glimpse.room is None else glimpse.room,
    )
    fields: list[Any] = [tensor.detach().contiguous().numpy() for tensor in tensors]
    fields += [heads, np.float32(glimpse.clip)]
    return Encoded(*fields)


def load_of(demands: Demands) -> tuple[Any, Any, Any]:
    """Return demands, capacities and limits as floats; whole numbers stay exact in float64."""
    kind = torch.float32 if demands.amount.dtype == torch.float32 else torch.float64
    amount, capacity, limit = (
        t.to(kind).contiguous().numpy() for t in (demands.amount, demands.capacity, demands.limit)
    )
    return amount, capacity, limit

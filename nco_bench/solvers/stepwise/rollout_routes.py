"""Whole CVRP constructions of one-attention decoders on the CPU, compiled by numba: as the tours of `rollout_kernels`.

Letters in shapes as there; the depot is node 0.
"""

from __future__ import annotations

from typing import Any

from nco_bench.nn.compiled import F32, fast
from nco_bench.solvers.stepwise.rollout_kernels import (
    CLOSED,
    Array,
    Encoded,
    Ints,
    begin,
    decide,
    remove,
    room_for,
)


@fast
def routes(
    encoded: Encoded,
    amount: Any,
    capacity: Any,
    limit: Any,
    starts: Ints,
    draws: Array,
    first: int,
    last: int,
    out: Ints,
) -> int:
    """Write CVRP routes; as `rollout_kernels.tours`, and return the most moves of a trajectory.

    Parameters
    ----------
    encoded, starts, draws, first, last
        As there.
    amount, capacity, limit
        As in `nco_bench.solvers.stepwise.problem.Demands`, all float32 or all float64.
    out
        ``(B, P, T)``, zeros; T is twice the number of customers.
    """
    own, size, longest = room_for(encoded), encoded.keys.shape[2], 0
    for trajectory in range(first, last):
        b, p = divmod(trajectory, out.shape[1])
        begin(encoded, b, own)
        here, used, count, step = 0, amount[b, 0], size, 0
        while count > 1:  # the depot is at the first place, and stays there
            place = starts[b, p]
            if step > 0 or place < 0:
                room = F32(capacity[b] - used) / F32(capacity[b])
                for d in range(own.query.shape[0]):
                    share = encoded.current[b, here, d] + room * encoded.room[d]
                    own.query[d] = share + encoded.base[b, d]
                own.closed[0] = CLOSED if here == 0 else F32(0.0)
                for j in range(1, count):
                    fits = amount[b, own.nodes[j]] + used <= limit[b]
                    own.closed[j] = F32(0.0) if fits else CLOSED
                place = decide(own, count, encoded, draws[b, p], step)
            here = own.nodes[place]
            out[b, p, step] = here
            step += 1
            if here == 0:
                used = amount[b, 0]
            else:
                used += amount[b, here]
                count -= 1
                remove(place, count, own)
        longest = max(longest, step + 1)  # and back to the depot
    return longest

"""Many states of few nodes in training, on the CPU: attention by logits of pairs of nodes, and log-probabilities of choices.

Finished trajectories go through the network in one pass, all states of an instance side by side
(`nco_bench.solvers.stepwise.steps.log_probabilities`). There are many more states than pairs of nodes, so the logits are
taken for all pairs, as in `nco_bench.solvers.stepwise.together`. Derivatives of the logits are added up for each pair; those
of queries and keys follow by two small products. Weights are not kept but computed anew on the way back, some states at a
time, so that they stay in the processor's cache.

Letters in shapes: B instances, R states, N nodes, S places in a row (N and some), H heads, K head width, D = H K.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from nco_bench.nn.threads import in_threads
from nco_bench.solvers.stepwise import together_kernels as kernels

STATES = 200
"""States of an instance at a time."""


def attended(
    current: Tensor, other: Tensor, values: Tensor, here: Tensor, row: Tensor, share: Tensor, blocked: Tensor
) -> Tensor:
    """Attend from states over the nodes that are not blocked, ``(B, R, D)``.

    Parameters
    ----------
    current, other
        ``(B, N, H, S)`` and ``(B, O, H, S)`` logits, see `nco_bench.solvers.stepwise.glimpse.pair_logits`.
    values
        ``(B, H, S, K)``, 0 beyond N.
    here, row, share
        ``(B, R)``: the logits of a state are ``current[here] + share * other[row]``.
    blocked
        ``(B, R, S)``, 0 or ``-inf``; ``-inf`` beyond N.
    """
    result: Tensor = _Attended.apply(current, other, values, here, row, share, blocked)  # type: ignore[no-untyped-call]
    return result


class _Attended(Function):
    """`attended`."""

    @staticmethod
    def forward(ctx: Any, current: Tensor, other: Tensor, values: Tensor, *states: Tensor) -> Tensor:
        """Attend, some states at a time."""
        tables = [table.detach() * kernels.SCALE for table in (current, other)]
        ctx.save_for_backward(*tables, values, *states)
        batch, heads, _, width = values.shape
        mixed = values.new_empty(batch, states[0].shape[1], heads * width)

        def work(b: int, _: Any) -> None:
            for part in _Part.of(b, tables, states, values):
                means = torch.bmm(part.attend(), values[b])
                kernels.join(means[None].numpy(), part.totals, mixed[b : b + 1, part.rows].numpy())

        in_threads(work, range(batch))
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        """Return the derivatives of logits and values."""
        *tables, values, here, row, share, blocked = ctx.saved_tensors
        states, heads = (here, row, share, blocked), values.shape[1]
        of_tables = [torch.zeros_like(table) for table in tables]
        of_values, slope = torch.zeros_like(values), slope.contiguous()

        def work(b: int, _: Any) -> None:
            own = [table[b : b + 1].numpy() for table in of_tables]
            for part in _Part.of(b, tables, states, values):
                weights = part.attend()
                of_mixed = slope[b, part.rows].unflatten(1, (heads, -1)).transpose(0, 1)
                of_weights = torch.bmm(of_mixed, values[b].transpose(1, 2))
                kernels.derive(part.under, weights[None].numpy(), part.totals, of_weights[None].numpy(), *own)
                of_values[b].baddbmm_(weights.transpose(1, 2), of_mixed)

        in_threads(work, range(len(values)))
        return (*of_tables, of_values, None, None, None, None)


class _Part:
    """Some states of an instance."""

    def __init__(self, pairs: kernels.Pairs, under: kernels.Under, rows: slice, heads: int) -> None:
        self.pairs, self.under, self.rows = pairs, under, rows
        _, count, places = under.closed.shape
        self.weights = torch.empty(heads, count, places)
        self.totals: NDArray[np.float32] = np.empty((1, count, heads), np.float32)

    @staticmethod
    def of(b: int, tables: list[Tensor], states: tuple[Tensor, ...], values: Tensor) -> Iterator[_Part]:
        """Cut the states of instance b into parts."""
        pairs = kernels.Pairs(*(table[b : b + 1].numpy() for table in tables))
        whole = [table[b : b + 1].numpy() for table in states]
        for first in range(0, states[0].shape[1], STATES):
            rows = slice(first, first + STATES)
            yield _Part(pairs, kernels.Under(*(table[:, rows] for table in whole)), rows, values.shape[1])

    def attend(self) -> Tensor:
        """Return weights over a sum of each head and state, ``(H, R, S)``; write these to `totals`."""
        kernels.attend(self.pairs, self.under, self.weights[None].numpy(), self.totals)
        return self.weights


def log_probs(scores: Tensor, blocked: Tensor, node: Tensor, clip: float) -> Tensor:
    """Return log-probabilities of nodes ``(B, R)`` by the softmax of ``clip * tanh(scores) + blocked``, ``(B, R, N)``."""
    result: Tensor = _LogProbs.apply(scores, blocked, node, clip)  # type: ignore[no-untyped-call]
    return result


class _LogProbs(Function):
    """`log_probs`."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, blocked: Tensor, node: Tensor, clip: float) -> Tensor:
        """Keep tanh of the scores, and what the logits are relative to."""
        curved, level = torch.empty_like(scores), torch.empty_like(scores[..., 0])
        result = torch.empty_like(level)
        read = [tensor.detach().contiguous().numpy() for tensor in (scores, blocked, node)]
        wrote = [tensor.numpy() for tensor in (curved, level, result)]

        def work(b: int, _: Any) -> None:
            kernels.choice(*(t[b] for t in read), np.float32(clip), *(t[b] for t in wrote))

        in_threads(work, range(len(scores)))
        ctx.save_for_backward(curved, level, blocked, node)
        ctx.clip = np.float32(clip)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        """Return the derivatives of the scores."""
        curved, level, blocked, node = ctx.saved_tensors
        of_scores = torch.empty_like(curved)
        read = [tensor.contiguous().numpy() for tensor in (slope, curved, level, blocked, node)]
        wrote = of_scores.numpy()

        def work(b: int, _: Any) -> None:
            kernels.choice_derived(*(t[b] for t in read), ctx.clip, wrote[b])

        in_threads(work, range(len(curved)))
        return of_scores, None, None, None

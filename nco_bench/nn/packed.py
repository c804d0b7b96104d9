"""Maps whose weights stay as they are, packed for oneDNN once and not at every call; without gradients.

For few rows packing takes a tenth of a call. What is kept follows the weights: it is made again when they change.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nco_bench.nn import products

FEWEST_PACKED = 2**19
"""Multiplications from which on oneDNN's calls pay where weights are packed beforehand."""
PACKED = "_packed_for_onednn"
"""Where a map keeps its packed weight; copies and files of networks know nothing of it."""


def mapped(rows: Tensor, linear: nn.Linear, then: str = "none", *, bias: bool = True) -> Tensor:
    """Return what `linear` makes of a matrix of `products.filled`, with ``relu`` rectified, and ask nothing.

    With `bias` False the map's bias is left out.
    """
    return products.called(rows, packed_weight(linear), linear.bias if bias else None, then)


def added_to(total: Tensor, rows: Tensor, linear: nn.Linear) -> Tensor:
    """Return `total` plus what a map makes of rows, of matrices of `products.filled`, and ask nothing."""
    return products.called_onto(total, rows, packed_weight(linear), linear.bias)


def packed_weight(linear: nn.Linear) -> Tensor:
    """Return a map's weight as oneDNN reads it, packed again when it has changed: the same bits, 3 to 4 % faster.

    A weight that was made in inference mode counts no changes, and stays as it is.
    """
    weight = linear.weight
    return (
        weight if weight.is_inference() else kept(linear, PACKED, (weight,), lambda weights: packed(*weights))
    )


def packed(weight: Tensor) -> Tensor:
    """Return a weight as oneDNN reads it."""
    made: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), products.STEPS)
    return made


def kept(
    owner: nn.Module, name: str, weights: Sequence[Tensor], make: Callable[[Sequence[Tensor]], Tensor]
) -> Tensor:
    """Return what `make` makes of weights, without gradients; made again when one of them has changed.

    Parameters
    ----------
    owner, name
        Where it is kept; copies and files of the module know nothing of it.
    weights
        Those that were made in inference mode count no changes: of them nothing is kept.
    make
        Called with `weights`.
    """
    if any(one.is_inference() for one in weights):
        return make(weights)
    now = tuple((one._version, one.data_ptr()) for one in weights)
    known: _Kept | None = owner.__dict__.get(name)
    if known is None or known.of != now:
        with torch.inference_mode():
            known = _Kept(now, make(weights))
        owner.__dict__[name] = known
    return known.made


class _Kept:
    """What was made of which weights; copies of a module begin without."""

    __slots__ = ("made", "of")

    def __init__(self, of: tuple[tuple[int, int], ...], made: Tensor) -> None:
        self.of, self.made = of, made

    def __deepcopy__(self, memo: Any) -> None:
        return None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


class Packed:
    """A linear map that stays as it is and needs no gradients: oneDNN packs its weights once, not at every call.

    For few rows packing takes a tenth of a call. Bias, rectifier and sum need no pass of their own; the rectifier makes 0 of
    what is not a number, which finite weights, as all that are loaded, do not give.

    Parameters
    ----------
    weight, bias
        ``(N, K)`` and ``(N,)``, on the CPU; None for no bias.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self.bias = weight.detach(), None if bias is None else bias.detach()
        fits = products.faster() and weight.dtype == torch.float32 and min(weight.shape) >= products.NARROWEST
        self.fewest = FEWEST_PACKED / weight.numel() if fits else math.inf

    @functools.cached_property
    def packed(self) -> Tensor:
        """The weights as oneDNN reads them."""
        return packed(self.weight)

    def __call__(self, x: Tensor) -> Tensor:
        """Return ``x weight^T + bias`` of a matrix ``(M, K)``."""
        if x.shape[0] < self.fewest:
            return F.linear(x, self.weight, self.bias)
        return products.filled_up(x, self.packed, self.bias)

    def rectified(self, x: Tensor) -> Tensor:
        """Return ``max(x weight^T + bias, 0)``."""
        if x.shape[0] < self.fewest:
            return F.linear(x, self.weight, self.bias).relu_()
        return products.filled_up(x, self.packed, self.bias, "relu")

    def added(self, total: Tensor, x: Tensor) -> Tensor:
        """Return ``total + x weight^T + bias``."""
        rows = x.shape[0]
        if rows < self.fewest or rows != products.coarse(rows):
            return self(x).add_(total)
        return products.called_onto(total, x, self.packed, self.bias)

"""Products with weights in float32 on the CPU, by the faster of the two libraries that PyTorch brings.

PyTorch hands them to MKL, which on AMD's processors keeps to 256-bit vectors. oneDNN, which PyTorch has for bfloat16, uses
all 512 bits where there are that many: 250 GFLOP/s a core where MKL has 112 (AMD EPYC of family 26, `python
benchmarks/library_products.py`). Both round each sum once; they add in another order, as two processors do. Where weights
stay as they are, `nco_bench.nn.packed` has them packed for oneDNN beforehand.

Networks say ``nn.Linear``; `adopt` gives those of a network the faster product, when it is built.
"""

from __future__ import annotations

import functools
import platform
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

STEPS = 16
"""Numbers of rows between two powers of two that oneDNN is given: it compiles code for each, which takes as long as many
products, and a construction has a number of its own at every step. Others are filled up.
"""
FEWEST = 3 * 2**19
"""Multiplications from which on oneDNN's calls, of some 6 microseconds more, pay."""
FLOAT32 = torch.float32
NARROWEST = 16
"""Columns and rows of a weight below which they do not."""


@functools.cache
def faster() -> bool:
    """Tell whether oneDNN is the faster one here: on AMD's processors with 512-bit vectors."""
    return (
        torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and _made_by_amd()
    )


def _made_by_amd() -> bool:
    name = "AuthenticAMD"
    try:
        return name in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return name in platform.processor()


def pays(x: Tensor, weight: Tensor) -> bool:
    """Tell whether ``x weight^T`` goes to oneDNN."""
    # Other weights it multiplies number by number.
    return _suits(x, weight) and (weight.is_contiguous() or weight.T.is_contiguous())


def _suits(x: Tensor, weight: Tensor) -> bool:
    """Tell whether a product is in float32 on the CPU, large enough, and outside autocast and compilation."""
    columns, inner = weight.shape
    return (
        x.is_cpu
        and not torch.compiler.is_compiling()  # asked before `faster`, which reads a file
        and faster()
        and x.numel() * columns >= FEWEST
        and x.dtype is FLOAT32
        and weight.dtype is FLOAT32
        and columns >= NARROWEST
        and inner >= NARROWEST
        and not torch.is_autocast_enabled("cpu")
    )


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, again: bool = False) -> Tensor:
    """Return ``x weight^T + bias``, as `torch.nn.functional.linear` does.

    Parameters
    ----------
    x, weight, bias
        ``(..., K)``, ``(N, K)``, ``(N,)``.
    again
        Whether so many rows come again and again: their number is not filled up then.
    """
    if not pays(x, weight):
        return F.linear(x, weight, bias)
    if torch.is_grad_enabled():
        made: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return made
    return called(x, weight, bias) if again else filled_up(x, weight, bias)


def rectified(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``relu(x weight^T + bias)``, as `linear`; without gradients, of finite weights (see `packed.Packed`)."""
    if not pays(x, weight):
        return F.relu_(F.linear(x, weight, bias))
    return filled_up(x, weight, bias, "relu")


def feed_forward(
    x: Tensor, inner: nn.Linear, outer: nn.Linear, factor: float | Tensor = 1.0, *, gelu: bool = False
) -> Tensor:
    """Return ``factor * outer(relu(inner(x)))``, or with exact GELU in place of ReLU."""
    return block(x, inner, *times(outer, factor), gelu=gelu)


def block(x: Tensor, inner: nn.Linear, weight: Tensor, bias: Tensor | None, *, gelu: bool = False) -> Tensor:
    """Return what `feed_forward` does with an outer map of this weight and bias, which may have few columns."""
    if torch.is_grad_enabled() and pays(x, inner.weight) and x.is_contiguous():
        given = x, inner.weight, inner.bias, weight, bias
        made: Tensor = _FeedForward.apply(gelu, *given)  # type: ignore[no-untyped-call]
        return made
    return linear(activated(linear(x, inner.weight, inner.bias), gelu), weight, bias)


def activated(x: Tensor, gelu: bool) -> Tensor:
    """Return exact GELU or ReLU of `x`; without gradients in its memory."""
    if torch.is_grad_enabled():
        return F.gelu(x) if gelu else F.relu(x)
    done: Tensor = torch.ops.aten.gelu_(x) if gelu else F.relu_(x)
    return done


def times(linear: nn.Linear, factor: float | Tensor) -> tuple[Tensor, Tensor | None]:
    """Return weight and bias of ``factor * linear``: there are fewer weights than numbers that come of them."""
    if isinstance(factor, float) and factor == 1.0:
        return linear.weight, linear.bias
    return linear.weight * factor, None if linear.bias is None else linear.bias * factor


def added(total: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, alpha: float = 1.0) -> Tensor:
    """Return ``total + alpha (x weight^T + bias)``, ``(M, N)``; without gradients. `total` may be overwritten."""
    if alpha == 1.0 and pays(x, weight):
        rows = x.shape[0]
        wanted = coarse(rows)
        if wanted != rows:
            x, total = _with_rows(x, rows, wanted), _with_rows(total, rows, wanted)
        made: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, total, weight, bias, "add")
        return made[:rows]
    if bias is not None:
        total.add_(bias, alpha=alpha)
    return add_product(total, x, weight, alpha)


def add_product(total: Tensor, x: Tensor, weight: Tensor, alpha: float = 1.0) -> Tensor:
    """Add ``alpha x weight^T`` to `total`, ``(M, N)``, in place; without gradients."""
    if pays(x, weight):
        return total.add_(filled_up(x, weight, None), alpha=alpha)
    return total.addmm_(x, weight.T, alpha=alpha)


def product(x: Tensor, weight: Tensor, out: Tensor, *, again: bool = False) -> Tensor:
    """Write ``x weight^T`` to `out`, ``(M, N)``; without gradients. `again` as of `linear`."""
    if pays(x, weight):
        return out.copy_(linear(x, weight, again=again))
    return torch.mm(x, weight.T, out=out)


def each_linear(x: Tensor, weights: Tensor) -> Tensor:
    """Return ``x weight^T`` of each instance with a weight of its own, ``(B, M, K)`` and ``(B, N, K)`` to ``(B, M, N)``."""
    if torch.is_grad_enabled() and pays(x[0], weights[0]):
        return torch.stack([linear(one, weight) for one, weight in zip(x, weights, strict=True)])
    if not _each_pays(x, weights):
        return torch.bmm(x, weights.transpose(1, 2))
    made = [filled_up(one, weight, None) for one, weight in zip(x, weights, strict=True)]
    return made[0][None] if len(made) == 1 else torch.stack(made)


def add_each(total: Tensor, x: Tensor, weights: Tensor) -> Tensor:
    """Add what `each_linear` returns to `total`, ``(B, M, N)``, in place; without gradients."""
    if _each_pays(x, weights):
        return total.add_(each_linear(x, weights))
    return total.baddbmm_(x, weights.transpose(1, 2))


def _each_pays(x: Tensor, weights: Tensor) -> bool:
    """Tell whether oneDNN is given products whose sides do not all repeat by themselves."""
    return pays(x[0], weights[0]) and all(n == coarse(n) for n in (*x.shape[1:], weights.shape[1]))


@functools.lru_cache(2**16)
def coarse(rows: int) -> int:
    """Return the least number of rows that oneDNN is given for so many."""
    step = max(1, 1 << max(0, rows - 1).bit_length() >> STEPS.bit_length())
    return -(-rows // step) * step


def filled_up(x: Tensor, weight: Tensor, bias: Tensor | None, then: str = "none") -> Tensor:
    """Return what `called` does of any ``(..., K)``, whose rows are filled up as oneDNN is given them."""
    rows = x.numel() // x.shape[-1]
    wanted = coarse(rows)
    if wanted == rows:
        return called(x, weight, bias, then)
    return called(_with_rows(x, rows, wanted), weight, bias, then)[:rows].view(*x.shape[:-1], -1)


def _with_rows(x: Tensor, rows: int, wanted: int) -> Tensor:
    """Return `x` as a matrix with more rows: what follows it in memory, if anything, for nobody reads what comes of it."""
    inner = x.numel() // rows
    if _has_room(x, wanted * inner):
        return x.as_strided((wanted, inner), (inner, 1))
    made = x.new_empty(wanted, inner)
    made[:rows].view(x.shape).copy_(x)
    made[rows:].zero_()
    return made


def _has_room(x: Tensor, numbers: int) -> bool:
    """Tell whether so many numbers may be read from where `x` begins."""
    return x.is_contiguous() and 4 * (x.storage_offset() + numbers) <= x.untyped_storage().nbytes()


def roomy(x: Tensor) -> Tensor:
    """Return tokens ``(B, T, ...)`` in memory where `linear` need not copy them to fill up their rows; without gradients."""
    rows = x.shape[0] * x.shape[1]
    wanted = coarse(rows)
    if wanted == rows or not (faster() and x.is_cpu and x.dtype is torch.float32):
        return x
    if _has_room(x, wanted * (x.numel() // rows)):
        return x
    return _with_rows(x, rows, wanted)[:rows].view(x.shape)


def filled(*parts: Tensor) -> Tensor:
    """Return tokens ``(B, T, W)`` as a matrix whose rows, with some of zeros, are as many as `linear` need not fill up.

    Of several parts, which follow each other along the second axis, they are joined.
    """
    batch, width = parts[0].shape[0], parts[0].shape[2]
    tokens = sum(part.shape[1] for part in parts)
    rows = batch * tokens
    made = parts[0].new_empty(coarse(rows) if faster() else rows, width)
    room = made[:rows].view(batch, tokens, width)
    if len(parts) == 1:
        room.copy_(parts[0])
    else:
        torch.cat(parts, dim=1, out=room)
    made[rows:].zero_()
    return made


def called(x: Tensor, weight: Tensor, bias: Tensor | None = None, then: str = "none") -> Tensor:
    """Return ``x weight^T + bias``, with ``relu`` rectified, as `linear` does where `pays` holds, and ask nothing."""
    made: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, then, [], "")
    return made


def called_onto(total: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return ``total + x weight^T + bias``, ``(M, N)``, and ask nothing."""
    made: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, total, weight, bias, "add")
    return made


class _Linear(torch.autograd.Function):
    """oneDNN's product, and its derivatives by the same.

    Numbers of rows are not filled up: training comes back to each, and the copies that filling takes are dearer there.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return called(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outer: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        by_x, by_weight, by_bias = ctx.needs_input_grad
        rows = outer.reshape(-1, outer.shape[-1])
        return (
            _by_rows(outer, weight.T) if by_x else None,
            _summed(rows, x.reshape(-1, x.shape[-1])) if by_weight else None,
            rows.sum(0) if by_bias else None,
        )


class _FeedForward(torch.autograd.Function):
    """Two of oneDNN's products with ReLU or GELU between them, whose derivative takes the memory of what it is given."""

    @staticmethod
    def forward(
        ctx: Any,
        gelu: bool,
        x: Tensor,
        inner: Tensor,
        inner_bias: Tensor | None,
        outer: Tensor,
        bias: Tensor | None,
    ) -> Tensor:
        before = called(x, inner, inner_bias)
        # oneDNN's own ReLU makes 0 of what is not a number, and nobody would see that training diverges.
        hidden = F.gelu(before) if gelu else F.relu_(before)
        ctx.gelu = gelu
        ctx.save_for_backward(x, before, hidden, inner, outer)
        return called(hidden, outer, bias) if pays(hidden, outer) else F.linear(hidden, outer, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> Any:
        x, before, hidden, inner, outer = ctx.saved_tensors
        rows, before, hidden = (
            slope.reshape(-1, slope.shape[-1]),
            before.flatten(0, -2),
            hidden.flatten(0, -2),
        )
        back = _by_rows(rows, outer.T)
        if ctx.gelu:
            torch.ops.aten.gelu_backward.grad_input(back, before, grad_input=back)
        else:
            torch.ops.aten.threshold_backward.grad_input(back, before, 0, grad_input=back)
        return (
            None,
            _by_rows(back, inner.T).view(x.shape) if ctx.needs_input_grad[1] else None,
            _summed(back, x.flatten(0, -2)),
            back.sum(0) if ctx.needs_input_grad[3] else None,
            _summed(rows, hidden),
            rows.sum(0) if ctx.needs_input_grad[5] else None,
        )


def _by_rows(x: Tensor, weight: Tensor) -> Tensor:
    return called(x, weight, None) if pays(x, weight) else F.linear(x, weight)


def _summed(left: Tensor, right: Tensor) -> Tensor:
    """Return ``left^T right``; oneDNN is quicker with the narrower one in front."""
    if left.shape[1] > right.shape[1]:
        return _summed(right, left).T
    if not _suits(left.T, right.T):
        return left.T @ right
    return called(left.T, right.contiguous().T, None)


class Linear(nn.Linear):
    """A linear map by `linear`."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


def adopt(network: nn.Module) -> nn.Module:
    """Give the linear maps of a network the faster product, where there is one; returns the network."""
    if faster():
        for module in network.modules():
            if type(module) is nn.Linear:
                module.__class__ = Linear
    return network

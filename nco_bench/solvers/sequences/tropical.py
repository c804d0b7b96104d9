"""Tropical attention (Hashemi et al., 2025): max-plus projections, Hilbert metric scores, max-plus aggregation.

On the CPU in float32 compiled loops do the work (`max_plus_kernels`), elsewhere torch in blocks of queries; both give the
same numbers. Of equal maxima the loops give the first the whole gradient, as the first version of the official kernel did;
torch shares it among them, as the second does. Neither holds the ``(G, N, N, C)`` tensor of the plain formulas.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nco_bench.nn.device import PerDevice, on_cpu

BLOCK_ENTRIES = PerDevice(cpu=2**22, gpu=2**26)
"""Differences ``q_ic - k_jc`` that the torch path holds at once."""

KERNELS = importlib.util.find_spec("numba") is not None
"""Whether compiled loops are to be had."""


def _block_entries(x: Tensor) -> int:
    return BLOCK_ENTRIES.on(x.device)


FLOOR = torch.finfo(torch.float32).tiny
"""Stands for 0 in log(relu(x)), whose -inf would make distances of tokens without any positive channel not a number."""


def tropicalise(x: Tensor, plain: bool = False) -> Tensor:
    """Map to tropical space: ``log(1 + relu(x))``, the repository's; `plain` for the paper's ``log(relu(x))``."""
    return x.clamp(min=FLOOR).log() if plain else torch.log1p(torch.relu(x))


def devalue(context: Tensor, plain: bool = False) -> Tensor:
    """Map back: ``exp(context) - 1``, or `plain` ``exp(context)``: the inverse of `tropicalise` on what is positive."""
    return context.exp() if plain else torch.expm1(context)


def max_plus(u: Tensor, weight: Tensor) -> Tensor:
    """Return the max-plus product ``out_o = max_j (u_j + weight_oj)``.

    Parameters
    ----------
    u
        ``(..., J)``.
    weight
        ``(O, J)``.

    Returns
    -------
    Tensor
        ``(..., O)``.
    """
    rows = u.reshape(-1, u.shape[-1])
    if _compiled(u, weight):
        out: Tensor = _Projection.apply(rows, weight)
    else:
        block = max(1, _block_entries(u) // weight.numel())
        out = torch.cat([(part[:, None] + weight).amax(-1) for part in rows.split(block)])
    return out.view(*u.shape[:-1], weight.shape[0])


def hilbert_scores(q: Tensor, k: Tensor, symmetric: bool = True) -> Tensor:
    """Return minus the tropical Hilbert distances of queries and keys, ``(..., N, C)`` each, as ``(..., N, M)``.

    Parameters
    ----------
    symmetric
        ``max_c d_c - min_c d_c`` of ``d = q_i - k_j``; else the asymmetric distance ``sum_c d_c - C min_c d_c``.
    """
    rows = max(1, _block_entries(q) // max(1, k.numel()))
    return torch.cat([_scores(part, k, symmetric) for part in q.split(rows, dim=-2)], dim=-2)


def _scores(q: Tensor, k: Tensor, symmetric: bool) -> Tensor:
    delta = q[..., :, None, :] - k[..., None, :, :]
    if symmetric:
        return delta.amin(-1) - delta.amax(-1)
    return q.shape[-1] * delta.amin(-1) - delta.sum(-1)


def aggregate(scores: Tensor, v: Tensor) -> Tensor:
    """Return the max-plus product ``C_ic = max_j (S_ij + v_jc)``: ``(..., N, M)`` and ``(..., M, C)``."""
    rows = max(1, _block_entries(v) // max(1, v.numel()))
    blocks = [(part[..., None] + v[..., None, :, :]).amax(-2) for part in scores.split(rows, dim=-2)]
    return torch.cat(blocks, dim=-2)


def attend(q: Tensor, k: Tensor, v: Tensor, symmetric: bool = True) -> Tensor:
    """Return the tropical contexts ``max_j (S_ij + v_jc)`` of ``(G, N, C)`` queries, keys and values.

    Memory grows with N, not with N^2, in the compiled loops; without them with N times the block.
    """
    if symmetric and _compiled(q, k, v):
        out: Tensor = _Attention.apply(q, k, v)
        return out
    rows = max(1, _block_entries(q) // max(1, k.numel()))
    return torch.cat([aggregate(_scores(part, k, symmetric), v) for part in q.split(rows, dim=-2)], dim=-2)


def _compiled(*tensors: Tensor) -> bool:
    """Tell whether the compiled loops take these: float32 on the CPU, inner dimension a multiple of 8."""
    return KERNELS and all(
        on_cpu(t.device) and t.dtype == torch.float32 and t.shape[-1] % 8 == 0 for t in tensors
    )


class _Projection(torch.autograd.Function):
    """`max_plus` of ``(R, J)`` by compiled loops."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, weight: Tensor) -> Tensor:
        from nco_bench.solvers.sequences import max_plus_kernels as kernels

        u, weight_t = u.contiguous(), weight.t().contiguous()
        out = torch.empty(u.shape[0], weight.shape[0])
        kernels.project_forward(u.detach().numpy(), weight_t.detach().numpy(), out.numpy())
        ctx.save_for_backward(u, weight_t, out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        from nco_bench.solvers.sequences import max_plus_kernels as kernels

        u, weight_t, out = (t.detach() for t in ctx.saved_tensors)
        grad_u, grad_weight = torch.zeros_like(u), torch.zeros(weight_t.shape[::-1])
        arrays = (grads[0].contiguous(), u, weight_t, out, grad_u, grad_weight)
        kernels.project_backward(*(t.numpy() for t in arrays))
        return grad_u, grad_weight


class _Attention(torch.autograd.Function):
    """`attend` by compiled loops."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        from nco_bench.solvers.sequences import max_plus_kernels as kernels

        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        out = torch.empty_like(q)
        kernels.attend_forward(*(t.detach().numpy() for t in (q, k, v, out)))
        ctx.save_for_backward(q, k, v, out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        from nco_bench.solvers.sequences import max_plus_kernels as kernels

        saved = [t.detach() for t in ctx.saved_tensors]
        results = tuple(torch.zeros_like(saved[0]) for _ in range(3))
        kernels.attend_backward(*(t.numpy() for t in (grads[0].contiguous(), *saved, *results)))
        return results


@dataclass(frozen=True)
class TropicalOptions:
    """Variants of the module.

    Attributes
    ----------
    linear_maps
        Bias-free q, k, v maps before the tropicalisation (``tropical-qkv``, the repository's models file).
    learned_shift
        Subtract a learned lambda per channel after it, as Algorithm 1 does with its lambda; Equation 2 subtracts each row's
        maximum instead, which nothing here does.
    projections
        Max-plus matrices for q, k and v, each of a head's channels by a head's channels and shared by the heads. Those of
        Definition 3.1 belong to one head and read all channels: 12,288 weights in place of 3,072 at width 64 with two heads.
    symmetric
        Hilbert metric; else its asymmetric relative.
    plain_log
        ``log(relu(x))`` and ``exp`` between the two spaces, as the paper writes; else ``log(1 + relu(x))`` and its
        inverse.
    """

    linear_maps: bool = False
    learned_shift: bool = False
    projections: bool = True
    symmetric: bool = True
    plain_log: bool = False


VARIANTS = {
    "": TropicalOptions(),
    "qkv": TropicalOptions(linear_maps=True, learned_shift=True),
    "algorithm-1": TropicalOptions(linear_maps=True, learned_shift=True, plain_log=True),
}
"""Networks that can be trained: the repository's kernel file, whose parameter count the paper prints; its models file,
which its training script uses; and the steps of the paper's Algorithm 1 (linear maps, log(ReLU(.)) - lambda, max-plus maps,
exp), which says nothing of heads, with those of the models file. None is Definition 3.1, see `projections`."""


class TropicalAttention(nn.Module):
    """Multi-head tropical attention with the scores and the aggregation of Definition 3.1.

    Maps in and out of tropical space and the heads, slices with max-plus matrices in common, are the repository's.
    """

    def __init__(self, width: int, heads: int, options: TropicalOptions | None = None) -> None:
        super().__init__()
        self.heads, self.options = heads, options or TropicalOptions()
        channels = width // heads
        if self.options.linear_maps:
            self.query = nn.Linear(width, width, bias=False)
            self.key = nn.Linear(width, width, bias=False)
            self.value = nn.Linear(width, width, bias=False)
        if self.options.learned_shift:
            self.shift = nn.Parameter(torch.ones(1, 1, width))
        if self.options.projections:
            self.tropical_query = nn.Parameter(torch.randn(channels, channels))
            self.tropical_key = nn.Parameter(torch.randn(channels, channels))
            self.tropical_value = nn.Parameter(torch.randn(channels, channels))
        self.out = nn.Linear(width, width, bias=False)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return tropical queries, keys and values ``(B * H, N, C)`` of tokens ``(B, N, D)``, instance by instance."""
        if self.options.linear_maps:
            q, k, v = (self._lift(layer(x)) for layer in (self.query, self.key, self.value))
        else:
            q = k = v = self._lift(x)
        if not self.options.projections:
            return q, k, v
        weights = (self.tropical_query, self.tropical_key, self.tropical_value)
        if q is k:  # one product for all three
            together = max_plus(q, torch.cat(weights))
            first, second, third = together.chunk(3, dim=-1)
            return first, second, third
        first, second, third = (max_plus(u, w) for u, w in zip((q, k, v), weights, strict=True))
        return first, second, third

    def _lift(self, x: Tensor) -> Tensor:
        u = tropicalise(x, self.options.plain_log)
        if self.options.learned_shift:
            u = u - self.shift
        return u.unflatten(-1, (self.heads, -1)).transpose(1, 2).flatten(0, 1)

    def weights(self, x: Tensor) -> Tensor:
        """Return what plots show: the scores ``(B, H, N, N)``, at most 0."""
        q, k, _ = self.project(x)
        return hilbert_scores(q, k, self.options.symmetric).unflatten(0, (-1, self.heads))

    def shares(self, x: Tensor) -> Tensor:
        """Return which share of a context's channels comes from each key, ``(B, H, N, N)``; rows sum to 1.

        This is to the max-plus aggregation what softmax weights are to a weighted sum.
        """
        q, k, v = self.project(x)
        scores = hilbert_scores(q, k, self.options.symmetric)
        found = torch.zeros_like(scores)
        share = scores.new_full((*scores.shape[:-1], 1), 1 / v.shape[-1])
        for channel in v.unbind(-1):
            found.scatter_add_(-1, (scores + channel[:, None]).argmax(-1, keepdim=True), share)
        return found.unflatten(0, (-1, self.heads))

    def key_norms(self, x: Tensor) -> Tensor:
        """Return the Euclidean norms of the keys, ``(B, H, N)``."""
        return self.project(x)[1].norm(dim=-1).unflatten(0, (-1, self.heads))

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens ``(B, N, D)`` to ``(B, N, D)``."""
        context = attend(*self.project(x), self.options.symmetric)
        merged = context.unflatten(0, (-1, self.heads)).transpose(1, 2).flatten(2)
        result: Tensor = self.out(devalue(merged, self.options.plain_log))
        return result

"""PENS's attention through FlexAttention: distances are computed inside the kernel, nothing of size N x N exists.

For GPUs, where it is compiled; on the CPU it runs uncompiled and serves to check that it computes what the blocked version
does. Off unless asked for with ``--param attention=flex``. Speed was not measured on a GPU in this version.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from nco_bench.nn.device import compiled_attention


@cache
def _compiled() -> Callable[..., Any]:
    return torch.compile(flex_attention, dynamic=True)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    slopes: Tensor,
    coords: Tensor,
    scale: float,
    real: Tensor | None = None,
) -> Tensor:
    """Attention with logits ``scale q.k - m_h D``.

    Parameters
    ----------
    query, key, value
        ``(B, H, T, K)``.
    slopes
        ``(H,)``, the m_h.
    coords
        ``(B, T, 2)``.
    scale
        Factor of the content logits.
    real
        ``(1, 1, 1, T)`` bool: no padding; None if there is none.
    """
    x, y = coords.unbind(-1)
    there = None if real is None else real.flatten()

    def minus_distance(logit: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        across, up = x[b, q] - x[b, k], y[b, q] - y[b, k]
        logit = logit - slopes[h] * torch.sqrt(across * across + up * up)
        return logit if there is None else torch.where(there[k], logit, -torch.inf)

    kernel = _compiled() if compiled_attention(query.device) else cast("Callable[..., Any]", flex_attention)
    return kernel(query, key, value, score_mod=minus_distance, scale=scale)

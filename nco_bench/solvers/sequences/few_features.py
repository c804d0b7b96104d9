"""The first layer of a softmax network whose tokens have a few features, in products over these alone.

The tokens that the layer sees are ``E x + e`` of F features x, 1 to 4 in the tasks, and up to the ReLU all but the softmax
and the norm's scale is linear, so that maps can be joined. Per head, with the maps Q, K, V and O of C channels:

- logits: ``(Q (E x_i + e)) . (K (E x_j + e)) / sqrt(C)`` is ``g_i . x_j`` plus what is the same for all j, which softmax
  does not see; ``g_i = (K E)^T Q (E x_i + e) / sqrt(C)`` has F numbers;
- context: ``sum_j p_ij O V (E x_j + e) = O V (E c_i + e)`` with the mean features ``c_i = sum_j p_ij x_j``;
- with adaptive temperature, the entropy of the weights p_i is ``log(sum_j exp(g_i . x_j)) - g_i . c_i``;
- token and attention together are ``T z_i``, where z_i holds x_i, the c_i of all heads and 1, P numbers. The norm subtracts
  the mean, which is a map of T, and divides by s_i, a number; so it is ``A z_i / s_i + b``;
- the feed-forward part is ``O' relu(I A z_i / s_i + ...) + ...``: its inner product has P terms in place of D.

Of the products of tokens with D x D and D x 4 D matrices only the last is left. Letters in shapes: B batch, N tokens, R all
of them, F features, D width, H heads, P as above.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nco_bench.nn.device import on_cpu
from nco_bench.solvers.sequences.softmax import SoftmaxAttention, inverse_temperature

if TYPE_CHECKING:
    from nco_bench.solvers.sequences.task_networks import EncoderLayer

CHANNELS = 4
"""Per feature a head must have so many channels for the joined maps to pay."""

SHORT = 32
"""Tokens below which rows of weights are too short for vector instructions, so that weights lie one below the other."""

ROWS_AT_A_TIME = 1024
"""Tokens whose hidden values fit the processor's cache."""


def pays(x: Tensor, layer: EncoderLayer) -> bool:
    """Tell whether `first_layer` is for features ``(B, N, F)``: on the CPU, in full precision, where they are few."""
    attention = layer.attention
    return (
        isinstance(attention, SoftmaxAttention)
        and not layer.pre_norm
        and on_cpu(x.device)
        and not torch.is_autocast_enabled("cpu")
        and CHANNELS * attention.heads * x.shape[2] <= attention.query.in_features
    )


def first_layer(x: Tensor, embed: nn.Linear, layer: EncoderLayer) -> Tensor:
    """Return ``layer(embed(x))``, ``(B, N, F)`` to ``(B, N, D)``."""
    batch, tokens, features = x.shape
    attention = layer.attention
    assert isinstance(attention, SoftmaxAttention)
    asking, told = joined(embed, attention)
    rows = x.reshape(-1, features)
    queries = torch.addmm(asking[-1], rows, asking[:-1]).view(batch, tokens * attention.heads, features)
    means = mean_features(queries, x, attention.adaptive).reshape(len(rows), -1)
    z = torch.cat([rows, means, rows.new_ones(len(rows), 1)], dim=1)
    return second_part(z, told, layer).view(batch, tokens, -1)


def joined(embed: nn.Linear, attention: SoftmaxAttention) -> tuple[Tensor, Tensor]:
    """Join the embedding with the maps of the attention.

    Returns
    -------
    tuple
        The map from a token's features and 1 to ``g`` of all heads, ``(F + 1, H F)``, and T, ``(P, D)``.
    """
    width, heads, features = embed.out_features, attention.heads, embed.in_features
    with_bias = torch.cat([embed.weight, embed.bias[:, None]], dim=1)
    query = (attention.query.weight @ with_bias).view(heads, -1, features + 1)
    key = (attention.key.weight @ embed.weight).view(heads, -1, features)
    value = (attention.value.weight @ with_bias).view(heads, -1, features + 1)
    asking = (query.mT @ key).transpose(0, 1).flatten(1) / math.sqrt(width // heads)
    mixed = value.mT @ attention.out.weight.T.view(heads, -1, width)  # (H, F + 1, D)
    constant = embed.bias + mixed[:, -1].sum(0)
    return asking, torch.cat([embed.weight.T, mixed[:, :-1].flatten(0, 1), constant[None]])


def mean_features(queries: Tensor, x: Tensor, adaptive: bool) -> Tensor:
    """Return the mean features that queries ``(B, M, F)`` see of tokens ``(B, N, F)``, ``(B, M, F)``."""
    fused = x.shape[1] >= SHORT and not torch.is_grad_enabled()
    if fused and not adaptive:
        return _fused(queries, x)
    logits, axis = _logits(queries, x)
    if not adaptive:
        return _mean(logits.softmax(axis), x, axis)
    weights, sums = _with_sums(logits, axis)
    queries = queries * inverse_temperature(sums - (queries * _mean(weights, x, axis)).sum(2))[..., None]
    if fused:
        return _fused(queries, x)
    logits, axis = _logits(queries, x)
    return _mean(logits.softmax(axis), x, axis)


def _logits(queries: Tensor, x: Tensor) -> tuple[Tensor, int]:
    """Return logits, and the axis of the keys, which comes first where there are few."""
    return (dot(x, queries.mT), 1) if x.shape[1] < SHORT else (dot(queries, x.mT), 2)


def _with_sums(logits: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Return softmax weights, and the logarithms of the sums of exponentials over the axis, without it."""
    if torch.is_grad_enabled():  # one entry of a row says its sum, and its gradient is one entry's
        logs = logits.log_softmax(axis)
        return logs.exp(), logits.select(axis, 0) - logs.select(axis, 0)
    weights = logits.softmax(axis)
    # The largest weight is exp(largest logit) / sum: no second round of exponentials.
    return weights, logits.amax(axis) - weights.amax(axis).log()


def _mean(weights: Tensor, x: Tensor, axis: int) -> Tensor:
    return (x.mT @ (weights if axis == 1 else weights.mT)).mT


def _fused(queries: Tensor, x: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(queries[:, None], x[:, None], x[:, None], scale=1.0)[:, 0]


def dot(left: Tensor, right: Tensor) -> Tensor:
    """Return ``left @ right``, ``(B, I, F)`` and ``(B, F, J)``, feature by feature: products with so short sums are slow."""
    total = left[:, :, :1] * right[:, :1]
    for feature in range(1, left.shape[2]):
        total = torch.addcmul(total, left[:, :, feature, None], right[:, feature, None])
    return total


def second_part(z: Tensor, told: Tensor, layer: EncoderLayer) -> Tensor:
    """Return ``layer.second_part(z @ told)``, ``(R, P)`` to ``(R, D)``."""
    norm, (inner, outer) = layer.norm1, layer.maps()
    centred = told - told.mean(1, keepdim=True)
    normed = centred * norm.weight
    # What is added to every token is one more term of the products. Rows of these maps lie in one piece: products of few
    # terms are up to six times as slow, forwards or backwards, where their columns do.
    into = torch.cat([normed @ inner.weight.T, (inner.weight @ norm.bias + inner.bias)[None]])
    past = torch.cat([normed, (norm.bias + outer.bias)[None]])
    found = []
    # With gradients all hidden values are kept anyway, and those of the maps would be added up part by part.
    for part in (z,) if torch.is_grad_enabled() else z.split(ROWS_AT_A_TIME):
        spread = (part @ centred).square().mean(1, keepdim=True)
        scaled = torch.cat([part * (spread + norm.eps).rsqrt(), part[:, -1:]], dim=1)
        hidden = (scaled @ into).relu_()
        found.append(layer.norm2((scaled @ past).addmm_(hidden, outer.weight.T)))
    return torch.cat(found) if len(found) > 1 else found[0]

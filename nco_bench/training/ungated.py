"""LEHD's network out of a decoder-only one's, which differs from its decoder in two things: gates, and ReZero's factors.

"Efficient Decoder Scaling Strategy" (appendix B) starts from LEHD, leaves out the encoder, multiplies what attention has
read by a gate, ``sigmoid(X W_G)``, and each branch by a learned factor. The way back: factors are multiplied into the
branch's last map; that of attention is fitted by least squares, layer after layer, to what the gated layer adds to nodes
drawn at random (uniform, as the paper's instances); the encoder begins as the identity. What comes out is no more than a
start, since no linear map is a gate: from decoder-6x128's weights a LEHD of some 14 % on TSP-100, which learns from there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from nco_bench.nn.layers import SelfAttention, attend_side_by_side
from nco_bench.solvers.path.decoder_only import DecoderLayer, DecoderOnly, DecoderOnlyConfig, GatedAttention
from nco_bench.solvers.path.lehd import Layer, Lehd

SIZES = (8, 16, 26, 38, 50, 62, 74, 86, 96, 100)
"""Tokens of the problems that the maps are fitted on."""
PROBLEMS = 160
"""Of each size."""
RIDGE = 1e-3
"""How much the maps are held at those that the mean gate gives, as a share of the mean square of what attention reads."""


def fits(decoder: DecoderOnlyConfig, lehd: Lehd) -> bool:
    """Tell whether the layers of a decoder-only network have the shapes of a LEHD's for the TSP."""
    own = lehd.config
    wanted = (own.width, own.heads, own.head_dim, own.ffn, own.decoder_layers, own.problem)
    return wanted == (decoder.width, decoder.heads, decoder.head_dim, decoder.ffn, decoder.depth, "tsp")


@torch.no_grad()
def ungated(decoder: DecoderOnly, lehd: Lehd) -> dict[str, Tensor]:
    """Return a LEHD's state that comes near what a decoder computes.

    Parameters
    ----------
    decoder
        The trained network.
    lehd
        One that `fits`; its encoder's first maps, which have no part in anything yet, are kept. Changed.
    """
    for name in ("embedding", "score"):
        getattr(lehd, name).load_state_dict(getattr(decoder, name).state_dict())
    lehd.first.load_state_dict(decoder.start.state_dict())
    lehd.last.load_state_dict(decoder.current.state_dict())
    for layer in cast("list[Layer]", lehd.encoder):
        for last in (layer.attention.out, layer.feed_forward.outer):
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)
    drawn = torch.Generator().manual_seed(0)
    theirs = [_tokens(decoder, torch.rand(PROBLEMS, tokens, 2, generator=drawn)) for tokens in SIZES]
    ours = [x.clone() for x in theirs]
    layers = cast("list[Layer]", lehd.decoder)
    for gated, plain in zip(cast("list[DecoderLayer]", decoder.layers), layers, strict=True):
        _fit(gated, plain, theirs, ours)
    for plain in layers:
        _balance(plain)
    return lehd.state_dict()


def _tokens(decoder: DecoderOnly, coords: Tensor) -> Tensor:
    """Return the tokens of open problems whose origin is the first node and whose destination is the last."""
    x = decoder.embedding(coords)
    return torch.cat([decoder.start(x[:, -1:]), x[:, 1:-1], decoder.current(x[:, :1])], dim=1)


def _fit(gated: DecoderLayer, plain: Layer, theirs: list[Tensor], ours: list[Tensor]) -> None:
    """Fit one layer of ours to one of theirs, and take all tokens, ``(B, T, W)`` each, through both."""
    alpha, out = float(gated.alpha_attention), gated.attention.out
    plain.attention.qkv.load_state_dict(gated.attention.qkv.state_dict())
    gates = [_gates(gated, x) for x in theirs]
    wanted = [
        x + alpha * gate * out(_read(gated.attention, x)) for x, gate in zip(theirs, gates, strict=True)
    ]
    inputs = [_read(plain.attention, x) for x in ours]
    missing = [there - here for there, here in zip(wanted, ours, strict=True)]
    mean = alpha * _rows(gates).mean(dim=0)
    start = torch.cat([mean[:, None] * out.weight.double(), (mean * out.bias)[:, None].double()], dim=1)
    found = _ridge(_rows(inputs), _rows(missing), start)
    plain.attention.out.weight.copy_(found[:, :-1])
    plain.attention.out.bias.copy_(found[:, -1])
    inner, outer = plain.feed_forward.inner, plain.feed_forward.outer
    inner.load_state_dict(gated.ffn_in.state_dict())
    outer.weight.copy_(gated.ffn_out.weight * gated.alpha_ffn)
    outer.bias.copy_(gated.ffn_out.bias * gated.alpha_ffn)
    for i, (there, here, read) in enumerate(zip(wanted, ours, inputs, strict=True)):
        theirs[i] = there + gated.alpha_ffn * gated.ffn_out(gated.ffn_in(there).relu())
        attended = here + plain.attention.out(read)
        ours[i] = attended + plain.feed_forward(attended)


def _gates(layer: DecoderLayer, x: Tensor) -> Tensor:
    gate = layer.attention.gate
    return torch.ones_like(x) if gate is None else torch.sigmoid(gate(x))


def _read(attention: SelfAttention | GatedAttention, x: Tensor) -> Tensor:
    """Return what attention reads from tokens, ``(B, T, H K)``, before its last map."""
    return attend_side_by_side((attention.qkv(x),), attention.heads, 1 / math.sqrt(attention.head_dim))


def _ridge(inputs: Tensor, outputs: Tensor, start: Tensor) -> Tensor:
    """Return the linear map with its bias as last column, ``(W, H K + 1)``, that least squares give near `start`."""
    inputs = torch.cat([inputs, inputs.new_ones(len(inputs), 1)], dim=1).double()
    products = inputs.T @ inputs
    ridge = RIDGE * products.diagonal()[:-1].mean()
    held = products + ridge * torch.eye(len(products), dtype=products.dtype)
    return torch.linalg.solve(held, inputs.T @ outputs.double() + ridge * start.T).T


def _rows(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat([part.flatten(0, 1) for part in parts])


def _balance(layer: Layer) -> None:
    """Share factors between the two maps of each branch, so that a rate moves both alike; the layer computes the same."""
    values = layer.attention.qkv.weight.chunk(3)[2]
    _share(values, layer.attention.out.weight)
    inner, outer = layer.feed_forward.inner, layer.feed_forward.outer
    inner.bias.mul_(_share(inner.weight, outer.weight))


def _share(first: Tensor, then: Tensor) -> Tensor:
    """Give two matrices the same mean square without changing their product; return by what the first was multiplied.

    A branch of factor 0, as ReZero begins with and grown layers have, stays as it is.
    """
    factor = (then.norm() / then.numel() ** 0.5 / (first.norm() / first.numel() ** 0.5)).sqrt()
    if not factor:
        return torch.ones_like(factor)
    first.mul_(factor)
    then.div_(factor)
    return factor

"""Decoder-only TSP policy of "Efficient Decoder Scaling Strategy for Neural Routing Solvers" (2026), appendix B.

No official code is published. What the paper leaves open is chosen so that all twelve parameter counts of its Table 1
come out (two of them to 0.01 M): no bias on queries, keys and values; biases everywhere else. Choices that
the counts do not fix: ReLU in the feed-forward layers (as in LEHD, which the paper starts from); the start token
plays the role of the destination in segment re-construction, as in LEHD; four heads in the networks of width 64 and 32
(24x64, 96x32; LEHD of width 64 too), for Table 2 and appendix I give depth and width alone.

Open in the decoding: tours begin at node 0; a beam search returns the shortest tour of its last beam, as BQ-NCO's does; n of
log(n) stays that of the instance where RRC rebuilds a segment; TSPLIB's coordinates are shifted to 0 and divided by the
longer side.

Letters in shapes: B batch, M candidates, T = M + 2 tokens, W width, H heads, K head width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from nco_bench.errors import UnknownNameError
from nco_bench.nn import packed
from nco_bench.nn.device import exact
from nco_bench.nn.filled import Filled, pays
from nco_bench.nn.layers import (
    add_feed_forward,
    attend,
    attend_side_by_side,
    score_feed_forward,
    works_in_place,
)
from nco_bench.nn.logit_scale import LogitScale, ScaleContext, log_ratio
from nco_bench.nn.products import roomy
from nco_bench.solvers.path.policy import AuxiliaryTokens, PathNodes, PathPolicy, PathState


@dataclass(frozen=True)
class DecoderOnlyConfig:
    """One configuration of Table 1, with the ablations of appendix B.

    Attributes
    ----------
    depth, width
        Number of decoder layers and width of the node embeddings.
    heads, head_dim
        Attention heads and width of each query, key and value.
    ffn
        Hidden width of the feed-forward layers.
    gate
        Gated attention: the attention output is multiplied by a sigmoid gate (appendix B).
    rezero
        Residual branches are weighted by scalars that start at 0 (Bachlechner et al. 2021).
    training_size
        Instance size the weights were trained on; the log(n) scale is 1 there.
    """

    depth: int = 6
    width: int = 128
    heads: int = 8
    head_dim: int = 16
    ffn: int = 512
    gate: bool = True
    rezero: bool = True
    training_size: int = 100


def table_1(depth: int, width: int) -> DecoderOnlyConfig:
    """Return the configuration of Table 1 (or 24x64, 96x32 of Table 2, whose heads are ours) with this depth and width."""
    heads = {32: 4, 64: 4, 128: 8, 256: 16, 512: 16}[width]
    head_dim = {32: 8, 64: 16, 128: 16, 256: 16, 512: 32}[width]
    return DecoderOnlyConfig(depth, width, heads, head_dim, ffn=4 * width)


def config_for(name: str, problem: str) -> DecoderOnlyConfig:
    """Return the configuration of a registered name, ``decoder-DEPTHxWIDTH``."""
    if problem != "tsp":
        raise UnknownNameError(f"problem of {name}", problem, ["tsp"])
    depth, width = name.removeprefix("decoder-").split("x")
    return table_1(int(depth), int(width))


class GatedAttention(nn.Module):
    """Multi-head self-attention whose output is gated: MHA(X) * sigmoid(X W_G) (appendix B)."""

    def __init__(self, config: DecoderOnlyConfig) -> None:
        super().__init__()
        self.heads, self.head_dim = config.heads, config.head_dim
        inner = config.heads * config.head_dim
        self.qkv = nn.Linear(config.width, 3 * inner, bias=False)
        self.out = nn.Linear(inner, config.width)
        self.gate = nn.Linear(config.width, config.width) if config.gate else None

    def added(
        self,
        x: Tensor,
        scale: float | Tensor,
        alpha: float | Tensor,
        maps: Tensor | None = None,
        real: Tensor | None = None,
    ) -> Tensor:
        """Return `x` plus `alpha` times its attention to itself, ``(B, T, W)``; `x` is overwritten where `works_in_place`.

        Parameters
        ----------
        x, scale, alpha
            Tokens; factors of the logits and of the residual branch.
        maps
            Queries, keys, values and gates side by side where they are known, see `mapped`.
        real
            As in `layers.attend`.
        """
        x = roomy(x) if works_in_place(x) else x
        inner = 3 * self.heads * self.head_dim
        packed, gates = (
            (self.qkv(x), None) if maps is None else maps.split([inner, maps.shape[2] - inner], dim=2)
        )
        mixed = self.out(attend_side_by_side((packed,), self.heads, scale / math.sqrt(self.head_dim), real))
        if self.gate is None:
            return x + alpha * mixed
        gates = self.gate(x) if gates is None else gates
        if works_in_place(x):
            return x.addcmul_(mixed, gates.sigmoid(), value=float(alpha))
        return x + alpha * (mixed * torch.sigmoid(gates))

    def add(self, tokens: Filled, scale: float | Tensor, alpha: float, real: Tensor | None) -> None:
        """Do what `added` does."""
        query, key, value = tokens.parts(self.qkv, self.heads)
        read = tokens.read(attend(query, key, value, scale / math.sqrt(self.head_dim), real))
        mixed = packed.mapped(read, self.out)
        if self.gate is None:
            tokens.matrix = tokens.matrix + alpha * mixed
            return
        gates = packed.mapped(tokens.matrix, self.gate)
        tokens.matrix.addcmul_(mixed, gates.sigmoid_(), value=alpha)

    def mapped(self, x: Tensor) -> Tensor:
        """Return queries, keys, values and gates of tokens, side by side."""
        parts = [self.qkv(x)] if self.gate is None else [self.qkv(x), self.gate(x)]
        return torch.cat(parts, dim=-1)


class DecoderLayer(nn.Module):
    """H + alpha_1 GatedAttn(H), then H + alpha_2 FFN(H); no normalisation (appendix B)."""

    def __init__(self, config: DecoderOnlyConfig) -> None:
        super().__init__()
        self.attention = GatedAttention(config)
        self.ffn_in = nn.Linear(config.width, config.ffn)
        self.ffn_out = nn.Linear(config.ffn, config.width)
        self.alpha_attention = nn.Parameter(torch.zeros(())) if config.rezero else 1.0
        self.alpha_ffn = nn.Parameter(torch.zeros(())) if config.rezero else 1.0

    def forward(
        self, x: Tensor, scale: float | Tensor, maps: Tensor | None = None, real: Tensor | None = None
    ) -> Tensor:
        """Transform tokens, ``(B, T, W)`` to ``(B, T, W)``; the input may be overwritten (`works_in_place`)."""
        x = self.attention.added(x, scale, self.alpha_attention, maps, real)
        return add_feed_forward(x, self.ffn_in, self.ffn_out, self.alpha_ffn)

    def scored(
        self,
        x: Tensor,
        scale: float | Tensor,
        score: nn.Linear,
        maps: Tensor | None = None,
        real: Tensor | None = None,
    ) -> Tensor:
        """Score the tokens between the first and the last, as ``score(self(x))`` would."""
        x = self.attention.added(x, scale, self.alpha_attention, maps, real)
        return score_feed_forward(x, self.ffn_in, self.ffn_out, score, self.alpha_ffn)[:, 1:-1]


class DecoderOnly(nn.Module, PathPolicy):
    """The whole policy: a linear embedding, `depth` decoder layers over the remaining nodes, a linear score."""

    problem = "tsp"
    masks = True

    def __init__(self, config: DecoderOnlyConfig, logit_scale: LogitScale = log_ratio) -> None:
        super().__init__()
        self.config = config
        self.logit_scale = logit_scale
        self.embedding = nn.Linear(2, config.width)
        self.start = nn.Linear(config.width, config.width)
        self.current = nn.Linear(config.width, config.width)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.depth))
        self.score = nn.Linear(config.width, 1)

    def embed(self, nodes: PathNodes) -> Tensor:
        """Embed raw coordinates, ``(B, N, 2)`` to ``(B, N, W)``.

        Where nothing is learned, on the CPU, what the first layer makes of each node follows: ``(B, N, W + 3 H K + W)``. A
        candidate's row never changes, and copying it from step to step costs less than mapping it anew.
        """
        x = self.embedding(nodes.coords)
        if not works_in_place(x):
            return x
        return torch.cat([x, self._first.attention.mapped(x)], dim=2)

    def scores(self, state: PathState) -> Tensor:
        """Score the candidates of the current node, ``(B, M)``."""
        features, width = state.features, self.config.width
        # X = [h'_start, h_available, h'_current]: the start is where the tour must return to.
        with exact(features.device):  # bfloat16 would lose where they are
            start, current = self.start(features[:, -1:, :width]), self.current(features[:, :1, :width])
        x = torch.cat([start, features[:, 1:-1, :width], current], dim=1)
        maps = None
        if features.shape[2] > width:
            ends = self._first.attention.mapped(torch.cat([start, current], dim=1))
            maps = torch.cat([ends[:, :1], features[:, 1:-1, width:], ends[:, 1:]], dim=1)
        scale, real = self.factor_at(state), state.real()
        # Training may want the tokens behind the last layer, too (`auxiliary_tokens`).
        if torch.is_grad_enabled():
            for layer in self.layers:
                x, maps = layer(x, scale, maps, real), None
            return self.score(x[:, 1:-1]).squeeze(-1)
        return self._scored(x, scale, maps, real).squeeze(-1)

    def _scored(self, x: Tensor, scale: float | Tensor, maps: Tensor | None, real: Tensor | None) -> Tensor:
        """Score tokens ``(B, T, W)`` but the first and the last; `maps` as the first layer takes them."""
        *layers, last = (cast("DecoderLayer", layer) for layer in self.layers)
        for layer in layers[:1]:
            x, maps = layer(x, scale, maps, real), None
        if maps is not None or not pays(x, last.attention.out, layers[1:]):
            for layer in layers[1:]:
                x = layer(x, scale, None, real)
            return last.scored(x, scale, self.score, maps, real)
        tokens = Filled(x)
        for layer in layers[1:]:
            layer.attention.add(tokens, scale, float(layer.alpha_attention), real)
            tokens.feed_forward(layer.ffn_in, layer.ffn_out, float(layer.alpha_ffn))
        last.attention.add(tokens, scale, float(last.alpha_attention), real)
        block = last.ffn_in, last.ffn_out, self.score, last.alpha_ffn
        return score_feed_forward(tokens.whole, *block)[:, 1:-1]

    @property
    def _first(self) -> DecoderLayer:
        return cast("DecoderLayer", self.layers[0])

    def logit_factor(self, candidates: int, instance_size: int, *, closed: bool) -> float | Tensor:
        """Return the logit scale for candidates, start and current node."""
        config = self.config
        return self.logit_scale(
            ScaleContext(candidates + 2, instance_size, config.head_dim, config.training_size)
        )

    def auxiliary_tokens(self) -> AuxiliaryTokens:
        """Those of the last layer, in the order destination, between, origin."""
        return AuxiliaryTokens(self.layers[-1], ends=True)


def build(config: DecoderOnlyConfig, logit_scale: LogitScale | None = None) -> DecoderOnly:
    """Build the policy with fresh weights; ReZero makes an untrained one ignore attention."""
    return DecoderOnly(config, logit_scale or log_ratio)

"""What a layer of SIT does to a piece of the tokens, for `sit_streaming`.

Letters in shapes: B batch, C tokens of a piece, R representatives, W width, H heads, K head width, U raw inputs and a 1.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nco_bench.nn import packed, products
from nco_bench.nn.products import add_each, add_product, each_linear, linear

if TYPE_CHECKING:
    from nco_bench.solvers.path.sit import Layer

Average = tuple[Tensor, Tensor | None]
"""Averages of tokens by all probes, ``(B, H R, W)``, and their log-sums, ``(B, H R)``: None where no others are joined."""

FAR_BELOW = -1e30
"""Logits of padding: the exponential of their distance to any other is 0."""


@dataclass(frozen=True)
class Piece:
    """What passes a layer together: some `whole` instances, or some tokens of the only one."""

    rows: slice
    columns: slice
    whole: bool


@dataclass(frozen=True)
class Raw:
    """What the tokens are made from.

    Attributes
    ----------
    inputs
        ``(B, T, U)``: (x, y, demand, 1) of the candidates, zeros for the representatives.
    embedding
        ``(U, W)``: the linear map that embeds them.
    few
        ``(B, R, W)``: the representatives.
    count
        Tokens behind so many are padding.
    real
        ``(1, T)`` bool: no padding; None if `count` says all.
    """

    inputs: Tensor
    embedding: Tensor
    few: Tensor
    count: int
    real: Tensor | None = None

    def without_padding(self, logits: Tensor, piece: Piece) -> Tensor:
        """Leave padding out of logits ``(B, H R, C)`` of some tokens, in place.

        The log-sum of a chunk that is nothing but padding is finite, and counts for nothing.
        """
        if self.real is not None:
            logits.masked_fill_(~self.real[:, piece.columns], FAR_BELOW)
        elif piece.columns.stop > self.count:
            logits[:, :, max(0, self.count - piece.columns.start) :] = FAR_BELOW
        return logits

    def logits(self, probes: Tensor, piece: Piece) -> Tensor:
        """Products of some tokens with all probes of their instances, ``(B, C, H R)``."""
        probes = probes[piece.rows]
        logits = self.inputs[piece.rows, piece.columns] @ (probes @ self.embedding.T).transpose(1, 2)
        if piece.columns.start == 0:
            logits[:, : self.few.shape[1]] = self.few[piece.rows] @ probes.transpose(1, 2)
        return logits

    def pool(self, probes: Tensor, piece: Piece) -> Average:
        """Average the tokens that this makes by their softmaxes for all probes, as `Together.pool` does."""
        inputs, some = self.inputs[piece.rows, piece.columns], probes[piece.rows]
        logits = (some @ self.embedding.T) @ inputs.transpose(1, 2)
        if piece.columns.start == 0:
            logits[:, :, : self.few.shape[1]] = some @ self.few[piece.rows].transpose(1, 2)
        logits = self.without_padding(logits, piece)
        weights = torch.softmax(logits, dim=2)
        pooled = (weights @ inputs) @ self.embedding
        if piece.columns.start == 0:
            pooled += weights[..., : self.few.shape[1]] @ self.few[piece.rows]
        return pooled, None if piece.whole else _log_sum(logits, weights)


def _log_sum(logits: Tensor, weights: Tensor) -> Tensor:
    return logits.amax(dim=2) - weights.amax(dim=2).log()


class Together:
    """What a layer does to some tokens of several instances, in place.

    Parameters
    ----------
    layer, few, scale
        It, the representatives ``(B, R, W)`` as it has made them, the factor of its logits.
    raw
        The tokens as they were before the first layer.
    first
        Whether they still are.
    following
        The next layer, which reads the tokens; None behind the last.
    """

    instances = sys.maxsize
    """That pass together, at most."""
    multiply = staticmethod(each_linear)

    def __init__(
        self, layer: Layer, few: Tensor, scale: float | Tensor, raw: Raw, first: bool, following: Layer | None
    ) -> None:
        self.layer, self.raw, self.first, self.block = layer, raw, first, layer.many_feed_forward
        self.reading, self.probes, self.answers = self._mapped(few, scale, following)

    def _mapped(
        self, few: Tensor, scale: float | Tensor, following: Layer | None
    ) -> tuple[Tensor | None, Tensor, Tensor]:
        """Return the next layer's probes, and probes and answers of this one's writing, ``(B, H R, W)`` each."""
        probes, answers = self.layer.writing.write(few, scale)
        # The first head carries the bias of the output map: its weights sum to 1 for every token.
        answers[:, : few.shape[1]] += self.layer.writing.out.bias
        self.threshold = -self.block.inner.bias
        self.bias = F.linear(self.block.inner.bias, self.block.outer.weight, self.block.outer.bias)
        reading = None if following is None else following.reading.probes(few, scale)
        return reading, probes, answers

    @staticmethod
    def read(layer: Layer, few: Tensor, pooled: Tensor) -> Tensor:
        """Give the representatives what they read, averages ``(B, H R, W)``, and their feed-forward block."""
        few = few + layer.reading.mixed(pooled)
        return few + layer.few_feed_forward(few)

    def written(self, tokens: Tensor, piece: Piece) -> Tensor:
        """Add what tokens ``(B, C, W)`` read from the representatives."""
        answers = self.answers[piece.rows].transpose(1, 2)
        return add_each(tokens, self._weights(tokens, piece), answers)

    def _weights(self, tokens: Tensor, piece: Piece) -> Tensor:
        """Attention weights of tokens to the representatives, ``(B, C, H R)``."""
        probes = self.probes
        logits = self.raw.logits(probes, piece) if self.first else self.multiply(tokens, probes[piece.rows])
        return torch.softmax(logits.unflatten(2, (self.layer.writing.heads, -1)), dim=3).flatten(2)

    def _hidden(self, rows: Tensor) -> Tensor:
        hidden = linear(rows, self.block.inner.weight)
        return torch.maximum(hidden, self.threshold, out=hidden)

    def forwarded(self, tokens: Tensor) -> Tensor:
        """Add the feed-forward block."""
        rows = tokens.view(-1, tokens.shape[2])
        hidden = self._hidden(rows)
        add_product(rows.add_(self.bias), hidden, self.block.outer.weight)
        return tokens

    def pool(self, tokens: Tensor, piece: Piece) -> Average:
        """Average tokens by the softmax of their products with the next layer's probes.

        Returns
        -------
        pooled, log_sum
            ``(B, H R, W)``, and the logarithm of the softmax's denominator, ``(B, H R)``: None of all tokens.
        """
        assert self.reading is not None
        logits = self.raw.without_padding(self.multiply(self.reading[piece.rows], tokens), piece)
        weights = torch.softmax(logits, dim=2)
        pooled = self.multiply(weights, tokens.transpose(1, 2))
        return pooled, None if piece.whole else _log_sum(logits, weights)

    def scored(self, tokens: Tensor, score: nn.Linear) -> Tensor:
        """Return ``score(forwarded(tokens))``; both maps are linear, so they are joined first."""
        hidden = self._hidden(tokens.flatten(0, 1)) @ (score.weight @ self.block.outer.weight).T
        return hidden.view(*tokens.shape[:2], -1).add_(score(tokens)).add_(score.weight @ self.bias)


class Alone(Together):
    """The same for some tokens of one instance by oneDNN, where `pays` says so; they come to lie elsewhere."""

    instances = 1

    @staticmethod
    def pays(few: Tensor, many: Tensor, layer: Layer) -> bool:
        """Tell whether all products of these tokens, so many at least, go to oneDNN."""
        narrowest = layer.writing.query.weight
        return few.numel() * len(narrowest) >= packed.FEWEST_PACKED // 2 and products.pays(many, narrowest)

    def _mapped(
        self, few: Tensor, scale: float | Tensor, following: Layer | None
    ) -> tuple[Tensor | None, Tensor, Tensor]:
        self.bias = self.block.outer.bias
        writing, (batch, count, width) = self.layer.writing, few.shape
        maps = [writing.key, writing.value]
        turned = [writing.query.weight, writing.out.weight]
        if following is not None:
            maps.insert(0, following.reading.query)
            turned.insert(0, following.reading.key.weight)
        stacked = packed.kept(self.layer, "_maps", [one.weight for one in maps], _packed_together)
        heads = packed.kept(self.layer, "_heads", turned, partial(_by_heads, writing.heads))
        made = products.called(few.view(-1, width), stacked)
        made[:, : -writing.value.out_features].mul_(scale)
        made = torch.bmm(made.view(len(made), len(heads), -1).transpose(0, 1), heads)
        made = made.view(len(maps), writing.heads, batch, count, width).transpose(1, 2)
        *reading, probes, answers = made.reshape(len(maps), batch, -1, width).unbind(0)
        return reading[0] if reading else None, probes, answers

    @staticmethod
    def read(layer: Layer, few: Tensor, pooled: Tensor) -> Tensor:
        reading, rows, block = layer.reading, few.view(-1, few.shape[2]), layer.few_feed_forward
        by_heads = pooled.view(len(few), reading.heads, -1, few.shape[2]).transpose(0, 1).flatten(1, 2)
        values = reading.value.weight.view(reading.heads, reading.head_dim, -1)
        mixed = torch.bmm(by_heads, values.transpose(1, 2)).transpose(0, 1).flatten(1)
        rows = packed.added_to(rows, mixed, reading.out)
        return packed.added_to(rows, packed.mapped(rows, block.inner, "relu"), block.outer).view(few.shape)

    @staticmethod
    def multiply(x: Tensor, weights: Tensor) -> Tensor:
        return products.called(x[0], weights[0])[None]

    def written(self, tokens: Tensor, piece: Piece) -> Tensor:
        weights, answers = self._weights(tokens, piece)[0], self.answers[piece.rows.start].T
        return products.called_onto(tokens[0], weights, answers, self.layer.writing.out.bias)[None]

    def _hidden(self, rows: Tensor) -> Tensor:
        return packed.mapped(rows, self.block.inner, "relu")

    def forwarded(self, tokens: Tensor) -> Tensor:
        return packed.added_to(tokens[0], self._hidden(tokens[0]), self.block.outer)[None]


def _packed_together(weights: Sequence[Tensor]) -> Tensor:
    return packed.packed(torch.cat(list(weights)))


def _by_heads(heads: int, weights: Sequence[Tensor]) -> Tensor:
    """Cut maps by heads, one behind the other, ``(n H, K, W)``; the last one, an output map, by its columns."""
    *maps, out = weights
    return torch.cat([one.view(heads, -1, one.shape[1]) for one in (*maps, out.T.contiguous())])

"""How SIT's scores are computed at inference: the network of `sit.py`, in an order that suits memory.

Three things are done differently, none of them an approximation:

- Tokens pass a layer in chunks that stay in the processor's cache, are overwritten in place, and are read for the next
  layer while they are there (its queries depend on the representatives alone, which are known by then). The softmaxes of
  the chunks are joined by their log-sums. On the CPU threads share the chunks of a long problem.
- The first layer sees candidates before anything was added to them, so they are still linear in (x, y, demand, 1): its
  logits and averages are taken over these three or four numbers instead of 128.
- ``relu(z + b) = max(z, -b) + b``, and what is constant goes into the next bias: two passes over the hidden layer less.
  Where oneDNN multiplies (`nco_bench.nn.products`), biases, ReLU and sums are part of its products instead, and each
  instance passes by itself, in memory of its own.

Letters in shapes: B batch, M candidates, R representatives, T = R + M tokens, W width, H heads, U raw inputs and a 1.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nco_bench.nn import products
from nco_bench.nn.device import PerDevice, on_cpu
from nco_bench.nn.products import add_each, add_product, coarse, each_linear, faster, linear
from nco_bench.nn.threads import in_threads

if TYPE_CHECKING:
    from nco_bench.solvers.path.sit import Layer

Item = TypeVar("Item")
Result = TypeVar("Result")
Average = tuple[Tensor, Tensor | None]
"""Averages of tokens by all probes, ``(B, H R, W)``, and their log-sums, ``(B, H R)``: None where no others are joined."""

CHUNK_TOKENS = PerDevice(cpu=1024, gpu=2**18)
"""Tokens that pass a layer together; more than there are representatives, which the first chunk holds. On the CPU a hidden
layer of 1024 tokens takes 2 MB: twice as many were 14 % slower, half as many no faster.
"""
GROUP_TOKENS = PerDevice(cpu=2**13, gpu=2**18)
"""Tokens of the instances whose representatives are computed together: few make small products, which are slow."""


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
        """As `_pool`, of the tokens that this makes; `probes` are those of all instances."""
        logits = self.without_padding(self.logits(probes, piece).transpose(1, 2).contiguous(), piece)
        weights = torch.softmax(logits, dim=2)
        pooled = (weights @ self.inputs[piece.rows, piece.columns]) @ self.embedding
        if piece.columns.start == 0:
            pooled += weights[..., : self.few.shape[1]] @ self.few[piece.rows]
        return pooled, None if piece.whole else _log_sum(logits, weights)


def _log_sum(logits: Tensor, weights: Tensor) -> Tensor:
    return logits.amax(dim=2) - weights.amax(dim=2).log()


def join(parts: list[Average], batch: int) -> Tensor:
    """Put averages together, ``(B, H R, W)``: of disjoint tokens of one instance, by their log-sums, or of instances."""
    if len(parts) == 1:
        return parts[0][0]
    if batch > 1:
        return torch.cat([pooled for pooled, _ in parts])
    shares = torch.softmax(torch.stack([log_sum for _, log_sum in parts if log_sum is not None]), dim=0)
    return torch.stack([pooled for pooled, _ in parts]).mul_(shares[..., None]).sum(dim=0)


def scores(
    layers: Sequence[nn.Module], score: nn.Linear, raw: Raw, scale: float | Tensor, threads: int
) -> Tensor:
    """Score the candidates, ``(B, M, 1 or 2)``, some instances at a time.

    Parameters
    ----------
    layers, score
        The network behind the embedding.
    raw
        Its tokens.
    scale
        Factor of all attention logits, 1/sqrt(K) included; a tensor is one number for the whole batch.
    threads
        How many share the tokens, on the CPU.
    """
    batch, tokens, _ = raw.inputs.shape
    device = raw.inputs.device
    size = max(1, GROUP_TOKENS.on(device) // tokens) if tokens <= _chunk(raw.inputs) else 1
    parts = [
        _scores(
            layers,
            score,
            replace(raw, inputs=raw.inputs[i : i + size], few=raw.few[i : i + size]),
            scale,
            threads,
        )
        for i in range(0, batch, size)
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def filled(tokens: int, device: torch.device) -> int:
    """Return how many tokens there are with padding that makes products of sizes that repeat from step to step."""
    if not (on_cpu(device) and faster()):
        return tokens
    chunks = _chunks(tokens, CHUNK_TOKENS.on(device))
    return chunks * coarse(math.ceil(tokens / chunks))


def _chunks(tokens: int, most: int) -> int:
    """Return how many chunks the tokens of an instance are cut into; more than two are a multiple of four."""
    chunks = math.ceil(tokens / most)
    return chunks if chunks <= 2 else math.ceil(chunks / 4) * 4


def _chunk(tokens: Tensor) -> int:
    return CHUNK_TOKENS.on(tokens.device)


def _pieces(tokens: Tensor, few: Tensor, most: int) -> list[Piece]:
    """Cut instances that fit into a chunk into groups of at most so many, or the tokens of a single instance evenly.

    More than two chunks of an instance are a multiple of four, so that two or four threads have equally much to do. The
    first one holds all representatives.
    """
    batch, length, _ = tokens.shape
    if batch > 1:
        size = min(max(1, _chunk(tokens) // length), most)
        return [Piece(slice(i, min(i + size, batch)), slice(0, length), True) for i in range(0, batch, size)]
    chunks = _chunks(length, _chunk(tokens))
    size = max(math.ceil(length / chunks), few.shape[1])
    return [Piece(slice(0, 1), slice(i, min(i + size, length)), chunks == 1) for i in range(0, length, size)]


def _for_each(
    work: Callable[[Item], Result], pieces: Sequence[Item], tokens: Tensor, threads: int
) -> list[Result]:
    """Do the work for each piece; on the CPU in so many threads."""
    if not on_cpu(tokens.device):
        return [work(piece) for piece in pieces]
    return in_threads(lambda piece, stopped: work(piece), pieces, threads)


def _scores(
    layers: Sequence[nn.Module], score: nn.Linear, raw: Raw, scale: float | Tensor, threads: int
) -> Tensor:
    few = raw.few
    many = raw.inputs @ raw.embedding
    many[:, : few.shape[1]] = few
    updating = Alone if Alone.pays(few, many, cast("Layer", layers[0])) else Together
    pieces = _pieces(many, few, updating.instances)
    chunks = [many[piece.rows, piece.columns] for piece in pieces]
    del many  # chunks may come to lie elsewhere
    first = cast("Layer", layers[0]).reading.probes(few, scale)
    parts = _for_each(lambda piece: raw.pool(first, piece), pieces, few, threads)
    for index, module in enumerate(layers):
        layer = cast("Layer", module)
        few = few + layer.reading.mixed(join(parts, len(few)))
        few = updating.fed_forward(layer, few)
        update = updating(layer, few, scale, raw if index == 0 else None)
        if index + 1 == len(layers):
            break
        reading = cast("Layer", layers[index + 1]).reading.probes(few, scale)
        work = partial(_written, update, chunks, raw, reading)
        parts = _for_each(work, list(enumerate(pieces)), few, threads)
    rated = _for_each(partial(_rated, update, chunks, score), list(enumerate(pieces)), few, threads)
    result = rated[0] if len(rated) == 1 else torch.cat(rated, dim=0 if len(few) > 1 else 1)
    return result[:, few.shape[1] :]


def _written(
    update: Together, chunks: list[Tensor], raw: Raw, reading: Tensor, numbered: tuple[int, Piece]
) -> Average:
    """Update some tokens, and average them for the next layer by the softmax of their products with its probes.

    Returns
    -------
    pooled, log_sum
        ``(B, H R, W)``, and the logarithm of the softmax's denominator, ``(B, H R)``: None of all tokens.
    """
    index, piece = numbered
    chunks[index] = tokens = update.forwarded(update.written(chunks[index], piece))
    logits = raw.without_padding(update.multiply(reading[piece.rows], tokens), piece)
    weights = torch.softmax(logits, dim=2)
    pooled = update.multiply(weights, tokens.transpose(1, 2))
    return pooled, None if piece.whole else _log_sum(logits, weights)


def _rated(update: Together, chunks: list[Tensor], score: nn.Linear, numbered: tuple[int, Piece]) -> Tensor:
    """Run the last layer on some tokens and score them, ``(B, C, 1 or 2)``."""
    index, piece = numbered
    return update.scored(update.written(chunks[index], piece), score)


class Together:
    """What a layer does to some tokens of several instances, in place.

    Parameters
    ----------
    layer, few, scale
        It, the representatives ``(B, R, W)`` as it has made them, the factor of its logits.
    raw
        What the tokens still are, before the first layer.
    """

    instances = sys.maxsize
    """That pass together, at most."""
    multiply = staticmethod(each_linear)

    def __init__(self, layer: Layer, few: Tensor, scale: float | Tensor, raw: Raw | None) -> None:
        self.layer, self.raw, self.block = layer, raw, layer.many_feed_forward
        self.probes, self.answers = layer.writing.write(few, scale)
        # The first head carries the bias of the output map: its weights sum to 1 for every token.
        self.answers[:, : few.shape[1]] += layer.writing.out.bias
        self.threshold = -self.block.inner.bias
        self.bias = F.linear(self.block.inner.bias, self.block.outer.weight, self.block.outer.bias)

    @staticmethod
    def fed_forward(layer: Layer, few: Tensor) -> Tensor:
        """Add the feed-forward block of the representatives."""
        return few + layer.few_feed_forward(few)

    def written(self, tokens: Tensor, piece: Piece) -> Tensor:
        """Add what tokens ``(B, C, W)`` read from the representatives."""
        answers = self.answers[piece.rows].transpose(1, 2)
        return add_each(tokens, self._weights(tokens, piece), answers)

    def _weights(self, tokens: Tensor, piece: Piece) -> Tensor:
        """Attention weights of tokens to the representatives, ``(B, C, H R)``."""
        if self.raw is not None:
            logits = self.raw.logits(self.probes, piece)
        else:
            logits = self.multiply(tokens, self.probes[piece.rows])
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

    def scored(self, tokens: Tensor, score: nn.Linear) -> Tensor:
        """Return ``score(forwarded(tokens))``; both maps are linear, so they are joined first."""
        hidden = self._hidden(tokens.flatten(0, 1)) @ (score.weight @ self.block.outer.weight).T
        return hidden.view(*tokens.shape[:2], -1).add_(score(tokens)).add_(score.weight @ self.bias)


class Alone(Together):
    """The same for some tokens of one instance by oneDNN, where `pays` says so; they come to lie elsewhere."""

    instances = 1

    def __init__(self, layer: Layer, few: Tensor, scale: float | Tensor, raw: Raw | None) -> None:
        self.layer, self.raw, self.block = layer, raw, layer.many_feed_forward
        self.probes, self.answers = layer.writing.write(few, scale)
        self.bias = self.block.outer.bias

    @staticmethod
    def pays(few: Tensor, many: Tensor, layer: Layer) -> bool:
        """Tell whether all products of these tokens go to oneDNN."""
        few_are_enough = few.numel() * layer.few_feed_forward.inner.out_features >= products.FEWEST_PACKED
        return few_are_enough and products.pays(many[:1, : CHUNK_TOKENS.cpu], layer.writing.query.weight)

    @staticmethod
    def fed_forward(layer: Layer, few: Tensor) -> Tensor:
        rows, block = few.flatten(0, 1), layer.few_feed_forward
        hidden = products.mapped(rows, block.inner, "relu")
        return products.added_to(rows, hidden, block.outer).view(few.shape)

    @staticmethod
    def multiply(x: Tensor, weights: Tensor) -> Tensor:
        return products.called(x[0], weights[0])[None]

    def written(self, tokens: Tensor, piece: Piece) -> Tensor:
        weights, answers = self._weights(tokens, piece)[0], self.answers[piece.rows.start].T
        return products.called_onto(tokens[0], weights, answers, self.layer.writing.out.bias)[None]

    def _hidden(self, rows: Tensor) -> Tensor:
        return products.mapped(rows, self.block.inner, "relu")

    def forwarded(self, tokens: Tensor) -> Tensor:
        return products.added_to(tokens[0], self._hidden(tokens[0]), self.block.outer)[None]

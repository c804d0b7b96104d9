"""How SIT's scores are computed at inference: the network of `sit.py`, in an order that suits memory.

Three things are done differently, none of them an approximation:

- Tokens pass a layer in chunks that stay in the processor's cache, are overwritten in place, and are read for the next
  layer while they are there (its queries depend on the representatives alone, which are known by then). The softmaxes of
  the chunks are joined by their log-sums. On the CPU threads share the chunks of a long problem.
- The first layer sees candidates before anything was added to them, so they are still linear in (x, y, demand, 1): its
  logits and averages are taken over these three or four numbers instead of 128.
- ``relu(z + b) = max(z, -b) + b``, and what is constant goes into the next bias: two passes over the hidden layer less.

Letters in shapes: B batch, M candidates, R representatives, T = R + M tokens, W width, H heads, U raw inputs and a 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nco_bench.nn.device import PerDevice, on_cpu
from nco_bench.nn.products import add_each, add_product, coarse, each_linear, faster, linear
from nco_bench.nn.threads import in_threads

if TYPE_CHECKING:
    from nco_bench.nn.layers import FeedForward
    from nco_bench.solvers.path.sit import Layer

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
    real
        ``(1, T)`` bool: no padding; None if there is none.
    leading
        So many of the first tokens are no padding, as far as is known without a look.
    """

    inputs: Tensor
    embedding: Tensor
    few: Tensor
    real: Tensor | None = None
    leading: int = 0

    def there(self, piece: Piece) -> Tensor | None:
        """Return `real` of some tokens, None if none of them is padding."""
        if self.real is None or piece.columns.stop <= self.leading:
            return None
        return self.real[:, piece.columns]

    def logits(self, probes: Tensor, piece: Piece) -> Tensor:
        """Products of some tokens with all probes of their instances, ``(B, C, H R)``."""
        probes = probes[piece.rows]
        logits = self.inputs[piece.rows, piece.columns] @ (probes @ self.embedding.T).transpose(1, 2)
        if piece.columns.start == 0:
            logits[:, : self.few.shape[1]] = self.few[piece.rows] @ probes.transpose(1, 2)
        return logits

    def pool(self, probes: Tensor, piece: Piece) -> Average:
        """As `pool`, for some of the tokens; `probes` are those of all instances."""
        logits = _masked(self.logits(probes, piece).transpose(1, 2).contiguous(), self.there(piece))
        weights = torch.softmax(logits, dim=2)
        pooled = (weights @ self.inputs[piece.rows, piece.columns]) @ self.embedding
        if piece.columns.start == 0:
            pooled += weights[..., : self.few.shape[1]] @ self.few[piece.rows]
        return pooled, None if piece.whole else _log_sum(logits, weights)


def pool(probes: Tensor, tokens: Tensor, real: Tensor | None = None, *, whole: bool = False) -> Average:
    """Average tokens by the softmax of their products with the probes.

    Parameters
    ----------
    probes, tokens
        ``(B, H R, W)``, ``(B, C, W)``.
    real
        ``(1, C)`` bool: tokens that are averaged; None for all.
    whole
        The tokens are all there are.

    Returns
    -------
    pooled, log_sum
        ``(B, H R, W)``, and the logarithm of the softmax's denominator, ``(B, H R)``, which is None of all tokens.
    """
    logits = _masked(each_linear(probes, tokens), real)
    weights = torch.softmax(logits, dim=2)
    return each_linear(weights, tokens.transpose(1, 2)), None if whole else _log_sum(logits, weights)


def _masked(logits: Tensor, real: Tensor | None) -> Tensor:
    """Leave padding out, in place; the log-sum of a chunk that is nothing but padding is finite, and counts for nothing."""
    return logits if real is None else logits.masked_fill_(~real, FAR_BELOW)


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


class Folded:
    """The feed-forward block of one layer with its inner bias folded into the outer one."""

    def __init__(self, block: FeedForward) -> None:
        self.block = block
        self.threshold = -block.inner.bias
        self.bias = F.linear(block.inner.bias, block.outer.weight, block.outer.bias)

    def _hidden(self, tokens: Tensor) -> Tensor:
        hidden = linear(tokens, self.block.inner.weight)
        return torch.maximum(hidden, self.threshold, out=hidden)

    def add_to(self, tokens: Tensor) -> None:
        """Add the block's output to ``(C, W)`` tokens in place."""
        hidden = self._hidden(tokens)
        add_product(tokens.add_(self.bias), hidden, self.block.outer.weight)

    def scored(self, tokens: Tensor, score: nn.Linear) -> Tensor:
        """Return ``score(tokens + block(tokens))``; both maps are linear, so they are joined first."""
        hidden = self._hidden(tokens) @ (score.weight @ self.block.outer.weight).T
        return hidden.add_(score(tokens)).add_(score.weight @ self.bias)


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


def _pieces(tokens: Tensor, few: Tensor, start: int = 0) -> list[Piece]:
    """Cut instances that fit into a chunk into groups, or the tokens of a single instance evenly.

    More than two chunks of an instance are a multiple of four, so that two or four threads have equally much to do. The
    first one holds all representatives.
    """
    batch, length, _ = tokens.shape
    if batch > 1:
        size = max(1, _chunk(tokens) // length)
        return [
            Piece(slice(i, min(i + size, batch)), slice(start, length), True) for i in range(0, batch, size)
        ]
    chunks = _chunks(length - start, _chunk(tokens))
    size = max(math.ceil((length - start) / chunks), few.shape[1])
    return [
        Piece(slice(0, 1), slice(i, min(i + size, length)), chunks == 1) for i in range(start, length, size)
    ]


def _for_each(
    work: Callable[[Piece], Result], pieces: Sequence[Piece], tokens: Tensor, threads: int
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
    first = cast("Layer", layers[0]).reading.probes(few, scale)
    parts = _for_each(lambda piece: raw.pool(first, piece), _pieces(many, few), many, threads)
    for index, module in enumerate(layers):
        layer = cast("Layer", module)
        few = few + layer.reading.mixed(join(parts, len(many)))
        few = few + layer.few_feed_forward(few)
        if index + 1 == len(layers):
            return _scored(layer, score, raw if index == 0 else None, few, many, scale, threads)
        reading = cast("Layer", layers[index + 1]).reading.probes(few, scale)
        parts = _written(layer, raw, few, many, reading, scale, threads, first=index == 0)
    raise AssertionError("a network without layers")


def _written(
    layer: Layer,
    raw: Raw,
    few: Tensor,
    many: Tensor,
    reading: Tensor,
    scale: float | Tensor,
    threads: int,
    *,
    first: bool,
) -> list[Average]:
    """Update all tokens in place by what the representatives write; return what the next layer reads, by piece.

    In the `first` layer tokens are still what `raw` says.
    """
    probes, answers = layer.writing.write(few, scale)
    _add_bias(answers, layer.writing.out.bias, few.shape[1])
    block = Folded(layer.many_feed_forward)

    def update(piece: Piece) -> Average:
        chunk = many[piece.rows, piece.columns]
        weights = _weights(layer, raw if first else None, chunk, piece, probes)
        add_each(chunk, weights, answers[piece.rows].transpose(1, 2))
        block.add_to(chunk.view(-1, chunk.shape[2]))
        return pool(reading[piece.rows], chunk, raw.there(piece), whole=piece.whole)

    return _for_each(update, _pieces(many, few), many, threads)


def _scored(
    layer: Layer,
    score: nn.Linear,
    raw: Raw | None,
    few: Tensor,
    many: Tensor,
    scale: float | Tensor,
    threads: int,
) -> Tensor:
    """Run the last layer on the candidates alone, and score them, ``(B, M, 1 or 2)``."""
    probes, answers = layer.writing.write(few, scale)
    _add_bias(answers, layer.writing.out.bias, few.shape[1])
    block = Folded(layer.many_feed_forward)

    def rate(piece: Piece) -> Tensor:
        chunk = many[piece.rows, piece.columns]
        weights = _weights(layer, raw, chunk, piece, probes)
        add_each(chunk, weights, answers[piece.rows].transpose(1, 2))  # nobody reads these tokens again
        return block.scored(chunk.reshape(-1, chunk.shape[2]), score).view(*chunk.shape[:2], -1)

    result = _for_each(rate, _pieces(many, few, few.shape[1]), many, threads)
    return result[0] if len(result) == 1 else torch.cat(result, dim=0 if len(many) > 1 else 1)


def _weights(layer: Layer, raw: Raw | None, chunk: Tensor, piece: Piece, probes: Tensor) -> Tensor:
    """Attention weights of tokens to the representatives, ``(B, C, H R)``; `probes` are those of all instances."""
    logits = each_linear(chunk, probes[piece.rows]) if raw is None else raw.logits(probes, piece)
    return torch.softmax(logits.unflatten(2, (layer.writing.heads, -1)), dim=3).flatten(2)


def _add_bias(answers: Tensor, bias: Tensor, repeats: int) -> None:
    """Let the first head carry the bias of the output map: its weights sum to 1 for every token."""
    answers[:, :repeats] += bias

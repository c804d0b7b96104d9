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
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, nn

from nco_bench.nn.device import PerDevice, on_cpu
from nco_bench.nn.products import coarse, faster
from nco_bench.nn.threads import in_threads
from nco_bench.solvers.path.sit_pieces import Alone, Average, Piece, Raw, Together

if TYPE_CHECKING:
    from nco_bench.solvers.path.sit import Layer

Item = TypeVar("Item")
Result = TypeVar("Result")

CHUNK_TOKENS = PerDevice(cpu=1024, gpu=2**18)
"""Tokens that pass a layer together; more than there are representatives, which the first chunk holds. On the CPU a hidden
layer of 1024 tokens takes 2 MB: twice as many were 14 % slower, half as many no faster.
"""
GROUP_TOKENS = PerDevice(cpu=2**13, gpu=2**18)
"""Tokens of the instances whose representatives are computed together: few make small products, which are slow."""


def join(parts: list[Average], batch: int) -> Tensor:
    """Put averages together, ``(B, H R, W)``: of disjoint tokens of one instance, by their log-sums, or of instances."""
    if len(parts) == 1:
        return parts[0][0]
    if batch > 1:
        return torch.cat([pooled for pooled, _ in parts])
    shares = torch.softmax(torch.stack([log_sum for _, log_sum in parts if log_sum is not None]), dim=0)
    return torch.stack([pooled for pooled, _ in parts]).mul_(shares[..., None]).sum(dim=0)


def scores(
    layers: Sequence[Layer], score: nn.Linear, raw: Raw, scale: float | Tensor, threads: int
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
    layers: Sequence[Layer], score: nn.Linear, raw: Raw, scale: float | Tensor, threads: int
) -> Tensor:
    few = raw.few
    many = raw.inputs @ raw.embedding
    many[:, : few.shape[1]] = few
    updating = Alone if Alone.pays(few, many[:1, : CHUNK_TOKENS.cpu], layers[0]) else Together
    pieces = list(enumerate(_pieces(many, few, updating.instances)))
    chunks = [many[piece.rows, piece.columns] for _, piece in pieces]
    del many  # chunks may come to lie elsewhere
    probes = layers[0].reading.probes(few, scale)
    parts = _for_each(lambda numbered: raw.pool(probes, numbered[1]), pieces, few, threads)
    for index, layer in enumerate(layers):
        few = updating.read(layer, few, join(parts, len(few)))
        following = layers[index + 1] if index + 1 < len(layers) else None
        update = updating(layer, few, scale, raw, index == 0, following)
        if following is not None:
            parts = _for_each(partial(_written, update, chunks), pieces, few, threads)
    rated = _for_each(partial(_rated, update, chunks, score), pieces, few, threads)
    result = rated[0] if len(rated) == 1 else torch.cat(rated, dim=0 if len(few) > 1 else 1)
    return result[:, few.shape[1] :]


def _written(update: Together, chunks: list[Tensor], numbered: tuple[int, Piece]) -> Average:
    """Update some tokens, and average them as the next layer reads them."""
    index, piece = numbered
    chunks[index] = tokens = update.forwarded(update.written(chunks[index], piece))
    return update.pool(tokens, piece)


def _rated(update: Together, chunks: list[Tensor], score: nn.Linear, numbered: tuple[int, Piece]) -> Tensor:
    """Run the last layer on some tokens and score them, ``(B, C, 1 or 2)``."""
    index, piece = numbered
    return update.scored(update.written(chunks[index], piece), score)

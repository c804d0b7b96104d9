"""Classifiers for Long Range Arena: token and position embeddings, encoder layers, mean over tokens, a linear head.

The Tropical Attention paper prints accuracies (Table 4) but no sizes, no pooling and no code for them. Layers, width
and heads are those of the benchmark's own Transformers; the rest is our choice: pre-norm, fixed sinusoidal positions,
the mean over tokens without padding, and for Retrieval the two encoded texts with their difference and product. The
layers are those of `task_networks`; each has an attention of its own, while the official code for the algorithmic tasks
shares a tropical one among all layers (it publishes one layer only, where that is the same).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from nco_bench.cards import trained_by
from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.solvers.sequences.softmax import SoftmaxAttention, adaptive_softmax
from nco_bench.solvers.sequences.task_networks import EncoderLayer
from nco_bench.solvers.sequences.tropical import TropicalAttention, attend, devalue

FAR_BELOW = -1e4
"""Stands for minus infinity; infinite scores would make gradients undefined."""

ADAPTIVE_ENTRIES = 2**25
"""Attention weights of a block of queries that adaptive softmax holds at once."""


@dataclass(frozen=True)
class LRAConfig:
    """Sizes of a classifier.

    Attributes
    ----------
    attention
        ``tropical``, ``vanilla`` or ``adaptive``.
    vocabulary, classes
        Tokens with padding (token 0), and classes.
    texts
        2 for Retrieval.
    layers, width, heads
        Of the encoder; the hidden layer of the feed-forward part is four times as wide.
    pre_norm
        Normalise before each part and once at the end, instead of after each part.
    positions
        Add sinusoidal positions.
    """

    attention: str
    vocabulary: int
    classes: int
    texts: int = 1
    layers: int = 4
    width: int = 512
    heads: int = 8
    pre_norm: bool = True
    positions: bool = True


def positions(length: int, width: int, device: torch.device | str = "cpu") -> Tensor:
    """Return the sinusoidal positions ``(length, width)`` of Vaswani et al. (2017): sines, then cosines."""
    half = width // 2
    frequency = torch.exp(-math.log(1e4) * torch.arange(half, device=device) / half)
    angle = torch.arange(length, device=device)[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=1)


def masked_attention(attention: nn.Module, x: Tensor, padding: Tensor) -> Tensor:
    """Apply an attention of `task_networks` to tokens ``(B, N, D)``, of which ``padding (B, N)`` are no keys."""
    if isinstance(attention, TropicalAttention):
        q, k, v = attention.project(x)
        hidden = padding.repeat_interleave(attention.heads, 0)[..., None]
        context = attend(q, k, v.masked_fill(hidden, FAR_BELOW), attention.options.symmetric)
        merged = context.unflatten(0, (-1, attention.heads)).transpose(1, 2).flatten(2)
        result: Tensor = attention.out(devalue(merged, attention.options.plain_log))
        return result
    assert isinstance(attention, SoftmaxAttention)
    q, k, v = (
        layer(x).unflatten(-1, (attention.heads, -1)).transpose(1, 2)
        for layer in (attention.query, attention.key, attention.value)
    )
    if attention.adaptive:
        context = _adaptive(q, k, v, padding)
    else:
        context = functional.scaled_dot_product_attention(q, k, v, ~padding[:, None, None])
    mixed: Tensor = attention.out(context.transpose(1, 2).flatten(2))
    return mixed


def _adaptive(q: Tensor, k: Tensor, v: Tensor, padding: Tensor) -> Tensor:
    rows = max(1, ADAPTIVE_ENTRIES // max(1, k.shape[0] * k.shape[1] * k.shape[2]))
    blocks = []
    for part in q.split(rows, dim=2):
        logits = part @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        blocks.append(adaptive_softmax(logits.masked_fill(padding[:, None, None], FAR_BELOW)) @ v)
    return torch.cat(blocks, dim=2)


def masked_layer(layer: EncoderLayer, x: Tensor, padding: Tensor) -> Tensor:
    """Map tokens ``(B, N, D)`` to ``(B, N, D)`` as `EncoderLayer.forward`, where padding is seen by no token."""
    return layer.second_part(x + masked_attention(layer.attention, layer.attention_input(x), padding))


def _attention(config: LRAConfig) -> nn.Module:
    if config.attention == "tropical":
        return TropicalAttention(config.width, config.heads)
    return SoftmaxAttention(config.width, config.heads, config.attention == "adaptive")


class LRAClassifier(nn.Module):
    """From tokens to logits of classes.

    Raises
    ------
    BadInputError
        For sizes that do not fit each other.
    """

    def __init__(self, config: LRAConfig) -> None:
        super().__init__()
        if min(config.width, config.heads, config.layers) < 1 or config.width % (2 * config.heads):
            raise BadInputError(
                f"width={config.width}, heads={config.heads}, layers={config.layers}: give at least 1 of each, "
                "and a width that is a multiple of twice the heads."
            )
        self.config = config
        self.embed = nn.Embedding(config.vocabulary, config.width, padding_idx=0)
        nn.init.normal_(self.embed.weight, std=1.0)
        self.layers = nn.ModuleList(
            EncoderLayer(_attention(config), config.width, config.pre_norm) for _ in range(config.layers)
        )
        self.last_norm = nn.LayerNorm(config.width)
        joined = config.width * (4 if config.texts == 2 else 1)
        self.head = nn.Sequential(
            nn.Linear(joined, config.width), nn.ReLU(), nn.Linear(config.width, config.classes)
        )

    def encode(self, tokens: Tensor) -> Tensor:
        """Map tokens ``(B, N)``, 0 for padding, to texts ``(B, D)``: the mean of the encoded tokens."""
        padding = tokens == 0
        h: Tensor = self.embed(tokens)
        if self.config.positions:
            h = h + positions(tokens.shape[1], self.config.width, tokens.device).to(h.dtype)
        for layer in self.layers:
            assert isinstance(layer, EncoderLayer)
            h = masked_layer(layer, h, padding)
        h = self.last_norm(h) if self.config.pre_norm else h
        kept = (~padding)[..., None]
        return (h * kept).sum(1) / kept.sum(1)

    def forward(self, tokens: Tensor, second: Tensor | None = None) -> Tensor:
        """Map tokens ``(B, N)``, for Retrieval with second texts ``(B, M)``, to logits ``(B, classes)``."""
        text = self.encode(tokens)
        if self.config.texts == 2:
            assert second is not None
            other = self.encode(second)
            text = torch.cat([text, other, text * other, (text - other).abs()], dim=1)
        logits: Tensor = self.head(text)
        return logits


def lra_config(
    network: str, task: str, vocabulary: int, classes: int, texts: int, **overrides: int
) -> LRAConfig:
    """Return the sizes of a network for a task, with the overrides above 0 in place.

    Raises
    ------
    UnknownNameError
        For an unknown network.
    """
    known = trained_by("lra")
    if network not in known:
        raise UnknownNameError("network", network, known)
    facts = known[network].facts
    sizes = {**facts["sizes"][task], **{key: value for key, value in overrides.items() if value > 0}}
    config = LRAConfig(facts["attention"], vocabulary, classes, texts)
    return replace(config, layers=sizes["layers"], width=sizes["width"], heads=sizes["heads"])

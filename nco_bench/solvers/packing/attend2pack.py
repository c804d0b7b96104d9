"""attend2pack (Zhang, Zi, Ge, 2021) for packing into a bin of fixed base and open height, as EIE uses it.

Two policies act in turn. The sequence policy picks the next box: attention over the boxes, which are encoded once, with a
query made of the boxes left and of the bin as seen from above. The placement policy picks an orientation and a place across
the bin (y); where along it (x) and how high the box comes to rest follows from the height map. The paper packs along an open
length; its length, width, height are here height, width W (y) and length L (x).

What the paper leaves open, decided as in its description here: no norm after the encoder; biases in the encoder's
attention and none in the policies' maps; norm and ReLU after each convolution; the norm over channels and cells, with a
scale and a shift per channel; the height map divided by the same constant as the sides; a zero vector where no boxes
are left.

Letters in shapes: R lanes (instances, or several samples of each), N boxes, D width, H heads, K head width, L x W base.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nco_bench.nn.layers import FeedForward, SelfAttention
from nco_bench.nn.logit_scale import LogitScale, ScaleContext, none

TURNS = 6


@dataclass(frozen=True)
class Attend2PackConfig:
    """Sizes; the defaults are EIE's for n = 100 (section 5.1).

    Attributes
    ----------
    problem
        ``bpp3d``.
    width, heads, ffn, layers
        Embedding width, attention heads (each ``width / heads`` wide), hidden width of the feed-forward layers, layers.
    clip
        Half range C of the logits of both policies.
    channels
        Of the three convolutions.
    bin_length, bin_width
        The bin's base: the network is made for one.
    largest_side
        What sides and heights are divided by.
    from_lowest
        Count heights from the lowest point of the height map, so that they stay in the range of training in tall packings;
        not in the papers.
    training_size
        Number of boxes the weights were trained on, for logit scales.
    """

    problem: str = "bpp3d"
    width: int = 128
    heads: int = 8
    ffn: int = 512
    layers: int = 3
    clip: float = 10.0
    channels: int = 4
    bin_length: int = 120
    bin_width: int = 100
    largest_side: int = 50
    from_lowest: bool = False
    training_size: int = 100


def config_for(name: str, problem: str) -> Attend2PackConfig:
    """Return EIE's configuration for the bin 120 x 100."""
    return Attend2PackConfig(problem)


@dataclass(frozen=True)
class EncodedBoxes:
    """What does not change while boxes are placed.

    Attributes
    ----------
    boxes
        ``(R, N, D)`` embeddings.
    keys, values
        ``(R, H, N, K)`` of the glimpse; the keys hold the factor of the attention logits.
    pointer
        ``(R, D, N)`` keys of the sequence logits; hold the projection of the glimpse and the factor 1 / sqrt(D).
    """

    boxes: Tensor
    keys: Tensor
    values: Tensor
    pointer: Tensor

    def repeated(self, lanes: int) -> EncodedBoxes:
        """Return every instance `lanes` times in a row."""
        parts = (self.boxes, self.keys, self.values, self.pointer)
        return EncodedBoxes(*(part.repeat_interleave(lanes, dim=0) for part in parts))


class Layer(nn.Module):
    """``b + MHA(LN(b))``, then ``b + MLP(LN(b))``."""

    def __init__(self, config: Attend2PackConfig) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(config.width)
        self.attention = SelfAttention(
            config.width, config.heads, config.width // config.heads, qkv_bias=True
        )
        self.norm_feed_forward = nn.LayerNorm(config.width)
        self.feed_forward = FeedForward(config.width, config.ffn)

    def forward(self, x: Tensor, scale: float | Tensor) -> Tensor:
        """Transform boxes, ``(B, N, D)`` to ``(B, N, D)``; `scale` is the logit scale."""
        x = x + self.attention(self.norm_attention(x), scale)
        return x + self.feed_forward(self.norm_feed_forward(x))


class BinEncoder(nn.Module):
    """The last two height maps to one vector: three convolutions of kernel 3, stride 2, padding 1; linear, norm, ReLU."""

    def __init__(self, config: Attend2PackConfig) -> None:
        super().__init__()
        channels = (2, config.channels, config.channels, config.channels)
        self.convolutions = nn.ModuleList(
            nn.Conv2d(channels[i], channels[i + 1], kernel_size=3, stride=2, padding=1) for i in range(3)
        )
        # One group: normalised over channels and cells together, with an affine map per channel.
        self.norms = nn.ModuleList(nn.GroupNorm(1, config.channels) for _ in range(3))
        self.linear = nn.Linear(flattened_size(config), config.width)
        self.norm = nn.LayerNorm(config.width)

    def forward(self, maps: Tensor) -> Tensor:
        """Return ``(R, D)`` for ``(R, 2, L, W)``."""
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            maps = F.relu(norm(convolution(maps)))
        return self.embedded(maps.flatten(1))

    def embedded(self, cells: Tensor) -> Tensor:
        """Return ``(R, D)`` for what the convolutions leave, ``(R, cells)``."""
        return F.relu(self.norm(self.linear(cells)))


def flattened_size(config: Attend2PackConfig) -> int:
    """Return the cells that three convolutions leave, times channels: 780, 1008 and 1200 for EIE's bins."""
    cells = config.channels
    for side in (config.bin_length, config.bin_width):
        for _ in range(3):
            side = (side + 1) // 2
        cells *= side
    return cells


class Attend2Pack(nn.Module):
    """Both policies."""

    def __init__(self, config: Attend2PackConfig, logit_scale: LogitScale = none) -> None:
        super().__init__()
        self.config, self.problem, self.logit_scale = config, config.problem, logit_scale
        width = config.width
        self.embedding = nn.Linear(3, width)
        self.encoder = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.bin_encoder = BinEncoder(config)
        self.bin_projection = nn.Linear(width, width, bias=False)  # W_f of both policies
        # Sequence policy
        self.left_projection = nn.Linear(width, width, bias=False)
        self.box_projection = nn.Linear(
            width, 3 * width, bias=False
        )  # glimpse keys, glimpse values, pointer keys
        self.glimpse_projection = nn.Linear(width, width, bias=False)
        # Placement policy
        self.chosen_projection = nn.Linear(width, width, bias=False)
        self.others_projection = nn.Linear(width, width, bias=False)
        self.head = nn.Sequential(
            nn.Linear(width, width), nn.LayerNorm(width), nn.ReLU(),
            nn.Linear(width, width), nn.LayerNorm(width), nn.ReLU(),
            nn.Linear(width, TURNS * config.bin_width),
        )  # fmt: skip

    def encode(self, sides: Tensor) -> EncodedBoxes:
        """Encode boxes once.

        Parameters
        ----------
        sides
            ``(B, N, 3)`` sides in ascending order, as whole numbers.
        """
        config = self.config
        head_dim = config.width // config.heads
        tokens = sides.shape[1]
        context = ScaleContext(tokens, tokens, head_dim, config.training_size)
        scale, glimpse_scale = self.logit_scale(context), self.logit_scale(replace(context, place="glimpse"))
        x = self.embedding(sides.to(self.embedding.weight.dtype) / config.largest_side)
        for layer in self.encoder:
            x = layer(x, scale)
        keys, values, pointer = self.box_projection(x).chunk(3, dim=2)
        return EncodedBoxes(
            boxes=x,
            keys=self._heads(keys) * (glimpse_scale / math.sqrt(head_dim)),
            values=self._heads(values),
            # C tanh((W_q g) . k / sqrt(D)) = C tanh(g . (W_q^T k) / sqrt(D))
            pointer=((pointer @ self.glimpse_projection.weight) / math.sqrt(config.width)).transpose(1, 2),
        )

    def _heads(self, rows: Tensor) -> Tensor:
        return rows.unflatten(2, (self.config.heads, -1)).transpose(1, 2).contiguous()

    def see(self, previous: Tensor, current: Tensor) -> Tensor:
        """Encode two height maps ``(R, L, W)``; return the bin's part of both queries, ``(R, D)``."""
        maps = torch.stack([previous, current], dim=1)
        if self.config.from_lowest:
            maps = (maps - current.flatten(1).amin(1)[:, None, None, None]).clamp(min=0)
        return self.bin_projection(self.bin_encoder(maps / self.config.largest_side))

    def sequence_logits(self, encoded: EncodedBoxes, left: Tensor, seen: Tensor) -> Tensor:
        """Return ``(R, N)`` logits of the next box, ``-inf`` for packed ones.

        Parameters
        ----------
        encoded
            From `encode`.
        left
            ``(R, N)`` bool: boxes that are not packed.
        seen
            From `see`.
        """
        query = 0.5 * (self.left_projection(_mean_of(encoded.boxes, left)) + seen)
        query = query.unflatten(1, (self.config.heads, 1, -1))  # (R, H, 1, K)
        scores = torch.matmul(query, encoded.keys.transpose(2, 3))
        scores = scores.masked_fill(~left[:, None, None], -torch.inf)
        glimpse = torch.matmul(scores.softmax(3), encoded.values).flatten(1)
        logits = torch.matmul(glimpse[:, None], encoded.pointer).squeeze(1)
        return (self.config.clip * logits.tanh()).masked_fill(~left, -torch.inf)

    def placement_logits(
        self, encoded: EncodedBoxes, others: Tensor, chosen: Tensor, seen: Tensor, feasible: Tensor
    ) -> Tensor:
        """Return ``(R, 6 W)`` logits of orientation and y, ``-inf`` where the box would cross a wall.

        Parameters
        ----------
        encoded
            From `encode`.
        others
            ``(R, N)`` bool: boxes left without the chosen one.
        chosen
            ``(R,)`` the box to place.
        seen
            From `see`, the same as for the sequence policy.
        feasible
            ``(R, 6, W)`` bool.
        """
        rows = torch.arange(len(chosen), device=chosen.device)
        query = self.chosen_projection(encoded.boxes[rows, chosen])
        query = (query + self.others_projection(_mean_of(encoded.boxes, others)) + seen) / 3
        logits = self.config.clip * self.head(query).tanh()
        return logits.masked_fill(~feasible.flatten(1), -torch.inf)


def _mean_of(boxes: Tensor, listed: Tensor) -> Tensor:
    """Return the mean ``(R, D)`` of the listed rows, zero where there are none."""
    weights = listed.to(boxes.dtype)
    total = torch.matmul(weights[:, None], boxes).squeeze(1)
    return total / weights.sum(1, keepdim=True).clamp(min=1)


def build(config: Attend2PackConfig, logit_scale: LogitScale | None = None) -> Attend2Pack:
    """Build both policies with fresh weights."""
    return Attend2Pack(config, logit_scale or none)

"""H-TSP, "Hierarchically Solving the Large-Scale Traveling Salesman Problem" (Pan et al., AAAI 2023).

The upper model looks at the partial tour as an image and names a point; the lower model, POMO's kind of network, solves the
path problem around it. This file holds both networks; `nco_bench.solvers.divide.htsp_episode` makes an episode of them.
Official code: Learning4Optimization-HUST/H-TSP; layers keep its names where nothing is fused.

Letters in shapes: B instances, N cities, C channels, E width, G trajectories, n cities of a fragment.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nco_bench.errors import BadInputError, BadWeightsError, UnknownNameError
from nco_bench.nn.layers import FeedForward, SelfAttention, fuse_qkv
from nco_bench.nn.logit_scale import LogitScale
from nco_bench.solvers.stepwise.glimpse import Glimpse, clipped, pointer_scores, split_heads
from nco_bench.solvers.stepwise.policy import RouteState

PIXELS = 100
PIXEL = 0.01
STATE = 8
"""Columns of the state: x, y, visited, available, successor's x and y, predecessor's x and y."""

CHANNELS = (16, 32, 32)
SHRUNK = 13 * 13


@dataclass(frozen=True)
class HtspConfig:
    """Sizes of H-TSP.

    Attributes
    ----------
    problem
        ``tsp``.
    upper_width, actor_width, critic_width
        Width of the image encoder's output, and of the hidden layers of actor and critic.
    width, heads, ffn, layers, clip
        Of the lower model; its released version for 200 cities names 12 layers, the code's default is 6.
    """

    problem: str = "tsp"
    upper_width: int = 128
    actor_width: int = 128
    critic_width: int = 512
    width: int = 128
    heads: int = 8
    ffn: int = 512
    layers: int = 12
    clip: float = 10.0


def config_for(name: str, problem: str) -> HtspConfig:
    """Return the configuration of the published model."""
    return HtspConfig(problem)


class LowerLayer(nn.Module):
    """BN(X + MHA(X)), then BN(X + FF(X)); statistics over all nodes of the batch."""

    def __init__(self, config: HtspConfig) -> None:
        super().__init__()
        self.attention = SelfAttention(
            config.width, config.heads, config.width // config.heads, qkv_bias=False
        )
        self.feed_forward = FeedForward(config.width, config.ffn)
        self.norm1, self.norm2 = nn.BatchNorm1d(config.width), nn.BatchNorm1d(config.width)

    def forward(self, x: Tensor) -> Tensor:
        """Transform nodes, ``(B, n, E)``."""
        x = self.norm1((x + self.attention(x, 1.0)).flatten(0, 1)).view_as(x)
        return self.norm2((x + self.feed_forward(x)).flatten(0, 1)).view_as(x)


class LowerModel(nn.Module):
    """Solves paths: all cities between a given source and target."""

    def __init__(self, config: HtspConfig) -> None:
        super().__init__()
        self.config = config
        width = config.width
        self.embedding = nn.Linear(2, width)
        self.layers = nn.ModuleList(LowerLayer(config) for _ in range(config.layers))
        self.graph, self.source, self.target, self.first, self.current, self.key, self.value = (
            nn.Linear(width, width, bias=False) for _ in range(7)
        )
        self.combine = nn.Linear(width, width)

    def embed(self, coords: Tensor) -> Tensor:
        """Encode cities ``(B, n, 2)``, ``(B, n, E)``."""
        x = self.embedding(coords)
        for layer in self.layers:
            x = layer(x)
        return x

    def encode(self, coords: Tensor, source: Tensor, target: Tensor) -> Glimpse:
        """Run the encoder, and project its output to all that the decoder needs.

        Parameters
        ----------
        coords
            ``(B, n, 2)``.
        source, target
            ``(B,)`` the two ends.
        """
        x, heads = self.embed(coords), self.config.heads
        scale = math.sqrt(heads / self.config.width)
        pointer = x / math.sqrt(self.config.width)
        keys = split_heads(self.key(x), heads)
        row = torch.arange(len(x), device=x.device)
        ends = self.source(x[row, source]) + self.target(x[row, target])
        return Glimpse(
            keys=keys,
            keys_across=keys.transpose(2, 3).contiguous(),
            values=split_heads(self.value(x), heads),
            # (W o + b) . h = o . (W^T h) + b . h
            pointer=(pointer @ self.combine.weight).transpose(1, 2).contiguous(),
            offset=(pointer @ self.combine.bias)[:, None],
            current=self.current(x) * scale,
            first=self.first(x) * scale,
            base=(self.graph(x.mean(dim=1)) + ends)[:, None] * scale,
        )

    def logits(self, encoded: Glimpse, state: RouteState) -> Tensor:
        """Return ``C tanh(u)``, ``-inf`` where blocked, ``(B, G, n)``."""
        return clipped(pointer_scores(encoded, state), state, self.config.clip)


class ImageNetwork(nn.Module):
    """Three stages of a convolution, pooling and two residual blocks (IMPALA), then a linear map."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        sizes = list(zip((channels, *CHANNELS), CHANNELS, strict=False))
        self.feat_convs = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.MaxPool2d(3, 2, 1)) for a, b in sizes
        )
        self.resnet1 = nn.ModuleList(_residual(b) for b in CHANNELS)
        self.resnet2 = nn.ModuleList(_residual(b) for b in CHANNELS)
        self.fc = nn.Linear(CHANNELS[-1] * SHRUNK, width)

    def forward(self, image: Tensor) -> Tensor:
        """Encode images ``(B, C, 100, 100)``, ``(B, E)``."""
        for convolution, one, two in zip(self.feat_convs, self.resnet1, self.resnet2, strict=True):
            image = convolution(image)
            image = image + one(image)
            image = image + two(image)
        return F.relu(self.fc(F.relu(image.flatten(1))))


def _residual(channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.ReLU(),
        nn.Conv2d(channels, channels, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(channels, channels, 3, padding=1),
    )


class UpperEncoder(nn.Module):
    """From the state of the partial tour to a vector, by way of an image of 100 x 100 pixels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.input_transform = nn.Sequential(
            nn.Conv1d(STATE + 4, width // 2, 1, bias=False), nn.InstanceNorm1d(width // 2, 1e-3, affine=True)
        )
        self.cnn = ImageNetwork(width // 2, width)

    def forward(self, state: Tensor) -> Tensor:
        """Encode states ``(B, N, 8)``, ``(B, E)``."""
        batch = len(state)
        # The official code lets a coordinate of 1 fall into the next row of pixels, or out of the image.
        cell = (state[:, :, :2] / PIXEL).floor().long().clamp(0, PIXELS - 1)
        pixel = cell[:, :, 0] * PIXELS + cell[:, :, 1]  # (B, N)
        features = self._features(state, cell, pixel)
        points = F.relu(self.input_transform(features.transpose(1, 2)))  # (B, C, N)
        image = points.new_zeros(batch, points.shape[1], PIXELS * PIXELS)
        # All points are at least 0 and so are empty pixels, so that pixels need no initial value of their own.
        image = image.scatter_reduce(2, pixel[:, None].expand_as(points), points, "amax")
        return self.cnn(image.unflatten(2, (PIXELS, PIXELS)))

    def _features(self, state: Tensor, cell: Tensor, pixel: Tensor) -> Tensor:
        """Position, offset to the pixel's centre and to the mean of its cities, the rest of the state: ``(B, N, 12)``."""
        xy = state[:, :, :2]
        index = pixel[..., None].expand_as(xy)
        sums = xy.new_zeros(len(xy), PIXELS * PIXELS, 2).scatter_add(1, index, xy)
        counts = xy.new_zeros(len(xy), PIXELS * PIXELS).scatter_add(1, pixel, torch.ones_like(xy[..., 0]))
        mean = sums.gather(1, index) / counts.gather(1, pixel)[..., None]
        centre = (cell + 0.5) * PIXEL
        return torch.cat([xy, xy - centre, xy - mean, state[:, :, 2:]], dim=2)


class Actor(nn.Module):
    """The mean of the point before tanh, and a learned deviation that does not depend on the state."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        first = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.net = nn.Sequential(first, nn.Linear(hidden, hidden), nn.Hardswish(), nn.Linear(hidden, 2))
        self.a_std_log = nn.Parameter(torch.full((1, 2), -1.0))

    def forward(self, encoded: Tensor) -> Tensor:
        """Return means, ``(B, E)`` to ``(B, 2)``; tanh of them is the greedy action."""
        return self.net(encoded)


class Critic(nn.Module):
    """The value of a state."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Sequential(nn.Linear(width, hidden), nn.ReLU()),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.Hardswish(),
            nn.Linear(hidden, 1),
        )

    def forward(self, encoded: Tensor) -> Tensor:
        """Return values, ``(B, E)`` to ``(B, 1)``."""
        return self.net(encoded)


class Htsp(nn.Module):
    """Both levels."""

    def __init__(self, config: HtspConfig) -> None:
        super().__init__()
        self.config, self.problem = config, config.problem
        self.encoder = UpperEncoder(config.upper_width)
        self.actor = Actor(config.upper_width, config.actor_width)
        self.critic = Critic(config.upper_width, config.critic_width)
        self.lower = LowerModel(config)

    def act(self, state: Tensor) -> Tensor:
        """Return greedy actions in [-1, 1], ``(B, N, 8)`` to ``(B, 2)``."""
        return self.actor(self.encoder(state)).tanh()


def build(config: HtspConfig, logit_scale: LogitScale | None = None) -> Htsp:
    """Build both networks with fresh weights."""
    if config.problem != "tsp":
        raise UnknownNameError("problem of h-tsp", config.problem, ["tsp"])
    if logit_scale is not None:
        raise BadInputError("h-tsp: --logit-scale has no effect on its networks; leave it out.")
    return Htsp(config)


LOWER = "low_level_model."
UNUSED = ("encoder_target.", "critic_target.")
"""Copies that training keeps."""

LOWER_NAMES = {
    r"encoder\.init_projection_layer\.": "embedding.",
    r"encoder\.attn_layers\.(\d+)\.multi_head_combine\.": r"layers.\1.attention.out.",
    r"encoder\.attn_layers\.(\d+)\.feed_forward\.0\.": r"layers.\1.feed_forward.inner.",
    r"encoder\.attn_layers\.(\d+)\.feed_forward\.2\.": r"layers.\1.feed_forward.outer.",
    r"encoder\.attn_layers\.(\d+)\.norm": r"layers.\1.norm",
    r"decoder\.Wq_last\.": "current.",
    r"decoder\.Wq_(\w+)\.": r"\1.",
    r"decoder\.Wk\.": "key.",
    r"decoder\.Wv\.": "value.",
    r"decoder\.multi_head_combine\.": "combine.",
}


def from_official(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Translate a state dict of the upper level's checkpoint, which holds the lower level too; unknown keys stay."""
    left = {key: value for key, value in state.items() if not key.startswith(UNUSED)}
    ours = {}
    for i in range(_layers(state)):
        layer = f"{LOWER}encoder.attn_layers.{i}."
        names = (f"{layer}Wq.weight", f"{layer}Wk.weight", f"{layer}Wv.weight")
        ours[f"lower.layers.{i}.attention.qkv.weight"] = fuse_qkv(left, names)
    for key, value in left.items():
        name = key
        if key.startswith(LOWER):
            name = f"lower.{key.removeprefix(LOWER)}"
            for pattern, new in LOWER_NAMES.items():
                name = re.sub(rf"^lower\.{pattern}", f"lower.{new}", name)
        ours[name] = value
    return ours


def _layers(state: dict[str, Tensor]) -> int:
    return sum(bool(re.fullmatch(rf"{LOWER}encoder\.attn_layers\.\d+\.Wq\.weight", key)) for key in state)


def config_of(state: dict[str, Tensor], problem: str) -> HtspConfig:
    """Read sizes off an official state dict; the heads of the lower model, which it does not say, are taken to be 8.

    Raises
    ------
    BadWeightsError
        When a part of the model is missing.
    """
    keys = {
        "upper": "encoder.cnn.fc.weight",
        "actor": "actor.net.1.weight",
        "critic": "critic.net.1.weight",
        "lower": f"{LOWER}encoder.init_projection_layer.weight",
        "ffn": f"{LOWER}encoder.attn_layers.0.feed_forward.0.weight",
    }
    for key in keys.values():
        if key not in state:
            raise BadWeightsError(
                f"h-tsp: not official weights of h-tsp, {key} is missing; give the upper level's file."
            )
    size = {name: state[key].shape[0] for name, key in keys.items()}
    return HtspConfig(
        problem, size["upper"], size["actor"], size["critic"], size["lower"], 8, size["ffn"], _layers(state)
    )

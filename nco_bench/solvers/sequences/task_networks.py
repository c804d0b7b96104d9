"""The networks that the Tropical Attention paper compares: one transformer block with one of three attentions, and the
Universal Transformer that applies a softmax block up to 32 times with adaptive computation time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from nco_bench.cards import trained_by
from nco_bench.errors import UnknownNameError
from nco_bench.nn.layers import add_feed_forward
from nco_bench.solvers.sequences import few_features
from nco_bench.solvers.sequences.softmax import SoftmaxAttention
from nco_bench.solvers.sequences.tropical import VARIANTS, TropicalAttention, TropicalOptions


@dataclass(frozen=True)
class TaskNetworkConfig:
    """Sizes of a network.

    Attributes
    ----------
    features
        Input features per token.
    pooled
        One output per instance, by the mean over tokens, instead of one per token.
    attention
        ``vanilla``, ``adaptive`` or ``tropical``.
    width, heads, layers
        Width of a token, heads, layers; the hidden layer of the feed-forward part is four times as wide.
    pre_norm
        Normalise before each part and once at the end, instead of after each part.
    outputs
        Values per token or instance.
    tropical
        Variants of tropical attention.
    max_steps, halting_epsilon
        Of a Universal Transformer.
    """

    features: int
    pooled: bool
    attention: str = "tropical"
    width: int = 64
    heads: int = 2
    layers: int = 1
    pre_norm: bool = False
    outputs: int = 1
    tropical: TropicalOptions = field(default_factory=TropicalOptions)
    max_steps: int = 32
    halting_epsilon: float = 0.01


class EncoderLayer(nn.Module):
    """Attention and feed-forward part, each with a residual, normalised after (default) or before."""

    def __init__(self, attention: nn.Module, width: int, pre_norm: bool) -> None:
        super().__init__()
        self.pre_norm = pre_norm
        self.attention = attention
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)

    def attention_input(self, x: Tensor) -> Tensor:
        """Return what the attention sees of tokens ``(B, N, D)``."""
        normed: Tensor = self.norm1(x) if self.pre_norm else x
        return normed

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens ``(B, N, D)`` to ``(B, N, D)``."""
        return self.second_part(x + self.attention(self.attention_input(x)))

    def second_part(self, h: Tensor) -> Tensor:
        """Map tokens with the attention added, ``(B, N, D)``, to the layer's output; `h` may be overwritten."""
        if self.pre_norm:
            return h + self.feed_forward(self.norm2(h))
        normed: Tensor = self.norm2(add_feed_forward(self.norm1(h), *self.maps()))
        return normed

    def maps(self) -> tuple[nn.Linear, nn.Linear]:
        """Return both maps of the feed-forward part."""
        inner, _, outer = self.feed_forward
        assert isinstance(inner, nn.Linear)
        assert isinstance(outer, nn.Linear)
        return inner, outer


def _attention(config: TaskNetworkConfig) -> nn.Module:
    if config.attention == "tropical":
        return TropicalAttention(config.width, config.heads, config.tropical)
    return SoftmaxAttention(config.width, config.heads, config.attention == "adaptive")


class TaskNetwork(nn.Module):
    """Embedding, encoder layers, readout.

    As in the official code, tropical layers share one attention module, and the last normalisation is there
    (and counted) without pre-norm too, where it is not applied.
    """

    def __init__(self, config: TaskNetworkConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Linear(config.features, config.width)
        shared = _attention(config)
        self.layers = nn.ModuleList(
            EncoderLayer(
                shared if config.attention == "tropical" else _attention(config),
                config.width,
                config.pre_norm,
            )
            for _ in range(config.layers)
        )
        self.last_norm = nn.LayerNorm(config.width)
        self.readout = nn.Linear(config.width, config.outputs)

    def encode(self, x: Tensor) -> Tensor:
        """Map features ``(B, N, F)`` to encoded tokens ``(B, N, D)``."""
        h = self._first_layer(x)
        for layer in self.layers[1:]:
            h = layer(h)
        return self.last_norm(h) if self.config.pre_norm else h

    def _first_layer(self, x: Tensor) -> Tensor:
        layer = self.layers[0]
        assert isinstance(layer, EncoderLayer)
        if few_features.pays(x, layer):
            return few_features.first_layer(x, self.embed, layer)
        result: Tensor = layer(self.embed(x))
        return result

    def forward(self, x: Tensor) -> Tensor:
        """Map features ``(B, N, F)`` to logits or values: ``(B, N)``, or ``(B,)`` where pooled; with several outputs
        those are a last axis.
        """
        h = self.encode(x)
        values: Tensor = self.readout(h.mean(1) if self.config.pooled else h)
        return values.squeeze(-1) if self.config.outputs == 1 else values

    def attention_maps(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return what the first layer takes from which key, ``(B, H, N, N)``, and key norms ``(B, H, N)``.

        Softmax weights; for tropical attention the share of the context's channels that a key provides. Rows sum to 1.
        """
        layer = self.layers[0]
        assert isinstance(layer, EncoderLayer)
        seen, attention = layer.attention_input(self.embed(x)), layer.attention
        if isinstance(attention, TropicalAttention):
            return attention.shares(seen), attention.key_norms(seen)
        assert isinstance(attention, SoftmaxAttention)
        return attention.weights(seen), attention.key_norms(seen)


class UniversalTaskNetwork(TaskNetwork):
    """Universal Transformer (Dehghani et al., 2019): one layer applied until each token halts.

    Per step and token: add the sinusoidal step signal, halt with probability sigmoid(w h + b). A token stops when its summed
    probability would exceed 1 - eps; its last weight is the remainder. There is no position signal (tokens are sets or carry
    indices) and, with 50,242 parameters published, no room for learned step embeddings. The Tropical Attention paper says
    32 steps and "dynamic halting", and there is no code of it: eps = 0.01, a halting bias that begins at 1 and no cost of
    pondering in the loss are our choice.
    """

    def __init__(self, config: TaskNetworkConfig) -> None:
        super().__init__(config)
        self.halt = nn.Linear(config.width, 1)
        nn.init.constant_(self.halt.bias, 1.0)
        self.signal: Tensor
        self.register_buffer("signal", step_signal(config.max_steps, config.width), persistent=False)

    def encode(self, x: Tensor) -> Tensor:
        """Map features ``(B, N, F)`` to encoded tokens ``(B, N, D)``."""
        state: Tensor = self.embed(x)
        output = torch.zeros_like(state)
        total = state.new_zeros(*state.shape[:2], 1)
        running = torch.ones_like(total, dtype=torch.bool)
        for step in range(self.config.max_steps):
            state = state + self.signal[step]
            p = torch.sigmoid(self.halt(state))
            halts = running & (total + p > 1 - self.config.halting_epsilon)
            weight = torch.where(halts, 1 - total, p) * running
            total = total + weight
            running = running & ~halts
            state = self.layers[0](state)
            output = weight * state + (1 - weight) * output
            if not running.any():
                break
        return self.last_norm(output) if self.config.pre_norm else output


def step_signal(steps: int, width: int) -> Tensor:
    """Return the sinusoidal signal ``(steps, width)`` of the Universal Transformer: sines, then cosines."""
    half = width // 2
    frequency = torch.exp(-math.log(1e4) / max(1, half - 1) * torch.arange(half))
    angle = torch.arange(steps)[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=1)


def build_task_network(name: str, features: int, pooled: bool) -> TaskNetwork:
    """Return an untrained network of the paper, or a variant of one.

    Parameters
    ----------
    name
        A network whose card says that it learns tasks.
    features
        Input features per token.
    pooled
        Whether there is one answer per instance.

    Raises
    ------
    UnknownNameError
        For another name.
    """
    known = trained_by("tasks")
    if name not in known:
        raise UnknownNameError("network", name, known)
    facts = known[name].facts
    tropical = VARIANTS[facts.get("variant", "")]
    config = TaskNetworkConfig(features, pooled, attention=facts["attention"], tropical=tropical)
    return UniversalTaskNetwork(config) if facts["recurrent"] else TaskNetwork(config)

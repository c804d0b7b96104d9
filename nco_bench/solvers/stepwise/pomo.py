"""POMO, "Policy Optimization with Multiple Optima for Reinforcement Learning" (Kwon et al., NeurIPS 2020), TSP and CVRP.

Six encoder layers run once; one trajectory is decoded from every start node. This is the code that everybody builds on
(yd-kwon/POMO, ``NEW_py_ver``), which differs from the paper: instance instead of batch normalisation, no graph
embedding in the query. Unlike AM, the pointer compares with the encoded nodes themselves, the glimpse has a
bias, and the first node is given, not chosen.

Letters in shapes: B instances, N nodes (depot first), D width, H heads, K head width, P trajectories.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from nco_bench.errors import UnknownNameError
from nco_bench.nn.layers import FeedForward, SelfAttention, fuse_qkv, works_in_place
from nco_bench.nn.logit_scale import LogitScale, none
from nco_bench.solvers.stepwise.glimpse import Glimpse, attention_scales, clipped, pointer_scores, split_heads
from nco_bench.solvers.stepwise.policy import RouteState, RoutingNodes


@dataclass(frozen=True)
class PomoConfig:
    """Sizes of POMO; the defaults are the published models.

    Attributes
    ----------
    problem
        ``tsp`` or ``cvrp``.
    width, heads, head_dim, ffn, layers
        Embedding width, attention heads, width of each head, hidden width of the feed-forward layers, encoder
        layers.
    clip
        Half range of the logits.
    training_size
        Instance size the weights were trained on, for logit scales.
    """

    problem: str = "tsp"
    width: int = 128
    heads: int = 8
    head_dim: int = 16
    ffn: int = 512
    layers: int = 6
    clip: float = 10.0
    training_size: int = 100


def config_for(name: str, problem: str) -> PomoConfig:
    """Return the configuration of the published models."""
    return PomoConfig(problem)


class InstanceNorm(nn.Module):
    """Normalise each channel over the nodes of an instance: biased variance, eps 1e-5, no running statistics."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise, ``(B, N, D)``; `x` itself, overwritten, where `nco_bench.nn.layers.works_in_place`."""
        # Means over the middle axis are much faster on a CPU than torch.var_mean.
        in_place = works_in_place(x)
        mean = x.mean(dim=1, keepdim=True)
        centred = x.sub_(mean) if in_place else x - mean
        variance = centred.square().mean(dim=1, keepdim=True)
        factor = self.weight * torch.rsqrt(variance + 1e-5)
        return torch.addcmul(self.bias, centred, factor, out=centred if in_place else None)


class Layer(nn.Module):
    """Norm(X + MHA(X)), then Norm(X + FF(X))."""

    def __init__(self, config: PomoConfig) -> None:
        super().__init__()
        self.attention = SelfAttention(config.width, config.heads, config.head_dim, qkv_bias=False)
        self.norm_attention = InstanceNorm(config.width)
        self.feed_forward = FeedForward(config.width, config.ffn)
        self.norm_feed_forward = InstanceNorm(config.width)

    def forward(self, x: Tensor, scale: float | Tensor) -> Tensor:
        """Transform nodes, ``(B, N, D)`` to ``(B, N, D)``; `scale` is the logit scale. `x` may be overwritten."""
        x = self.norm_attention(self.attention.added(x, scale))
        return self.norm_feed_forward(self.feed_forward.added(x))


class Encoder(nn.Module):
    """Input embedding and all layers."""

    def __init__(self, config: PomoConfig) -> None:
        super().__init__()
        cvrp = config.problem == "cvrp"
        self.embedding = nn.Linear(3 if cvrp else 2, config.width)
        if cvrp:
            self.depot_embedding = nn.Linear(2, config.width)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))

    def embed(self, nodes: RoutingNodes) -> Tensor:
        """Embed coordinates (and demands of customers), ``(B, N, D)``."""
        if nodes.demand is None:
            return self.embedding(nodes.coords)
        customers = torch.cat([nodes.coords, nodes.demand[..., None]], dim=2)[:, 1:]
        return torch.cat([self.depot_embedding(nodes.coords[:, :1]), self.embedding(customers)], dim=1)

    def forward(self, nodes: RoutingNodes, scale: float | Tensor) -> Tensor:
        """Encode all nodes, ``(B, N, D)``."""
        x = self.embed(nodes)
        for layer in self.layers:
            x = layer(x, scale)
        return x


class Decoder(nn.Module):
    """One attention from the current node (and the first, or the capacity left) over all nodes."""

    def __init__(self, config: PomoConfig) -> None:
        super().__init__()
        width, inner = config.width, config.heads * config.head_dim
        cvrp = config.problem == "cvrp"
        self.heads = config.heads
        self.first = None if cvrp else nn.Linear(width, inner, bias=False)
        self.current = nn.Linear(width + cvrp, inner, bias=False)
        self.key = nn.Linear(width, inner, bias=False)
        self.value = nn.Linear(width, inner, bias=False)
        self.combine = nn.Linear(inner, width)

    def prepare(self, x: Tensor, scale: float | Tensor) -> Glimpse:
        """Project encoded nodes ``(B, N, D)`` once; `scale` is the factor of q.k."""
        width = x.shape[2]
        current = self.current.weight * scale
        pointer = x / math.sqrt(width)
        keys = split_heads(self.key(x), self.heads)
        return Glimpse(
            keys=keys,
            keys_across=keys.transpose(2, 3).contiguous(),
            values=split_heads(self.value(x), self.heads),
            # (W o + b) . h = o . (W^T h) + b . h
            pointer=(pointer @ self.combine.weight).transpose(1, 2).contiguous(),
            offset=(pointer @ self.combine.bias)[:, None],
            current=x @ current[:, :width].T,
            first=None if self.first is None else self.first(x) * scale,
            room=current[:, width] if self.first is None else None,
        )


class Pomo(nn.Module):
    """The whole policy."""

    needs_start = True

    def __init__(self, config: PomoConfig, logit_scale: LogitScale = none) -> None:
        super().__init__()
        self.config, self.problem, self.logit_scale = config, config.problem, logit_scale
        self.encoder, self.decoder = Encoder(config), Decoder(config)

    def encode(self, nodes: RoutingNodes) -> Glimpse:
        """Run the encoder, and project its output to all that the decoder needs."""
        head_dim = self.config.head_dim
        scale, glimpse_scale = attention_scales(self.logit_scale, nodes, head_dim, self.config.training_size)
        glimpse = self.decoder.prepare(self.encoder(nodes, scale * math.sqrt(head_dim)), glimpse_scale)
        return replace(glimpse, clip=self.config.clip)

    def logits(self, encoded: Glimpse, state: RouteState) -> Tensor:
        """Return ``C tanh(u)``, ``-inf`` where blocked, ``(B, P, N)``."""
        return clipped(pointer_scores(encoded, state), state, self.config.clip)


def build(config: PomoConfig, logit_scale: LogitScale | None = None) -> Pomo:
    """Build the policy with fresh weights (PyTorch's default initialisation, as the official code)."""
    if config.problem not in ("tsp", "cvrp"):
        raise UnknownNameError("problem of pomo", config.problem, ["tsp", "cvrp"])
    return Pomo(config, logit_scale or none)


# The official TSP and CVRP files spell some layers differently.
OFFICIAL_PREFIXES = {
    "encoder.embedding_depot.": "encoder.depot_embedding.",
    "encoder.embedding_node.": "encoder.embedding.",
    "decoder.Wq_first.": "decoder.first.",
    "decoder.Wq_last.": "decoder.current.",
    "decoder.Wk.": "decoder.key.",
    "decoder.Wv.": "decoder.value.",
    "decoder.multi_head_combine.": "decoder.combine.",
}
OFFICIAL_LAYER = {
    "multi_head_combine.": "attention.out.",
    "addAndNormalization1.norm.": "norm_attention.",
    "add_n_normalization_1.norm.": "norm_attention.",
    "addAndNormalization2.norm.": "norm_feed_forward.",
    "add_n_normalization_2.norm.": "norm_feed_forward.",
    "feedForward.W1.": "feed_forward.inner.",
    "feedForward.W2.": "feed_forward.outer.",
    "feed_forward.W1.": "feed_forward.inner.",
    "feed_forward.W2.": "feed_forward.outer.",
}


def from_official(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Translate a state dict of yd-kwon/POMO (NEW_py_ver) or of ELG's global policy; unknown keys stay as they are."""
    left, ours = dict(state), {}
    prefixes = dict(OFFICIAL_PREFIXES)
    for i in range(sum(key.startswith("encoder.layers.") and key.endswith(".Wq.weight") for key in state)):
        layer = f"encoder.layers.{i}."
        names = (f"{layer}Wq.weight", f"{layer}Wk.weight", f"{layer}Wv.weight")
        ours[f"{layer}attention.qkv.weight"] = fuse_qkv(left, names)
        prefixes |= {layer + old: layer + new for old, new in OFFICIAL_LAYER.items()}
    for key in list(left):
        for old, new in prefixes.items():
            if key.startswith(old):
                ours[new + key.removeprefix(old)] = left.pop(key)
                break
    return ours | left

"""LEHD, "Neural Combinatorial Optimization with Heavy Decoder" (Luo et al., NeurIPS 2023), for TSP and CVRP.

A light encoder (one attention layer) runs once; a heavy decoder (six layers) runs at every step over the first
node, the unvisited nodes and the last node. No normalisation, no positional encoding, raw unit-square coordinates.
``lehd-24x64`` is the deep and narrow variant of "Efficient Decoder Scaling Strategy" (2026).

What produced the published numbers and is not in the paper: probabilities of at most 1e-5 get 1e-7 added (this
never changes the greedy choice); for the CVRP nothing is masked, and an infeasible direct choice is turned into
one via the depot (`repairs`); in training on the CVRP the customers' embeddings are detached. The official TSP
checkpoint holds a linear map ``decoder.k_1`` that is never used: it is counted in the published 1,431,681 parameters
and left out here.

Letters in shapes: B batch, N nodes, M candidates, T = M + 2 tokens, W width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from nco_bench.errors import UnknownNameError
from nco_bench.nn.filled import Filled, pays
from nco_bench.nn.layers import FeedForward, SelfAttention, fuse_qkv, with_column
from nco_bench.nn.logit_scale import LogitScale, ScaleContext, none
from nco_bench.solvers.path.policy import AuxiliaryTokens, PathNodes, PathPolicy, PathState


@dataclass(frozen=True)
class LehdConfig:
    """Sizes of LEHD (paper, appendix B); the defaults are the published model.

    Attributes
    ----------
    problem
        ``tsp`` or ``cvrp``.
    width, heads, head_dim, ffn
        Embedding width, attention heads, width of each head, hidden width of the feed-forward layers.
    encoder_layers, decoder_layers
        Number of layers that run once, and at every step.
    training_size
        Instance size the weights were trained on, for logit scales.
    """

    problem: str = "tsp"
    width: int = 128
    heads: int = 8
    head_dim: int = 16
    ffn: int = 512
    encoder_layers: int = 1
    decoder_layers: int = 6
    training_size: int = 100


def config_for(name: str, problem: str) -> LehdConfig:
    """Return the configuration of a registered name: ``lehd``, or ``lehd-24x64`` (decoder scaling, Table 20; heads ours)."""
    if name == "lehd-24x64":
        return LehdConfig(problem, width=64, heads=4, ffn=256, decoder_layers=24)
    return LehdConfig(problem)


class Layer(nn.Module):
    """X + MHA(X), then X + FFN(X); no normalisation (Equations 3 and 4)."""

    def __init__(self, config: LehdConfig) -> None:
        super().__init__()
        self.attention = SelfAttention(config.width, config.heads, config.head_dim, qkv_bias=False)
        self.feed_forward = FeedForward(config.width, config.ffn)

    def forward(self, x: Tensor, scale: float | Tensor, real: Tensor | None = None) -> Tensor:
        """Transform tokens, ``(B, T, W)`` to ``(B, T, W)``; the input may be overwritten (`works_in_place`)."""
        return self.feed_forward.added(self.attention.added(x, scale, real))

    def scored(
        self, x: Tensor, scale: float | Tensor, score: nn.Linear, real: Tensor | None = None
    ) -> Tensor:
        """Score the tokens between the first and the last, as ``score(self(x))`` would."""
        return self.feed_forward.scored(self.attention.added(x, scale, real), score)[:, 1:-1]


class Lehd(nn.Module, PathPolicy):
    """The whole policy: `embed` is the encoder, `scores` the decoder."""

    repairs = True
    masks = True

    def __init__(self, config: LehdConfig, logit_scale: LogitScale = none) -> None:
        super().__init__()
        self.config = config
        self.problem = config.problem
        self.logit_scale = logit_scale
        cvrp = config.problem == "cvrp"
        self.embedding = nn.Linear(3 if cvrp else 2, config.width)
        self.encoder = nn.ModuleList(Layer(config) for _ in range(config.encoder_layers))
        self.first = nn.Linear(config.width + cvrp, config.width)
        self.last = nn.Linear(config.width + cvrp, config.width)
        self.decoder = nn.ModuleList(Layer(config) for _ in range(config.decoder_layers))
        self.score = nn.Linear(config.width, 2 if cvrp else 1)

    def embed(self, nodes: PathNodes) -> Tensor:
        """Encode all nodes: coordinates (and demand shares), ``(B, N, 2)``, to ``(B, N, W)``."""
        inputs = nodes.coords
        if nodes.demand is not None:
            inputs = torch.cat([inputs, nodes.demand.unsqueeze(-1)], dim=2)
        x = self.embedding(inputs)
        scale = self._scale(x.shape[1], nodes.instance_size)
        for layer in self.encoder:
            x = layer(x, scale)
        return x

    def scores(self, state: PathState) -> Tensor:
        """Score the candidates, ``(B, M)``; for the CVRP ``(B, M, 2)``: directly, via the depot."""
        origin, candidates, destination = (
            state.features[:, :1],
            state.features[:, 1:-1],
            state.features[:, -1:],
        )
        if state.remaining is not None:
            # As in the official code, the CVRP's encoder learns through the depot's embedding alone.
            candidates = candidates.detach()
            origin = with_column(origin.detach(), state.remaining)
            destination = with_column(destination, state.remaining)
        # "First" is the node that the path must return to, "last" the node where it stands.
        parts = self.first(destination), candidates, self.last(origin)
        scores = self._decoded(parts, self.factor_at(state), state.real())
        return scores if self.problem == "cvrp" else scores.squeeze(-1)

    def _decoded(self, parts: tuple[Tensor, ...], scale: float | Tensor, real: Tensor | None) -> Tensor:
        """Score tokens but the first and the last, given those three parts of them."""
        *layers, last = (cast("Layer", layer) for layer in self.decoder)
        if not pays(parts[1], last.attention.out, layers):
            x = torch.cat(parts, dim=1)
            for layer in layers:
                x = layer(x, scale, real)
            return last.scored(x, scale, self.score, real)
        tokens, factor = Filled(*parts), scale / math.sqrt(last.attention.head_dim)
        for layer in layers:
            tokens.attend(layer.attention, factor, real)
            tokens.feed_forward(layer.feed_forward.inner, layer.feed_forward.outer)
        tokens.attend(last.attention, factor, real)
        return last.feed_forward.scored(tokens.whole, self.score)[:, 1:-1]

    def auxiliary_tokens(self) -> AuxiliaryTokens | None:
        """Those of the last layer but one: the last one scores from within."""
        return AuxiliaryTokens(self.decoder[-2]) if len(self.decoder) > 1 else None

    def logit_factor(self, candidates: int, instance_size: int, *, closed: bool) -> float | Tensor:
        """Return the logit scale for candidates, first and last node."""
        return self._scale(candidates + 2, instance_size)

    def _scale(self, tokens: int, instance_size: int) -> float | Tensor:
        context = ScaleContext(tokens, instance_size, self.config.head_dim, self.config.training_size)
        return self.logit_scale(context)


def build(config: LehdConfig, logit_scale: LogitScale | None = None) -> Lehd:
    """Build the policy with fresh weights (PyTorch's default initialisation, as the official code)."""
    if config.problem not in ("tsp", "cvrp"):
        raise UnknownNameError("problem of lehd", config.problem, ["tsp", "cvrp"])
    return Lehd(config, logit_scale or none)


OFFICIAL_PREFIXES = {
    "encoder.embedding.": "embedding.",
    "decoder.embedding_first_node.": "first.",
    "decoder.embedding_last_node.": "last.",
    "decoder.Linear_final.": "score.",
}
OFFICIAL_LAYER = {
    "multi_head_combine.": "attention.out.",
    "feedForward.W1.": "feed_forward.inner.",
    "feedForward.W2.": "feed_forward.outer.",
}
IGNORED = ("decoder.k_1.weight", "decoder.k_1.bias")


def from_official(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Translate a state dict of CIAM-Group/NCO_code (single_objective/LEHD); unknown keys stay as they are."""
    left = {key: value for key, value in state.items() if key not in IGNORED}
    ours: dict[str, Tensor] = {}
    for part in ("encoder", "decoder"):
        depth = sum(key.startswith(f"{part}.layers.") and key.endswith(".Wq.weight") for key in left)
        for i in range(depth):
            official, mine = f"{part}.layers.{i}.", f"{part}.{i}."
            names = (f"{official}Wq.weight", f"{official}Wk.weight", f"{official}Wv.weight")
            ours[f"{mine}attention.qkv.weight"] = fuse_qkv(left, names)
            ours |= rename(left, {official + old: mine + new for old, new in OFFICIAL_LAYER.items()})
    ours |= rename(left, OFFICIAL_PREFIXES)
    return ours | left


def rename(state: dict[str, Tensor], prefixes: dict[str, str]) -> dict[str, Tensor]:
    """Move the entries of `state` that start with a known prefix into a new dict, under the new prefix."""
    moved = {}
    for key in list(state):
        for old, new in prefixes.items():
            if key.startswith(old):
                moved[new + key.removeprefix(old)] = state.pop(key)
                break
    return moved

"""SIGD, "Self-Improvement for Neural Combinatorial Optimization" (Pirnay and Grimm, TMLR 2024), for TSP and CVRP.

Two re-implementations of earlier networks by the SIGD authors (grimmlab/gumbeldore), not weight compatible with them:
the BQ style (`Sigd`, one ReZero scalar per block) and the LEHD style (`SigdLehd`, an encoder block that runs once, no
ReZero). Both use PyTorch's multi-head attention with all biases and exact GELU.

For the CVRP infeasible direct edges are masked, and so are all direct edges while nothing is visited. The last
customer is not a decision: it is served directly if it fits, else via the depot. If more than 250 customers
remain, the network sees only the 250 nearest (`default_knn`; hard-coded in the official code).

Letters in shapes: B batch, N nodes, M candidates, T tokens, W width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nco_bench.errors import UnknownNameError
from nco_bench.nn.layers import FeedForward, SelfAttention
from nco_bench.nn.logit_scale import LogitScale, ScaleContext, none
from nco_bench.solvers.path.policy import PathNodes, PathPolicy, PathState

STYLES = ("bq", "lehd")


@dataclass(frozen=True)
class SigdConfig:
    """Sizes of SIGD's networks; the defaults are the published BQ-style TSP model.

    Attributes
    ----------
    problem
        ``tsp`` or ``cvrp``.
    style
        ``bq`` or ``lehd``.
    width, heads, ffn, blocks
        Embedding width, attention heads (each ``width // heads`` wide), hidden width, number of blocks.
    training_size
        Instance size the weights were trained on, for logit scales.
    """

    problem: str = "tsp"
    style: str = "bq"
    width: int = 128
    heads: int = 8
    ffn: int = 512
    blocks: int = 9
    training_size: int = 100


def config_for(name: str, problem: str) -> SigdConfig:
    """Return the configuration of a registered name: ``sigd`` or ``sigd-lehd`` (the CVRP models are wider)."""
    style = "lehd" if name == "sigd-lehd" else "bq"
    return (
        SigdConfig(problem, style, width=192, heads=12) if problem == "cvrp" else SigdConfig(problem, style)
    )


class Block(nn.Module):
    """X + w MHA(X), then X + w FFN(X), with one ReZero scalar w for both (or none, w = 1)."""

    def __init__(self, config: SigdConfig, *, rezero: bool) -> None:
        super().__init__()
        self.attention = SelfAttention(
            config.width, config.heads, config.width // config.heads, qkv_bias=True
        )
        self.feed_forward = FeedForward(config.width, config.ffn, gelu=True)
        self.weight = nn.Parameter(torch.zeros(1)) if rezero else 1.0

    def forward(self, x: Tensor, scale: float | Tensor, real: Tensor | None = None) -> Tensor:
        """Transform tokens, ``(B, T, W)`` to ``(B, T, W)``; `x` itself is overwritten where `works_in_place`."""
        return self.feed_forward.added(self.attention.added(x, scale, real, self.weight), self.weight)

    def scored(
        self, x: Tensor, scale: float | Tensor, score: nn.Linear, candidates: int, real: Tensor | None = None
    ) -> Tensor:
        """Score the last `candidates` tokens, as ``score(self(x))`` would, ``(B, T, W)`` to ``(B, M, 1 or 2)``."""
        x = self.attention.added(x, scale, real, self.weight)
        return self.feed_forward.scored(x, score, self.weight)[:, -candidates:]


class SigdBase(nn.Module, PathPolicy):
    """What both styles share: the blocks of the decoder, the score and its masks."""

    masks = True

    def __init__(self, config: SigdConfig, logit_scale: LogitScale) -> None:
        super().__init__()
        self.config = config
        self.problem = config.problem
        self.logit_scale = logit_scale
        self.default_knn = 250 if config.problem == "cvrp" else None
        rezero = config.style == "bq"
        self.blocks = nn.ModuleList(Block(config, rezero=rezero) for _ in range(config.blocks))
        self.score = nn.Linear(config.width, 2 if config.problem == "cvrp" else 1)

    def scale(self, tokens: int, instance_size: int) -> float | Tensor:
        """Return the logit scale for a sequence of this length."""
        head_dim = self.config.width // self.config.heads
        return self.logit_scale(ScaleContext(tokens, instance_size, head_dim, self.config.training_size))

    def logit_factor(self, candidates: int, instance_size: int, *, closed: bool) -> float | Tensor:
        """Return the logit scale for candidates and ends, which are one at the begin of a CVRP solution."""
        return self.scale(candidates + (1 if closed and self.problem == "cvrp" else 2), instance_size)

    def decode(self, x: Tensor, state: PathState) -> Tensor:
        """Run the blocks over all tokens and score the candidates, which are the last M tokens."""
        scale, real = self.factor_at(state), state.real(x.shape[1] - state.candidates, 0)
        for block in self.blocks[:-1]:
            x = block(x, scale, real)
        last = cast("Block", self.blocks[-1])
        scores = last.scored(x, scale, self.score, state.candidates, real)
        if state.demand is None or state.remaining is None:
            return scores.squeeze(-1)
        direct, via = scores.unbind(-1)
        fits = state.demand[:, 1:-1] <= state.remaining[:, None]
        if state.closed:
            fits = torch.zeros_like(fits)
        # A single customer is not a decision: directly if it fits.
        if state.padding is not None:
            via = via.masked_fill(fits & (state.padding.count == 1), -torch.inf)
        elif state.candidates == 1:
            via = via.masked_fill(fits, -torch.inf)
        return torch.stack([direct.masked_fill(~fits, -torch.inf), via], dim=-1)


class Sigd(SigdBase):
    """BQ style: raw features of the current node, the unvisited nodes and the destination (CVRP: the depot)."""

    def __init__(self, config: SigdConfig, logit_scale: LogitScale = none) -> None:
        super().__init__(config, logit_scale)
        self.embedding = nn.Linear(4 if self.problem == "cvrp" else 2, config.width)
        # TSP: first, last. CVRP: depot, node where the vehicle stands.
        self.markers = nn.Embedding(2, config.width)

    def embed(self, nodes: PathNodes) -> Tensor:
        """Embed what depends on a node alone: (x, y), and the demand share for the CVRP, to ``(B, N, W)``."""
        if nodes.demand is None:
            return self.embedding(nodes.coords)
        inputs = torch.cat([nodes.coords, nodes.demand.unsqueeze(-1)], dim=2)
        return F.linear(inputs, self.embedding.weight[:, :3], self.embedding.bias)

    def scores(self, state: PathState) -> Tensor:
        """Score the candidates, ``(B, M)``; for the CVRP ``(B, M, 2)`` with masked entries at -inf."""
        x = state.features
        first, second = self.markers.weight
        if state.remaining is None:
            return self.decode(torch.cat([x[:, -1:] + second, x[:, :1] + first, x[:, 1:-1]], dim=1), state)
        x = x + (state.remaining[:, None] * self.embedding.weight[:, 3])[:, None]
        depot = x[:, -1:] + first
        # While nothing is visited the vehicle stands at the depot, which then carries both markers.
        head = [depot + second] if state.closed else [depot, x[:, :1] + second]
        return self.decode(torch.cat([*head, x[:, 1:-1]], dim=1), state)


class SigdLehd(SigdBase):
    """LEHD style: an encoder block over all nodes, once; then blocks over the remaining ones."""

    def __init__(self, config: SigdConfig, logit_scale: LogitScale = none) -> None:
        super().__init__(config, logit_scale)
        cvrp = self.problem == "cvrp"
        self.embedding = nn.Linear(3 if cvrp else 2, config.width)
        self.encoder = Block(config, rezero=False)
        self.start = nn.Linear(config.width, config.width)
        # TSP: map of the destination in the decoder. CVRP: map of the depot before the encoder.
        self.end = nn.Linear(config.width, config.width)
        self.capacity = nn.Linear(1, config.width) if cvrp else None

    def embed(self, nodes: PathNodes) -> Tensor:
        """Encode all nodes, ``(B, N, 2)`` (and demand shares) to ``(B, N, W)``; for the CVRP row 0 is the depot."""
        if nodes.demand is None:
            x = self.embedding(nodes.coords)
        else:
            x = self.embedding(torch.cat([nodes.coords, nodes.demand.unsqueeze(-1)], dim=2))
            x = torch.cat([self.end(x[:, :1]), x[:, 1:]], dim=1)
        return self.encoder(x, self.scale(x.shape[1], nodes.instance_size))

    def scores(self, state: PathState) -> Tensor:
        """Score the candidates, ``(B, M)``; for the CVRP ``(B, M, 2)`` with masked entries at -inf."""
        x = state.features
        if state.remaining is None or self.capacity is None:
            return self.decode(
                torch.cat([self.end(x[:, -1:]), self.start(x[:, :1]), x[:, 1:-1]], dim=1), state
            )
        head = [self.start(x[:, -1:])] if state.closed else [x[:, -1:], self.start(x[:, :1])]
        capacity = self.capacity(state.remaining[:, None])[:, None]
        return self.decode(torch.cat([*head, x[:, 1:-1]], dim=1) + capacity, state)


def build(config: SigdConfig, logit_scale: LogitScale | None = None) -> Sigd | SigdLehd:
    """Build the policy with fresh weights."""
    if config.problem not in ("tsp", "cvrp"):
        raise UnknownNameError("problem of sigd", config.problem, ["tsp", "cvrp"])
    if config.style not in STYLES:
        raise UnknownNameError("style of sigd", config.style, STYLES)
    return (SigdLehd if config.style == "lehd" else Sigd)(config, logit_scale or none)


OFFICIAL_PREFIXES = {
    "node_embedding.": "embedding.",
    "policy_linear_out.": "score.",
    "first_last_marker.": "markers.",
    "depot_start_node_marker.": "markers.",
    "start_projection.": "start.",
    "dest_projection.": "end.",
    "depot_projection.": "end.",
    "capacity_embedding.": "capacity.",
}
OFFICIAL_BLOCK = {
    "self_attn.in_proj_": "attention.qkv.",
    "self_attn.out_proj.": "attention.out.",
    "linear1.": "feed_forward.inner.",
    "linear2.": "feed_forward.outer.",
    "resweight": "weight",
}


def from_official(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Translate a state dict of grimmlab/gumbeldore (either style); unknown keys stay as they are."""
    lehd_style = any(key.startswith("graph_decoder.") for key in state)
    blocks = "graph_decoder." if lehd_style else "graph_encoder."
    return {_our_key(key, blocks): value for key, value in state.items()}


def _our_key(key: str, blocks: str) -> str:
    for old, new in OFFICIAL_PREFIXES.items():
        if key.startswith(old):
            return new + key.removeprefix(old)
    if key.startswith(blocks):
        index, _, name = key.removeprefix(blocks).partition(".")
        return f"blocks.{index}.{_block_key(name)}"
    if key.startswith("graph_encoder."):
        return f"encoder.{_block_key(key.removeprefix('graph_encoder.'))}"
    return key


def _block_key(name: str) -> str:
    for old, new in OFFICIAL_BLOCK.items():
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name

"""BQ-NCO (Drakulic et al., NeurIPS 2023), for TSP and CVRP, and BQ-NCO + ESF (Xiao et al. 2025).

A decoder-only transformer that is run again at every step on the raw features of the current node, the unvisited nodes
and the destination. Only its linear input map depends on a node alone, so that is what `embed` returns.

As the official code (naver/bq-nco), unlike a textbook transformer: attention logits are not divided by the square root
of the head width; keys and values have biases, queries and the output map have none; residual branches are weighted
by scalars that start at 0 (ReZero), there is no layer norm. Infeasible direct edges are masked in the network.
``knn=k`` of the official code counts the current node and the destination among its k rows (`knn_counts_ends`).

``bq-esf`` multiplies all attention logits by log_100 of a size. There is no official code for it; the default is the
dynamic reading (tokens of the current sequence), because the published TSP-100 value differs from plain BQ's, which a static
factor of 1 could not produce. The static reading (nodes of the instance) is the logit scale ``esf-static``.

``attention="cross"`` puts SIT's linear cross-attention in the place of self-attention (SIT, appendix I, Table 10): current
node and destination read all tokens, then all tokens read these two (its Equations 3 and 4). What is BQ's stays: the markers
that tell the two apart (not repeated, without the maps W_1, W_2 of SIT), ReZero, logits without division, its biases. The
paper says no more than that self-attention is replaced, and has no code of it.

Letters in shapes: B batch, N nodes, M candidates, T = M + 2 tokens, W width, H heads, K head width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nco_bench.errors import UnknownNameError
from nco_bench.nn.layers import FeedForward, attend_side_by_side
from nco_bench.nn.logit_scale import LogitScale, ScaleContext, esf, none
from nco_bench.solvers.path.policy import AuxiliaryTokens, PathNodes, PathPolicy, PathState


@dataclass(frozen=True)
class BqConfig:
    """Sizes of BQ-NCO (paper, appendix E); the defaults are the published model.

    Attributes
    ----------
    problem
        ``tsp`` or ``cvrp``.
    width, heads, ffn, layers
        Embedding width, attention heads (each ``width // heads`` wide), hidden width, number of layers.
    scale
        Logit scale that the name stands for: ``none`` (bq) or ``esf`` (bq-esf).
    training_size
        Instance size the weights were trained on, for logit scales.
    gelu
        GELU instead of ReLU, an option of the official code that is off in the published models.
    attention
        ``self``, or ``cross`` for SIT's.
    """

    problem: str = "tsp"
    width: int = 192
    heads: int = 12
    ffn: int = 512
    layers: int = 9
    scale: str = "none"
    training_size: int = 100
    gelu: bool = False
    attention: str = "self"


ATTENTIONS = ("self", "cross")
SCALES = ("none", "esf")


def config_for(name: str, problem: str) -> BqConfig:
    """Return the configuration of a registered name: ``bq`` or ``bq-esf``."""
    return BqConfig(problem, scale="esf" if name == "bq-esf" else "none")


class Attention(nn.Module):
    """Multi-head attention with logits q.k (no division by sqrt(K)); biases on keys and values only."""

    def __init__(self, config: BqConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.query = nn.Linear(config.width, config.width, bias=False)
        self.key_value = nn.Linear(config.width, 2 * config.width)
        self.out = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x: Tensor, tokens: Tensor, scale: float | Tensor, real: Tensor | None = None) -> Tensor:
        """Read tokens ``(B, T, W)`` from each of ``(B, Q, W)``, which may be the same; `real` as in `layers.attend`."""
        sources = self.query(x), self.key_value(tokens)
        # The official code adds the value bias after aggregation: the same, since attention weights sum to 1.
        return self.out(attend_side_by_side(sources, self.heads, scale, real))


class Layer(nn.Module):
    """X + alpha_1 MHA(X), then X + alpha_2 FFN(X) (ReZero)."""

    def __init__(self, config: BqConfig) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.feed_forward = FeedForward(config.width, config.ffn, gelu=config.gelu)
        self.alpha_attention = nn.Parameter(torch.zeros(()))
        self.alpha_ffn = nn.Parameter(torch.zeros(()))

    def forward(
        self, x: Tensor, scale: float | Tensor, real: Tensor | None = None, tokens: Tensor | None = None
    ) -> Tensor:
        """Transform ``(B, Q, W)`` that read tokens ``(B, T, W)``, themselves where none are given."""
        x = self.attended(x, x if tokens is None else tokens, scale, real)
        return self.feed_forward.added(x, self.alpha_ffn)

    def attended(
        self, x: Tensor, tokens: Tensor, scale: float | Tensor, real: Tensor | None = None
    ) -> Tensor:
        """The first half of the layer."""
        return x + self.alpha_attention * self.attention(x, tokens, scale, real)

    def scored(
        self, x: Tensor, scale: float | Tensor, score: nn.Linear, real: Tensor | None = None
    ) -> Tensor:
        """Score the tokens between the first and the last, as ``score(self(x))`` would."""
        x = self.attended(x, x, scale, real)
        return self.feed_forward.scored(x, score, self.alpha_ffn)[:, 1:-1]


class CrossLayer(nn.Module):
    """The two ends read all tokens, then all tokens read the two; each with a layer of its own."""

    def __init__(self, config: BqConfig) -> None:
        super().__init__()
        self.reading, self.writing = Layer(config), Layer(config)

    def forward(
        self, few: Tensor, many: Tensor, scale: float | Tensor, real: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Transform the ends ``(B, 2, W)`` and all tokens ``(B, T, W)``, which have copies of them."""
        few = self.reading(few, scale, real, many)
        return few, self.writing(many, scale, None, few)

    def scored(
        self, few: Tensor, many: Tensor, scale: float | Tensor, score: nn.Linear, real: Tensor | None = None
    ) -> Tensor:
        """Score the tokens between the first and the last, as ``score(self(few, many)[1])`` would."""
        few = self.reading(few, scale, real, many)
        candidates = self.writing.attended(many[:, 1:-1], few, scale)
        return self.writing.feed_forward.scored(candidates, score, self.writing.alpha_ffn)


class Bq(nn.Module, PathPolicy):
    """The whole policy: a linear input map, two marker tokens, `layers` layers, a linear score."""

    knn_counts_ends = True
    masks = True

    def __init__(self, config: BqConfig, logit_scale: LogitScale = none) -> None:
        super().__init__()
        self.config = config
        self.problem = config.problem
        self.logit_scale = logit_scale
        cvrp = config.problem == "cvrp"
        self.embedding = nn.Linear(4 if cvrp else 2, config.width)
        self.markers = nn.Embedding(2, config.width)
        layer = CrossLayer if config.attention == "cross" else Layer
        self.layers = nn.ModuleList(layer(config) for _ in range(config.layers))
        self.score = nn.Linear(config.width, 2 if cvrp else 1)

    def embed(self, nodes: PathNodes) -> Tensor:
        """Embed what depends on a node alone: (x, y), and the demand share for the CVRP, to ``(B, N, W)``."""
        if nodes.demand is None:
            return self.embedding(nodes.coords)
        inputs = torch.cat([nodes.coords, nodes.demand.unsqueeze(-1)], dim=2)
        return F.linear(inputs, self.embedding.weight[:, :3], self.embedding.bias)

    def scores(self, state: PathState) -> Tensor:
        """Score the candidates, ``(B, M)``; for the CVRP ``(B, M, 2)`` with infeasible direct edges at -inf."""
        x = state.features
        if state.remaining is not None:
            # The fourth input of the CVRP, the capacity left, is the same for all nodes and changes every step.
            x = x + (state.remaining[:, None] * self.embedding.weight[:, 3])[:, None]
        begin, end = self.markers.weight
        x = torch.cat([x[:, :1] + begin, x[:, 1:-1], x[:, -1:] + end], dim=1)
        scores = self._scored(x, self.factor_at(state), state.real())
        if state.demand is None or state.remaining is None:
            return scores.squeeze(-1)
        direct, via = scores.unbind(-1)
        infeasible = state.demand[:, 1:-1] > state.remaining[:, None]
        return torch.stack([direct.masked_fill(infeasible, -torch.inf), via], dim=-1)

    def auxiliary_tokens(self) -> AuxiliaryTokens | None:
        """Those of the last layer but one: the last one scores from within."""
        return AuxiliaryTokens(self.layers[-2]) if len(self.layers) > 1 else None

    def _scored(self, x: Tensor, scale: float | Tensor, real: Tensor | None) -> Tensor:
        if self.config.attention == "cross":
            few = x[:, :: x.shape[1] - 1]
            for layer in self.layers[:-1]:
                few, x = layer(few, x, scale, real)
            return cast("CrossLayer", self.layers[-1]).scored(few, x, scale, self.score, real)
        for layer in self.layers[:-1]:
            x = layer(x, scale, real)
        return cast("Layer", self.layers[-1]).scored(x, scale, self.score, real)

    def logit_factor(self, candidates: int, instance_size: int, *, closed: bool) -> float | Tensor:
        """Return the logit scale for candidates, current node and destination."""
        head_dim = self.config.width // self.config.heads
        return self.logit_scale(
            ScaleContext(candidates + 2, instance_size, head_dim, self.config.training_size, divisor=1.0)
        )


def build(config: BqConfig, logit_scale: LogitScale | None = None) -> Bq:
    """Build the policy with fresh weights; ReZero makes an untrained one ignore attention."""
    if config.problem not in ("tsp", "cvrp"):
        raise UnknownNameError("problem of bq", config.problem, ["tsp", "cvrp"])
    if config.attention not in ATTENTIONS:
        raise UnknownNameError("attention of bq", config.attention, ATTENTIONS)
    if config.scale not in SCALES:
        raise UnknownNameError("scale of bq", config.scale, SCALES)
    return Bq(config, logit_scale or (esf if config.scale == "esf" else none))


def from_official(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Translate a state dict of naver/bq-nco; unknown keys stay as they are."""
    left = dict(state)
    ours = {
        "embedding.weight": left.pop("input_emb.weight"),
        "embedding.bias": left.pop("input_emb.bias"),
        "markers.weight": left.pop("begin_end_tokens.weight"),
        "score.weight": left.pop("scores_projection.weight"),
        "score.bias": left.pop("scores_projection.bias"),
    }
    for i in range(sum(key.endswith(".attn.lambda1") for key in state)):
        ours |= {f"layers.{i}.{key}": value for key, value in _layer(left, f"encoder.{i}.").items()}
    return ours | left


def _layer(left: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Take one official layer out of `left`; its per-head matrices ``(H, W, K)`` become linear maps."""

    def linear(name: str) -> Tensor:
        return left.pop(f"{prefix}attn.{name}").transpose(1, 2).flatten(0, 1)  # (H K, W)

    def bias(name: str) -> Tensor:
        return left.pop(f"{prefix}attn.{name}").flatten()

    return {
        "attention.query.weight": linear("lambda2"),
        "attention.key_value.weight": torch.cat([linear("lambda1"), linear("theta1")]),
        "attention.key_value.bias": torch.cat([bias("bias_lambda"), bias("bias_theta")]),
        "attention.out.weight": linear("theta2").T.contiguous(),
        "feed_forward.inner.weight": left.pop(f"{prefix}linear1.weight"),
        "feed_forward.inner.bias": left.pop(f"{prefix}linear1.bias"),
        "feed_forward.outer.weight": left.pop(f"{prefix}linear2.weight"),
        "feed_forward.outer.bias": left.pop(f"{prefix}linear2.bias"),
        "alpha_attention": left.pop(f"{prefix}res_norm1.alpha"),
        "alpha_ffn": left.pop(f"{prefix}res_norm2.alpha"),
    }

"""SIT, "Boosting Neural Combinatorial Optimization for Large-Scale Vehicle Routing Problems" (Luo et al., ICLR 2025).

Linear cross-attention through 16 representative tokens: the first node once and the last node 15 times, each through
a linear map of its own (the equations of the paper show two; its appendix says the last is repeated). Each layer reads
all tokens into the representatives, then updates all tokens from the representatives: O(N) per step. Logits are divided
by the square root of the head width (the paper writes the width). No normalisation, raw unit-square coordinates.

``attention="self"`` is the network of Table 3's row "w/o Cross-Attention": every token attends to all tokens, one attention
and one feed-forward layer per layer, as in LEHD's decoder. Its representatives are ordinary tokens then; the paper does not
say whether the last node is still repeated, which `repeats` decides.

What produced the published numbers and is not in the paper: probabilities of at most 1e-5 get 1e-7 added (never
changes the greedy choice), infeasible direct choices of the CVRP are turned into choices via the depot (`repairs`),
greedy decoding starts at node 0, in training on the CVRP the customers' embeddings are detached, and PRC rebuilds at most
250 segments of an instance in an iteration, on the CVRP after sorting, reversing and rotating routes and from the end of
the solution (appendix B.3: "sequentially from the beginning").

Long problems go through `sit_streaming` at inference, which computes the same in an equivalent order: keys and values
are never formed for all tokens, the few representatives are mapped instead (`probes`, `mixed`, `write` below), and
tokens pass in chunks that fit the processor's cache: memory stays a few copies of the tokens even at 100,000 nodes.
Mapping representatives instead of tokens pays from some `STREAMED_FROM` tokens on.

Letters in shapes: B batch, N nodes, M candidates, R representatives, T = R + M tokens, W width, H heads, K head width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nco_bench.errors import UnknownNameError
from nco_bench.nn.device import on_cpu
from nco_bench.nn.filled import Filled, pays
from nco_bench.nn.layers import (
    FeedForward,
    SelfAttention,
    add_linear,
    attend,
    attend_side_by_side,
    with_column,
)
from nco_bench.nn.logit_scale import LogitScale, ScaleContext, none
from nco_bench.nn.threads import one_thread
from nco_bench.solvers.path import sit_streaming
from nco_bench.solvers.path.lehd import rename
from nco_bench.solvers.path.policy import AuxiliaryTokens, PathNodes, PathPolicy, PathState

ATTENTIONS = ("cross", "self")
STREAMED_FROM = 128
"""Tokens of one problem from which on inference goes through `sit_streaming`."""


@dataclass(frozen=True)
class SitConfig:
    """Sizes of SIT (paper, section 5; the repeats in appendix C); the defaults are the published model.

    Attributes
    ----------
    problem
        ``tsp`` or ``cvrp``.
    width, heads, head_dim, ffn, layers
        Embedding width, attention heads, width of each head, hidden width, number of layers.
    repeats
        How often the last node appears among the representatives (Figure 3).
    attention
        ``cross``, or ``self`` for the ablation of Table 3.
    training_size
        Instance size the weights were trained on, for logit scales (the published models: one per size).
    """

    problem: str = "tsp"
    width: int = 128
    heads: int = 8
    head_dim: int = 16
    ffn: int = 512
    layers: int = 6
    repeats: int = 15
    training_size: int = 1000
    attention: str = "cross"


def config_for(name: str, problem: str) -> SitConfig:
    """Return the configuration of the registered name ``sit``."""
    return SitConfig(problem)


class CrossAttention(nn.Module):
    """Multi-head attention between few representatives and many tokens, in either direction."""

    def __init__(self, config: SitConfig) -> None:
        super().__init__()
        self.heads, self.head_dim = config.heads, config.head_dim
        inner = config.heads * config.head_dim
        self.query = nn.Linear(config.width, inner, bias=False)
        self.key = nn.Linear(config.width, inner, bias=False)
        self.value = nn.Linear(config.width, inner, bias=False)
        self.out = nn.Linear(inner, config.width)

    def added(self, x: Tensor, tokens: Tensor, scale: float | Tensor, real: Tensor | None = None) -> Tensor:
        """Return `x` plus its attention to the tokens; `x` itself may be overwritten (`layers.works_in_place`).

        Parameters
        ----------
        x, tokens
            Queries ``(B, Q, W)``; keys and values ``(B, T, W)``.
        scale, real
            Factor of the logits, 1/sqrt(K) included; the tokens that may be attended to, as in `layers.attend`.
        """
        sources = self.query(x), self.key(tokens), self.value(tokens)
        return add_linear(x, attend_side_by_side(sources, self.heads, scale, real), self.out)

    def add(self, x: Filled, tokens: Filled, scale: float | Tensor, real: Tensor | None = None) -> None:
        """Do what `added` does."""
        query, heads = x.mapped(self.query, self.heads), self.heads
        key, value = tokens.mapped(self.key, heads), tokens.mapped(self.value, heads)
        x.add(attend(query, key, value, scale, real), self.out)

    def probes(self, few: Tensor, scale: float | Tensor) -> Tensor:
        """Queries of the representatives, mapped by the keys' map, ``(B, H R, W)``: logits are ``probes @ tokens^T``."""
        query = self._per_head(self.query(few)) * scale
        return torch.einsum("brhk,hkw->bhrw", query, self._head_weights(self.key)).flatten(1, 2)

    def mixed(self, pooled: Tensor) -> Tensor:
        """Turn averages of tokens, ``(B, H R, W)``, into the attention's output, ``(B, R, W)``."""
        pooled = pooled.unflatten(1, (self.heads, -1))
        mixed = torch.einsum("bhrw,hkw->brhk", pooled, self._head_weights(self.value))
        return self.out(mixed.flatten(2))

    def write(self, few: Tensor, scale: float | Tensor) -> tuple[Tensor, Tensor]:
        """Prepare the attention of all tokens to the representatives.

        Returns ``probes`` and ``answers``, each ``(B, H R, W)``: logits are ``tokens @ probes^T``, and the output is
        ``softmax @ answers`` plus the bias of the output map.
        """
        key = self._per_head(self.key(few)) * scale
        probes = torch.einsum("brhk,hkw->bhrw", key, self._head_weights(self.query))
        answers = torch.einsum("brhk,hkw->bhrw", self._per_head(self.value(few)), self._head_weights_out())
        return probes.flatten(1, 2), answers.flatten(1, 2)

    def _per_head(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.heads, self.head_dim))  # (B, R, H, K)

    def _head_weights(self, linear: nn.Linear) -> Tensor:
        return linear.weight.view(self.heads, self.head_dim, -1)  # (H, K, W)

    def _head_weights_out(self) -> Tensor:
        return self.out.weight.T.view(self.heads, self.head_dim, -1)  # (H, K, W)


class Layer(nn.Module):
    """Representatives read all tokens, then all tokens read the representatives; each with its own weights."""

    def __init__(self, config: SitConfig) -> None:
        super().__init__()
        self.reading = CrossAttention(config)
        self.few_feed_forward = FeedForward(config.width, config.ffn)
        self.writing = CrossAttention(config)
        self.many_feed_forward = FeedForward(config.width, config.ffn)

    def forward(
        self, few: Tensor, many: Tensor, scale: float | Tensor, real: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Transform representatives ``(B, R, W)`` and tokens ``(B, T, W)``; both may be overwritten."""
        few = self.few_feed_forward.added(self.reading.added(few, many, scale, real))
        many = self.writing.added(many, few, scale)
        return few, self.many_feed_forward.added(many)

    def scored(
        self, few: Tensor, many: Tensor, scale: float | Tensor, score: nn.Linear, real: Tensor | None = None
    ) -> Tensor:
        """Score the tokens behind the representatives, as ``score(self(few, many)[1])`` would."""
        few = self.few_feed_forward.added(self.reading.added(few, many, scale, real))
        candidates = many[:, few.shape[1] :].contiguous()
        return self.many_feed_forward.scored(self.writing.added(candidates, few, scale), score)


class SelfLayer(nn.Module):
    """All tokens attend to all tokens; takes and returns representatives and tokens as `Layer` does."""

    def __init__(self, config: SitConfig) -> None:
        super().__init__()
        self.attention = SelfAttention(config.width, config.heads, config.head_dim, qkv_bias=False)
        self.feed_forward = FeedForward(config.width, config.ffn)

    def forward(
        self, few: Tensor, many: Tensor, scale: float | Tensor, real: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Transform all tokens ``(B, T, W)``, which begin with the representatives."""
        many = self._mixed(many, scale, real)
        return many[:, : few.shape[1]], self.feed_forward.added(many)

    def scored(
        self, few: Tensor, many: Tensor, scale: float | Tensor, score: nn.Linear, real: Tensor | None = None
    ) -> Tensor:
        """Score the tokens behind the representatives, as ``score(self(few, many)[1])`` would."""
        candidates = self._mixed(many, scale, real)[:, few.shape[1] :]
        return self.feed_forward.scored(candidates, score)

    def _mixed(self, many: Tensor, scale: float | Tensor, real: Tensor | None) -> Tensor:
        # `scale` has the 1/sqrt(K) that `SelfAttention` divides by itself.
        return self.attention.added(many, scale * math.sqrt(self.attention.head_dim), real)


class Sit(nn.Module, PathPolicy):
    """The whole policy: a linear embedding, representatives, `layers` layers of either attention, a linear score."""

    repairs = True
    in_place = True
    masks = True

    def __init__(self, config: SitConfig, logit_scale: LogitScale = none) -> None:
        super().__init__()
        self.config = config
        self.problem = config.problem
        self.logit_scale = logit_scale
        cvrp = config.problem == "cvrp"
        self.embedding = nn.Linear(3 if cvrp else 2, config.width)
        self.first = nn.Linear(config.width + cvrp, config.width)
        self.last = nn.Linear(config.width + cvrp, config.repeats * config.width)
        layer = SelfLayer if config.attention == "self" else Layer
        self.layers = nn.ModuleList(layer(config) for _ in range(config.layers))
        self.score = nn.Linear(config.width, 2 if cvrp else 1)

    def embed(self, nodes: PathNodes) -> Tensor:
        """Return the raw inputs, ``(B, N, 2)`` or with demand shares ``(B, N, 3)``, which are cheaper to embed anew than to
        move about at every step.
        """
        if nodes.demand is None:
            return nodes.coords
        return torch.cat([nodes.coords, nodes.demand.unsqueeze(-1)], dim=2)

    def scores(self, state: PathState) -> Tensor:
        """Score the candidates, ``(B, M)``; for the CVRP ``(B, M, 2)``: directly, via the depot."""
        tokens = 1 + self.config.repeats + state.candidates
        if torch.is_grad_enabled() or tokens < STREAMED_FROM or self.config.attention == "self":
            scores = self._scores(state)
        elif not on_cpu(state.features.device):
            scores = self._streamed(state, 1)
        else:
            with one_thread() as threads:
                scores = self._streamed(state, threads)
        return scores if self.problem == "cvrp" else scores.squeeze(-1)

    def auxiliary_tokens(self) -> AuxiliaryTokens | None:
        """Those of the last layer but one, behind the representatives: the last one scores from within."""
        return AuxiliaryTokens(self.layers[-2], 1 + self.config.repeats) if len(self.layers) > 1 else None

    def logit_factor(self, candidates: int, instance_size: int, *, closed: bool) -> float | Tensor:
        """Return the logit scale for candidates and representatives."""
        tokens, config = 1 + self.config.repeats + candidates, self.config
        return self.logit_scale(ScaleContext(tokens, instance_size, config.head_dim, config.training_size))

    def _scale(self, state: PathState) -> float | Tensor:
        return self.factor_at(state) / math.sqrt(self.config.head_dim)

    def _streamed(self, state: PathState, threads: int) -> Tensor:
        few = self._representatives(state)
        candidates, count = state.features[:, 1:-1], few.shape[1]
        tokens = count + candidates.shape[1]
        more = sit_streaming.filled(tokens, candidates.device) - tokens
        inputs = F.pad(F.pad(candidates, (0, 1), value=1.0), (0, 0, count, more))
        embedding = torch.cat([self.embedding.weight.T, self.embedding.bias[None]])
        real = state.real(count, 0)
        mask = None if real is None else F.pad(real[0, 0], (0, more))
        raw = sit_streaming.Raw(inputs, embedding, few, tokens, mask)
        scores = sit_streaming.scores(
            cast("list[Layer]", list(self.layers)), self.score, raw, self._scale(state), threads
        )
        return scores[:, : candidates.shape[1]]

    def _scores(self, state: PathState) -> Tensor:
        """The plain network: for training, and for short problems."""
        few, scale = self._representatives(state), self._scale(state)
        real = state.real(few.shape[1], 0)
        candidates = self.embedding(state.features[:, 1:-1])
        if (
            self.problem == "cvrp"
        ):  # as in the official code, the CVRP's embedding learns through the depot alone
            candidates = candidates.detach()
        if self.config.attention == "cross" and self._filled_pay(few, candidates):
            return self._through_filled(few, candidates, scale, real)
        many = torch.cat([few, candidates], dim=1)
        for layer in self.layers[:-1]:
            few, many = layer(few, many, scale, real)
        return cast("Layer", self.layers[-1]).scored(few, many, scale, self.score, real)

    def _filled_pay(self, few: Tensor, candidates: Tensor) -> bool:
        """Tell whether the layers take tokens as `Filled`: the few as well."""
        narrowest = cast("Layer", self.layers[0]).reading.query
        return pays(few, narrowest, self.layers) and pays(candidates, narrowest, ())

    def _through_filled(
        self, few: Tensor, candidates: Tensor, scale: float | Tensor, real: Tensor | None
    ) -> Tensor:
        """Score the tokens behind the representatives as layer by layer, in fewer calls."""
        layers, count = [cast("Layer", layer) for layer in self.layers], few.shape[1]
        readers, tokens = Filled(few), Filled(few, candidates)
        for layer in layers:
            layer.reading.add(readers, tokens, scale, real)
            readers.feed_forward(layer.few_feed_forward.inner, layer.few_feed_forward.outer)
            if layer is layers[-1]:
                tokens = Filled(tokens.whole[:, count:])
            layer.writing.add(tokens, readers, scale)
            if layer is not layers[-1]:
                tokens.feed_forward(layer.many_feed_forward.inner, layer.many_feed_forward.outer)
        return layers[-1].many_feed_forward.scored(tokens.whole, self.score)

    def _representatives(self, state: PathState) -> Tensor:
        """Map the destination once and the current node `repeats` times, ``(B, R, W)``."""
        ends = torch.cat([state.features[:, :1], state.features[:, -1:]], dim=1)
        origin, destination = self.embedding(ends).split(1, dim=1)
        if state.remaining is not None:
            origin = with_column(origin.detach(), state.remaining)
            destination = with_column(destination, state.remaining)
        repeated = self.last(origin).unflatten(2, (self.config.repeats, -1)).squeeze(1)
        return torch.cat([self.first(destination), repeated], dim=1)


def build(config: SitConfig, logit_scale: LogitScale | None = None) -> Sit:
    """Build the policy with fresh weights (PyTorch's default initialisation, as the official code)."""
    if config.problem not in ("tsp", "cvrp"):
        raise UnknownNameError("problem of sit", config.problem, ["tsp", "cvrp"])
    if config.attention not in ATTENTIONS:
        raise UnknownNameError("attention of sit", config.attention, ATTENTIONS)
    return Sit(config, logit_scale or none)


OFFICIAL_PREFIXES = {
    "encoder.embedding.": "embedding.",
    "decoder.embedding_first_node.": "first.",
    "decoder.Linear_final.": "score.",
}
OFFICIAL_LAYER = {
    "Wq.": "reading.query.",
    "Wk.": "reading.key.",
    "Wv.": "reading.value.",
    "multi_head_combine.": "reading.out.",
    "feedForward.W1.": "few_feed_forward.inner.",
    "feedForward.W2.": "few_feed_forward.outer.",
    "Wq_2.": "writing.query.",
    "Wk_2.": "writing.key.",
    "Wv_2.": "writing.value.",
    "multi_head_combine_2.": "writing.out.",
    "feedForward_2.W1.": "many_feed_forward.inner.",
    "feedForward_2.W2.": "many_feed_forward.outer.",
}


def from_official(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Translate a state dict of CIAM-Group/SIL; unknown keys stay as they are."""
    left = dict(state)
    # Order of the official test code: last_2 ... last_15, last (the order does not matter to the attention).
    lasts = sorted(
        {key.rsplit(".", 1)[0] for key in left if key.startswith("decoder.embedding_last_node_")},
        key=lambda name: int(name.rsplit("_", 1)[1]),
    )
    lasts.append("decoder.embedding_last_node")
    ours = {
        f"last.{kind}": torch.cat([left.pop(f"{name}.{kind}") for name in lasts])
        for kind in ("weight", "bias")
    }
    for i in range(sum(key.endswith(".Wq_2.weight") for key in state)):
        prefix = f"decoder.layers.{i}."
        ours |= rename(left, {prefix + old: f"layers.{i}.{new}" for old, new in OFFICIAL_LAYER.items()})
    return ours | rename(left, OFFICIAL_PREFIXES) | left

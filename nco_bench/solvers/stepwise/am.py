"""AM, "Attention, Learn to Solve Routing Problems!" (Kool, van Hoof, Welling, ICLR 2019), for TSP and CVRP.

Three encoder layers run once; the decoder attends once per step from a context of graph, first and current node (CVRP:
graph, current node and capacity left). `Am.step` is the decoder as the paper writes it; `Am.encode` and `Am.logits`, which
everything runs, compute the same in less time, see `nco_bench.solvers.stepwise.glimpse`.

What the official code (wouterkool/attention-learn-to-route) does and the paper does not say: the contexts are two linear
maps added up, in the order first, current; the final scores have no query projection of their own; the encoder's matrices
start in the range of their last dimension, not of their input. EIE's variant (its section 5) has
``normalization="layer"`` and ``centred=True``.

Letters in shapes: B instances, N nodes (depot first), D width, H heads, K head width, P trajectories.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from nco_bench.errors import UnknownNameError
from nco_bench.nn.layers import FeedForward, add_linear, attend_side_by_side, joined
from nco_bench.nn.logit_scale import LogitScale, none
from nco_bench.nn.products import linear
from nco_bench.solvers.stepwise.glimpse import Glimpse, attention_scales, clipped, pointer_scores, split_heads
from nco_bench.solvers.stepwise.policy import RouteState, RoutingNodes, take

NORMALIZATIONS = ("batch", "instance", "layer")


@dataclass(frozen=True)
class AmConfig:
    """Sizes of AM (paper, section 3 and appendix A); the defaults are the published models.

    Attributes
    ----------
    problem
        ``tsp`` or ``cvrp``.
    width, heads, ffn, layers
        Embedding width, attention heads (each ``width / heads`` wide), hidden width of the feed-forward layers,
        encoder layers.
    clip
        Half range C of the logits.
    normalization
        ``batch`` (all published models), ``instance`` or ``layer``.
    training_size
        Instance size the weights were trained on, for logit scales.
    centred
        Map the unit square to [-1, 1]^2 before the embedding.
    """

    problem: str = "tsp"
    width: int = 128
    heads: int = 8
    ffn: int = 512
    layers: int = 3
    clip: float = 10.0
    normalization: str = "batch"
    training_size: int = 100
    centred: bool = False


def config_for(name: str, problem: str) -> AmConfig:
    """Return the configuration of the published models."""
    return AmConfig(problem)


class Norm(nn.Module):
    """Normalisation per channel over all nodes of the batch, over those of an instance, or per node."""

    def __init__(self, kind: str, width: int) -> None:
        super().__init__()
        layers = {
            "batch": lambda: nn.BatchNorm1d(width),
            "instance": lambda: nn.InstanceNorm1d(width, affine=True),
            "layer": lambda: nn.LayerNorm(width),
        }
        self.kind = kind
        self.layer: nn.Module = layers[kind]()

    def forward(self, x: Tensor) -> Tensor:
        """Normalise, ``(B, N, D)``."""
        if self.kind == "batch":
            return self.layer(x.flatten(0, 1)).view_as(x)
        if self.kind == "instance":
            return self.layer(x.transpose(1, 2)).transpose(1, 2)
        return self.layer(x)


class Layer(nn.Module):
    """Norm(X + MHA(X)), then Norm(X + FF(X)) (Equations 2 and 3); the attention has no biases."""

    def __init__(self, config: AmConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)
        self.norm_attention = Norm(config.normalization, config.width)
        self.feed_forward = FeedForward(config.width, config.ffn)
        self.norm_feed_forward = Norm(config.normalization, config.width)
        # As the official code draws its matrices per head: U(-1/sqrt(s), 1/sqrt(s)), s their last dimension.
        nn.init.uniform_(
            self.qkv.weight, -math.sqrt(config.heads / config.width), math.sqrt(config.heads / config.width)
        )
        nn.init.uniform_(self.out.weight, -1 / math.sqrt(config.width), 1 / math.sqrt(config.width))

    def forward(self, x: Tensor, scale: float | Tensor, qkv: Tensor | None = None) -> Tensor:
        """Transform nodes, ``(B, N, D)`` to ``(B, N, D)``; `scale` is the factor of q.k, `qkv` may be there already.

        `x` itself is overwritten where `nco_bench.nn.layers.works_in_place`.
        """
        qkv = self.qkv(x) if qkv is None else qkv
        x = self.norm_attention(add_linear(x, attend_side_by_side((qkv,), self.heads, scale), self.out))
        return self.norm_feed_forward(self.feed_forward.added(x))


class Am(nn.Module):
    """The whole policy."""

    needs_start = False

    def __init__(self, config: AmConfig, logit_scale: LogitScale = none) -> None:
        super().__init__()
        self.config, self.problem, self.logit_scale = config, config.problem, logit_scale
        width, cvrp = config.width, config.problem == "cvrp"
        self.embedding = nn.Linear(3 if cvrp else 2, width)
        if cvrp:
            self.depot_embedding = nn.Linear(2, width)
        else:
            self.placeholder = nn.Parameter(torch.empty(2 * width).uniform_(-1, 1))
        self.encoder = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.node_projection = nn.Linear(width, 3 * width, bias=False)
        self.graph_projection = nn.Linear(width, width, bias=False)
        self.step_projection = nn.Linear(width + 1 if cvrp else 2 * width, width, bias=False)
        self.glimpse_projection = nn.Linear(width, width, bias=False)

    def embed(self, nodes: RoutingNodes, then: nn.Linear | None = None) -> Tensor:
        """Embed coordinates (and demands of customers), ``(B, N, D)``, or return a linear map of that."""
        coords = 2 * nodes.coords - 1 if self.config.centred else nodes.coords
        if nodes.demand is None:
            return joined(coords, self.embedding, then)
        customers = torch.cat([coords, nodes.demand[..., None]], dim=2)[:, 1:]
        depot = joined(coords[:, :1], self.depot_embedding, then)
        return torch.cat([depot, joined(customers, self.embedding, then)], dim=1)

    def encoded(self, nodes: RoutingNodes) -> tuple[Tensor, float | Tensor]:
        """Run the encoder; return h^(N), ``(B, N, D)``, and the factor of q.k in the glimpse."""
        scale, glimpse_scale = attention_scales(
            self.logit_scale, nodes, self.config.width // self.config.heads, self.config.training_size
        )
        x = self.embed(nodes)
        for i, layer in enumerate(self.encoder):
            first = (
                self.embed(nodes, cast("Layer", layer).qkv) if i == 0 else None
            )  # of three numbers, not of D
            x = layer(x, scale, first)
        return x, glimpse_scale

    # ------------------------------------------------------------------------- the decoder as in the paper (section 3.2)

    def context(self, x: Tensor, state: RouteState) -> Tensor:
        """Return what Equation 4 (CVRP: appendix C.1) puts beside the graph embedding, ``(B, P, 2 D)`` or ``(B, P, D + 1)``.

        These are the first and the current node, a learned placeholder before there are any; for the CVRP the current
        node (the depot at first) and the capacity left.
        """
        if state.current is None:
            return self.placeholder.expand(*state.blocked.shape[:2], -1)
        current = take(x, state.current)
        if state.room is not None:
            return torch.cat([current, state.room[..., None]], dim=2)
        assert state.first is not None
        return torch.cat([take(x, state.first), current], dim=2)

    def step(self, x: Tensor, state: RouteState, scale: float | Tensor) -> Tensor:
        """Decode one step: ``C tanh(u)``, ``-inf`` where blocked, ``(B, P, N)``.

        Parameters
        ----------
        x, scale
            From `encoded`.
        state
            P trajectories.
        """
        graph = self.graph_projection(x.mean(dim=1, keepdim=True))
        query = graph + self.step_projection(self.context(x, state))  # q = W^Q h_(c) (Equation 5)
        projected = self.node_projection(x).chunk(3, dim=2)
        q, k, v = (split_heads(rows, self.config.heads) for rows in (query, *projected[:2]))
        u = scale * q @ k.transpose(2, 3) + state.blocked[:, None]  # (B, H, P, N) (Equation 6)
        mixed = u.softmax(dim=3) @ v  # (B, H, P, K), as in appendix A
        glimpse = self.glimpse_projection(mixed.transpose(1, 2).flatten(2))  # (B, P, D), the heads together
        u = glimpse @ projected[2].transpose(1, 2) / math.sqrt(self.config.width)
        return self.config.clip * u.tanh() + state.blocked  # (Equation 7)

    # --------------------------------------------------------------------------------- the fast path, tested equal to it

    def encode(self, nodes: RoutingNodes) -> Glimpse:
        """Run the encoder, and project its output to all that the decoder needs."""
        return self.prepare(*self.encoded(nodes))

    def prepare(self, x: Tensor, scale: float | Tensor) -> Glimpse:
        """Project encoded nodes ``(B, N, D)`` once: keys, values, and each node's share of the query."""
        width, heads = self.config.width, self.config.heads
        # (W_out o) . k / sqrt(D) = o . (W_out^T k) / sqrt(D), and W_out is folded into the map that k comes from.
        maps = self.node_projection.weight.split(width)
        folded = self.glimpse_projection.weight.T @ maps[2] / math.sqrt(width)
        key, value, pointer = linear(x, torch.cat([*maps[:2], folded])).chunk(3, dim=2)
        keys = split_heads(key, heads)
        step = self.step_projection.weight * scale  # (D, 2 D) or (D, D + 1)
        cvrp = self.problem == "cvrp"
        return Glimpse(
            keys=keys,
            keys_across=keys.transpose(2, 3).contiguous(),
            values=split_heads(value, heads),
            pointer=pointer.transpose(1, 2).contiguous(),
            base=self.graph_projection(x.mean(dim=1, keepdim=True)) * scale,
            current=linear(x, (step[:, :width] if cvrp else step[:, width:]).contiguous()),
            first=None if cvrp else linear(x, step[:, :width].contiguous()),
            opening=None if cvrp else step @ self.placeholder,
            room=step[:, width] if cvrp else None,
            clip=self.config.clip,
        )

    def logits(self, encoded: Glimpse, state: RouteState) -> Tensor:
        """Return what `step` does, ``(B, P, N)``."""
        return clipped(pointer_scores(encoded, state), state, self.config.clip)


def build(config: AmConfig, logit_scale: LogitScale | None = None) -> Am:
    """Build the policy with fresh weights."""
    if config.problem not in ("tsp", "cvrp"):
        raise UnknownNameError("problem of am", config.problem, ["tsp", "cvrp"])
    if config.normalization not in NORMALIZATIONS:
        raise UnknownNameError("normalization of am", config.normalization, NORMALIZATIONS)
    return Am(config, logit_scale or none)


OFFICIAL_NAMES = {
    "W_placeholder": "placeholder",
    "init_embed_depot.weight": "depot_embedding.weight",
    "init_embed_depot.bias": "depot_embedding.bias",
    "init_embed.weight": "embedding.weight",
    "init_embed.bias": "embedding.bias",
    "project_node_embeddings.weight": "node_projection.weight",
    "project_fixed_context.weight": "graph_projection.weight",
    "project_step_context.weight": "step_projection.weight",
    "project_out.weight": "glimpse_projection.weight",
}
OFFICIAL_LAYER = {
    "1.normalizer.": "norm_attention.layer.",
    "2.module.0.": "feed_forward.inner.",
    "2.module.2.": "feed_forward.outer.",
    "3.normalizer.": "norm_feed_forward.layer.",
}


def from_official(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Translate a state dict of wouterkool/attention-learn-to-route; unknown keys stay as they are."""
    left = dict(state)
    ours = {mine: left.pop(official) for official, mine in OFFICIAL_NAMES.items() if official in left}
    for i in range(sum(key.endswith(".0.module.W_query") for key in state)):
        official, mine = f"embedder.layers.{i}.", f"encoder.{i}."
        attention = f"{official}0.module."
        # Official matrices are one per head, (H, D, K), and (H, K, D) for the output.
        parts = [
            left.pop(f"{attention}W_{name}").transpose(1, 2).flatten(0, 1) for name in ("query", "key", "val")
        ]
        ours[f"{mine}qkv.weight"] = torch.cat(parts)
        ours[f"{mine}out.weight"] = left.pop(f"{attention}W_out").flatten(0, 1).T.contiguous()
        for key in [key for key in left if key.startswith(official)]:
            for old, new in OFFICIAL_LAYER.items():
                if key.startswith(official + old):
                    ours[mine + new + key.removeprefix(official + old)] = left.pop(key)
        for norm in ("norm_attention.layer.", "norm_feed_forward.layer."):
            if (
                f"{mine}{norm}running_mean" in ours
            ):  # the released files were written before this counter existed
                ours.setdefault(f"{mine}{norm}num_batches_tracked", torch.tensor(0))
    return ours | left

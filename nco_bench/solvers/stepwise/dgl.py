"""DGL, "Dynamic Global-Local Information Aggregation" (Xiao et al., IJCAI 2025), for TSP and CVRP.

At every step the network sees the unvisited nodes nearest to the current one (CVRP: also those nearest to the depot).
What is global sits in their features: mean and standard deviation of their distances to all unvisited nodes, kept up to
date from move to move, and the direction to the destination. All features are scaled to [0, 1] within the
neighbourhood. Encoder (one layer) and decoder (three) are run anew at every step, without normalisation.

What the official code (xybFight/DGL) does and the paper does not say: the update of the standard deviation is not the
exact one; the demand of the CVRP is scaled to [0, 1] too (code meant to prevent it has no effect); probabilities of at
most 1e-5 get 1e-7 added, which matters to beam search alone. Differences here: loads are whole numbers; a negative
variance (rounding) counts as 0 for the TSP too; infeasible options have probability 0 and not 1e-7. The first node (CVRP:
customer) is random in the official code, and is given by decoding here.

Letters in shapes: B instances, R partial solutions, N nodes (depot first), K candidates, T tokens, F features, W width.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nco_bench.errors import UnknownNameError
from nco_bench.nn.layers import works_in_place
from nco_bench.nn.logit_scale import LogitScale, ScaleContext, none
from nco_bench.solvers.path.lehd import Layer, LehdConfig, rename
from nco_bench.solvers.path.lehd import from_official as lehd_from_official
from nco_bench.solvers.stepwise.dgl_features import (
    EPSILON,
    distances_to,
    floored,
    normalised,
    relative_demand,
)
from nco_bench.solvers.stepwise.policy import (
    LocalViewPolicy,
    Memory,
    Options,
    Padding,
    RoutingNodes,
    Walk,
    nearest,
    take,
)

ENTRIES_AT_A_TIME = 2**20
"""Distances between nodes that are held at once."""

KERNELS = importlib.util.find_spec("numba") is not None
"""Whether compiled loops are to be had."""


@dataclass(frozen=True)
class DglConfig:
    """Sizes of DGL (paper, section 5); the defaults are the published TSP model.

    Attributes
    ----------
    problem
        ``tsp`` or ``cvrp``.
    width, heads, head_dim, ffn
        Embedding width, attention heads, width of each head, hidden width of the feed-forward layers.
    encoder_layers, decoder_layers
        Number of layers.
    neighbours
        Candidates near the current node; 30 for the TSP, 15 for the CVRP.
    depot_neighbours
        Candidates near the depot, for the CVRP.
    training_size
        Instance size the weights were trained on, for logit scales.
    """

    problem: str = "tsp"
    width: int = 128
    heads: int = 8
    head_dim: int = 16
    ffn: int = 512
    encoder_layers: int = 1
    decoder_layers: int = 3
    neighbours: int = 30
    depot_neighbours: int = 15
    training_size: int = 100


def config_for(name: str, problem: str) -> DglConfig:
    """Return the configuration of the published models."""
    return DglConfig(problem, neighbours=15) if problem == "cvrp" else DglConfig(problem)


class Dgl(nn.Module, LocalViewPolicy):
    """The whole policy; its memory is the mean and the standard deviation of each node's distances to open nodes."""

    needs_start = True
    masks = True

    def __init__(self, config: DglConfig, logit_scale: LogitScale = none) -> None:
        super().__init__()
        self.config, self.problem, self.logit_scale = config, config.problem, logit_scale
        cvrp = config.problem == "cvrp"
        sizes = LehdConfig(config.problem, config.width, config.heads, config.head_dim, config.ffn)
        self.embedding = nn.Linear(9 if cvrp else 7, config.width)
        self.encoder = nn.ModuleList(Layer(sizes) for _ in range(config.encoder_layers))
        self.last = nn.Linear(config.width, config.width)
        if cvrp:
            self.depot = nn.Linear(config.width, config.width)
        self.decoder = nn.ModuleList(Layer(sizes) for _ in range(config.decoder_layers))
        self.score = nn.Linear(config.width, 1)

    def limit_neighbours(self, count: int) -> bool:
        """See so many candidates near the current node, and for the CVRP near the depot."""
        self.config = replace(self.config, neighbours=count, depot_neighbours=count)
        return True

    def quick(self) -> LocalViewPolicy:
        """Return the steps of `nco_bench.solvers.stepwise.dgl_quick`, where they can be had."""
        weight = self.score.weight
        if not KERNELS or not works_in_place(weight) or weight.dtype != torch.float32 or not self.encoder:
            return self
        from nco_bench.solvers.stepwise.dgl_quick import QuickDgl

        return QuickDgl(self)

    def remember(self, nodes: RoutingNodes) -> Memory:
        """Return the tables of an empty solution, ``(B, N)`` each; see `moved`."""
        coords = nodes.coords
        batch, count, _ = coords.shape
        mean, deviation = torch.empty_like(coords[..., 0]), torch.empty_like(coords[..., 0])
        size = max(1, ENTRIES_AT_A_TIME // (batch * count))
        for block in torch.arange(count, device=coords.device).split(size):
            distance = distances_to(coords, block.repeat(batch)).view(batch, -1, count)
            deviation[:, block], mean[:, block] = torch.std_mean(distance, dim=2, correction=0)
        first = torch.zeros_like(coords[:, 0, 0], dtype=torch.int64)
        target = distances_to(coords, first)  # of the CVRP's depot; tours have no first node yet
        return mean, deviation, target, target

    def moved(self, nodes: RoutingNodes, walk: Walk) -> Memory:
        """Take the visited node out of the statistics (the depot always counts).

        Returns
        -------
        tuple
            ``(R, N)`` each: mean and standard deviation of a node's distances to open nodes, its distances to the current
            node and to the destination.
        """
        mean, deviation, _, target = walk.memory
        here = distances_to(nodes.coords, walk.current)
        if nodes.demand is None and walk.left == nodes.size - 1:
            target = here
        others = (walk.left if walk.padding is None else walk.padding.count) + (nodes.demand is not None)
        if walk.left == 0 and nodes.demand is None:
            return mean, deviation, here, target
        variance = (deviation.square() * (others + 1) - (here - mean).square()) / others
        return (mean * (others + 1) - here) / others, variance.clamp_(min=0).sqrt_(), here, target

    def options(self, nodes: RoutingNodes, walk: Walk) -> Options:
        """Score the candidates, ``(R, K)``; CVRP: those reached directly, then those reached via the depot."""
        candidates = self.candidates(nodes, walk)
        sizes, padding = [group.shape[1] for group in candidates], walk.padding
        groups = None if padding is None else [_there(nodes.coords, count, padding) for count in sizes]
        scale = self.logit_factor(walk.left, nodes.size) if padding is None else padding.scale
        x = self.encoded(self.inputs(nodes, walk, *candidates), scale, groups)
        scores = self.decoded(x, sizes[0], scale, groups)
        if groups is not None:
            scores = scores.masked_fill(~torch.cat(groups), -torch.inf)
        if nodes.demand is None or walk.room is None:
            return Options(candidates[0], floored(scores))
        direct, via = candidates
        fits = take(nodes.demand, direct) <= walk.room[:, None]
        flags = torch.cat([torch.zeros_like(fits), torch.ones_like(via, dtype=torch.bool)], dim=1)
        scores = scores.masked_fill(~(flags | F.pad(fits, (0, via.shape[1]))), -torch.inf)
        return Options(torch.cat(candidates, dim=1), floored(scores), flags)

    def candidates(self, nodes: RoutingNodes, walk: Walk) -> tuple[Tensor, ...]:
        """Find the open nodes nearest to the current one and, for the CVRP, those nearest to the depot.

        Returns
        -------
        tuple
            ``(R, K)`` node indices, ascending, padding (the first one again) behind; one or two such groups.
        """
        _, _, here, target = walk.memory
        count = min(self.config.neighbours, walk.left)
        if nodes.demand is None:
            return (_near(here, walk, count),)
        limit = min(self.config.depot_neighbours, walk.left)
        return _near(here, walk, min(count, limit)), _near(target, walk, limit)

    def features(self, nodes: RoutingNodes, walk: Walk, rows: Tensor) -> Tensor:
        """Return raw features of the nodes ``(R, T)``, ``(R, T, F)``.

        They are x, y, demand (CVRP), distance to the current node, mean and standard deviation of the distances to open
        nodes, and the direction to the destination, y before x.
        """
        mean, deviation, here, target = (table.gather(1, rows) for table in walk.memory)
        points = take(nodes.coords, rows)[..., :2]
        delta = take(nodes.coords, walk.first[:, None])[..., :2] - points
        direction = delta / (target + EPSILON)[..., None]
        columns = [*points.unbind(2), here, mean, deviation, direction[..., 1], direction[..., 0]]
        if nodes.demand is not None:
            columns.insert(DEMAND, take(nodes.demand, rows))
        return torch.stack(columns, dim=2)

    def inputs(self, nodes: RoutingNodes, walk: Walk, direct: Tensor, via: Tensor | None = None) -> Tensor:
        """Return what the encoder is given, ``(R, T, F)``: candidates and current node; CVRP: also candidates and depot."""
        raw = self.features(nodes, walk, torch.cat([direct, walk.current[:, None]], dim=1))
        if via is None or walk.room is None:
            return normalised(raw)
        raw[:, :-1, DEMAND] = relative_demand(raw[:, :-1, DEMAND], walk.room[:, None])
        depot = torch.zeros_like(walk.current)
        back = self.features(nodes, walk, torch.cat([via, depot[:, None]], dim=1))
        # Candidates via the depot are as far as they are from it; the depot is as far as it is from the current node.
        back[:, :-1, DISTANCE] = walk.memory[3].gather(1, via)
        groups = (F.pad(normalised(raw), (0, 1), value=0.0), F.pad(normalised(back), (0, 1), value=1.0))
        return torch.cat(groups, dim=1)

    def encoded(
        self, inputs: Tensor, scale: float | Tensor, groups: Sequence[Tensor] | None = None
    ) -> Tensor:
        """Encode the neighbourhood.

        Parameters
        ----------
        inputs
            ``(R, T, F)``.
        scale
            Logit scale.
        groups
            Which candidates of each group are no padding, ``(K,)`` bool; None if all are.

        Returns
        -------
        Tensor
            ``(R, T, W)``.
        """
        x, real = self.embedding(inputs), None if groups is None else _real(groups, (0, 1))
        for layer in self.encoder:
            x = layer(x, scale, real)
        return x

    def decoded(
        self, x: Tensor, direct: int, scale: float | Tensor, groups: Sequence[Tensor] | None = None
    ) -> Tensor:
        """Score the candidates, ``(R, K)``; the first `direct` are reached directly, the rest via the depot."""
        real = None if groups is None else _real(groups, (0, 1) if self.problem == "tsp" else (1, 0))
        if self.problem == "tsp":
            x = torch.cat([x[:, :-1], self.last(x[:, -1:])], dim=1)
        else:
            current, depot = self.last(x[:, direct : direct + 1]), self.depot(x[:, -1:])
            x = torch.cat([current, x[:, :direct], depot, x[:, direct + 1 : -1]], dim=1)
        for layer in self.decoder[:-1]:
            x = layer(x, scale, real)
        last = cast("Layer", self.decoder[-1])
        scores = last.feed_forward.scored(last.attention.added(x, scale, real), self.score).squeeze(2)
        if self.problem == "tsp":
            return scores[:, :-1]
        return torch.cat([scores[:, 1 : direct + 1], scores[:, direct + 2 :]], dim=1)

    def logit_factor(self, left: int, size: int) -> float | Tensor:
        """Return the logit scale for the neighbourhood of so many open nodes."""
        config = self.config
        tokens = min(config.neighbours, left) + 1
        if self.problem == "cvrp":
            limit = min(config.depot_neighbours, left)
            tokens = min(tokens, limit + 1) + limit + 1
        return self._scale(tokens, size)

    def _scale(self, tokens: int, size: int) -> float | Tensor:
        return self.logit_scale(ScaleContext(tokens, size, self.config.head_dim, self.config.training_size))


DEMAND, DISTANCE = 2, 3
"""Columns of the CVRP's features."""


def _near(distance: Tensor, walk: Walk, count: int) -> Tensor:
    found, real = nearest(distance, walk.open, count)
    if walk.padding is None:
        return found.sort(dim=1).values
    beyond = distance.shape[1]
    found = found.masked_fill(~real, beyond).sort(dim=1).values
    # One candidate twice changes neither what is smallest nor what is largest.
    return torch.where(found < beyond, found, found[:, :1])


def _there(like: Tensor, count: int, padding: Padding) -> Tensor:
    """Return which of `count` places of candidates hold one, ``(K,)`` bool."""
    return torch.arange(count, device=like.device) < padding.count


def _real(groups: Sequence[Tensor], around: tuple[int, int]) -> Tensor:
    """Return which tokens are no padding, ``(1, 1, 1, T)`` bool, with so many more before and behind each group."""
    return torch.cat([F.pad(group, around, value=True) for group in groups])[None, None, None]


def build(config: DglConfig, logit_scale: LogitScale | None = None) -> Dgl:
    """Build the policy with fresh weights (PyTorch's default initialisation, as the official code)."""
    if config.problem not in ("tsp", "cvrp"):
        raise UnknownNameError("problem of dgl", config.problem, ["tsp", "cvrp"])
    return Dgl(config, logit_scale or none)


OFFICIAL_LAST = {
    "decoder.embedding_last_node_not_via_depot.": "last.",
    "decoder.embedding_last_node_via_depot.": "depot.",
}
IGNORED = ("decoder.embedding_last_node_pos.weight", "decoder.embedding_last_node_pos.bias")


def from_official(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Translate a state dict of xybFight/DGL, which is built on LEHD's; unknown keys stay as they are."""
    left = {key: value for key, value in state.items() if key not in IGNORED}
    return rename(left, OFFICIAL_LAST) | lehd_from_official(left)

"""DGL's steps without gradients on the CPU: the same answers; between the products lie compiled loops, one call each.

Torch would take some sixty calls for the features and masks of a step, each of which costs more than the arithmetic in it,
and its attention is slow for so few tokens. The first layer goes by `nco_bench.solvers.stepwise.few_features`.

Letters in shapes: R partial solutions, N nodes, K candidates, T tokens, D features, A options, W width, H heads.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import Tensor

from nco_bench.nn.compiled import F32
from nco_bench.nn.layers import HIDDEN_AT_A_TIME
from nco_bench.nn.packed import Packed
from nco_bench.nn.threads import in_threads
from nco_bench.solvers.stepwise import dgl_kernels as kernels
from nco_bench.solvers.stepwise.few_features import FewFeatures
from nco_bench.solvers.stepwise.policy import LocalViewPolicy, Memory, Options, RoutingNodes, Walk

if TYPE_CHECKING:
    from nco_bench.solvers.path.lehd import Layer
    from nco_bench.solvers.stepwise.dgl import Dgl


class QuickDgl(LocalViewPolicy):
    """A DGL as it is now, at work without gradients; weights that change later are not seen.

    Parameters
    ----------
    policy
        In float32, on the CPU, with one layer or more in its encoder.
    """

    def __init__(self, policy: Dgl) -> None:
        self.policy, self.problem, self.needs_start = policy, policy.problem, policy.needs_start
        self.cvrp = policy.problem == "cvrp"
        encoder, decoder = (cast("list[Layer]", list(part)) for part in (policy.encoder, policy.decoder))
        self.encoder, self.decoder = ([QuickLayer(one) for one in part] for part in (encoder, decoder))
        embedding, first, begin = policy.embedding, encoder[0].attention, self.encoder[0]
        self.few = FewFeatures.of(
            torch.cat([embedding.weight.T, embedding.bias[None]]).detach(),
            cast("tuple[Tensor, Tensor, Tensor]", begin.qkv.weight.T.chunk(3, dim=1)),
            begin.out.weight.T,
            first.heads,
            first.head_dim**-0.5,
        )
        embed = self.few.embed.clone()
        embed[embedding.in_features] += first.out.bias.detach()
        self.begin = Packed(torch.cat([self.few.mixing, embed]).T)
        last, score = decoder[-1].feed_forward, policy.score
        self.weight = (score.weight @ last.outer.weight).detach()[0].numpy()
        self.score = score.weight.detach()[0].numpy()
        self.constant = F32((score.weight @ last.outer.bias + score.bias).item())

    def limit_neighbours(self, count: int) -> bool:
        """Limit those of the network."""
        return self.policy.limit_neighbours(count)

    def logit_factor(self, left: int, size: int) -> float | Tensor:
        """Return that of the network."""
        return self.policy.logit_factor(left, size)

    def remember(self, nodes: RoutingNodes) -> Memory:
        """Return the tables of an empty solution, see `Dgl.remember`."""
        return self.policy.remember(nodes)

    def moved(self, nodes: RoutingNodes, walk: Walk) -> Memory:
        """Take the visited node out of the statistics, see `Dgl.moved`."""
        mean, deviation, _, target = walk.memory
        others, here = walk.left + self.cvrp, torch.empty_like(mean)
        kernels.squares(nodes.coords.numpy(), walk.current.numpy(), here.numpy())
        here.sqrt_()
        if others:
            tables = (here, mean, deviation)
            mean, deviation = torch.empty_like(mean), torch.empty_like(mean)
            kernels.moments(*(table.numpy() for table in tables), others, mean.numpy(), deviation.numpy())
            deviation.sqrt_()
        return mean, deviation, here, here if not self.cvrp and walk.left == nodes.size - 1 else target

    def options(self, nodes: RoutingNodes, walk: Walk) -> Options:
        """Score the candidates, as `Dgl.options` does."""
        count, _, here, target = min(self.policy.config.neighbours, walk.left), *walk.memory[1:]
        via = walk.current.new_empty(len(here), 0)
        if self.cvrp:
            limit = min(self.policy.config.depot_neighbours, walk.left)
            count, via = min(count, limit), _near(target, walk, limit)
        direct = _near(here, walk, count)
        demand = nodes.coords[:, 0, :0] if nodes.demand is None else nodes.demand
        known = (demand.numpy(), (here[:, 0] if walk.room is None else walk.room).numpy())
        tokens, asking, size = direct.shape[1] + 1, self.few.asking.shape[1], len(self.few.embed)
        tokens += via.shape[1] + 1 if self.cvrp else 0
        # What the first layer's heads see, and behind it the features themselves: one product maps both.
        first = torch.zeros(len(here), tokens, asking + size)
        kernels.view_features(
            nodes.coords.numpy(), *known, tuple(table.numpy() for table in walk.memory), walk.first.numpy(),
            walk.current.numpy(), direct.numpy(), via.numpy(), first[..., asking:].numpy(),
        )  # fmt: skip
        scores, scale = torch.empty(len(here), tokens), F32(self.logit_factor(walk.left, nodes.size))
        rows = max(1, HIDDEN_AT_A_TIME // (tokens * self.policy.config.ffn))

        def work(part: slice, _: threading.Event) -> None:
            self.scored(first[part], direct.shape[1], scale, scores[part])

        in_threads(work, [slice(row, row + rows) for row in range(0, len(here), rows)])
        nodes_of = torch.cat([direct, via], dim=1) if self.cvrp else direct
        found = torch.empty(nodes_of.shape)
        kernels.chances(scores.numpy(), *known, direct.numpy(), found.numpy())
        flags = None
        if self.cvrp:
            flags = torch.zeros(nodes_of.shape, dtype=torch.bool)
            flags[:, direct.shape[1] :] = True
        return Options(nodes_of, found, flags)

    def scored(self, first: Tensor, direct: int, scale: np.float32, scores: Tensor) -> None:
        """Write the scores of all tokens, ``(R, T)``.

        Parameters
        ----------
        first
            ``(R, T, H D + D)``: features, behind as many places for each head; overwritten.
        direct
            The place of the current node: of so many candidates that are reached directly.
        scale
            Logit scale.
        scores
            Filled.
        """
        rows, tokens, wide = first.shape
        size = len(self.few.embed)
        features, heads = first[..., -size:], wide // size - 1
        asked = (features.reshape(rows * tokens, -1) @ self.few.asking).view(rows, tokens, heads, -1).numpy()
        seen = features[:, :, None].expand(-1, -1, heads, -1).numpy()
        out = first[..., :-size].unflatten(2, (heads, -1)).numpy()
        kernels.attend(asked, seen, seen, scale, out)
        x = self.begin(first.view(rows * tokens, wide))
        x = self.encoder[0].fed(x)
        for layer in self.encoder[1:]:
            x = layer.fed(layer.attended(x, tokens, scale))
        ends = x.view(rows, tokens, -1)
        ends[:, direct] = self.policy.last(ends[:, direct])
        if self.cvrp:
            ends[:, -1] = self.policy.depot(ends[:, -1])
        for layer in self.decoder[:-1]:
            x = layer.fed(layer.attended(x, tokens, scale))
        x = self.decoder[-1].attended(x, tokens, scale)
        hidden = self.decoder[-1].inner.rectified(x)
        kernels.scored(
            hidden.numpy(), self.weight, x.numpy(), self.score, self.constant, scores.view(-1).numpy()
        )


class QuickLayer:
    """A layer that does not change, of tokens ``(R T, W)``."""

    def __init__(self, layer: Layer) -> None:
        attention, feed_forward = layer.attention, layer.feed_forward
        maps = (attention.qkv, attention.out, feed_forward.inner, feed_forward.outer)
        self.qkv, self.out, self.inner, self.outer = (Packed(one.weight, one.bias) for one in maps)
        self.split, self.scale = (attention.heads, attention.head_dim), F32(attention.head_dim**-0.5)

    def attended(self, x: Tensor, tokens: int, scale: np.float32) -> Tensor:
        """Add attention among each `tokens` tokens."""
        qkv = self.qkv(x).view(-1, tokens, 3, *self.split).numpy()
        heads = torch.empty(len(qkv), tokens, *self.split)
        kernels.attend(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], scale * self.scale, heads.numpy())
        return self.out.added(x, heads.view(x.shape[0], -1))

    def fed(self, x: Tensor) -> Tensor:
        """Add the feed-forward block."""
        return self.outer.added(x, self.inner.rectified(x))


def _near(distance: Tensor, walk: Walk, count: int) -> Tensor:
    """Find the nearest open nodes, in any order; among equals those that `dgl` takes."""
    return torch.where(walk.open, distance, torch.inf).topk(count, dim=1, largest=False, sorted=False).indices

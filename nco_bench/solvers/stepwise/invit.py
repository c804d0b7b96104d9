"""INViT, "Invariant Nested View Transformer" (Fang et al., ICML 2024), for TSP and CVRP, with two or three views.

At every step the nearest unvisited nodes of the last node are seen in nested views: the nearest 15 (the action view, which
holds the candidates) and the nearest 35 and 50 (state views). Each view is shifted and scaled to its own unit box and
encoded by its own network, so the policy does not know where, how large or how dense the instance is.

What the official code (Kasumigaoka-Utaha/INViT) does and the paper does not say: logits in the encoders are divided by the
square root of the whole width, not of a head's; each attention block has two residuals and two normalisations; the
box leaves the first node (or the depot) out, and the TSP clamps it; for the CVRP the state views hold the candidates first;
an exact fit is refused (the vehicle goes home first); missing neighbours are masked, but at the depot their place in the
box is that of the last customer. The official CVRP never ends where one customer fills a whole vehicle; here an empty
vehicle may take it. The official start node of a tour is random; here decoding gives it.

Letters in shapes: R partial solutions, K neighbours in a view, T = K + 1 or K + 2 tokens, A options, W width, V views.
"""

from __future__ import annotations

import importlib.util

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.nn.logit_scale import LogitScale, none
from nco_bench.nn.products import linear
from nco_bench.solvers.stepwise.invit_official import from_official as from_official
from nco_bench.solvers.stepwise.invit_views import CLIP, DecoderLayer, InvitConfig, View, ViewEncoder
from nco_bench.solvers.stepwise.invit_views import config_for as config_for
from nco_bench.solvers.stepwise.policy import (
    LocalViewPolicy,
    Memory,
    Options,
    RoutingNodes,
    Walk,
    distances_from,
    nearest,
    take,
)

DECODER_LAYERS = 2
"""Layers before the pointer, which the official code counts as a third."""

KERNELS = importlib.util.find_spec("numba") is not None
"""Whether compiled loops are to be had."""


class Invit(nn.Module, LocalViewPolicy):
    """The whole policy."""

    masks = True

    def __init__(self, config: InvitConfig) -> None:
        super().__init__()
        self.config, self.problem = config, config.problem
        self.cvrp = config.problem == "cvrp"
        self.needs_start = not self.cvrp
        width, views = config.width, 1 + len(config.state_views)
        self.action = ViewEncoder(config, config.action_layers, with_end=self.cvrp)
        self.states = nn.ModuleList(
            ViewEncoder(config, config.state_layers, with_end=True) for _ in config.state_views
        )
        self.query = nn.Linear(width * (2 * views - (not self.cvrp)), width)
        self.keys = nn.Linear(width * views, width * (DECODER_LAYERS + 1))
        # The last third belongs to the pointer, which has no values; kept since official weights hold it.
        self.values = nn.Linear(width * views, width * (DECODER_LAYERS + 1))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(DECODER_LAYERS))
        self.pointer = nn.Linear(width, width)

    def quick(self) -> LocalViewPolicy:
        """Return the steps of `nco_bench.solvers.stepwise.invit_quick`, where they can be had."""
        weight, autocast = self.pointer.weight, torch.is_autocast_enabled("cpu")
        if not KERNELS or not weight.is_cpu or autocast or weight.dtype != torch.float32:
            return self
        from nco_bench.solvers.stepwise.invit_learning import LearningLayer
        from nco_bench.solvers.stepwise.invit_quick import QuickInvit, QuickLayer

        return QuickInvit(self, LearningLayer if torch.is_grad_enabled() else QuickLayer)

    def remember(self, nodes: RoutingNodes) -> Memory:
        """Remember nothing."""
        return ()

    def moved(self, nodes: RoutingNodes, walk: Walk) -> Memory:
        """Remember nothing."""
        return ()

    def options(self, nodes: RoutingNodes, walk: Walk) -> Options:
        """Score the candidates and, for the CVRP, the depot (last): at most 15 or 16 options."""
        slots, real = self.neighbours(nodes, walk)
        views = self.views(nodes, walk, slots, real)
        chosen = slots[:, : self.config.candidates]
        encoded = [self.action(views[0])]
        encoded += [encoder(v, chosen.shape[1]) for encoder, v in zip(self.states, views[1:], strict=True)]
        query, keys, rows = self.asked(encoded, chosen.shape[1])
        allowed = None if real is None else real[:, : self.config.candidates]
        if allowed is not None and self.cvrp:
            chosen = F.pad(chosen, (0, 1))
            home = (walk.current != 0) | ~walk.open.any(dim=1)  # a vehicle that is done idles at the depot
            allowed = torch.cat([allowed, home[:, None]], dim=1)
        return Options(chosen, self.point(query, keys, rows, allowed).log_softmax(dim=1))

    def neighbours(self, nodes: RoutingNodes, walk: Walk) -> tuple[Tensor, Tensor | None]:
        """Find the nodes of the largest view.

        Returns
        -------
        slots
            ``(R, K)`` nodes, nearest first. CVRP: the candidates (customers that fit) first, then other open customers;
            each group is padded.
        real
            ``(R, K)`` bool: no padding; None for the TSP, which has none but in recorded steps (the last node, once more).
        """
        distance = distances_from(nodes.coords, walk.current)
        count, widest = self.config.candidates, self.config.widest
        if nodes.demand is None or walk.room is None:
            slots, real = nearest(distance, walk.open, min(widest, walk.left))
            if walk.padding is None:
                return slots, None
            return torch.where(real, slots, walk.current[:, None]), real
        share = take_all(nodes.demand, walk)
        empty = (walk.current == 0) & (walk.room == 1)
        fits = (share < walk.room[:, None]) | (empty[:, None] & (share == 1))
        near, near_real = _padded(nearest(distance, walk.open & fits, count), count)
        # Padding has arbitrary places, which must stay open; the depot is never open anyway.
        others = walk.open.scatter(1, near * near_real, False)
        far, far_real = _padded(nearest(distance, others, widest - count), widest - count)
        slots, real = torch.cat([near, far], dim=1), torch.cat([near_real, far_real], dim=1)
        # The official padding is the last visited index, -1 for the depot, which is read as the last customer.
        place = torch.where(walk.current == 0, nodes.coords.shape[1] - 1, walk.current)
        return torch.where(real, slots, place[:, None]), real

    def views(self, nodes: RoutingNodes, walk: Walk, slots: Tensor, real: Tensor | None) -> list[View]:
        """Cut the action view and the state views out of the neighbours, each in its own box."""
        ends = torch.stack([walk.current, walk.first], dim=1)
        points = take(nodes.coords, torch.cat([slots, ends], dim=1))
        demand = None if nodes.demand is None else take(nodes.demand, slots)
        found = []
        for i, size in enumerate((self.config.candidates, *self.config.state_views)):
            size = min(size, slots.shape[1])
            tail = points[:, slots.shape[1] :] if i or self.cvrp else points[:, slots.shape[1] : -1]
            boxed = in_box(torch.cat([points[:, :size], tail], dim=1), size + 1, clamp=not self.cvrp)
            visible = None if real is None else F.pad(real[:, :size], (0, tail.shape[1]), value=True)
            extra = None
            if demand is not None and walk.room is not None:
                extra = torch.cat([demand[:, :size], walk.room[:, None]], dim=1)
            found.append(View(boxed, extra, visible))
        return found

    def asked(self, encoded: list[Tensor], candidates: int) -> tuple[Tensor, Tensor, Tensor]:
        """Join the views.

        Parameters
        ----------
        encoded
            Per view the candidates and the tokens behind all neighbours.
        candidates
            Number of candidates.

        Returns
        -------
        query, keys, rows
            ``(R, 1, W)``, ``(R, A, 3 W)``, and ``(R, A, V W)``: what values are made of.
        """
        query = self.query(torch.cat([x[:, candidates:].flatten(1) for x in encoded], dim=1))[:, None]
        rows = torch.cat([x[:, :candidates] for x in encoded], dim=2)
        if self.cvrp:
            rows = torch.cat([rows, torch.cat([x[:, -1:] for x in encoded], dim=2)], dim=1)
        return query, self.keys(rows), rows

    def point(self, h: Tensor, keys: Tensor, rows: Tensor, allowed: Tensor | None) -> Tensor:
        """Return logits ``(R, A)``, ``-inf`` where not allowed."""
        width = self.config.width
        part = slice(0, DECODER_LAYERS * width)
        values = linear(rows, self.values.weight[part], self.values.bias[part]).split(width, dim=2)
        *keys_of, last = keys.split(width, dim=2)
        mask = None if allowed is None else allowed[:, None, None]
        for layer, key, value in zip(self.decoder, keys_of, values, strict=True):
            h = layer(h, key, value, mask)
        scores = (last @ self.pointer(h).transpose(1, 2)).squeeze(2)
        logits = CLIP * torch.tanh(scores / width**0.5)
        return logits if allowed is None else logits.masked_fill(~allowed, -torch.inf)


def take_all(table: Tensor, walk: Walk) -> Tensor:
    """Repeat ``(B, N)`` for each row, ``(R, N)``, without a copy where there is one row per instance."""
    copies = walk.current.shape[0] // table.shape[0]
    return table if copies == 1 else table.repeat_interleave(copies, dim=0)


def in_box(points: Tensor, count: int, *, clamp: bool) -> Tensor:
    """Shift and scale ``(R, T, 2)`` so that the first `count` points fill the unit box, one scale for both axes."""
    low, high = points[:, :count].aminmax(dim=1, keepdim=True)
    side = (high - low).amax(dim=2, keepdim=True)
    boxed = (points - low) / torch.where(side > 0, side, 1.0)
    return boxed.clamp(0, 1) if clamp else boxed


def _padded(found: tuple[Tensor, Tensor], count: int) -> tuple[Tensor, Tensor]:
    """Fill up to `count` neighbours, in instances that have fewer nodes."""
    missing = count - found[0].shape[1]
    return F.pad(found[0], (0, missing)), F.pad(found[1], (0, missing))


def build(config: InvitConfig, logit_scale: LogitScale | None = None) -> Invit:
    """Build the policy with fresh weights (PyTorch's default initialisation, as the official code).

    Raises
    ------
    UnknownNameError
        For another problem.
    BadInputError
        For a logit scale: views have a fixed size, so there is nothing to scale with.
    """
    if config.problem not in ("tsp", "cvrp"):
        raise UnknownNameError("problem of invit", config.problem, ["tsp", "cvrp"])
    if logit_scale not in (None, none):
        raise BadInputError("--logit-scale: the views of invit have a fixed size; leave it out.")
    return Invit(config)

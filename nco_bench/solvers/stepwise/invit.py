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

import re
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.nn.logit_scale import LogitScale, none
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

CLIP = 10.0
DECODER_LAYERS = 2
"""Layers before the pointer, which the official code counts as a third."""


@dataclass(frozen=True)
class InvitConfig:
    """Sizes of INViT (paper, section 5); the defaults are the published three-view model.

    Attributes
    ----------
    problem
        ``tsp`` or ``cvrp``.
    width, heads, ffn
        Embedding width, attention heads, hidden width of the encoders' feed-forward layers.
    action_layers, state_layers
        Layers of the encoders.
    candidates
        Neighbours in the action view: what can come next.
    middle
        Neighbours in the smaller state view of the three-view model; 0 for two views.
    widest
        Neighbours in the largest state view.
    """

    problem: str = "tsp"
    width: int = 128
    heads: int = 8
    ffn: int = 512
    action_layers: int = 2
    state_layers: int = 2
    candidates: int = 15
    middle: int = 35
    widest: int = 50

    @property
    def state_views(self) -> tuple[int, ...]:
        """Neighbours in each state view, the smallest first."""
        return (self.middle, self.widest) if self.middle else (self.widest,)


def config_for(name: str, problem: str) -> InvitConfig:
    """Return the configuration of a registered name: ``invit-2v`` or ``invit-3v``."""
    return InvitConfig(problem, middle=0, widest=35) if name == "invit-2v" else InvitConfig(problem)


@dataclass(frozen=True)
class View:
    """What one encoder sees.

    Attributes
    ----------
    points
        ``(R, T, 2)``: neighbours, the last node and, but for the TSP's action view, the first node or the depot; all in
        the view's own box.
    extra
        ``(R, K + 1)`` demands of the neighbours and the capacity left, as shares; None for the TSP.
    visible
        ``(R, T)`` bool: no padding; None for the TSP.
    """

    points: Tensor
    extra: Tensor | None = None
    visible: Tensor | None = None


class Layer(nn.Module):
    """Attention with two residuals and two normalisations, then a feed-forward block."""

    def __init__(self, config: InvitConfig) -> None:
        super().__init__()
        width = config.width
        self.heads = config.heads
        self.query = nn.Linear(width, width, bias=False)
        self.keys_values = nn.Linear(width, 2 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm_attention = nn.LayerNorm(width, eps=1e-6)
        self.norm_sum = nn.LayerNorm(width)
        self.inner, self.outer = nn.Linear(width, config.ffn), nn.Linear(config.ffn, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, visible: Tensor | None, wanted: Tensor | None = None) -> Tensor:
        """Transform tokens.

        Parameters
        ----------
        x
            ``(R, T, W)``.
        visible
            ``(R, 1, 1, T)`` bool: tokens that may be attended to; None if all may.
        wanted
            Positions of the tokens to be returned; None for all.
        """
        keys, values = self.keys_values(x).chunk(2, dim=2)
        if wanted is not None:
            x = x.index_select(1, wanted)
        heads = F.scaled_dot_product_attention(
            _split(self.query(x), self.heads),
            _split(keys, self.heads),
            _split(values, self.heads),
            attn_mask=visible,
            scale=x.shape[2] ** -0.5,
        )
        mixed = self.out(heads.transpose(1, 2).reshape(x.shape))
        x = self.norm_sum(x + self.norm_attention(mixed + x))
        return self.norm(x + self.outer(F.relu(self.inner(x))))


class ViewEncoder(nn.Module):
    """The network of one view: its own embeddings and layers."""

    def __init__(self, config: InvitConfig, layers: int, *, with_end: bool) -> None:
        super().__init__()
        features = 3 if config.problem == "cvrp" else 2
        self.embed = nn.Linear(features, config.width)
        self.embed_last = nn.Linear(features, config.width)
        # The first node of the tour, or the depot.
        self.embed_end = nn.Linear(2, config.width) if with_end else None
        self.layers = nn.ModuleList(Layer(config) for _ in range(layers))

    def forward(self, view: View, candidates: int | None = None) -> Tensor:
        """Encode a view, ``(R, T, W)``.

        With `candidates` only the first so many neighbours and the tokens behind all neighbours are returned: the last
        layer computes no others.
        """
        last = view.points.shape[1] - (1 if self.embed_end is None else 2)
        inputs = view.points[:, : last + 1]
        if view.extra is not None:
            inputs = torch.cat([inputs, view.extra[..., None]], dim=2)
        parts = [self.embed(inputs[:, :last]), self.embed_last(inputs[:, last:])]
        if self.embed_end is not None:
            parts.append(self.embed_end(view.points[:, last + 1 :]))
        x = torch.cat(parts, dim=1)
        wanted = None
        if candidates is not None and candidates < last:
            wanted = torch.tensor([*range(candidates), *range(last, x.shape[1])], device=x.device)
        visible = None if view.visible is None else view.visible[:, None, None]
        for layer in self.layers[:-1]:
            x = layer(x, visible)
        return cast("Layer", self.layers[-1])(x, visible, wanted)


class DecoderLayer(nn.Module):
    """The query looks at the options, then a small feed-forward block."""

    def __init__(self, config: InvitConfig) -> None:
        super().__init__()
        width = config.width
        self.heads = config.heads
        self.query, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.inner, self.outer = nn.Linear(width, width), nn.Linear(width, width)
        self.norm_attention, self.norm = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, h: Tensor, keys: Tensor, values: Tensor, allowed: Tensor | None) -> Tensor:
        """Refine the query ``(R, 1, W)`` with the options' ``(R, A, W)``; `allowed` is ``(R, 1, 1, A)`` bool."""
        heads = F.scaled_dot_product_attention(
            _split(self.query(h), self.heads),
            _split(keys, self.heads),
            _split(values, self.heads),
            attn_mask=allowed,
        )
        h = self.norm_attention(h + self.out(heads.transpose(1, 2).reshape(h.shape)))
        return self.norm(h + self.outer(F.relu(self.inner(h))))


class Invit(nn.Module, LocalViewPolicy):
    """The whole policy."""

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
        allowed = None
        if real is not None:
            chosen = F.pad(chosen, (0, 1))
            home = (walk.current != 0) | ~walk.open.any(dim=1)  # a vehicle that is done idles at the depot
            allowed = torch.cat([real[:, : self.config.candidates], home[:, None]], dim=1)
        return Options(chosen, self.point(query, keys, rows, allowed).log_softmax(dim=1))

    def neighbours(self, nodes: RoutingNodes, walk: Walk) -> tuple[Tensor, Tensor | None]:
        """Find the nodes of the largest view.

        Returns
        -------
        slots
            ``(R, K)`` nodes, nearest first. CVRP: the candidates (customers that fit) first, then other open customers;
            each group is padded.
        real
            ``(R, K)`` bool: no padding; None for the TSP, which has none.
        """
        distance = distances_from(nodes.coords, walk.current)
        count, widest = self.config.candidates, self.config.widest
        if nodes.demand is None or walk.room is None:
            return nearest(distance, walk.open, min(widest, walk.left))[0], None
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
            if demand is None or real is None or walk.room is None:
                found.append(View(boxed))
                continue
            extra = torch.cat([demand[:, :size], walk.room[:, None]], dim=1)
            found.append(View(boxed, extra, F.pad(real[:, :size], (0, 2), value=True)))
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
        values = F.linear(rows, self.values.weight[part], self.values.bias[part]).split(width, dim=2)
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


def _split(x: Tensor, heads: int) -> Tensor:
    """Cut ``(R, T, W)`` into ``(R, H, T, W / H)``."""
    return x.unflatten(2, (heads, -1)).transpose(1, 2)


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


OFFICIAL = (
    (r"^decoder\.decoder_layers\.(\d+)\.W0_att\.", r"decoder.\1.out."),
    (r"^decoder\.decoder_layers\.(\d+)\.Wq_att\.", r"decoder.\1.query."),
    (r"^decoder\.decoder_layers\.(\d+)\.W1_MLP\.", r"decoder.\1.inner."),
    (r"^decoder\.decoder_layers\.(\d+)\.W2_MLP\.", r"decoder.\1.outer."),
    (r"^decoder\.decoder_layers\.(\d+)\.BN_att\.", r"decoder.\1.norm_attention."),
    (r"^decoder\.decoder_layers\.(\d+)\.BN_MLP\.", r"decoder.\1.norm."),
    (r"^decoder\.Wq_final\.", "pointer."),
    (r"^WK_att_decoder\.", "keys."),
    (r"^WV_att_decoder\.", "values."),
    (r"^query_mlp\.", "query."),
    (r"^action_encoder\.", "action."),
    (r"^state_encoders\.", "states."),
    (r"\.input_emb\.", ".embed."),
    (r"\.input_emb_for_last\.", ".embed_last."),
    (r"\.input_emb_for_first\.", ".embed_end."),
    (r"\.encoder\.MHA_layers\.(\d+)\.w_qs\.", r".layers.\1.query."),
    (r"\.encoder\.MHA_layers\.(\d+)\.keys_values\.", r".layers.\1.keys_values."),
    (r"\.encoder\.MHA_layers\.(\d+)\.fc\.", r".layers.\1.out."),
    (r"\.encoder\.MHA_layers\.(\d+)\.layer_norm\.", r".layers.\1.norm_attention."),
    (r"\.encoder\.linear1_layers\.(\d+)\.", r".layers.\1.inner."),
    (r"\.encoder\.linear2_layers\.(\d+)\.", r".layers.\1.outer."),
    (r"\.encoder\.norm1_layers\.(\d+)\.", r".layers.\1.norm_sum."),
    (r"\.encoder\.norm2_layers\.(\d+)\.", r".layers.\1.norm."),
)
"""Parts of official names and of ours."""


def from_official(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Translate a state dict of Kasumigaoka-Utaha/INViT; unknown keys stay as they are."""
    left = dict(state)
    for key in [key for key in left if key.endswith(".w_ks.weight")]:
        stem = key.removesuffix("w_ks.weight")
        joined = torch.cat([left.pop(key), left.pop(f"{stem}w_vs.weight")])
        left[f"{stem}keys_values.weight"] = joined
    ours = {}
    for key, value in left.items():
        for pattern, name in OFFICIAL:
            key = re.sub(pattern, name, key)
        ours[key] = value
    return ours

"""The parts of INViT: its sizes, a view, the encoder of one view and a layer of the decoder.

Letters in shapes: R partial solutions, K neighbours in a view, T = K + 1 or K + 2 tokens, W width, H heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nco_bench.nn.products import feed_forward

CLIP = 10.0
"""Half the range of the scores."""


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
        ``(R, T)`` bool: no padding; None where there is none.
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
        return self.rest(x, self.out(heads.transpose(1, 2).reshape(x.shape)) + x)

    def rest(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Do what follows attention, of ``(..., W)``; `mixed` is what attention made of `x`, with `x`."""
        x = self.norm_sum(x + self.norm_attention(mixed))
        made: Tensor = self.norm(x + feed_forward(x, self.inner, self.outer))
        return made


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
            wanted = torch.arange(candidates + x.shape[1] - last, device=x.device)
            wanted[candidates:] += (
                last - candidates
            )  # made where it is used: a copy of a list makes a GPU wait
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
        return self.norm(h + feed_forward(h, self.inner, self.outer))


def _split(x: Tensor, heads: int) -> Tensor:
    """Cut ``(R, T, W)`` into ``(R, H, T, W / H)``."""
    return x.unflatten(2, (heads, -1)).transpose(1, 2)

"""INViT's steps on the CPU: the same answers from a third of the products and, without gradients, of the calls.

Three equalities save products, and none changes what is computed but for rounding:

- The tokens of a view are linear in at most 11 features: coordinates, demand and a 1 for the bias, in columns of their own
  for each kind of token (neighbour, last node, end). So the first layer goes by `nco_bench.solvers.stepwise.few_features`.
- The decoder has one query: ``q (rows Wk)^T = (q Wk^T) rows^T`` and ``a (rows Wv) = (a rows) Wv``, so that maps are applied
  to the query and to the mean, not to every option; so is the pointer's.
- A bias of keys adds the same to all logits of a softmax, and none is added; a bias of values adds itself.

Tokens stand in another order than in `invit_views`: the end, the candidates, the last node, other neighbours; what is
wanted of the last layer lies in front.

Letters in shapes: R partial solutions, K neighbours in a view, T tokens, D features, A options, W width, V views, H heads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nco_bench.nn.layers import side_by_side
from nco_bench.nn.packed import Packed
from nco_bench.nn.products import roomy
from nco_bench.solvers.stepwise import invit_kernels as kernels
from nco_bench.solvers.stepwise.few_features import FewFeatures, products
from nco_bench.solvers.stepwise.invit_views import CLIP, DecoderLayer, Layer, ViewEncoder
from nco_bench.solvers.stepwise.policy import LocalViewPolicy, Memory, Options, RoutingNodes, Walk

if TYPE_CHECKING:
    from nco_bench.solvers.stepwise.invit import Invit


class QuickInvit(LocalViewPolicy):
    """An INViT as it is now, at work without gradients; weights that change later are not seen.

    Parameters
    ----------
    policy
        In float32, on the CPU.
    layers
        `QuickLayer`, or one that lets gradients pass.
    """

    def __init__(self, policy: Invit, layers: type[EncoderLayer]) -> None:
        self.policy, self.problem, self.needs_start = policy, policy.problem, policy.needs_start
        self.masks = policy.masks
        config = policy.config
        self.sizes = (config.candidates, *config.state_views)
        self.encoders = [
            QuickEncoder(cast("ViewEncoder", one), layers) for one in (policy.action, *policy.states)
        ]
        self.decoder = QuickDecoder(policy)

    def remember(self, nodes: RoutingNodes) -> Memory:
        """Remember nothing."""
        return ()

    def moved(self, nodes: RoutingNodes, walk: Walk) -> Memory:
        """Remember nothing."""
        return ()

    def options(self, nodes: RoutingNodes, walk: Walk) -> Options:
        """Score the candidates and, for the CVRP, the depot (last), as `Invit.options` does."""
        slots, real = self.policy.neighbours(nodes, walk)
        count = min(self.sizes[0], slots.shape[1])
        chosen, ends = slots[:, :count], (walk.first[:, None], walk.current[:, None])
        tokens = torch.cat([ends[0], chosen, ends[1], slots[:, count:]], dim=1)
        hidden = None
        if real is not None:
            shown = [F.pad(real[:, :count], (1, 1), value=True), real[:, count:]]
            hidden = torch.zeros(tokens.shape).masked_fill_(~torch.cat(shown, dim=1), -torch.inf)[:, None]
        encoded = [
            encoder(nodes, walk, tokens[:, : min(size, slots.shape[1]) + 2], hidden, count)
            for encoder, size in zip(self.encoders, self.sizes, strict=True)
        ]
        allowed = None if real is None else real[:, :count]
        if allowed is not None and self.policy.cvrp:
            chosen = F.pad(chosen, (0, 1))
            home = (walk.current != 0) | ~walk.open.any(dim=1)  # a vehicle that is done idles at the depot
            allowed = torch.cat([allowed, home[:, None]], dim=1)
        return Options(chosen, self.decoder(encoded, count, allowed).log_softmax(dim=1))


class QuickEncoder:
    """The network of one view."""

    def __init__(self, encoder: ViewEncoder, layers: type[EncoderLayer]) -> None:
        kinds = [encoder.embed, encoder.embed_last, encoder.embed_end]
        maps = [torch.cat([kind.weight.T, kind.bias[None]]) for kind in kinds if kind is not None]
        self.with_end, self.cvrp = encoder.embed_end is not None, encoder.embed.in_features == 3
        self.first, *self.others = [layers(cast("Layer", layer)) for layer in encoder.layers]
        self.few = joined_maps(cast("Layer", encoder.layers[0]), torch.cat(maps))
        self.mixing = self.first.map(self.few.mixing.T)

    def __call__(
        self, nodes: RoutingNodes, walk: Walk, tokens: Tensor, hidden: Tensor | None, candidates: int
    ) -> Tensor:
        """Encode a view.

        Parameters
        ----------
        nodes, walk
            Where it is.
        tokens
            ``(R, K + 2)`` nodes in this module's order, the end among them also where the view does not show it.
        hidden
            ``(R, 1, ...)``, ``-inf`` for what is padding and 0 for the others; None if nothing is.
        candidates
            Number of candidates.

        Returns
        -------
        Tensor
            ``(R, A + 2, W)``: end, candidates, last node; without the end where it is not shown.
        """
        rows, first = len(tokens), 0 if self.with_end else 1
        count = tokens.shape[1] - first
        features = torch.zeros(rows, count, len(self.few.embed))
        none = features[:0, 0, :0]
        kernels.view_features(
            nodes.coords.numpy(), (none if nodes.demand is None else nodes.demand).numpy(),
            (features[:0, 0, 0] if walk.room is None else walk.room).numpy(), tokens.numpy(), candidates,
            self.with_end, not self.cvrp, features.numpy(),
        )  # fmt: skip
        if hidden is not None:
            hidden = hidden[:, :, first : first + count]
        x = self._first(features, hidden)
        wanted = candidates + 2 - first
        for layer in self.others[:-1]:
            x = layer(x, hidden, count)
        return self.others[-1](x, hidden, wanted) if self.others else x[:, :wanted]

    def _first(self, features: Tensor, hidden: Tensor | None) -> Tensor:
        """Embed and apply the first layer, ``(R, T, D)`` to ``(R, T, W)``."""
        rows, count, size = features.shape
        x = features.view(-1, size) @ self.few.embed
        mixed = self.mixing(self.few.seen(features, hidden)).add_(x)
        return self.first.rest(x, mixed).view(rows, count, -1)


class EncoderLayer(Protocol):
    """A layer of an encoder at work."""

    def __init__(self, layer: Layer) -> None: ...

    def map(self, weight: Tensor) -> Callable[[Tensor], Tensor]:
        """Return the product with a weight ``(N, K)`` for matrices ``(M, K)``."""

    def __call__(self, x: Tensor, hidden: Tensor | None, wanted: int) -> Tensor:
        """Transform tokens ``(R, T, W)``; only the first `wanted` are returned."""

    def rest(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Do what follows attention; both are ``(T, W)``, `mixed` with its residual, and may be overwritten."""


def joined_maps(layer: Layer, embed: Tensor) -> FewFeatures:
    """Join a layer's maps with the embedding ``(d, W)``."""
    maps = (layer.query.weight.T, *layer.keys_values.weight.T.chunk(2, dim=1))
    return FewFeatures.of(
        embed, cast("tuple[Tensor, Tensor, Tensor]", maps), layer.out.weight.T, layer.heads, scale_of(layer)
    )


def scale_of(layer: Layer) -> float:
    """Return the factor of the logits: of the whole width, not of a head's."""
    return float(layer.query.in_features**-0.5)


class QuickLayer:
    """A layer without gradients, with its maps packed and its norms as arrays."""

    def __init__(self, layer: Layer) -> None:
        self.heads, self.scale = layer.heads, scale_of(layer)
        self.query, self.keys_values = Packed(layer.query.weight), Packed(layer.keys_values.weight)
        self.out, self.inner = Packed(layer.out.weight), Packed(layer.inner.weight, layer.inner.bias)
        self.outer, self.outer_bias = Packed(layer.outer.weight), layer.outer.bias.detach().numpy()
        self.norm_attention, self.norm_sum, self.norm = (
            norm_of(one) for one in (layer.norm_attention, layer.norm_sum, layer.norm)
        )

    def map(self, weight: Tensor) -> Packed:
        """Pack a weight."""
        return Packed(weight)

    def __call__(self, x: Tensor, hidden: Tensor | None, wanted: int) -> Tensor:
        """Transform tokens ``(R, T, W)``; only the first `wanted` are returned."""
        rows, count, width = x.shape
        keys, values = (
            self.keys_values(x.view(-1, width)).view(rows, count, 2, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        flat = roomy(x[:, :wanted]).reshape(-1, width)
        queries = self.query(flat).view(rows, wanted, self.heads, -1).transpose(1, 2)
        mask = None if hidden is None else hidden[:, None]
        heads = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=self.scale)
        mixed = self.out(side_by_side(heads).view(flat.shape)).add_(flat)
        return self.rest(flat, mixed).view(rows, wanted, width)

    def rest(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Do what follows attention; both are ``(T, W)``, `mixed` with its residual, and are overwritten."""
        kernels.normalised_twice(
            x.numpy(), mixed.numpy(), self.norm_attention, self.norm_sum, self.outer_bias
        )
        mixed = self.outer.added(mixed, self.inner.rectified(x))
        kernels.normalised(mixed.numpy(), self.norm)
        return mixed


class QuickDecoder:
    """What follows the encoders: the query, its layers and the pointer."""

    def __init__(self, policy: Invit) -> None:
        self.policy, depth, heads = policy, len(policy.decoder) + 1, policy.config.heads
        *self.keys, self.last = policy.keys.weight.chunk(depth)
        *self.values, _ = policy.values.weight.chunk(depth)
        *self.biases, _ = policy.values.bias.chunk(depth)
        self.last_bias = policy.keys.bias.chunk(depth)[-1]
        self.keys = [one.unflatten(0, (heads, -1)) for one in self.keys]  # (H, W / H, V W)
        self.values = [one.unflatten(0, (heads, -1)).transpose(1, 2) for one in self.values]

    def __call__(self, encoded: list[Tensor], candidates: int, allowed: Tensor | None) -> Tensor:
        """Return logits ``(R, A)``, ``-inf`` where not allowed; `encoded` as the encoders give it."""
        policy, cvrp = self.policy, self.policy.cvrp
        ends = [x.shape[1] - candidates - 1 for x in encoded]  # 1 where the end is shown
        asked = [
            part for x, end in zip(encoded, ends, strict=True) for part in (x[:, -1], *x[:, :end].unbind(1))
        ]
        h = policy.query(torch.cat(asked, dim=1))
        rows = torch.cat([x[:, end : end + candidates] for x, end in zip(encoded, ends, strict=True)], dim=2)
        if cvrp:
            rows = torch.cat([rows, torch.cat([x[:, :1] for x in encoded], dim=2)], dim=1)
        options = rows.transpose(1, 2)
        hidden = None
        if allowed is not None:
            hidden = torch.zeros(allowed.shape).masked_fill_(~allowed, -torch.inf)[:, None]
        for layer, keys, values, bias in zip(
            policy.decoder, self.keys, self.values, self.biases, strict=True
        ):
            h = self._layer(cast("DecoderLayer", layer), h, rows, options, (keys, values, bias), hidden)
        pointer = policy.pointer(h)
        scores = torch.baddbmm(
            (pointer @ self.last_bias)[:, None, None], (pointer @ self.last)[:, None], options
        )
        logits = CLIP * torch.tanh(scores.squeeze(1).mul_(policy.config.width**-0.5))
        return logits if allowed is None else logits.masked_fill_(~allowed, -torch.inf)

    def _layer(
        self,
        layer: DecoderLayer,
        h: Tensor,
        rows: Tensor,
        options: Tensor,
        maps: tuple[Tensor, Tensor, Tensor],
        hidden: Tensor | None,
    ) -> Tensor:
        """Refine the queries ``(R, W)``."""
        keys, values, bias = maps
        scale = (h.shape[1] // layer.heads) ** -0.5
        query = layer.query(h).mul_(scale).unflatten(1, (layer.heads, -1)).transpose(0, 1)
        logits = products(torch.bmm(query, keys).transpose(0, 1), options, hidden)  # (R, H, A)
        seen = torch.bmm(torch.softmax(logits, dim=2), rows).transpose(0, 1)
        heads = torch.bmm(seen, values).transpose(0, 1).reshape(h.shape)
        h = layer.norm_attention(layer.out(heads.add_(bias)).add_(h))
        return layer.norm(layer.outer(F.relu_(layer.inner(h))).add_(h))


def norm_of(norm: nn.Module) -> tuple[Any, Any, Any]:
    """Return the weight, bias and epsilon of a layer norm as arrays."""
    norm = cast("nn.LayerNorm", norm)
    return norm.weight.detach().numpy(), norm.bias.detach().numpy(), kernels.F32(norm.eps)

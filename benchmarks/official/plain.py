"""Models without public code against a plain peer: what `nn.TransformerEncoder` does, with the paper's layer, at every step.

The peer holds the same weights, packs queries, keys and values into one product, lets PyTorch's fused attention do the rest,
embeds the open nodes anew at every step and keeps no others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nco_bench.nn.build import build_path_policy
from nco_bench.solvers.decoding.spec import parse_decoding
from nco_bench.solvers.path.decode import decode_path
from nco_bench.solvers.path.pens import gaussian_vectors
from nco_bench.solvers.path.policy import PathNodes, gather_rows
from official.engine import Case, Pair, Side, same_rows, separated
from official.instances import Instances, drawn

Network = Callable[[Tensor, Tensor, int], Tensor]
"""From tokens' coordinates ``(B, T, 2)`` and numbers ``(B, T)`` (current node, open nodes, start) and the size of the
instance to scores of the open nodes ``(B, T - 2)``."""


def plain_pair(case: Case, build: Callable[[Any], Network]) -> Pair:
    """Prepare greedy construction of whole tours from node 0."""
    ours: Any = separated(build_path_policy(case.model, "tsp"), 1.3)
    some, decoding = drawn("tsp", case.size, case.batch), parse_decoding(case.decoding)
    return Pair(
        [greedy(build(ours), some)], lambda: decode_path(ours, *some.given, decoding=decoding), same_rows
    )


def greedy(network: Network, some: Instances) -> Side:
    """Return the plain loop."""
    coords = some.coords
    count, size, _ = coords.shape

    def solve() -> list[list[int]]:
        tours = torch.zeros(count, 1, dtype=torch.int64)
        left = torch.arange(1, size).expand(count, -1)
        while left.shape[1]:
            rows = torch.cat([tours[:, -1:], left, tours[:, :1]], dim=1)
            tokens = coords.gather(1, rows[..., None].expand(-1, -1, 2))
            best = network(tokens, rows, size).argmax(dim=1, keepdim=True)
            tours = torch.cat([tours, left.gather(1, best)], dim=1)
            left = left[torch.arange(left.shape[1]) != best].view(count, -1)
        return tours.tolist()

    return torch.inference_mode()(solve)


def attention(x: Tensor, packed: Tensor, heads: int, scale: float, mask: Tensor | None = None) -> Tensor:
    """Attend as `nn.TransformerEncoderLayer` does, up to its output map."""
    query, key, value = (
        part.unflatten(2, (heads, -1)).transpose(1, 2) for part in F.linear(x, packed).chunk(3, dim=2)
    )
    factor = scale / math.sqrt(query.shape[3])
    mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=factor)
    return mixed.transpose(1, 2).flatten(2)


class PlainDecoder(nn.Module):
    """The decoder-only network of "Efficient Decoder Scaling Strategy"."""

    def __init__(self, ours: Any) -> None:
        super().__init__()
        self.ours = ours  # for its weights alone

    def forward(self, tokens: Tensor, rows: Tensor, size: int) -> Tensor:
        """Score the open nodes."""
        ours = self.ours
        h = ours.embedding(tokens)
        h = torch.cat([ours.start(h[:, -1:]), h[:, 1:-1], ours.current(h[:, :1])], dim=1)
        scale = math.log(size) / math.log(ours.config.training_size)
        for layer in ours.layers:
            part = layer.attention
            mixed = part.out(attention(h, part.qkv.weight, part.heads, scale))
            h = h + layer.alpha_attention * (mixed * torch.sigmoid(part.gate(h)))
            h = h + layer.alpha_ffn * layer.ffn_out(torch.relu(layer.ffn_in(h)))
        return ours.score(h)[:, 1:-1, 0]


class PlainPens(nn.Module):
    """PENS-A. The first solve takes our node vectors, to be compared; later ones draw their own, as its paper does."""

    def __init__(self, ours: Any) -> None:
        super().__init__()
        self.ours, self.solves = ours, 0

    def forward(self, tokens: Tensor, rows: Tensor, size: int) -> Tensor:
        """Score the open nodes."""
        ours, config = self.ours, self.ours.config
        self.solves += rows.shape[1] == size + 1
        x = self.vectors(rows, size)
        if rows.shape[1] == size + 1:  # start and current node are one city
            tokens, x = tokens[:, :-1], x[:, :-1]
            x[:, 0] += ours.origin + ours.destination
        else:
            x[:, 0] += ours.origin
            x[:, -1] += ours.destination
        bias = -ours.slopes[:, None, None] * torch.cdist(tokens, tokens)[:, None]
        scale = math.log(x.shape[1] + 1)
        for layer in ours.layers:
            normed = layer.attention_norm(x)
            x = x + attention(normed, layer.attention.qkv.weight, config.heads, scale, bias)
            x = x + layer.ffn_out(torch.relu(layer.ffn_in(layer.ffn_norm(x))))
        x = ours.norm(x)
        keys = ours.key(x[:, 1 : rows.shape[1] - 1])
        return (keys @ ours.query(x[:, :1]).transpose(1, 2)).squeeze(2)

    def vectors(self, rows: Tensor, size: int) -> Tensor:
        """Draw the nodes' vectors of this step."""
        if self.solves > 1:
            return torch.randn(*rows.shape, self.ours.config.width)
        self.ours.reseed(torch.arange(len(rows)))  # as `decode_path` does
        keys = self.ours.embed(PathNodes(torch.empty(len(rows), size, 2), None, size))
        return gaussian_vectors(gather_rows(keys, rows).squeeze(2), rows.shape[1] - 2, self.ours.config.width)

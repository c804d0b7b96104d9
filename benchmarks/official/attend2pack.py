"""attend2pack against a plain peer, as there is no official code: PyTorch's own encoder, and a loop over lanes of boxes.

The peer holds the same weights. It projects the boxes once, as the attention model that attend2pack builds on does, and
lowers each box onto a slice of its own height map.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nco_bench.nn.build import build_path_policy
from nco_bench.problems.bpp3d import ORIENTATIONS
from nco_bench.solvers.packing.decode import decode_packing
from official.engine import Case, Pair, same_rows, separated

CASES = tuple(Case("attend2pack", "bpp3d", size, "greedy", 8) for size in (20, 50, 100))
SIDES = (10, 50)


def pair(case: Case, checkout: Path | None) -> Pair:
    """Prepare both sides."""
    ours: Any = separated(build_path_policy("attend2pack", "bpp3d"), 1.3)
    generator = torch.Generator().manual_seed(1234)
    sides = torch.randint(SIDES[0], SIDES[1] + 1, (case.batch, case.size, 3), generator=generator)
    sides, seeds = sides.sort(dim=2).values, torch.arange(case.batch)
    peer = Plain(ours).eval()

    def solve() -> list[list[int]]:
        return decode_packing(ours, sides, seeds).rows.flatten(1).tolist()

    def plain() -> list[list[int]]:
        with torch.inference_mode():
            return peer(sides).flatten(1).tolist()

    return Pair([plain], solve, same_rows)


class Plain(nn.Module):
    """Both policies, decoded greedily."""

    def __init__(self, ours: Any) -> None:
        super().__init__()
        self.ours = ours  # for its weights, and the layers of which there is one way to write
        config = ours.config
        layer = nn.TransformerEncoderLayer(
            config.width, config.heads, config.ffn, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, config.layers, enable_nested_tensor=False)
        for theirs, mine in zip(self.encoder.layers, ours.encoder, strict=True):
            theirs.load_state_dict(packed(mine.state_dict()))

    def forward(self, sides: Tensor) -> Tensor:
        """Pack boxes ``(B, N, 3)``; return x, y, z and orientation, ``(B, N, 4)``."""
        config = self.ours.config
        count, boxes, _ = sides.shape
        h = self.encoder(self.ours.embedding(sides.float() / config.largest_side))
        keys, values, pointer = self.ours.box_projection(h).chunk(3, dim=2)
        maps = torch.zeros(2, count, config.bin_length, config.bin_width)
        left = torch.ones(count, boxes, dtype=torch.bool)
        rows = torch.zeros(count, boxes, 4, dtype=torch.int64)
        lane = torch.arange(count)
        for _ in range(boxes):
            seen = self.ours.bin_projection(self.ours.bin_encoder(maps.transpose(0, 1) / config.largest_side))
            box = self.sequence(h, keys, values, pointer, left, seen).argmax(1)
            left[lane, box] = False
            turned = sides[lane, box][:, torch.tensor(ORIENTATIONS)]  # (B, 6, 3)
            place = self.placement(h, box, left, seen, turned).argmax(1)
            turn, y = place // config.bin_width, place % config.bin_width
            maps[0] = maps[1]
            for i in range(count):
                x, z = lowered(maps[1, i], turned[i, turn[i]].tolist(), int(y[i]))
                rows[i, box[i]] = torch.tensor([x, int(y[i]), z, int(turn[i])])
        return rows

    def sequence(
        self, h: Tensor, keys: Tensor, values: Tensor, pointer: Tensor, left: Tensor, seen: Tensor
    ) -> Tensor:
        """Score the next box, ``(B, N)``."""
        config = self.ours.config
        query = 0.5 * (self.ours.left_projection(mean_of(h, left)) + seen)
        q, k, v = (
            one.unflatten(2, (config.heads, -1)).transpose(1, 2) for one in (query[:, None], keys, values)
        )
        glimpse = F.scaled_dot_product_attention(q, k, v, attn_mask=left[:, None, None]).flatten(1)
        compatibility = pointer @ self.ours.glimpse_projection(glimpse)[..., None] / math.sqrt(config.width)
        return (config.clip * compatibility.squeeze(2).tanh()).masked_fill(~left, -torch.inf)

    def placement(self, h: Tensor, box: Tensor, others: Tensor, seen: Tensor, turned: Tensor) -> Tensor:
        """Score orientations and places across the bin, ``(B, 6 W)``."""
        config = self.ours.config
        chosen = self.ours.chosen_projection(h[torch.arange(len(box)), box])
        query = (chosen + self.ours.others_projection(mean_of(h, others)) + seen) / 3
        across = torch.arange(config.bin_width)
        fits = (across + turned[..., 1:2] <= config.bin_width) & (turned[..., :1] <= config.bin_length)
        return (config.clip * self.ours.head(query).tanh()).masked_fill(~fits.flatten(1), -torch.inf)


def lowered(heights: Tensor, extents: list[int], y: int) -> tuple[int, int]:
    """Lower a box onto a height map ``(L, W)``, which it changes: lowest first, then the smallest x; return x and z."""
    along, across, up = extents
    profile = heights[:, y : y + across].amax(1)
    rests = profile.unfold(0, along, 1).amax(1)
    x = int(rests.argmin())
    z = int(rests[x])
    heights[x : x + along, y : y + across] = z + up
    return x, z


def mean_of(h: Tensor, listed: Tensor) -> Tensor:
    """Return the mean of the listed boxes, zero where there are none."""
    return (h * listed[..., None]).sum(1) / listed.sum(1, keepdim=True).clamp(min=1)


def packed(mine: dict[str, Tensor]) -> dict[str, Tensor]:
    """Give the weights of a layer the names of PyTorch's."""
    names = {
        "attention.qkv.weight": "self_attn.in_proj_weight", "attention.qkv.bias": "self_attn.in_proj_bias",
        "attention.out.": "self_attn.out_proj.", "feed_forward.inner.": "linear1.", "feed_forward.outer.": "linear2.",
        "norm_attention.": "norm1.", "norm_feed_forward.": "norm2.",
    }  # fmt: skip
    found = {}
    for key, value in mine.items():
        old, new = next(one for one in names.items() if key.startswith(one[0]))
        found[key.replace(old, new)] = value
    return found

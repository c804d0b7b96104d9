"""The steps of a packing on the CPU, without gradients: what is not a product with weights is a compiled loop over lanes.

Exact but for the order of sums: both policies' maps of the boxes are applied to all boxes once, and means of boxes are taken
of what they give; what stands on a height map changes only under the newest box.

Letters in shapes: R lanes, N boxes, D width, H heads, K head width, L x W base.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nco_bench.nn.compiling import njit
from nco_bench.problems.bpp3d import ORIENTATIONS
from nco_bench.solvers.packing import bin_view
from nco_bench.solvers.packing.lowering import lower

if TYPE_CHECKING:
    from nco_bench.solvers.packing.attend2pack import Attend2Pack, EncodedBoxes

F32 = np.float32
TURNED = np.array(ORIENTATIONS)


class QuickSteps:
    """See `nco_bench.solvers.packing.steps.Steps`."""

    def __init__(self, policy: Attend2Pack, encoded: EncodedBoxes, sides: Tensor) -> None:
        self._policy, config = policy, policy.config
        lanes, count, _ = sides.shape
        self._sides = sides.numpy()
        self._keys = encoded.keys.transpose(2, 3).contiguous().numpy()  # (R, H, K, N)
        self._values = encoded.values.contiguous().numpy()
        self._pointer = encoded.pointer.contiguous().numpy()
        maps = (policy.left_projection, policy.others_projection, policy.chosen_projection)
        weight = torch.cat([one.weight for one in maps])
        self._mapped = nn.functional.linear(encoded.boxes, weight).numpy()  # (R, N, 3 D)
        self._left = np.ones((lanes, count), np.bool_)
        self._means = np.empty((lanes, 2 * config.width), F32)
        _take_means(self._mapped, self._left, self._means)
        self._bin = _Bin(policy, lanes)
        self._seen = np.empty(0, F32)
        self._rows = np.zeros((lanes, count, 4), np.int64)

    def boxes(self) -> Tensor:
        """Look at the bin, and score the boxes left."""
        policy = self._policy
        seen = policy.bin_encoder.embedded(torch.from_numpy(self._bin.cells()))
        self._seen = policy.bin_projection(seen).numpy()
        logits = np.empty(self._left.shape, F32)
        _score_boxes(
            self._means, self._seen, self._keys, self._values, self._pointer, self._left,
            F32(policy.config.clip), logits,
        )  # fmt: skip
        return torch.from_numpy(logits)

    def places(self, box: Tensor) -> Tensor:
        """Score orientations and places across the bin."""
        config = self._policy.config
        chosen = box.numpy()
        query = np.empty_like(self._seen)
        _take_box(self._mapped, self._left, chosen, self._means, self._seen, query)
        logits = self._policy.head(torch.from_numpy(query)).tanh_().mul_(config.clip)
        _bar(logits.numpy(), self._sides, chosen, config.bin_length, config.bin_width)
        return logits

    def put(self, box: Tensor, place: Tensor) -> None:
        """Let the boxes fall."""
        self._bin.put(self._sides, box.numpy(), place.numpy(), self._rows)

    def packed(self) -> tuple[Tensor, Tensor]:
        """Return places and heights."""
        top = self._bin.heights.reshape(len(self._rows), -1).max(axis=1)
        return torch.from_numpy(self._rows), torch.from_numpy(top).float()


class _Bin:
    """The height maps of all lanes, and the planes of the newest and of the one before, as the bin encoder sees them."""

    def __init__(self, policy: Attend2Pack, lanes: int) -> None:
        config, encoder = policy.config, policy.bin_encoder
        base = config.bin_length, config.bin_width
        self.heights = np.zeros((lanes, *base), np.int32)
        self._before = self.heights.copy()
        self._newest = np.zeros((lanes, 4), np.int64)
        """Cells under the newest box: x0, x1, y0, y1."""
        self._lowest = np.zeros(lanes, np.int32)
        self._planes = np.stack([bin_view.planes_of(2, *base)] * lanes)
        self._scales = F32(config.largest_side), config.from_lowest
        layers, norms = list(encoder.convolutions), list(encoder.norms)
        assert isinstance(norms[0], nn.GroupNorm)
        parts = [
            _arrays(layers, "weight"),
            _arrays(layers, "bias"),
            _arrays(norms, "weight"),
            _arrays(norms, "bias"),
        ]
        self._network: tuple[Any, ...] = (*base, *parts, F32(norms[0].eps))
        self._cells = np.empty((lanes, encoder.linear.in_features), F32)

    def cells(self) -> NDArray[np.float32]:
        """Return what the convolutions make of both maps, ``(R, cells)``; overwritten by the next call."""
        call: Any = bin_view.view
        call(self._planes, *self._network, self._cells)
        return self._cells

    def put(
        self,
        sides: NDArray[np.int64],
        box: NDArray[np.int64],
        place: NDArray[np.int64],
        rows: NDArray[np.int64],
    ) -> None:
        """Let the boxes fall, and write x, y, z and orientation into `rows`."""
        _put(
            self.heights, self._before, self._newest, self._lowest, self._planes, *self._scales, sides, box, place,
            rows,
        )  # fmt: skip


def _arrays(layers: list[nn.Module], name: str) -> tuple[NDArray[np.float32], ...]:
    return tuple(getattr(layer, name).detach().numpy() for layer in layers)


@njit(cache=True, nogil=True)
def _take_means(mapped, left, means):  # type: ignore[no-untyped-def]
    """Write the means of the boxes left, as both policies map them, ``(R, 2 D)``; zero where none is left."""
    for lane in range(len(left)):
        _take_mean(mapped[lane], left[lane], means[lane])


@njit(cache=True, nogil=True)
def _take_mean(mapped, left, mean):  # type: ignore[no-untyped-def]
    count = 0
    mean[:] = F32(0)
    for box in range(len(left)):
        if left[box]:
            count += 1
            row = mapped[box]
            for d in range(len(mean)):
                mean[d] += row[d]
    for d in range(len(mean)):
        mean[d] /= F32(max(count, 1))


@njit(cache=True, nogil=True)
def _score_boxes(means, seen, keys, values, pointer, left, clip, logits):  # type: ignore[no-untyped-def]
    """Write the sequence policy's logits: a glimpse of the boxes left, then the pointer."""
    lanes, heads, width, count = keys.shape
    for lane in range(lanes):
        glimpse = np.zeros(heads * width, F32)
        for head in range(heads):
            weights = np.zeros(count, F32)
            for k in range(width):
                d = head * width + k
                query, row = F32(0.5) * (means[lane, d] + seen[lane, d]), keys[lane, head, k]
                for box in range(count):
                    weights[box] += query * row[box]
            _softmax(weights, left[lane])
            mixed = glimpse[head * width : (head + 1) * width]
            for box in range(count):
                weight, row = weights[box], values[lane, head, box]
                for k in range(width):
                    mixed[k] += weight * row[k]
        scores = logits[lane]
        scores[:] = F32(0)
        for d in range(len(glimpse)):
            weight, row = glimpse[d], pointer[lane, d]
            for box in range(count):
                scores[box] += weight * row[box]
        for box in range(count):
            scores[box] = clip * np.tanh(scores[box]) if left[lane, box] else F32(-np.inf)


@njit(cache=True, nogil=True)
def _softmax(scores, left):  # type: ignore[no-untyped-def]
    """Turn scores into weights of the boxes left, in place."""
    top = F32(-np.inf)
    for box in range(len(scores)):
        if left[box]:
            top = max(top, scores[box])
    total = F32(0)
    for box in range(len(scores)):
        scores[box] = np.exp(scores[box] - top) if left[box] else F32(0)
        total += scores[box]
    for box in range(len(scores)):
        scores[box] /= total


@njit(cache=True, nogil=True)
def _take_box(mapped, left, chosen, means, seen, query):  # type: ignore[no-untyped-def]
    """Take the chosen boxes out of those left; write the new means, and the placement policy's query ``(R, D)``."""
    width = query.shape[1]
    for lane in range(len(left)):
        left[lane, chosen[lane]] = False
        _take_mean(mapped[lane], left[lane], means[lane])
        own = mapped[lane, chosen[lane], 2 * width :]
        for d in range(width):
            query[lane, d] = (own[d] + means[lane, width + d] + seen[lane, d]) / F32(3)


@njit(cache=True, nogil=True)
def _bar(logits, sides, chosen, length, width):  # type: ignore[no-untyped-def]
    """Bar orientations and places where the box would cross a wall."""
    for lane in range(len(logits)):
        for turn in range(len(TURNED)):
            own = sides[lane, chosen[lane]]
            along, across = own[TURNED[turn, 0]], own[TURNED[turn, 1]]
            free = width - across + 1 if along <= length else 0
            logits[lane, turn * width + max(free, 0) : (turn + 1) * width] = F32(-np.inf)


@njit(cache=True, nogil=True)
def _put(heights, before, newest, lowest, planes, side, from_lowest, sides, box, place, rows):  # type: ignore[no-untyped-def]
    """Let the boxes fall; maps, planes and rows are changed."""
    lanes, length, width = heights.shape
    for lane in range(lanes):
        turn, y = place[lane] // width, place[lane] % width
        own = sides[lane, box[lane]]
        along, across, up = own[TURNED[turn, 0]], own[TURNED[turn, 1]], own[TURNED[turn, 2]]
        now, old = heights[lane], before[lane]
        x0, x1, y0, y1 = newest[lane]
        old[x0:x1, y0:y1] = now[x0:x1, y0:y1]
        bin_view.spread(old, x0, x1, y0, y1, lowest[lane], side, planes[lane, 0])
        x, z = lower(now, along, across, y)
        now[x : x + along, y : y + across] = z + up
        newest[lane] = x, x + along, y, y + across
        rows[lane, box[lane]] = x, y, z, turn
        bottom = now.min() if from_lowest else np.int32(0)
        if bottom == lowest[lane]:
            bin_view.spread(now, x, x + along, y, y + across, bottom, side, planes[lane, 1])
        else:
            lowest[lane] = bottom
            bin_view.spread(old, 0, length, 0, width, bottom, side, planes[lane, 0])
            bin_view.spread(now, 0, length, 0, width, bottom, side, planes[lane, 1])

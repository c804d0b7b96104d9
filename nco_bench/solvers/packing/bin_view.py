"""The convolutions of attend2pack's bin encoder, compiled for the CPU.

With 2 and 4 channels a library's convolution, made for dozens, is mostly overhead, and was two fifths of decoding. Here
a padded map is kept as four planes, of its even and odd rows and columns, so that the steps of a stride of 2 lie side by
side: a convolution is one loop along a plane. Planes have a column more than the result, whose value there is not used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor, nn

from nco_bench.nn.device import on_cpu

if TYPE_CHECKING:
    from nco_bench.solvers.packing.attend2pack import BinEncoder

F32 = np.float32


def compiled_for(maps: Tensor) -> bool:
    """Tell whether `cells` is for these: float32 on the CPU, and no gradients wanted."""
    rounded = torch.is_autocast_enabled("cpu") or maps.dtype != torch.float32
    return on_cpu(maps.device) and not rounded and not torch.is_grad_enabled()


def cells(
    encoder: BinEncoder, previous: Tensor, current: Tensor, largest_side: int, from_lowest: bool
) -> Tensor:
    """Return what the convolutions make of two height maps ``(R, L, W)``, flattened, ``(R, cells)``.

    Parameters
    ----------
    encoder
        Whose convolutions and norms.
    previous, current
        The maps.
    largest_side, from_lowest
        As in the configuration.
    """
    layers, norms = list(encoder.convolutions), list(encoder.norms)
    weights, biases = _arrays(layers, "weight"), _arrays(layers, "bias")
    scales, shifts = _arrays(norms, "weight"), _arrays(norms, "bias")
    before, now = previous.contiguous().numpy(), current.contiguous().numpy()
    out = current.new_empty(len(current), encoder.linear.in_features)
    assert isinstance(norms[0], nn.GroupNorm)
    eps = F32(norms[0].eps)
    _view(before, now, F32(largest_side), from_lowest, weights, biases, scales, shifts, eps, out.numpy())
    return out


def _arrays(layers: list[nn.Module], name: str) -> tuple[NDArray[np.float32], ...]:
    return tuple(getattr(layer, name).detach().numpy() for layer in layers)


@njit(cache=True, nogil=True)
def _view(previous, current, side, from_lowest, weights, biases, scales, shifts, eps, out):  # type: ignore[no-untyped-def]
    lanes, length, width = current.shape
    seen = np.empty((2, length, width), F32)
    for lane in range(lanes):
        lowest = current[lane].min() if from_lowest else F32(0)
        for part, maps in enumerate((previous, current)):
            for x in range(length):
                row, heights = seen[part, x], maps[lane, x]
                for y in range(width):
                    height = heights[y] - lowest
                    row[y] = (max(height, F32(0)) if from_lowest else height) / side
        found, columns = seen, width
        for layer in range(3):
            found = _convolved(found, columns, weights[layer], biases[layer])
            columns = (columns + 1) // 2
            _normalise(found, columns, scales[layer], shifts[layer], eps)
        out[lane] = found[:, :, :columns].copy().reshape(-1)


@njit(cache=True, nogil=True)
def _convolved(maps, width, weight, bias):  # type: ignore[no-untyped-def]
    """Convolve `width` columns of maps ``(C, L, W or more)``: kernel 3, stride 2, padding 1; with the unused column."""
    channels, length, _ = maps.shape
    rows, columns = (length + 1) // 2, (width + 1) // 2
    stride = columns + 1
    planes = np.zeros((channels, 2, 2, (rows + 1) * stride + 1), F32)
    for c in range(channels):
        for x in range(length):
            begin = (x + 1) // 2 * stride
            even, odd, row = (
                planes[c, (x + 1) % 2, 0, begin + 1 :],
                planes[c, (x + 1) % 2, 1, begin:],
                maps[c, x],
            )
            for k in range(columns):
                odd[k] = row[2 * k]
            for k in range(width // 2):
                even[k] = row[2 * k + 1]
    out = np.empty((len(bias), rows * stride), F32)
    for o in range(len(bias)):
        total, w = out[o], weight[o]
        total[:] = bias[o]
        for c in range(channels):
            upper, lower = planes[c, 0], planes[c, 1]  # of even and odd rows
            _add(total, upper[0], upper[1], upper[0, 1:], w[c, 0, 0], w[c, 0, 1], w[c, 0, 2])
            _add(total, lower[0], lower[1], lower[0, 1:], w[c, 1, 0], w[c, 1, 1], w[c, 1, 2])
            left, middle, right = upper[0, stride:], upper[1, stride:], upper[0, stride + 1 :]
            _add(total, left, middle, right, w[c, 2, 0], w[c, 2, 1], w[c, 2, 2])
    return out.reshape(len(bias), rows, stride)


@njit(cache=True, nogil=True)
def _add(total, left, middle, right, w0, w1, w2):  # type: ignore[no-untyped-def]
    for i in range(len(total)):
        total[i] += w0 * left[i] + w1 * middle[i] + w2 * right[i]


@njit(cache=True, nogil=True)
def _normalise(maps, width, scales, shifts, eps):  # type: ignore[no-untyped-def]
    """Normalise over channels and cells together, then ReLU, in place; sums are columns' first, which are vectors."""
    count = maps.shape[0] * maps.shape[1] * width
    mean = np.zeros(width, F32)
    for c in range(maps.shape[0]):
        for x in range(maps.shape[1]):
            row = maps[c, x]
            for y in range(width):
                mean[y] += row[y]
    centre = F32(mean.sum() / count)
    squares = np.zeros(width, F32)
    for c in range(maps.shape[0]):
        for x in range(maps.shape[1]):
            row = maps[c, x]
            for y in range(width):
                squares[y] += (row[y] - centre) * (row[y] - centre)
    factor = F32(1 / np.sqrt(squares.sum() / count + eps))
    for c in range(maps.shape[0]):
        scale, shift = F32(scales[c] * factor), F32(shifts[c] - centre * scales[c] * factor)
        for x in range(maps.shape[1]):
            row = maps[c, x]
            for y in range(width):
                row[y] = max(row[y] * scale + shift, F32(0))

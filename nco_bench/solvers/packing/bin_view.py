"""The convolutions of attend2pack's bin encoder, compiled for the CPU.

With 2 and 4 channels a library's convolution, made for dozens, is mostly overhead. Here a padded map is kept as four planes,
of its even and odd rows and columns, so that the steps of a stride of 2 lie side by side: a convolution is one loop along a
plane. Planes have a column more than the result, whose value there is not used. A box changes few cells, so the planes of
the height maps are kept from step to step.

Letters in shapes: R lanes, L x W base, S cells of a plane.
"""

from __future__ import annotations

import numpy as np

from nco_bench.nn.compiling import njit

F32 = np.float32


@njit(cache=True, nogil=True)
def planes_of(channels, length, width):  # type: ignore[no-untyped-def]
    """Return planes of zeros for maps ``(channels, length, width)``, ``(channels, 2, 2, S)``: parity of row, of column."""
    rows, columns = (length + 1) // 2, (width + 1) // 2
    return np.zeros((channels, 2, 2, (rows + 1) * (columns + 1) + 1), F32)


@njit(cache=True, nogil=True)
def spread(heights, x0, x1, y0, y1, lowest, side, plane):  # type: ignore[no-untyped-def]
    """Write cells ``[x0, x1) x [y0, y1)`` of a map of whole heights ``(L, W)``, counted from the lowest, into its planes."""
    stride = (heights.shape[1] + 1) // 2 + 1
    for x in range(x0, x1):
        begin = (x + 1) // 2 * stride
        row = heights[x]
        odd, even = plane[(x + 1) % 2, 1, begin:], plane[(x + 1) % 2, 0, begin + 1 :]
        for k in range((y0 + 1) // 2, (y1 + 1) // 2):
            odd[k] = F32(max(row[2 * k] - lowest, 0)) / side
        for k in range(y0 // 2, y1 // 2):
            even[k] = F32(max(row[2 * k + 1] - lowest, 0)) / side


@njit(cache=True, nogil=True)
def view(planes, length, width, weights, biases, scales, shifts, eps, out):  # type: ignore[no-untyped-def]
    """Write what three convolutions make of the height maps' planes ``(R, 2, 2, 2, S)`` into `out`, ``(R, cells)``."""
    sides = [(length, width)]
    for _ in range(3):
        sides.append(((sides[-1][0] + 1) // 2, (sides[-1][1] + 1) // 2))
    second = planes_of(len(biases[0]), *sides[1])
    third = planes_of(len(biases[1]), *sides[2])
    for lane in range(len(planes)):
        found = _convolved(planes[lane], *sides[1], weights[0], biases[0])
        _normalised_planes(found, sides[1][1], scales[0], shifts[0], eps, second)
        found = _convolved(second, *sides[2], weights[1], biases[1])
        _normalised_planes(found, sides[2][1], scales[1], shifts[1], eps, third)
        found = _convolved(third, *sides[3], weights[2], biases[2])
        columns = sides[3][1]
        centre, factor = _moments(found, columns, eps)
        seen = out[lane].reshape(len(biases[2]), sides[3][0], columns)
        for c in range(len(seen)):
            scale, shift = _affine(scales[2][c], shifts[2][c], centre, factor)
            for x in range(sides[3][0]):
                for y in range(columns):
                    seen[c, x, y] = max(found[c, x, y] * scale + shift, F32(0))


@njit(cache=True, nogil=True)
def _convolved(planes, rows, columns, weight, bias):  # type: ignore[no-untyped-def]
    """Convolve maps: kernel 3, stride 2, padding 1; ``(channels, rows, columns + 1)``, with the unused column."""
    stride = columns + 1
    count = rows * stride
    out = np.empty((len(bias), count), F32)
    for o in range(len(bias)):
        out[o, :] = bias[o]
        for c in range(len(planes)):
            upper, lower = planes[c, 0], planes[c, 1]  # of even and odd rows
            _add(
                out[o], weight[o, c],
                upper[0, :count], upper[1, :count], upper[0, 1 : count + 1],
                lower[0, :count], lower[1, :count], lower[0, 1 : count + 1],
                upper[0, stride : stride + count], upper[1, stride : stride + count],
                upper[0, stride + 1 : stride + 1 + count],
            )  # fmt: skip
    return out.reshape(len(bias), rows, stride)


@njit(cache=True, nogil=True)
def _add(total, w, a, b, c, d, e, f, g, h, i):  # type: ignore[no-untyped-def]
    """Add the nine cells under a kernel, weighted; one pass, as `total` is read and written nine times else."""
    w00, w01, w02, w10, w11, w12 = w[0, 0], w[0, 1], w[0, 2], w[1, 0], w[1, 1], w[1, 2]
    w20, w21, w22 = w[2, 0], w[2, 1], w[2, 2]
    for k in range(len(total)):
        sum_ = total[k] + (w00 * a[k] + w01 * b[k] + w02 * c[k])
        sum_ += w10 * d[k] + w11 * e[k] + w12 * f[k]
        sum_ += w20 * g[k] + w21 * h[k] + w22 * i[k]
        total[k] = sum_


@njit(cache=True, nogil=True)
def _normalised_planes(maps, width, scales, shifts, eps, planes):  # type: ignore[no-untyped-def]
    """Normalise over channels and cells together, then ReLU; write the `width` used columns into planes."""
    centre, factor = _moments(maps, width, eps)
    columns = (width + 1) // 2
    for c in range(len(maps)):
        scale, shift = _affine(scales[c], shifts[c], centre, factor)
        for x in range(maps.shape[1]):
            begin = (x + 1) // 2 * (columns + 1)
            row = maps[c, x]
            odd, even = planes[c, (x + 1) % 2, 1, begin:], planes[c, (x + 1) % 2, 0, begin + 1 :]
            for k in range(columns):
                odd[k] = max(row[2 * k] * scale + shift, F32(0))
            for k in range(width // 2):
                even[k] = max(row[2 * k + 1] * scale + shift, F32(0))


@njit(cache=True, nogil=True)
def _affine(scale, shift, centre, factor):  # type: ignore[no-untyped-def]
    return F32(scale * factor), F32(shift - centre * scale * factor)


@njit(cache=True, nogil=True)
def _moments(maps, width, eps):  # type: ignore[no-untyped-def]
    """Return mean, and one by the deviation, of all channels and cells; sums are columns' first, which are vectors."""
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
    return centre, F32(1 / np.sqrt(squares.sum() / count + eps))

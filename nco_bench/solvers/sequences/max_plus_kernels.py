"""Max-plus loops for the CPU, compiled by numba; `nco_bench.solvers.sequences.tropical` calls them and falls back on torch.

None of them keeps a tensor of N x N or larger: one row of scores lives in the cache while its maximum is taken. The sums and
maxima are those of the plain formulas in the same precision, so results agree with torch bit for bit. Which index
attained a maximum is found again in the backward pass; of several the first takes the whole gradient, as in the first
version of the official kernel. Inner dimensions are multiples of 8: maxima of eight terms as a tree are what LLVM
turns into vector instructions (2.5 ms instead of 19 for 24 million terms).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nco_bench.nn.compiling import njit

F32, I32 = np.float32, np.int32
Array = NDArray[np.float32]


@njit(cache=True, nogil=True)
def max_plus_row(a: Array, w: Array, out: Array) -> None:
    """Write ``out[o] = max_j a[j] + w[j, o]``; a is ``(J,)`` and w ``(J, O)``, J a multiple of 8."""
    for j in range(0, a.shape[0], 8):
        a0, a1, a2, a3 = a[j], a[j + 1], a[j + 2], a[j + 3]
        a4, a5, a6, a7 = a[j + 4], a[j + 5], a[j + 6], a[j + 7]
        w0, w1, w2, w3 = w[j], w[j + 1], w[j + 2], w[j + 3]
        w4, w5, w6, w7 = w[j + 4], w[j + 5], w[j + 6], w[j + 7]
        for o in range(out.shape[0]):
            left = max(max(a0 + w0[o], a1 + w1[o]), max(a2 + w2[o], a3 + w3[o]))
            right = max(max(a4 + w4[o], a5 + w5[o]), max(a6 + w6[o], a7 + w7[o]))
            best = max(left, right)
            out[o] = best if j == 0 else max(best, out[o])


@njit(cache=True, nogil=True)
def argmax_row(a: Array, w: Array, best: Array, at: NDArray[np.int32]) -> None:
    """Write into ``at[o]`` the first j with ``a[j] + w[j, o] == best[o]``."""
    for j in range(a.shape[0] - 8, -1, -8):
        a0, a1, a2, a3 = a[j], a[j + 1], a[j + 2], a[j + 3]
        a4, a5, a6, a7 = a[j + 4], a[j + 5], a[j + 6], a[j + 7]
        w0, w1, w2, w3 = w[j], w[j + 1], w[j + 2], w[j + 3]
        w4, w5, w6, w7 = w[j + 4], w[j + 5], w[j + 6], w[j + 7]
        j0, j1, j2, j3 = I32(j), I32(j + 1), I32(j + 2), I32(j + 3)
        j4, j5, j6, j7 = I32(j + 4), I32(j + 5), I32(j + 6), I32(j + 7)
        for o in range(at.shape[0]):
            m = best[o]
            k = at[o]
            k = j7 if a7 + w7[o] == m else k
            k = j6 if a6 + w6[o] == m else k
            k = j5 if a5 + w5[o] == m else k
            k = j4 if a4 + w4[o] == m else k
            k = j3 if a3 + w3[o] == m else k
            k = j2 if a2 + w2[o] == m else k
            k = j1 if a1 + w1[o] == m else k
            k = j0 if a0 + w0[o] == m else k
            at[o] = k


@njit(cache=True, nogil=True)
def score_row(q: Array, k: Array, high: Array, low: Array, row: Array) -> None:
    """Write the largest and the smallest ``q[c] - k[c, j]`` over c, and ``row[j] = low[j] - high[j]``.

    q is ``(C,)``, k ``(C, N)``; high and low ``(N,)``; row may be longer.
    """
    for c in range(0, q.shape[0], 4):
        q0, q1, q2, q3 = q[c], q[c + 1], q[c + 2], q[c + 3]
        k0, k1, k2, k3 = k[c], k[c + 1], k[c + 2], k[c + 3]
        for j in range(high.shape[0]):
            d0, d1, d2, d3 = q0 - k0[j], q1 - k1[j], q2 - k2[j], q3 - k3[j]
            most = max(max(d0, d1), max(d2, d3))
            least = min(min(d0, d1), min(d2, d3))
            high[j] = most if c == 0 else max(most, high[j])
            low[j] = least if c == 0 else min(least, low[j])
    for j in range(high.shape[0]):
        row[j] = low[j] - high[j]


@njit(cache=True, nogil=True)
def project_forward(u: Array, weight_t: Array, out: Array) -> None:
    """Write ``out[r, o] = max_j u[r, j] + weight_t[j, o]``: ``(R, J)``, ``(J, O)``, ``(R, O)``."""
    for r in range(u.shape[0]):
        max_plus_row(u[r], weight_t, out[r])


@njit(cache=True, nogil=True)
def project_backward(
    grad: Array, u: Array, weight_t: Array, out: Array, grad_u: Array, grad_weight: Array
) -> None:
    """Add the gradients of `project_forward`: to ``grad_u`` ``(R, J)`` and ``grad_weight`` ``(O, J)``."""
    at = np.zeros(out.shape[1], I32)
    for r in range(u.shape[0]):
        argmax_row(u[r], weight_t, out[r], at)
        for o in range(out.shape[1]):
            grad_u[r, at[o]] += grad[r, o]
            grad_weight[o, at[o]] += grad[r, o]


@njit(cache=True, nogil=True)
def attend_forward(q: Array, k: Array, v: Array, out: Array) -> None:
    """Write ``out[g, i, c] = max_j S[i, j] + v[g, j, c]`` with the Hilbert score S of `score_row`.

    All arrays are ``(G, N, C)``, a group being a head of an instance, C a multiple of 8.
    """
    groups, n, channels = q.shape
    padded = n + (-n) % 8  # keys that score -inf are never picked
    keys, values = np.empty((channels, n), F32), np.zeros((padded, channels), F32)
    high, low, row = np.empty(n, F32), np.empty(n, F32), np.full(padded, -np.inf, F32)
    for g in range(groups):
        keys[:] = k[g].T
        values[:n] = v[g]
        for i in range(n):
            score_row(q[g, i], keys, high, low, row)
            max_plus_row(row, values, out[g, i])


@njit(cache=True, nogil=True)
def attend_backward(
    grad: Array, q: Array, k: Array, v: Array, out: Array, grad_q: Array, grad_k: Array, grad_v: Array
) -> None:
    """Add the gradients of `attend_forward`; only keys that some channel picked are looked at twice."""
    groups, n, channels = q.shape
    padded = n + (-n) % 8
    keys, values = np.empty((channels, n), F32), np.zeros((padded, channels), F32)
    high, low, row = np.empty(n, F32), np.empty(n, F32), np.full(padded, -np.inf, F32)
    score_grad, at = np.zeros(n, F32), np.zeros(channels, I32)
    touched, seen = np.empty(channels, I32), np.full(n, -1, np.int64)
    for g in range(groups):
        keys[:] = k[g].T
        values[:n] = v[g]
        for i in range(n):
            score_row(q[g, i], keys, high, low, row)
            argmax_row(row, values, out[g, i], at)
            count = 0
            for c in range(channels):
                j = at[c]
                grad_v[g, j, c] += grad[g, i, c]
                score_grad[j] += grad[g, i, c]
                if seen[j] != g * n + i:
                    seen[j] = g * n + i
                    touched[count] = j
                    count += 1
            for t in range(count):
                j = touched[t]
                value = score_grad[j]
                score_grad[j] = 0.0
                c = 0
                while c < channels - 1 and q[g, i, c] - k[g, j, c] != high[j]:
                    c += 1
                grad_q[g, i, c] -= value
                grad_k[g, j, c] += value
                c = 0
                while c < channels - 1 and q[g, i, c] - k[g, j, c] != low[j]:
                    c += 1
                grad_q[g, i, c] += value
                grad_k[g, j, c] -= value

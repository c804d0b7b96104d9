"""Expected entropy of one row of attention, H(n, lambda) (EIE, Equation 6), without sampling, and lambda solved from it.

Given a query q of length r, the logits of n standard normal keys are independent normals of standard deviation s = lambda r,
and r follows the chi distribution with d degrees of freedom. So H(n, lambda) = E_r h(n, lambda r), where h is the entropy of
the softmax of n such logits. With Z = sum_j exp(s z_j) and F(s) = E ln Z it is

    h = F - s F'(s),   F = integral over u of exp(-e^u) - phi(u)^n,   phi(u) = E_z exp(-e^(u + s z)),

because ln Z is the integral of (e^-t - e^-tZ) / t over t > 0, and t = e^u. Everything is smooth, so that plain sums converge
exponentially: the values are good to about 1e-8, for any n. Neither the paper nor any code of it has this; the
sampled values that its Monte-Carlo method gives are what it is tested against.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline
from scipy.optimize import brentq
from scipy.stats import chi

from nco_bench.errors import BadInputError
from nco_bench.nn.logit_scale import LogitScale, ScaleContext

LARGEST_SPREAD = 30.0
"""Largest standard deviation s of logits that is tabulated."""

LARGEST_N = 10_000_000
_TAIL = 1e-10
_GAUSS_POINTS = 48


def expected_entropy(n: float, scale: float, head_dim: int) -> float:
    """Return H(n, lambda) in nats (Equation 6).

    Parameters
    ----------
    n
        Number of keys, 1 or more; any real number, since Equation 8 differentiates by it.
    scale
        lambda, the factor of q.k; 0 or more.
    head_dim
        Width d of queries and keys.

    Raises
    ------
    BadInputError
        For values out of range.
    """
    if not 1 <= n <= LARGEST_N:
        raise BadInputError(f"entropy of attention over n={n:g} keys: expected 1 <= n <= {LARGEST_N:,}.")
    length, weight = _query_lengths(head_dim)
    if not 0 <= scale * length[-1] <= LARGEST_SPREAD:
        limit = LARGEST_SPREAD / length[-1]
        raise BadInputError(
            f"entropy of attention: lambda={scale:g}, expected 0 <= lambda <= {limit:.3f} for d={head_dim}."
        )
    return float(weight @ _entropy_by_spread(float(n))(scale * length))


def exact_scale(n: float, head_dim: int, training_size: int) -> float:
    """Solve H(n, lambda) = H(N, 1 / sqrt(d)) for lambda (Equation 7 with equality).

    Parameters
    ----------
    n
        Number of keys, at least `training_size`.
    head_dim, training_size
        d and N.

    Raises
    ------
    BadInputError
        For n below N.
    """
    return _solved(float(check_length(n, training_size)), head_dim, training_size)


def check_length(n: float, training_size: int) -> float:
    """Return n, or raise `BadInputError` where it is below N."""
    if not n >= training_size:
        raise BadInputError(
            f"EIE: lambda asked for n={n:g}, below the training size N={training_size}; it is defined from N on, "
            "run shorter instances with --logit-scale none."
        )
    return n


@lru_cache(maxsize=4096)
def _solved(n: float, head_dim: int, training_size: int) -> float:
    start = 1 / math.sqrt(head_dim)
    if n == training_size:
        return start
    goal = expected_entropy(training_size, start, head_dim)
    largest = 0.999 * LARGEST_SPREAD / _query_lengths(head_dim)[0][-1]
    if expected_entropy(n, largest, head_dim) > goal:
        raise BadInputError(
            f"EIE: no lambda below {largest:.3f} keeps the entropy for d={head_dim}, N={training_size}, n={n:g}."
        )
    return float(
        brentq(lambda scale: expected_entropy(n, scale, head_dim) - goal, start, largest, xtol=1e-10)
    )


def logit_scale() -> LogitScale:
    """Return the exact entropy-invariant scale, ``--logit-scale eie-exact``, for any head width and training size."""
    return relative_scale(exact_scale)


def relative_scale(scale: Callable[[float, int, int], float]) -> LogitScale:
    """Turn ``lambda(n, d, N)`` into a factor of a model's usual logits: lambda(n) / lambda(N).

    n is the size of the instance (CVRP: its customers). Where sub-problems shrink during construction it is the number of
    tokens left, and 1 is returned below N, which training has seen.
    """

    def factor(context: ScaleContext) -> float:
        size, head_dim = context.training_size, context.head_dim
        check_length(context.instance_size, size)
        n = max(size, min(context.tokens, context.instance_size))
        return scale(n, head_dim, size) * math.sqrt(head_dim)

    return factor


@lru_cache(maxsize=64)
def _query_lengths(head_dim: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return lengths r of queries and their weights, a Gauss-Legendre rule for the chi distribution."""
    if head_dim < 1:
        raise BadInputError(f"entropy of attention: head width {head_dim}, expected 1 or more.")
    low, high = chi.ppf(_TAIL, head_dim), chi.isf(_TAIL, head_dim)
    point, weight = np.polynomial.legendre.leggauss(_GAUSS_POINTS)
    length = (low + high) / 2 + (high - low) / 2 * point
    density = weight * chi.pdf(length, head_dim)
    return length, density / density.sum()


@lru_cache(maxsize=4096)
def _entropy_by_spread(n: float) -> CubicSpline:
    """Return h(n, s) as a function of s."""
    entropies = [math.log(n)]  # s = 0
    for u, log_phi, psi in _transforms():
        # n phi^(n - 1) psi, in logarithms as far as possible: phi runs through all magnitudes.
        power = np.exp(n * log_phi)
        slope = n * np.exp((n - 1) * log_phi) * psi
        entropies.append(float(np.sum(np.exp(-np.exp(np.minimum(u, 700))) - power - slope) * (u[1] - u[0])))
    return CubicSpline(_spreads(), entropies)


def _spreads() -> NDArray[np.float64]:
    """Return the standard deviations that are tabulated: finely where the entropy bends."""
    return np.concatenate([np.arange(0, 6, 0.1), np.arange(6, LARGEST_SPREAD + 0.15, 0.3)])


@lru_cache(maxsize=1)
def _transforms() -> list[tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]]:
    """Return for each s > 0 the grid u, ln phi(u), and psi(u) = -s dphi/ds = E[s z e^x exp(-e^x)], x = u + s z."""
    found = []
    for s in _spreads()[1:]:
        # Steps follow from how far the integrands are analytic: exp(-e^x) within |Im x| < pi / 2.
        u = np.arange(-(9 * s + 55), 6 * s + 6, 0.4)
        z = np.arange(-9, 9.001, min(0.5, 0.5 / s))
        weight = np.exp(-z * z / 2)
        weight /= weight.sum()
        rate = np.exp(np.minimum(u[:, None] + s * z, 7.0))  # beyond e^7 exp(-rate) is 0 in float64
        alive = np.exp(-rate)
        phi, miss = alive @ weight, -np.expm1(-rate) @ weight
        rare = miss < 0.5
        log_phi = np.where(rare, np.log1p(-np.where(rare, miss, 0)), np.log(np.maximum(phi, 1e-300)))
        found.append((u, log_phi, (rate * alive) @ (s * z * weight)))
    return found

"""Power laws of decoder scaling: Equations 2 to 7 of Luo et al. (2026), "Efficient Decoder Scaling Strategy".

The paper does not say how it fits. Least squares on the gaps themselves (not on their logarithms) reproduces the R2,
errors and exponents of its Figure 2; the exponents it gives for Equation 6 (0.5 and 0.4) come out of least squares
on logarithms, which is therefore the space of Equation 5 too: the paper gets 6 from 5 by substitution, so both are one fit.
Both spaces can be had, as ``space``, and every fit says which it is.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nco_bench.errors import BadInputError

FloatArray = NDArray[np.float64]
Space = Literal["linear", "log"]


@dataclass(frozen=True)
class Fit:
    """A fitted law.

    Attributes
    ----------
    law
        The formula.
    parameters
        By the paper's symbols, such as ``N_c`` and ``alpha``.
    r2
        Coefficient of determination of the gaps (not of their logarithms).
    error_percent
        Mean absolute percentage error, the paper's "Error".
    space
        ``linear``: least squares on gaps; ``log``: on their logarithms.
    fitted
        Values of the law at the data, ``(n,)``.
    """

    law: str
    parameters: dict[str, float]
    r2: float
    error_percent: float
    space: Space
    fitted: tuple[float, ...]


def r_squared(values: FloatArray, fitted: FloatArray) -> float:
    """Coefficient of determination; 1 for a perfect fit of equal values."""
    residual = float(np.sum((values - fitted) ** 2))
    total = float(np.sum((values - values.mean()) ** 2))
    return 1.0 if residual == total == 0 else 1.0 - residual / total if total else float("-inf")


def mean_absolute_percentage_error(values: FloatArray, fitted: FloatArray) -> float:
    """Mean of 100 abs(fitted - value) / value."""
    return float(100.0 * np.mean(np.abs(fitted - values) / np.abs(values)))


def power_law(x: ArrayLike, gaps: ArrayLike, *, symbol: str = "N", space: Space = "linear") -> Fit:
    """Fit Gap(x) = (x_c / x)^alpha: Equations 2 (parameters), 3 (samples) and 4 (compute).

    Parameters
    ----------
    x
        Parameters in millions, samples, or GFLOPs, ``(n,)``, positive.
    gaps
        In percent, ``(n,)``, positive.
    symbol
        Names the constant: ``N`` gives ``N_c``.
    space
        See `Fit`.

    Raises
    ------
    BadInputError
        For fewer than two points, or values that are not positive.
    """
    (x,), gaps = _checked([x], gaps, 2)
    slope, intercept = np.polyfit(np.log(x), np.log(gaps), 1)
    alpha, scale = -slope, intercept
    if space == "linear":
        alpha, scale = _least_squares(lambda p, q: np.exp(q - p * np.log(x)), gaps, (alpha, scale))
    fitted = np.exp(scale - alpha * np.log(x))
    constant = float(np.exp(scale / alpha)) if alpha else float("nan")
    parameters = {f"{symbol}_c": constant, "alpha": float(alpha)}
    return _fit(f"Gap({symbol}) = ({symbol}_c / {symbol})^alpha", parameters, gaps, fitted, space)


def power_laws_by(
    keys: Sequence[Any], x: ArrayLike, gaps: ArrayLike, *, symbol: str = "N", space: Space = "linear"
) -> dict[Any, Fit]:
    """Fit `power_law` apart for each key: per width (scaling depth) or per depth (scaling width), Figure 2 b and c."""
    (x,), gaps = _checked([x], gaps, 2)
    labels = np.asarray(keys)
    return {
        key: power_law(x[labels == key], gaps[labels == key], symbol=symbol, space=space)
        for key in dict.fromkeys(keys)
    }


def bivariate_law(depth: ArrayLike, width: ArrayLike, gaps: ArrayLike, *, space: Space = "log") -> Fit:
    """Fit Equation 5, Gap(W, D) = (D_c / D)^beta_d (W_c / W)^beta_w, in the space of `shape_law`.

    Only the product of the two constants can be told from data; it is given as ``scale`` = D_c^beta_d W_c^beta_w.
    """
    law = "Gap(W, D) = scale D^-beta_d W^-beta_w"
    return _two_powers((depth, width), gaps, law, ("beta_d", "beta_w"), space)


def shape_law(parameters: ArrayLike, ratio: ArrayLike, gaps: ArrayLike, *, space: Space = "log") -> Fit:
    """Fit Equation 6, Gap(N, A) = (N_c / N)^beta_n (A_c / A)^beta_a with A = depth / width.

    As in Equation 5 the two constants come as one ``scale``.
    """
    law = "Gap(N, A) = scale N^-beta_n A^-beta_a"
    return _two_powers((parameters, ratio), gaps, law, ("beta_n", "beta_a"), space)


def shifted_law(time: ArrayLike, gaps: ArrayLike) -> Fit:
    """Fit Equation 7, Gap(t) = alpha t^-beta + gamma with gamma >= 0, by least squares on the gaps.

    Raises
    ------
    BadInputError
        For fewer than four points.
    """
    (t,), gaps = _checked([time], gaps, 4)
    slope, intercept = np.polyfit(np.log(t), np.log(gaps), 1)
    start = (np.exp(intercept), max(-slope, 1e-3), 0.0)
    alpha, beta, gamma = _least_squares(
        lambda a, b, c: a * t**-b + c, gaps, start, ([0, 0, 0], [np.inf, np.inf, np.inf])
    )
    parameters = {"alpha": alpha, "beta": beta, "gamma": gamma}
    return _fit("Gap(t) = alpha t^-beta + gamma", parameters, gaps, alpha * t**-beta + gamma, "linear")


def _two_powers(
    factors: tuple[ArrayLike, ArrayLike], gaps: ArrayLike, law: str, names: tuple[str, str], space: Space
) -> Fit:
    (first, second), gaps = _checked(list(factors), gaps, 3)
    design = np.stack([np.ones(len(gaps)), -np.log(first), -np.log(second)], axis=1)
    solution, _, rank, _ = np.linalg.lstsq(design, np.log(gaps), rcond=None)
    if rank < 3:
        raise BadInputError(f"{law}: the points do not vary in both directions; two exponents need that.")
    if space == "linear":
        solution = np.array(
            _least_squares(lambda *p: np.exp(design @ np.array(p)), gaps, tuple(float(s) for s in solution))
        )
    fitted = np.exp(design @ solution)
    found = {
        "scale": float(np.exp(solution[0])),
        names[0]: float(solution[1]),
        names[1]: float(solution[2]),
    }
    return _fit(law, found, gaps, fitted, space)


def _least_squares(
    model: Callable[..., FloatArray],
    gaps: FloatArray,
    start: tuple[float, ...],
    bounds: tuple[list[float], list[float]] | None = None,
) -> tuple[float, ...]:
    from scipy.optimize import OptimizeWarning, curve_fit

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OptimizeWarning)  # no covariance for as many points as parameters
        found, _ = curve_fit(
            lambda _, *p: model(*p),
            np.zeros(len(gaps)),
            gaps,
            p0=start,
            bounds=bounds or (-np.inf, np.inf),
            maxfev=100_000,
        )
    return tuple(float(value) for value in found)


def _fit(law: str, parameters: dict[str, float], gaps: FloatArray, fitted: FloatArray, space: Space) -> Fit:
    return Fit(
        law,
        parameters,
        r_squared(gaps, fitted),
        mean_absolute_percentage_error(gaps, fitted),
        space,
        tuple(map(float, fitted)),
    )


def _checked(xs: list[ArrayLike], gaps: ArrayLike, least: int) -> tuple[list[FloatArray], FloatArray]:
    arrays = [np.asarray(x, dtype=np.float64) for x in xs]
    values = np.asarray(gaps, dtype=np.float64)
    if any(a.shape != values.shape or a.ndim != 1 for a in arrays) or len(values) < least:
        raise BadInputError(f"A power law needs at least {least} points with one value of each kind.")
    if any((a <= 0).any() or not np.isfinite(a).all() for a in (*arrays, values)):
        raise BadInputError("A power law needs positive finite values; leave gaps of 0 out.")
    return arrays, values

"""Logit scales: by which factor attention logits grow with the number of tokens.

Three of the five papers study just this, so the scale is a choice of its own (``--logit-scale``) and any
attention model can be run with any of them. A scale returns the factor by which the model's usual logits
(already divided by the square root of the head width, where the model does that) are multiplied.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nco_bench.errors import UnknownNameError

if TYPE_CHECKING:
    from torch import Tensor

TRAINING_SIZE = 100


@dataclass(frozen=True)
class ScaleContext:
    """What a scale may depend on.

    Attributes
    ----------
    tokens
        Number of keys in the current attention (the shrinking sub-problem).
    instance_size
        Number of nodes of the whole test instance, constant during construction.
    head_dim
        Width of one attention head.
    training_size
        Instance size that the weights were trained on.
    divisor
        By what the model's usual logits q.k are already divided; None means the square root of `head_dim`
        (BQ-NCO divides by 1).
    """

    tokens: int
    instance_size: int
    head_dim: int
    training_size: int = TRAINING_SIZE
    divisor: float | None = None


# A learned scale may return a tensor, so that gradients reach its parameters.
LogitScale = Callable[[ScaleContext], "float | Tensor"]


def none(context: ScaleContext) -> float:
    """Leave logits as they are."""
    return 1.0


def ssmax(context: ScaleContext) -> float:
    """Scalable softmax of PENS: ln(N + 1), N the tokens of the current sequence (PENS, section 4)."""
    return math.log(context.tokens + 1)


def log_ratio(context: ScaleContext) -> float:
    """Decoder scaling, Equation 16: ln(n_test) / ln(n_train), n_test the size of the test instance."""
    return math.log(context.instance_size) / math.log(context.training_size)


def esf(context: ScaleContext) -> float:
    """Entropy-based scaling factor (Xiao et al. 2025), dynamic reading: log of the current tokens to base n_train.

    The static reading (nodes of the test instance) is `log_ratio`, also known as ``esf-static``.
    """
    return math.log(context.tokens) / math.log(context.training_size)


def ln_n_over_d(context: ScaleContext) -> float:
    """EIE's rival scale: logits become (ln n / d) q.k instead of q.k / sqrt(d) (EIE, Table 2; Su 2021)."""
    return math.log(context.tokens) * _divisor(context) / context.head_dim


def ln_n_over_sqrt_d(context: ScaleContext) -> float:
    """Return the other rival of EIE: logits become (ln n / sqrt(d)) q.k (EIE, Table 1; Chiang and Cholak 2022)."""
    return math.log(context.tokens) * _divisor(context) / math.sqrt(context.head_dim)


def _divisor(context: ScaleContext) -> float:
    return math.sqrt(context.head_dim) if context.divisor is None else context.divisor


# Scales that live with a network of their own, imported when asked for: name -> "module:function", a function
# without arguments that returns the LogitScale.
LAZY_SCALES = {
    "eie": "nco_bench.models.eie:logit_scale",  # the learned curve
    "eie-exact": "nco_bench.models.entropy:logit_scale",  # the same equation, solved
}

SCALES: dict[str, LogitScale] = {
    "none": none,
    "ssmax": ssmax,
    "log-ratio": log_ratio,
    "esf": esf,
    "esf-static": log_ratio,
    "ln-n-over-d": ln_n_over_d,
    "ln-n-over-sqrt-d": ln_n_over_sqrt_d,
}


def register(name: str, scale: LogitScale) -> None:
    """Make a scale known under `name`, for plugins and learned scales."""
    SCALES[name] = scale


def logit_scale(name: str) -> LogitScale:
    """Return the scale called `name`; raises `UnknownNameError` for any other."""
    if name in SCALES:
        return SCALES[name]
    if name in LAZY_SCALES:
        module, _, function = LAZY_SCALES[name].partition(":")
        return getattr(importlib.import_module(module), function)()
    raise UnknownNameError("logit scale", name, [*SCALES, *LAZY_SCALES])

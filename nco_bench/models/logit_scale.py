"""
Logit scales: by which factor attention logits grow with the number of tokens.

Three of the five papers study just this, so the scale is a choice of its own (``--logit-scale``) and any
attention model can be run with any of them. A scale returns the factor by which the model's usual logits
(already divided by the square root of the head width, where the model does that) are multiplied.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from nco_bench.errors import UnknownNameError

TRAINING_SIZE = 100


@dataclass(frozen=True)
class ScaleContext:
    """
    What a scale may depend on.

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
    """

    tokens: int
    instance_size: int
    head_dim: int
    training_size: int = TRAINING_SIZE


LogitScale = Callable[[ScaleContext], float]


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
    """Entropy-based scaling factor (Xiao et al. 2025), dynamic reading: log of the current tokens to base n_train."""
    return math.log(context.tokens) / math.log(context.training_size)


def ln_n_over_d(context: ScaleContext) -> float:
    """EIE's rival scale: logits become (ln n / d) q.k instead of q.k / sqrt(d) (EIE, Table 2)."""
    return math.log(context.tokens) / math.sqrt(context.head_dim)


SCALES: dict[str, LogitScale] = {
    "none": none,
    "ssmax": ssmax,
    "log-ratio": log_ratio,
    "esf": esf,
    "ln-n-over-d": ln_n_over_d,
}


def logit_scale(name: str) -> LogitScale:
    """Return the scale called `name`; raises `UnknownNameError` for any other."""
    try:
        return SCALES[name]
    except KeyError:
        raise UnknownNameError("logit scale", name, SCALES) from None

"""Logit scales: by which factor attention logits grow with the number of tokens.

Three of the five papers study just this, so the scale is a choice of its own (``--logit-scale``) and any
attention model can be run with any of them. A scale returns the factor by which the model's usual logits
(already divided by the square root of the head width, where the model does that) are multiplied.

Models that encode once (AM, POMO, ELG, attend2pack) have two kinds of multi-head attention: the encoder's,
among all nodes, and the decoder's glimpse, from one query. ``NAME:at=encoder|glimpse|both`` says which of
them a scale acts on. EIE's paper speaks of the first: its Equations 1 to 4 are "the computational process of
multi-head self-attention" with X in R^{n x hd} as the source of queries and keys alike, and Equation 2 reads
"A_i = Softmax(lambda Q_i K_i^T) in R^{n x n}"; the expected entropy rests on X coming out of a LayerNorm
(section 4.1); and its networks "consist of multi-head self-attention and feedforward layers [...] There are 3
multi-head attention layers" (section 5), which are the encoder's, the glimpse would be a fourth. So EIE and
the rivals that it compares with act on the encoder unless told otherwise. "We substitute the original scaling
factor in the Transformer" (section 4) can be read as ``both``, which is what earlier versions did. Other
scales act on all attention.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nco_bench.errors import BadInputError, UnknownNameError

if TYPE_CHECKING:
    from torch import Tensor

TRAINING_SIZE = 100
PLACES = ("encoder", "glimpse", "both")


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
    place
        ``encoder`` for self-attention, ``glimpse`` for the decoder of a model that encodes once.
    """

    tokens: int
    instance_size: int
    head_dim: int
    training_size: int = TRAINING_SIZE
    divisor: float | None = None
    place: str = "encoder"


# A learned scale may return a tensor, so that gradients reach its parameters.
LogitScale = Callable[[ScaleContext], "float | Tensor"]


def none(context: ScaleContext) -> float:
    """Leave logits as they are."""
    return 1.0


def ssmax(context: ScaleContext) -> float:
    """Scalable softmax of PENS: ln(N + 1), N the tokens of the current sequence (PENS, appendix A.3)."""
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
    """EIE's rival scale: logits become (ln n / d) q.k instead of q.k / sqrt(d) (EIE, Tables 1 and 3; Su 2021).

    The row that Table 2 prints as ln n / sqrt(d) is this one by the text beside it (section 5.2).
    n is "the sequence length" (EIE, section 2): the rows of X in its Equation 1, of which the CVRP's depot is one. EIE's own
    lambda(n) counts customers, since "the training lengths N are all set to 100" for the CVRP too (section 5.4), whose
    networks see 101 tokens then. Without the depot this factor is 0.2 % smaller at 100 customers and 0.01 % at 1,600.
    """
    return math.log(context.tokens) * _divisor(context) / context.head_dim


def ln_n_over_sqrt_d(context: ScaleContext) -> float:
    """Return the other rival of EIE: logits become (ln n / sqrt(d)) q.k (EIE, Table 1; Chiang and Cholak 2022)."""
    return math.log(context.tokens) * _divisor(context) / math.sqrt(context.head_dim)


def _divisor(context: ScaleContext) -> float:
    return math.sqrt(context.head_dim) if context.divisor is None else context.divisor


# Scales that live with a network of their own, imported when asked for: name -> "module:function", a function
# without arguments that returns the LogitScale.
LAZY_SCALES = {
    "eie": "nco_bench.nn.eie:logit_scale",  # the learned curve
    "eie-exact": "nco_bench.nn.entropy:logit_scale",  # the same equation, solved
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

SELF_ATTENTION_SCALES = frozenset({"eie", "eie-exact", "ln-n-over-d", "ln-n-over-sqrt-d"})
"""EIE and its rivals: by default they act on the encoder alone, see the text above."""


def logit_scale(text: str) -> LogitScale:
    """Return the scale that ``NAME`` or ``NAME:at=PLACE`` means.

    Raises
    ------
    UnknownNameError
        For an unknown name or place.
    BadInputError
        For anything else after the name.
    """
    name, place = _parsed(text)
    place = place or default_place(name)
    scale = _called(name)
    if place == "both":
        return scale
    return lambda context: scale(context) if context.place == place else 1.0


def default_place(name: str) -> str:
    """Return where a scale acts when nothing is said: ``encoder`` for EIE and its rivals, else ``both``."""
    return "encoder" if name in SELF_ATTENTION_SCALES else "both"


def resolved(text: str, *, glimpse: bool, model: str) -> str:
    """Write out where a scale acts, as records keep it: ``eie`` becomes ``eie:at=encoder``.

    A scale that acts everywhere by default keeps its bare name there, which it has had in all records. A bare ``eie`` in
    a record is from a version that applied it to encoder and glimpse.

    Parameters
    ----------
    text
        ``NAME`` or ``NAME:at=PLACE``.
    glimpse
        Whether the model has a glimpse, so that there is a choice.
    model
        Its name, for messages.

    Raises
    ------
    UnknownNameError
        For an unknown place.
    BadInputError
        For a place where there is no choice.
    """
    name, place = _parsed(text)
    if place is not None and not glimpse:
        raise BadInputError(
            f"{model}: --logit-scale {text}: it has self-attention only; leave :at={place} out."
        )
    place = place or default_place(name)
    if not glimpse or name == "none" or place == default_place(name) == "both":
        return name
    return f"{name}:at={place}"


def _parsed(text: str) -> tuple[str, str | None]:
    name, colon, rest = text.partition(":")
    if not colon:
        return name, None
    if not rest.startswith("at="):
        raise BadInputError(f"--logit-scale {text}: expected NAME or NAME:at={'|'.join(PLACES)}.")
    place = rest.removeprefix("at=")
    if place not in PLACES:
        raise UnknownNameError(f"place of logit scale {name}", place, PLACES)
    return name, place


def _called(name: str) -> LogitScale:
    if name in SCALES:
        return SCALES[name]
    if name in LAZY_SCALES:
        module, _, function = LAZY_SCALES[name].partition(":")
        return getattr(importlib.import_module(module), function)()
    raise UnknownNameError("logit scale", name, [*SCALES, *LAZY_SCALES])

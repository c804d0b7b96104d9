"""EIE, "Train Short, Test Long in Combinatorial Optimization" (anonymous, ICLR 2024 submission): the learned scale.

A network f with some hundred weights stands for d lambda / dn > 0, and lambda(n) is its integral from the training size N
by the five-point Gauss rule (Equations 9 to 12, Algorithm 1). It is trained so that the expected entropy of attention
stays at H(N, 1 / sqrt(d)) (`nco_bench.training.learners.eie`); there is no official code. `nco_bench.nn.entropy` solves the
same equation exactly.

The paper does not say how n enters the network (``input``: n itself, as written, does not train). Two of its choices are
numbers of the configuration, and the curves that ship have others: the floor epsilon = 1e-4, which for d = 32 is above the
exact slope from n = 900 on; and one Gauss rule over all of [N, n] (``panels=1``), with which training learns to make use of
the rule's error, so that lambda may fall although f is positive. With a rule per doubling lambda rises strictly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nco_bench.errors import BadInputError, BadWeightsError, MissingWeightsError, UnknownNameError
from nco_bench.nn.entropy import check_length, relative_scale
from nco_bench.nn.logit_scale import LogitScale

INPUTS = ("log", "share", "raw")
GAUSS_POINTS = (0.0, *(sign * math.sqrt(5 - 2 * math.sqrt(10 / 7)) / 3 for sign in (1, -1)),
                *(sign * math.sqrt(5 + 2 * math.sqrt(10 / 7)) / 3 for sign in (1, -1)))  # fmt: skip
LENGTH_GROUPS = 8
"""Lengths that are sampled together are padded to the longest."""

GAUSS_WEIGHTS = (128 / 225, *[(322 + 13 * math.sqrt(70)) / 900] * 2, *[(322 - 13 * math.sqrt(70)) / 900] * 2)


@dataclass(frozen=True)
class EieConfig:
    """Sizes of the network (paper, section 5.4).

    Attributes
    ----------
    head_dim
        Width d of the attention heads that the scale is for.
    training_size, largest_size
        N and N_max.
    width, blocks
        Hidden width d' and number of residual blocks N_r.
    epsilon
        Floor of the derivative.
    input
        How n enters: ``log`` is ln(n / N), ``share`` is n / N_max, ``raw`` is n.
    panels
        Intervals, of equal ratio, with a Gauss rule each; 1 in the paper.
    """

    head_dim: int = 16
    training_size: int = 100
    largest_size: int = 1600
    width: int = 10
    blocks: int = 3
    epsilon: float = 1e-4
    input: str = "log"
    panels: int = 1


def requ(x: Tensor) -> Tensor:
    """ReQU: ``relu(x)^2`` (Li et al. 2019)."""
    return F.relu(x).square()


def requr(x: Tensor) -> Tensor:
    """ReQUR: ``relu(x)^2 - relu(x - 0.5)^2`` (Yu et al. 2021), a parabola up to 0.5, then a line of slope 1."""
    return F.relu(x).square() - F.relu(x - 0.5).square()


def integrate(f: Callable[[Tensor], Tensor], begin: Tensor, end: Tensor) -> Tensor:
    """Integrate by the five-point Gauss rule (Algorithm 1).

    Parameters
    ----------
    f
        Function of a tensor ``(..., 5)`` that returns one of the same shape.
    begin, end
        ``(...)`` limits.
    """
    point, weight = end.new_tensor(GAUSS_POINTS), end.new_tensor(GAUSS_WEIGHTS)
    half, middle = (end - begin) / 2, (end + begin) / 2
    return half * (f(middle[..., None] + half[..., None] * point) * weight).sum(dim=-1)


class Block(nn.Module):
    """``y + ReQUR(ReQUR(y W1 + b1) W2 + b2)`` (Equation 10)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, y: Tensor) -> Tensor:
        """Transform ``(..., d')``."""
        return requr(self.outer(requr(self.inner(y)))) + y


class LambdaNetwork(nn.Module):
    """lambda(n) through its derivative, 691 numbers in the paper's size."""

    def __init__(self, config: EieConfig) -> None:
        super().__init__()
        self.config = config
        self.first = nn.Linear(1, config.width)
        self.blocks = nn.ModuleList(Block(config.width) for _ in range(config.blocks))
        self.last = nn.Linear(config.width, 1)
        # ReQU is flat below 0: start where it is not, with slopes of about 1e-3.
        with torch.no_grad():
            self.last.weight.mul_(0.1)
            self.last.bias.fill_(0.03)

    def slope(self, n: Tensor) -> Tensor:
        """Return f(n), the derivative of lambda, above epsilon everywhere (Equations 9 to 11); any shape."""
        config = self.config
        seen = {"log": lambda: (n / config.training_size).log(), "share": lambda: n / config.largest_size}
        x = seen.get(config.input, lambda: n)()
        y = F.relu(self.first(x[..., None]))
        for block in self.blocks:
            y = block(y)
        return requ(self.last(y)).squeeze(-1) + config.epsilon

    def forward(self, n: Tensor) -> Tensor:
        """Return lambda at ``(B,)`` lengths from N on (Equation 12)."""
        config = self.config
        ratio = config.largest_size / config.training_size
        ends = [config.training_size * ratio ** (k / config.panels) for k in range(config.panels + 1)]
        edge = n.new_tensor(ends)
        begin, end = edge[:-1].expand(len(n), -1), edge[1:].expand(len(n), -1).clone()
        end[:, -1] = torch.inf
        end = torch.maximum(torch.minimum(end, n[:, None]), begin)  # empty panels beyond n
        return 1 / math.sqrt(config.head_dim) + integrate(self.slope, begin, end).sum(dim=1)


def build(config: EieConfig) -> LambdaNetwork:
    """Build the network with fresh weights."""
    if config.input not in INPUTS:
        raise UnknownNameError("input of eie", config.input, INPUTS)
    return LambdaNetwork(config)


def weights_name(head_dim: int, training_size: int) -> str:
    """Name the weights of the curve for heads of this width, trained at this size."""
    return f"eie-d{head_dim}-n{training_size}"


@lru_cache(maxsize=64)
def curve(head_dim: int, training_size: int) -> LambdaNetwork:
    """Load the learned curve for (d, N), in double precision.

    Raises
    ------
    BadWeightsError
        If there is none.
    """
    from nco_bench.weights.store import load_into, resolve

    name = weights_name(head_dim, training_size)
    try:
        file = resolve(name, "eie")
    except MissingWeightsError:
        raise BadWeightsError(
            f"eie: no learned curve for heads of width {head_dim} trained at size {training_size} ({name}); "
            "use --logit-scale eie-exact, which needs none."
        ) from None
    with torch.inference_mode(
        False
    ):  # kept for the process: weights made in that mode can't be used outside of it
        network = build(EieConfig(**file.manifest.config))
        load_into(network, file)
        return network.double().eval()


@lru_cache(maxsize=65536)
def learned_scale(n: float, head_dim: int, training_size: int) -> float:
    """Return lambda(n) of the learned curve.

    Raises
    ------
    BadInputError
        For n below N or above N_max.
    BadWeightsError
        If there is no curve for (d, N).
    """
    network = curve(head_dim, training_size)
    largest = network.config.largest_size
    if check_length(n, training_size) > largest:
        raise BadInputError(
            f"eie: the learned curve for d={head_dim}, N={training_size} ends at n={largest}, asked for n={n:g}; "
            "use --logit-scale eie-exact, which has no end."
        )
    with torch.inference_mode():
        return float(network(torch.tensor([n], dtype=torch.float64)))


def logit_scale() -> LogitScale:
    """Return the learned scale, ``--logit-scale eie``."""
    return relative_scale(learned_scale)


def sampled_entropy(
    lengths: Tensor, scales: Tensor, head_dim: int, rows: int, generator: torch.Generator
) -> Tensor:
    """Estimate H(n, lambda) by Monte Carlo twice, independently, with gradients to lambda (Equation 6).

    Parameters
    ----------
    lengths
        ``(B,)`` numbers of keys.
    scales
        ``(B,)`` lambda.
    head_dim
        d. q.k is drawn as |q| z with z normal, which has the same distribution as d products.
    rows
        Queries per estimate at the largest length, each with keys of its own; at shorter ones more, for the same work.
    generator
        Of all draws.

    Returns
    -------
    Tensor
        ``(B, 2)`` mean entropies in nats.
    """

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=scales.device)

    order = lengths.argsort()
    parts = []
    for group in order.chunk(min(len(order), LENGTH_GROUPS)):  # of like lengths, so that little is padding
        n, scale = lengths[group], scales[group]
        queries = 2 * max(rows, round(rows * int(lengths.max()) / int(n.max())))
        spread = draw(len(n), queries, head_dim).norm(dim=2)
        product = spread[..., None] * draw(len(n), queries, int(n.max()))
        outside = torch.arange(product.shape[2], device=n.device) >= n[:, None]
        entropy = _entropy_of_rows(product, outside[:, None], scale[:, None])
        parts.append(entropy.unflatten(1, (2, -1)).mean(dim=2))
    return torch.cat(parts)[order.argsort()]


def _entropy_of_rows(product: Tensor, outside: Tensor, scale: Tensor) -> Tensor:
    """Return the entropy of softmax(scale x) per row of x, ``(B, R, N)`` to ``(B, R)``: ln Z - scale <x>.

    Its derivative by the scale is -scale Var(x), so that no graph over all products is needed.
    """
    with torch.no_grad():
        logits = (product * scale[..., None]).masked_fill_(outside, -torch.inf)
        log_z = logits.logsumexp(dim=2)
        weights = logits.sub_(log_z[..., None]).exp_()
        weighted = weights * product
        mean = weighted.sum(dim=2)
        variance = (weighted * product).sum(dim=2) - mean.square()
        entropy = log_z - scale * mean
        slope = -scale * variance
    return entropy + slope * (scale - scale.detach())

"""Heat maps by diffusion: the denoiser of DIFUSCO run from pure noise back to time 0 (Section 3).

Draws are a function of seed, sample, step and edge alone, so that a heat map depends neither on the batch nor on how many
samples are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from torch import Tensor

from nco_bench.errors import UnknownNameError
from nco_bench.progress import tracked
from nco_bench.solvers.decoding.draws import Draws
from nco_bench.solvers.edges.difusco import SCHEDULES, Difusco, EdgeGraph, kept, transition

LEAST_SCORE = 1e-6
"""Added to probabilities, so that no edge of the graph counts as absent."""
START, ANGLE, FLIP = 0, 1, 2
"""Kinds of draws: the first state (two for Gaussian noise), and the states in between."""

Uniform = Callable[[int], Tensor]
"""Uniform draws ``(B, N, K)`` of a step."""


@dataclass(frozen=True)
class Reverse:
    """One step back in time, all ``(B, N, K)`` but the output ``(B, N, K, C)``.

    Attributes
    ----------
    state, output
        What the network saw and said.
    probability
        Categorical: that the edge is there at the earlier time.
    after
        The state at the earlier time; after the last step the probabilities themselves.
    """

    state: Tensor
    output: Tensor
    probability: Tensor | None
    after: Tensor


def reverse_process(
    model: Difusco, graph: EdgeGraph, start: Tensor, uniform: Uniform, pairs: list[tuple[int, int]]
) -> Iterator[Reverse]:
    """Yield the steps from noise to edges.

    Parameters
    ----------
    start
        ``(B, N, K)`` noise: 0 and 1, or normal.
    uniform
        Draws of the steps in between; none are asked for at the last step, nor for Gaussian noise.
    pairs
        Times from and to which the steps go, see `time_pairs`.
    """
    share = kept(model.config)
    state = start
    for step, (now, then) in enumerate(tracked(pairs, "step")):
        output = model(graph, state, torch.full((len(state),), float(now), device=state.device))
        probability = None
        if model.config.kind == "gaussian":
            after = gaussian_step(output[..., 0], state, share[now], share[then])
        else:
            edge = output.softmax(dim=-1)[..., 1]
            probability = categorical_posterior(edge, state, share[now], share[then])
            after = (uniform(step) < probability).to(state.dtype) if then > 0 else probability.clamp(min=0)
        yield Reverse(state, output, probability, after)
        state = after


def to_scores(model: Difusco, final: Tensor) -> Tensor:
    """Turn the last state into scores, as the official code does."""
    return final * 0.5 + 0.5 if model.config.kind == "gaussian" else final + LEAST_SCORE


def heat_maps(
    model: Difusco,
    graph: EdgeGraph,
    stream: Tensor,
    *,
    steps: int = 50,
    schedule: str = "cosine",
) -> Tensor:
    """Draw one heat map per graph.

    Parameters
    ----------
    model
        In evaluation mode.
    stream
        ``(B,)`` int64, one stream of random numbers per graph, see `nco_bench.solvers.decoding.draws.streams`.
    steps, schedule
        Steps of inference and how they are spaced.

    Returns
    -------
    Tensor
        ``(B, N, K)`` scores.
    """
    batch, nodes, width = graph.shape
    draws = Draws(stream.to(graph.coords.device))

    def uniform(step: int, kind: int = FLIP) -> Tensor:
        return draws.uniform(step, kind, nodes * width).view(batch, nodes, width).float()

    start = draws.uniform(0, START, nodes * width).view(batch, nodes, width)
    if model.config.kind == "gaussian":
        start = normal_draws(start, draws.uniform(0, ANGLE, nodes * width).view(start.shape))
    else:
        start = (start < 0.5).double()
    final = start = start.to(graph.coords.dtype)
    with torch.inference_mode():
        for step in reverse_process(
            model, graph, start, uniform, time_pairs(schedule, steps, model.config.timesteps)
        ):
            final = step.after
        return to_scores(model, final)


def normal_draws(first: Tensor, second: Tensor) -> Tensor:
    """Turn pairs of uniform draws into normal ones (Box and Muller)."""
    return (-2 * torch.log1p(-first)).sqrt() * (second * (2 * torch.pi)).cos()


def nearest_graph(coords: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Return the `count` nearest nodes of each node, the node itself first, ``(N, K)``."""
    n = len(coords)
    count = min(count, n)
    found = cKDTree(coords).query(coords, k=count)[1].reshape(n, count)
    own = np.arange(n)[:, None]
    # Among nodes at one place the node itself may come later, or not at all.
    order = np.argsort(found != own, axis=1, kind="stable")
    found = np.take_along_axis(found, order, axis=1)
    return np.concatenate([own, np.where(found[:, :1] == own, found[:, 1:], found[:, :-1])], axis=1)


def time_pairs(schedule: str, steps: int, timesteps: int = 1000) -> list[tuple[int, int]]:
    """Return the time steps from which and to which inference goes, ``steps`` pairs.

    Raises
    ------
    UnknownNameError
        For another schedule than ``cosine`` (finer towards the end) or ``linear``.
    """
    if schedule not in SCHEDULES:
        raise UnknownNameError("inference schedule of difusco", schedule, SCHEDULES)
    done = np.arange(steps + 1) / steps
    if schedule == "cosine":
        done = np.sin(done * np.pi / 2)
    left = timesteps - (done * timesteps).astype(np.int64)
    pairs = pairwise(left.tolist())
    return [(min(max(t, 1), timesteps), min(max(s, 0), timesteps - 1)) for t, s in pairs]


def categorical_posterior(edge: Tensor, state: Tensor, kept_now: float, kept_then: float) -> Tensor:
    """Return the probability that an edge is there at the earlier time, summed over both classes that the network predicts.

    Parameters
    ----------
    edge
        Predicted probability that the edge is in the tour.
    state
        Whether the edge is there now, 0 or 1.
    kept_now, kept_then
        Share of the signal now and at the earlier time, see `kept`.
    """
    since, now, then = (transition(share) for share in (kept_now / kept_then, kept_now, kept_then))
    table = since[1][None] * then[:, 1:] / now  # class in the tour x class now
    there, absent = (table[0, x] + (table[1, x] - table[0, x]) * edge for x in (1, 0))
    return torch.where(state > 0.5, there, absent)


def gaussian_step(noise: Tensor, state: Tensor, kept_now: float, kept_then: float) -> Tensor:
    """Return the state at the earlier time (the deterministic step of DDIM); `noise` is the predicted one."""
    clean = math.sqrt(kept_then / kept_now) * (state - math.sqrt(1 - kept_now) * noise)
    return clean + math.sqrt(1 - kept_then) * noise

"""The rollout baseline of AM (section 4): greedy costs, and the test by which a better policy replaces it."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import ttest_rel
from torch import Tensor, nn

from nco_bench.nn.device import PerDevice
from nco_bench.solvers.stepwise.policy import EncodeOncePolicy
from nco_bench.solvers.stepwise.problem import RoutingProblem, trajectory_lengths
from nco_bench.solvers.stepwise.rollout import completed
from nco_bench.solvers.stepwise.steps import EncodeOnce

EVALUATION_NODES = PerDevice(cpu=2**12, gpu=2**18)
"""Nodes that are decoded together where no gradient is needed: on a CPU as many as its cache holds."""


def p_value(candidate: NDArray[np.float64], baseline: NDArray[np.float64]) -> float:
    """Return the one-sided p-value of "the candidate's costs are lower", paired; 0.5 where all are equal."""
    if np.array_equal(candidate, baseline):
        return 0.5
    return float(ttest_rel(candidate, baseline, alternative="less").pvalue)


@torch.inference_mode()
def greedy_costs(policy: nn.Module, problem: RoutingProblem) -> Tensor:
    """Return the costs of greedy solutions, ``(B,)`` float64; POMO starts at its first node."""
    network, costs = cast("EncodeOncePolicy", policy), []
    group = max(1, EVALUATION_NODES.on(problem.coords.device) // problem.coords.shape[1])
    for begin in range(0, len(problem.coords), group):
        part = problem.take(slice(begin, begin + group))
        starts = None
        if network.needs_start:
            first = int(problem.demands is not None)
            starts = torch.full((len(part.coords), 1), first, device=part.coords.device)
        steps = EncodeOnce(network, part, network.encode(part.nodes()))
        costs.append(trajectory_costs(part, completed(steps, 1, starts).nodes)[:, 0])
    return torch.cat(costs).clone()


def trajectory_costs(problem: RoutingProblem, nodes: Tensor) -> Tensor:
    """Return the costs of ``(B, P, T)`` nodes, ``(B, P)`` float64."""
    return trajectory_lengths(problem.coords.double(), nodes, cvrp=problem.demands is not None)

"""The registry's entries of the networks for the algorithmic tasks, derived from their table; nothing heavy is imported."""

from __future__ import annotations

from collections.abc import Iterator

from nco_bench.solvers.registry import SolverInfo
from nco_bench.solvers.sequences.task_models import PAPER, TASK_NETWORKS


def task_network_solvers() -> Iterator[SolverInfo]:
    """Yield one entry per network."""
    for name, network in TASK_NETWORKS.items():
        yield SolverInfo(
            name=name,
            target="nco_bench.solvers.sequences.task_solver:TaskNetworkSolver",
            problems=("algorithmic", "algorithmic-regression"),
            kind="neural",
            paper=PAPER,
            venue="NeurIPS 2025",
            graph="complete",
            parameters=network.parameters[3],
            decodings=("greedy",),
            packages=(("torch",),),
            install="pip install 'nco-bench[neural]'",
        )

"""The registry's entries for Long Range Arena; nothing heavy is imported."""

from __future__ import annotations

from collections.abc import Iterator

from nco_bench.solvers.registry import SolverInfo
from nco_bench.solvers.sequences.lra_models import LRA_NETWORKS
from nco_bench.solvers.sequences.task_models import PAPER


def lra_solvers() -> Iterator[SolverInfo]:
    """Yield the classifiers, and the baseline that every accuracy is held against."""
    for name in LRA_NETWORKS:
        yield SolverInfo(
            name=name,
            target="nco_bench.solvers.sequences.lra_solver:LRASolver",
            problems=("lra",),
            kind="neural",
            paper=PAPER,
            venue="NeurIPS 2025",
            graph="complete",
            decodings=("greedy",),
            packages=(("torch",),),
            install="pip install 'nco-bench[neural]'",
        )
    yield SolverInfo(
        name="lra-majority",
        target="nco_bench.solvers.sequences.lra_baseline:LRAMajority",
        problems=("lra",),
        kind="heuristic",
        paper="Trivial predictor: the most frequent class of a set, known from its labels",
    )

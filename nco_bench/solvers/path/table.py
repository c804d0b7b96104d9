"""The neural solvers' entries in the registry, derived from the lazy table of models; nothing heavy is imported."""

from __future__ import annotations

from collections.abc import Iterator

from nco_bench.solvers.models import PATH_MODELS
from nco_bench.solvers.registry import SolverInfo

VERSION = "2"
"""2: each instance draws its own samples and node vectors, whatever batch it is in; SIT rounds differently."""

PATH_DECODINGS = ("greedy", "beam:K", "sample:K", "multistart", "rrc:K", "prc:K", "x8")


def neural_solvers() -> Iterator[SolverInfo]:
    """Yield one entry per model."""
    for name, model in PATH_MODELS.items():
        yield SolverInfo(
            name=name,
            target="nco_bench.solvers.path.solver:PathSolver",
            problems=model.problems,
            kind="neural",
            paper=model.paper,
            venue=model.venue,
            graph="complete",
            parameters=model.parameters.get("tsp"),
            decodings=PATH_DECODINGS,
            version=VERSION,
            packages=(("torch",),),
            install="pip install 'nco-bench[neural]'",
        )

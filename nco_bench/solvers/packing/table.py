"""The packing models' entries in the registry, derived from their lazy table; nothing heavy is imported."""

from __future__ import annotations

from collections.abc import Iterator

from nco_bench.solvers.packing.models import PACKING_MODELS
from nco_bench.solvers.registry import SolverInfo

DECODINGS = ("greedy", "sample:K")
"""The default first."""


def packing_solvers() -> Iterator[SolverInfo]:
    """Yield one entry per model."""
    for name, model in PACKING_MODELS.items():
        yield SolverInfo(
            name=name,
            target="nco_bench.solvers.packing.attend2pack_solver:Attend2packSolver",
            problems=model.problems,
            kind="neural",
            paper=model.paper,
            venue=model.venue,
            graph="complete",
            parameters=model.parameters.get("bpp3d"),
            decodings=DECODINGS,
            packages=(("torch",),),
            install="pip install 'nco-bench[neural]'",
            glimpse=model.glimpse,
        )

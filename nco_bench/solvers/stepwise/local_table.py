"""The entries of INViT and DGL in the registry, derived from their lazy table; nothing heavy is imported."""

from __future__ import annotations

from collections.abc import Iterator

from nco_bench.solvers.registry import SolverInfo
from nco_bench.solvers.stepwise.local_models import ALIASES, LOCAL_VIEW_MODELS

DECODINGS = (
    "greedy", "x8", "sample:K", "beam:K", "multistart", "sample:K+x8", "beam:K+x8", "multistart+x8",
)  # fmt: skip
"""The default first."""

PARAMS = (
    (
        "turns",
        "copies of each instance, the original among them, turned or mirrored by random angles, the best one counts; the "
        "augmentation of INViT and DGL (1)",
    ),
)


def local_view_solvers() -> Iterator[SolverInfo]:
    """Yield one entry per model, and one per other name of a model."""
    for name in (*LOCAL_VIEW_MODELS, *ALIASES):
        model = LOCAL_VIEW_MODELS[ALIASES.get(name, name)]
        yield SolverInfo(
            name=name,
            target="nco_bench.solvers.stepwise.local_solver:LocalViewSolver",
            problems=model.problems,
            kind="neural",
            paper=model.paper,
            venue=model.venue,
            graph="knn",
            parameters=model.parameters.get("tsp"),
            decodings=DECODINGS,
            packages=(("torch",),),
            install="pip install 'nco-bench[neural]'",
            params=PARAMS,
        )

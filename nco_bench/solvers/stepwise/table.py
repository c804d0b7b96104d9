"""The entries of AM, POMO and ELG in the registry, derived from their lazy table; nothing heavy is imported."""

from __future__ import annotations

from collections.abc import Iterator

from nco_bench.solvers.registry import SolverInfo
from nco_bench.solvers.stepwise.models import ENCODE_ONCE_MODELS

DECODINGS = {
    "am": ("greedy", "sample:K", "beam:K", "multistart", "x8", "multistart+x8", "sample:K+x8", "beam:K+x8"),
    "pomo": ("multistart", "multistart+x8", "greedy", "sample:K", "beam:K", "x8", "sample:K+x8", "beam:K+x8"),
    "elg": ("multistart", "multistart+x8", "greedy", "sample:K", "beam:K", "x8", "sample:K+x8", "beam:K+x8"),
}
"""The default first."""

PARAMS = (
    (
        "loads",
        "exact (whole numbers) or float32, the rounding of the official AM, which refuses some full loads (exact)",
    ),
    ("axes", "together (one scale) or apart (each axis to [0, 1], as ELG does on CVRPLIB) (together)"),
)


def encode_once_solvers() -> Iterator[SolverInfo]:
    """Yield one entry per model."""
    for name, model in ENCODE_ONCE_MODELS.items():
        yield SolverInfo(
            name=name,
            target="nco_bench.solvers.stepwise.solver:EncodeOnceSolver",
            problems=model.problems,
            kind="neural",
            paper=model.paper,
            venue=model.venue,
            graph="complete",
            parameters=model.parameters.get("tsp"),
            decodings=DECODINGS[name],
            packages=(("torch",),),
            install="pip install 'nco-bench[neural]'",
            params=PARAMS,
            glimpse=model.glimpse,
        )

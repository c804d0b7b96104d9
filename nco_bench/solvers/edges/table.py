"""The entry of DIFUSCO in the registry, derived from its lazy table; nothing heavy is imported."""

from __future__ import annotations

from collections.abc import Iterator

from nco_bench.solvers.edges.models import CHECKPOINTS, EDGE_MAP_MODELS
from nco_bench.solvers.registry import SolverInfo

DECODINGS = ("greedy", "sample:K")
"""The default first."""

PARAMS = (
    (
        "weights",
        "none ship with nco-bench and none can be trained here: download a checkpoint of the authors from "
        f"{CHECKPOINTS}, then nco-bench weights import difusco FILE --name difusco-tsp500 (the imported ones whose size is "
        "nearest); random runs an untrained network",
    ),
    ("steps", "steps of inference (50)"),
    ("schedule", "how they are spaced, cosine or linear (cosine)"),
    (
        "neighbours",
        "dense, or how many nearest nodes each node is joined to, itself among them (auto: dense up to 200 nodes, 50 up to "
        "700, else 100); a checkpoint fits the graph it was trained on",
    ),
    (
        "improve",
        "what follows greedy merging: none, two-opt (best move first), or mcts in its place (none); the paper's tables call "
        "none and two-opt 'greedy' and 'greedy + 2-opt'",
    ),
    ("two_opt_moves", "most moves of two-opt (auto: 1,000, from 10,000 nodes on 5,000)"),
    ("mcts_seconds", "seconds per node that mcts searches, a wall clock that no seed repeats (0.1)"),
    ("mcts_restarts", "mcts starts afresh this often instead, whatever the clock says (0: by the clock)"),
)


def difusco_solvers() -> Iterator[SolverInfo]:
    """Yield the entry."""
    for name, model in EDGE_MAP_MODELS.items():
        yield SolverInfo(
            name=name,
            target="nco_bench.solvers.edges.solver:DifuscoSolver",
            problems=model.problems,
            kind="neural",
            paper=model.paper,
            venue=model.venue,
            graph="complete or knn",
            parameters=model.parameters.get("tsp"),
            decodings=DECODINGS,
            packages=(("torch",), ("numba",)),
            install="pip install 'nco-bench[neural,classical]'",
            params=PARAMS,
        )

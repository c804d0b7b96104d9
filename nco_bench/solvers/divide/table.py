"""The entries of GLOP and H-TSP in the registry, derived from their lazy table; nothing heavy is imported."""

from __future__ import annotations

from collections.abc import Iterator

from nco_bench.solvers.divide.models import DIVIDE_MODELS
from nco_bench.solvers.registry import SolverInfo

TARGETS = {
    "glop": "nco_bench.solvers.divide.glop_solver:GlopSolver",
    "h-tsp": "nco_bench.solvers.divide.htsp_solver:HtspSolver",
}
PACKAGES = {"glop": (("torch",), ("random_insertion",)), "h-tsp": (("torch",),)}
INSTALL = {"glop": "pip install 'nco-bench[neural,classical]'", "h-tsp": "pip install 'nco-bench[neural]'"}
GRAPHS = {"glop": "knn", "h-tsp": "knn"}
DECODINGS = {"glop": ("greedy",), "h-tsp": ("greedy", "x8")}
"""The default first."""

PARAMS: dict[str, tuple[tuple[str, str], ...]] = {
    "glop": (
        (
            "lengths",
            "segment lengths of the revisers in order, such as 100,50,20 (the README's for the size)",
        ),
        ("iterations", "how often each reviser is applied, such as 20,25,5 (the README's for the size)"),
        ("width", "TSP: initial tours of each instance (by size: 140, 10 or 1; TSPLIB 128)"),
        ("augment", "give revisers each segment flipped in four ways (by size)"),
        ("prune", "TSP: keep one tour of each instance after the first reviser (by size)"),
        ("sample", "let revisers draw nodes instead of taking the likeliest (only for up to 200 nodes)"),
        ("edges", "CVRP: edges of each node of the partition graph (100 up to 1,500 customers, else 200)"),
        ("partitions", "CVRP: partitions, drawn where more than one; the cheapest counts (1)"),
        (
            "cvrplib",
            "CVRP: the features, 300 edges and revisers 50,20 of the authors' evaluation on CVRPLIB, for a partition "
            "network trained on them (false)",
        ),
    ),
    "h-tsp": (
        ("fragment", "cities of a fragment, which the lower model solves (200)"),
        ("new", "new cities of a fragment at most (190)"),
        ("neighbours", "length of the lists of nearest cities (40)"),
        ("improve", "stretches reordered around random points once the tour is complete (0)"),
    ),
}


def divide_solvers() -> Iterator[SolverInfo]:
    """Yield one entry per model."""
    for name, model in DIVIDE_MODELS.items():
        yield SolverInfo(
            name=name,
            target=TARGETS[name],
            problems=model.problems,
            kind="neural",
            paper=model.paper,
            venue=model.venue,
            graph=GRAPHS[name],
            parameters=model.parameters.get("tsp"),
            decodings=DECODINGS[name],
            packages=PACKAGES[name],
            install=INSTALL[name],
            params=PARAMS[name],
        )

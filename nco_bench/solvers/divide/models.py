"""The divide-and-conquer models GLOP and H-TSP: a lazy table, name -> where its code is. Importing it imports no torch.

Their networks work on pieces of an instance, so each has a solver of its own (`nco_bench.solvers.divide.glop_solver`,
`nco_bench.solvers.divide.htsp_solver`). Model files have ``config_for``, ``build`` and ``from_official`` like all
others, and ``config_of(state, problem)``, which reads the sizes off official weights.
"""

from __future__ import annotations

from nco_bench.solvers.models import ModelEntry

DIVIDE_MODELS: dict[str, ModelEntry] = {
    "glop": ModelEntry(
        "nco_bench.solvers.divide.glop",
        ("tsp", "cvrp"),
        "GLOP: Learning Global Partition and Local Construction for Solving Large-scale Routing Problems in Real-time",
        "AAAI 2024",
        {"tsp": 5_207_552, "cvrp": 2_752_289},
        repository="henry-yeh/GLOP",
        note="a reviser per path length, for the CVRP also a partition network; official weights are not in the repository",
    ),
    "h-tsp": ModelEntry(
        "nco_bench.solvers.divide.htsp",
        ("tsp",),
        "H-TSP: Hierarchically Solving the Large-Scale Traveling Salesman Problem",
        "AAAI 2023",
        {"tsp": 3_947_541},
        repository="Learning4Optimization-HUST/H-TSP",
        note="upper and lower model in one file; official weights are not in the repository",
    ),
}

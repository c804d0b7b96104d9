"""The local-view models: a lazy table, name -> where its code is and what is known about it. Importing it imports no torch.

To add one, write one file with ``config_for(name, problem)``, ``build(config, logit_scale)`` and ``from_official(state)``,
whose policy follows `nco_bench.solvers.stepwise.local_policy`; then add an entry to `LOCAL_VIEW_MODELS`.
"""

from __future__ import annotations

from nco_bench.solvers.models import ModelEntry

_INVIT = "INViT: A Generalizable Routing Problem Solver with Invariant Nested View Transformer"
_DGL = "DGL: Dynamic Global-Local Information Aggregation for Scalable VRP Generalization with Self-Improvement Learning"


def _invit(parameters: dict[str, int], note: str) -> ModelEntry:
    return ModelEntry(
        "nco_bench.solvers.stepwise.invit",
        ("tsp", "cvrp"),
        _INVIT,
        "ICML 2024",
        parameters,
        "Kasumigaoka-Utaha/INViT",
        note,
    )


LOCAL_VIEW_MODELS: dict[str, ModelEntry] = {
    "invit-2v": _invit(
        {"tsp": 1_190_272, "cvrp": 1_207_552}, "views of 15 and 35 neighbours; the weights of January 2024"
    ),
    "invit-3v": _invit(
        {"tsp": 1_718_528, "cvrp": 1_736_064},
        "views of 15, 35 and 50 neighbours; the weights of January 2024",
    ),
    "dgl": ModelEntry(
        "nco_bench.solvers.stepwise.dgl",
        ("tsp", "cvrp"),
        _DGL,
        "IJCAI 2025",
        {"tsp": 840_193, "cvrp": 856_961},
        "xybFight/DGL",
        "the official weights hold 33,024 values that are never used; they count here, and are left out of our network",
    ),
}
ALIASES = {"invit": "invit-3v"}
"""Other names of these models."""

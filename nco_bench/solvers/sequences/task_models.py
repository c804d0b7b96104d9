"""The networks for the algorithmic tasks, as data: the paper's five and two variants; nothing heavy is imported."""

from __future__ import annotations

from dataclasses import dataclass

from nco_bench.solvers.models import ModelEntry

PAPER = "Tropical Attention: Neural Algorithmic Reasoning for Combinatorial Algorithms (Hashemi et al.)"


@dataclass(frozen=True)
class TaskNetworkInfo:
    """What is known about a network without building it.

    Attributes
    ----------
    attention
        ``vanilla``, ``adaptive`` or ``tropical``.
    recurrent
        Universal Transformer with adaptive computation time.
    parameters
        By features per token.
    published
        Column in the paper's tables; empty for variants that have none.
    variant
        Of tropical attention, a key of `nco_bench.solvers.sequences.tropical.VARIANTS`.
    """

    attention: str
    recurrent: bool
    parameters: dict[int, int]
    published: str
    variant: str = ""


_SOFTMAX = {1: 50_049, 2: 50_113, 3: 50_177}
_TROPICAL_QKV = {1: 53_185, 2: 53_249, 3: 53_313}
_RECURRENT = {1: 50_114, 2: 50_178, 3: 50_242}

TASK_NETWORKS: dict[str, TaskNetworkInfo] = {
    "tropical": TaskNetworkInfo("tropical", False, {1: 40_833, 2: 40_897, 3: 40_961}, "Tropical"),
    "vanilla": TaskNetworkInfo("vanilla", False, _SOFTMAX, "Vanilla"),
    "adaptive": TaskNetworkInfo("adaptive", False, _SOFTMAX, "Adaptive"),
    "ut-vanilla": TaskNetworkInfo("vanilla", True, _RECURRENT, "UT Vanilla w/ ACT"),
    "ut-adaptive": TaskNetworkInfo("adaptive", True, _RECURRENT, "UT Adaptive w/ ACT"),
    "tropical-qkv": TaskNetworkInfo("tropical", False, _TROPICAL_QKV, "", "qkv"),
    "tropical-algorithm-1": TaskNetworkInfo("tropical", False, _TROPICAL_QKV, "", "algorithm-1"),
}

PUBLISHED_NETWORKS = tuple(name for name, info in TASK_NETWORKS.items() if info.published)
"""Those with a column of their own in the paper's tables."""

_NOTES = {
    "qkv": "the models file of the official repository: linear maps before the max-plus ones; more parameters than the "
    "40,961 that the paper prints",
    "algorithm-1": "the paper's Algorithm 1 as printed: linear maps, log(ReLU) - lambda, max-plus maps, exp; more "
    "parameters than the 40,961 that the paper prints",
}

TASK_MODELS: dict[str, ModelEntry] = {
    name: ModelEntry(
        "nco_bench.solvers.sequences.task_networks",
        ("algorithmic", "algorithmic-regression"),
        PAPER,
        "NeurIPS 2025",
        {f"features={features}": count for features, count in info.parameters.items()},
        repository="" if info.recurrent else "https://github.com/Baran-phys/Tropical-Attention",
        note=_NOTES.get(
            info.variant, "the paper's count is that of three features; weights belong to one task"
        ),
    )
    for name, info in TASK_NETWORKS.items()
}
"""What listings say of them."""

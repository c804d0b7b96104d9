"""The classifiers for Long Range Arena, as data; nothing heavy is imported."""

from __future__ import annotations

from nco_bench.solvers.models import ModelEntry
from nco_bench.solvers.sequences.task_models import PAPER

LRA_NETWORKS = {"lra-tropical": "tropical", "lra-vanilla": "vanilla", "lra-adaptive": "adaptive"}
"""Name of a classifier to its attention."""

SIZES: dict[str, dict[str, int]] = {
    "lra-listops": {"layers": 4, "width": 512, "heads": 8},
    "lra-text": {"layers": 4, "width": 256, "heads": 4},
    "lra-retrieval": {"layers": 4, "width": 128, "heads": 4},
    "lra-image": {"layers": 1, "width": 32, "heads": 1},
    "lra-pathfinder": {"layers": 1, "width": 128, "heads": 4},
}
"""Of the benchmark's Transformers: its paper for ListOps (its code has 6 layers), its configurations for the others."""

_SOFTMAX = {
    "lra-listops": 12_878_346, "lra-text": 3_287_554, "lra-retrieval": 890_114,
    "lra-image": 22_250, "lra-pathfinder": 247_682,
}  # fmt: skip
_TROPICAL = {
    "lra-listops": 9_781_770, "lra-text": 2_550_274, "lra-retrieval": 705_794,
    "lra-image": 22_250, "lra-pathfinder": 201_602,
}  # fmt: skip

LRA_MODELS: dict[str, ModelEntry] = {
    name: ModelEntry(
        "nco_bench.solvers.sequences.lra",
        ("lra",),
        PAPER,
        "NeurIPS 2025",
        _TROPICAL if attention == "tropical" else _SOFTMAX,
        note="the paper prints no sizes; these are of the benchmark's own Transformers",
    )
    for name, attention in LRA_NETWORKS.items()
}
"""What listings say of the classifiers; parameters by task."""

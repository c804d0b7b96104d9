"""The classifiers for Long Range Arena, as data; nothing heavy is imported."""

from __future__ import annotations

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

"""The packing models: a lazy table, name -> where its code is and what is known about it. Importing it imports no torch."""

from __future__ import annotations

from nco_bench.solvers.models import ModelEntry

PACKING_MODELS: dict[str, ModelEntry] = {
    "attend2pack": ModelEntry(
        "nco_bench.solvers.packing.attend2pack",
        ("bpp3d",),
        "Attend2Pack: Bin Packing through Deep Reinforcement Learning with Attention",
        "RL4RealLife, ICML 2021",
        {"bpp3d": 937_956},
        note="no official code; as EIE uses it, count for the base 120 x 100",
        glimpse=True,
    ),
}

"""The edge-map models: a lazy table, name -> where its code is and what is known about it. Importing it imports no torch.

They score all edges at once; `nco_bench.solvers.edges.merge` makes a tour of the scores.
"""

from __future__ import annotations

from nco_bench.solvers.models import ModelEntry

CHECKPOINTS = "https://drive.google.com/drive/folders/1IjaWtkqTAs7lwtFZ24lTRspE0h1N6sBH"
"""Where DIFUSCO's authors keep their checkpoints (linked from their repository)."""

EDGE_MAP_MODELS: dict[str, ModelEntry] = {
    "difusco": ModelEntry(
        "nco_bench.solvers.edges.difusco",
        ("tsp",),
        "DIFUSCO: Graph-based Diffusion Solvers for Combinatorial Optimization",
        "NeurIPS 2023",
        {"tsp": 5_333_762},
        "Edward-Sun/DIFUSCO",
        "no weights ship and none can be trained here; download one of the authors' checkpoints from "
        f"{CHECKPOINTS} and import it: nco-bench weights import difusco FILE [--name difusco-tsp500]",
    ),
}

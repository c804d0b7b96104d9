"""The encode-once models: a lazy table, name -> where its code is and what is known about it. Importing it imports no torch.

To add one, write one file with ``config_for(name, problem)``, ``build(config, logit_scale)`` and ``from_official(state)``,
whose policy follows `nco_bench.solvers.stepwise.policy`; then add an entry to `ENCODE_ONCE_MODELS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nco_bench.errors import UnknownNameError
from nco_bench.solvers.models import ModelEntry, build_path_policy

if TYPE_CHECKING:
    from torch import nn

    from nco_bench.nn.logit_scale import LogitScale

ENCODE_ONCE_MODELS: dict[str, ModelEntry] = {
    "am": ModelEntry(
        "nco_bench.solvers.stepwise.am",
        ("tsp", "cvrp"),
        "Attention, Learn to Solve Routing Problems!",
        "ICLR 2019",
        {"tsp": 708_608, "cvrp": 692_608},
        "wouterkool/attention-learn-to-route",
        glimpse=True,
    ),
    "pomo": ModelEntry(
        "nco_bench.solvers.stepwise.pomo",
        ("tsp", "cvrp"),
        "POMO: Policy Optimization with Multiple Optima for Reinforcement Learning",
        "NeurIPS 2020",
        {"tsp": 1_269_760, "cvrp": 1_254_016},
        "yd-kwon/POMO",
        "the code of 2021 (NEW_py_ver), which normalises per instance; the paper's normalised per batch",
        glimpse=True,
    ),
    "elg": ModelEntry(
        "nco_bench.solvers.stepwise.elg",
        ("tsp", "cvrp"),
        "Towards Generalizable Neural Solvers for Vehicle Routing Problems via Ensemble with Transferrable Local Policy",
        "IJCAI 2024",
        {"tsp": 1_274_016, "cvrp": 1_258_304},
        "gaocrr/ELG",
        glimpse=True,
    ),
}


def build_encode_once_policy(
    name: str, problem: str = "tsp", *, logit_scale: str | LogitScale | None = None, **overrides: Any
) -> nn.Module:
    """Build an encode-once policy with fresh weights, in evaluation mode; see `registry.build_path_policy`.

    Raises
    ------
    UnknownNameError
        For an unknown model, problem, scale or option.
    """
    if name not in ENCODE_ONCE_MODELS:
        raise UnknownNameError("encode-once model", name, ENCODE_ONCE_MODELS, "See `nco-bench list models`.")
    return build_path_policy(name, problem, logit_scale=logit_scale, **overrides)

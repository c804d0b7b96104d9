"""The encode-once models: a lazy table, name -> where its code is and what is known about it. Importing it imports no torch.

To add one, write one file with ``config_for(name, problem)``, ``build(config, logit_scale)`` and ``from_official(state)``,
whose policy follows `nco_bench.models.encode_once`; then add an entry to `ENCODE_ONCE_MODELS`.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import TYPE_CHECKING, Any

from nco_bench.errors import BadInputError, BadWeightsError, UnknownNameError
from nco_bench.models.registry import ModelEntry

if TYPE_CHECKING:
    from torch import Tensor, nn

    from nco_bench.models.logit_scale import LogitScale

ENCODE_ONCE_MODELS: dict[str, ModelEntry] = {
    "am": ModelEntry(
        "nco_bench.models.am",
        ("tsp", "cvrp"),
        "Attention, Learn to Solve Routing Problems!",
        "ICLR 2019",
        {"tsp": 708_608, "cvrp": 692_608},
        "wouterkool/attention-learn-to-route",
    ),
    "pomo": ModelEntry(
        "nco_bench.models.pomo",
        ("tsp", "cvrp"),
        "POMO: Policy Optimization with Multiple Optima for Reinforcement Learning",
        "NeurIPS 2020",
        {"tsp": 1_269_760, "cvrp": 1_254_016},
        "yd-kwon/POMO",
        "the code of 2021 (NEW_py_ver), which normalises per instance; the paper's normalised per batch",
    ),
    "elg": ModelEntry(
        "nco_bench.models.elg",
        ("tsp", "cvrp"),
        "Towards Generalizable Neural Solvers for Vehicle Routing Problems via Ensemble with Transferrable Local Policy",
        "IJCAI 2024",
        {"tsp": 1_274_016, "cvrp": 1_258_304},
        "gaocrr/ELG",
    ),
}


def entry(name: str) -> ModelEntry:
    """Return what is known about an encode-once model; raises `UnknownNameError`."""
    try:
        return ENCODE_ONCE_MODELS[name]
    except KeyError:
        raise UnknownNameError("model", name, ENCODE_ONCE_MODELS, "See `nco-bench list models`.") from None


def build_encode_once_policy(
    name: str, problem: str = "tsp", *, logit_scale: str | LogitScale | None = None, **overrides: Any
) -> nn.Module:
    """Build an encode-once policy with fresh weights, in evaluation mode.

    Parameters
    ----------
    name
        A key of `ENCODE_ONCE_MODELS`.
    problem
        ``tsp`` or ``cvrp``.
    logit_scale
        Name of a scale (see `nco_bench.models.logit_scale`) or the scale itself; None is the model's own.
    overrides
        Fields of the model's configuration.

    Raises
    ------
    UnknownNameError
        For an unknown model, problem, scale or option.
    BadInputError
        For an option of the wrong type.
    """
    known = entry(name)
    if problem not in known.problems:
        raise UnknownNameError(f"problem of {name}", problem, known.problems)
    module = importlib.import_module(known.module)
    config = module.config_for(name, problem)
    fields = {f.name: f for f in dataclasses.fields(config)}
    for key, value in overrides.items():
        if key not in fields:
            raise UnknownNameError(f"option of {name}", key, fields)
        expected = type(getattr(config, key))
        if not isinstance(value, expected) and not (expected is float and isinstance(value, int)):
            raise BadInputError(f"{name}: option {key} is {value!r}, expected {expected.__name__}.")
    if isinstance(logit_scale, str):
        from nco_bench.models.logit_scale import logit_scale as scale_called

        logit_scale = scale_called(logit_scale)
    return module.build(dataclasses.replace(config, **overrides), logit_scale).eval()


def load_official(policy: nn.Module, name: str, state: dict[str, Tensor], source: str = "state dict") -> None:
    """Load an official state dict into a policy of ours, through the model's `from_official`.

    Raises
    ------
    BadWeightsError
        If a key is missing, left over or of another shape.
    """
    try:
        policy.load_state_dict(importlib.import_module(entry(name).module).from_official(state))
    except KeyError as error:
        raise BadWeightsError(
            f"{source}: not official weights of {name}, {error.args[0]} is missing."
        ) from None
    except RuntimeError as error:
        cause = " ".join(str(error).split()[:40])
        raise BadWeightsError(f"{source}: does not fit {name} of this configuration: {cause}") from None

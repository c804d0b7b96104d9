"""From a model's name to its network: configuration, fresh weights, official weights. Its card names the module.

A module of a network has ``config_for(name, problem)``, ``build(config, logit_scale)`` and, where official checkpoints
exist, ``from_official(state)``.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import TYPE_CHECKING, Any

from nco_bench.cards import network_card
from nco_bench.errors import (
    MOST_SHOWN,
    BadInputError,
    BadWeightsError,
    NcoBenchError,
    UnknownNameError,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor, nn

    from nco_bench.nn.logit_scale import LogitScale


def model_config(name: str, problem: str | None = None, /, **overrides: Any) -> Any:
    """Return the frozen configuration of a model, with some fields replaced.

    The problem is ``tsp`` where neither the argument nor the overrides, which may be a stored configuration, say it.

    Raises
    ------
    UnknownNameError
        For a model, a problem that the model cannot solve, or a field that its configuration lacks.
    """
    known = network_card(name)
    problem = problem or overrides.get("problem", "tsp")
    if problem not in known.problems:
        raise UnknownNameError(f"problem of {name}", problem, known.problems)
    config = importlib.import_module(known.network).config_for(name, problem)
    fields = {f.name: f for f in dataclasses.fields(config)}
    for key, value in overrides.items():
        if key not in fields:
            raise UnknownNameError(f"option of {name}", key, fields)
        expected = type(getattr(config, key))
        if not isinstance(value, expected) and not (expected is float and isinstance(value, int)):
            raise BadInputError(f"{name}: option {key} is {value!r}, expected {expected.__name__}.")
    return dataclasses.replace(config, **overrides)


def build_path_policy(
    name: str, problem: str | None = None, /, *, logit_scale: str | LogitScale | None = None, **overrides: Any
) -> nn.Module:
    """Build a network with fresh weights, in evaluation mode.

    Parameters
    ----------
    name
        Name of a model, see `nco-bench list models`.
    problem
        ``tsp`` or ``cvrp``; that of the overrides, else ``tsp``, where it is None.
    logit_scale
        Name of a scale, as `nco_bench.nn.logit_scale.logit_scale` takes it, or the scale itself; None is the
        model's own.
    overrides
        Fields of the model's configuration.

    Raises
    ------
    UnknownNameError
        For an unknown model, problem, scale or option.
    """
    config = model_config(name, problem, **overrides)
    if isinstance(logit_scale, str):
        from nco_bench.nn.logit_scale import logit_scale as scale_called
        from nco_bench.nn.logit_scale import resolved

        logit_scale = scale_called(resolved(logit_scale, glimpse=network_card(name).glimpse, model=name))
    from nco_bench.nn.products import adopt

    return adopt(importlib.import_module(network_card(name).network).build(config, logit_scale)).eval()


def refused_sizes(
    name: str, problem: str, logit_scale: str, sizes: Iterable[int], /, **overrides: Any
) -> dict[int, NcoBenchError]:
    """Return the sizes that a logit scale does not take in a model of a configuration, each with what it says of it.

    Parameters
    ----------
    name, problem, logit_scale, overrides
        As `build_path_policy` takes them.
    sizes
        n of instances.
    """
    from nco_bench.nn.logit_scale import PLACES, ScaleContext, resolved
    from nco_bench.nn.logit_scale import logit_scale as scale_called

    config = model_config(name, problem, **overrides)
    if not hasattr(config, "training_size"):  # no scale acts on it
        return {}
    scale = scale_called(resolved(logit_scale, glimpse=network_card(name).glimpse, model=name))
    head_dim = getattr(config, "head_dim", None) or config.width // config.heads
    found: dict[int, NcoBenchError] = {}
    for n in sorted(set(sizes)):
        try:
            for place in PLACES[:2]:
                scale(ScaleContext(n, n, head_dim, config.training_size, place=place))
        except NcoBenchError as error:
            found[n] = error
    return found


def count_parameters(policy: nn.Module) -> int:
    """Return the number of trainable values of a model."""
    return sum(parameter.numel() for parameter in policy.parameters())


def count_parameters_of(name: str, problem: str) -> int:
    """Count the trainable values of a model without making them."""
    import torch

    with torch.device("meta"):
        return count_parameters(build_path_policy(name, problem))


def load_official(policy: nn.Module, name: str, state: dict[str, Tensor], source: str = "state dict") -> None:
    """Load an official state dict into a policy of ours, through the model's `from_official`.

    Raises
    ------
    BadWeightsError
        If the model has no official weights, or a key is missing, left over or of another shape.
    """
    module = importlib.import_module(network_card(name).network)
    if not hasattr(module, "from_official"):
        raise BadWeightsError(
            f"{source}: there are no official weights of {name}, its paper has no public code; a file of ours needs "
            f"no import but its manifest beside it, and 'run {name} --weights FILE' takes it."
        )
    try:
        policy.load_state_dict(module.from_official(state))
    except KeyError as error:
        raise BadWeightsError(
            f"{source}: not official weights of {name}, {error.args[0]} is missing."
        ) from None
    except RuntimeError as error:
        cause = shown(str(error), MOST_SHOWN)
        raise BadWeightsError(f"{source}: does not fit {name} of this configuration: {cause} ...") from None

"""Starting from weights instead of from random numbers: the model's own, another's with the same layers (PENS-A for
PENS-R), a shallower decoder's, grown in depth, for LEHD a decoder's of the same sizes (`ungated`), or for the CVRP those
that the model learned on the TSP.

Growing follows ReZero (Bachlechner et al. 2021), which the decoder-only policies use: a layer whose two residual weights
are 0 is the identity, so a network with such layers added computes what it did before, and training goes on from there.
The added layers are copies of those below them (stacking, Gong et al. 2019), spread evenly over the depth.

Path models for the CVRP are their TSP models with more input columns (demand, load left) and a second score (via the
depot). Both scores begin as the TSP's. The columns stay as drawn: zeros would remain zeros where the customers' embedding
is detached in training (LEHD, SIT).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from nco_bench.errors import BadWeightsError
from nco_bench.nn.build import build_path_policy
from nco_bench.solvers.path.decoder_only import DecoderOnly
from nco_bench.solvers.path.lehd import Lehd
from nco_bench.training.options import MODEL_PREFIX
from nco_bench.training.ungated import fits, ungated
from nco_bench.weights.store import WeightsFile, find_any, load_state

LAYER = re.compile(r"^layers\.(\d+)\.(.+)$")
RESIDUAL_WEIGHTS = ("alpha_attention", "alpha_ffn")
SCORE = ("score.weight", "score.bias")


def start_from(policy: nn.Module, name_or_path: str, model: str, problem: str) -> WeightsFile:
    """Load weights into a policy that is about to be trained.

    Parameters
    ----------
    policy
        The policy; changed.
    name_or_path
        Shipped or cached weights, or a file: of `model` or one with the same tensors, of a decoder of the same width and
        fewer layers, for LEHD of a decoder of the same sizes, or, to train for the CVRP, of `model` for the TSP.
    model, problem
        What is going to be trained.

    Raises
    ------
    BadWeightsError
        When the weights are missing, damaged or do not fit.
    """
    file = find_any(name_or_path, model)
    learned = file.manifest.problem
    state, wanted = load_state(file), policy.state_dict()
    if (learned, problem) == ("tsp", "cvrp"):
        state = with_loads(state, wanted)
    elif learned != problem:
        raise BadWeightsError(f"{file.path}: weights for {learned}; {model} is to be trained for {problem}.")
    depth = getattr(getattr(policy, "config", None), "depth", 0)
    if depth and "depth" in file.manifest.config and file.manifest.config["depth"] < depth:
        state = grown(state, depth)
    if isinstance(policy, Lehd) and "rezero" in file.manifest.config:
        state = _ungated(state, file, policy)
    different = sorted(
        k for k in {*state, *wanted} if k not in state or k not in wanted or state[k].shape != wanted[k].shape
    )
    if different:
        raise BadWeightsError(
            f"{file.path}: weights of {file.manifest.model} do not fit {model} ({different[0]} differs); "
            + _remedy(policy, file, model)
        )
    policy.load_state_dict(state)
    return file


def _ungated(state: dict[str, Tensor], file: WeightsFile, policy: Lehd) -> dict[str, Tensor]:
    """Make a LEHD's weights of a decoder's where their sizes agree."""
    decoder = cast("DecoderOnly", build_path_policy(file.manifest.model, **file.manifest.config))
    if not fits(decoder.config, policy):
        return state
    decoder.load_state_dict(state)
    return ungated(decoder, policy)


def _remedy(policy: nn.Module, file: WeightsFile, model: str) -> str:
    """Say how the network could be made that the weights fit, or what to start from instead."""
    own, learned = getattr(policy, "config", None), file.manifest.config
    differing = [key for key, value in learned.items() if getattr(own, key, value) != value]
    if file.manifest.model != model or not differing:
        decoder = "the same sizes" if isinstance(policy, Lehd) else "the same width and fewer layers"
        return f"start from {model}'s own, or from a decoder of {decoder}."
    options = " ".join(f"--config {MODEL_PREFIX}{key}={learned[key]}" for key in differing)
    return f"theirs is trained on with {options}."


def with_loads(state: dict[str, Tensor], drawn: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Give the weights of a TSP policy the shapes of the same policy for the CVRP: further columns, its score twice."""
    out = dict(state)
    for key, value in state.items():
        own = drawn.get(key, value)
        if value.dim() == own.dim() == 2 and len(own) == len(value) and own.shape[1] > value.shape[1]:
            out[key] = torch.cat([value, own[:, value.shape[1] :]], dim=1)
        elif key in SCORE and len(value) == 1 and value.shape[1:] == own.shape[1:]:
            out[key] = value.expand(own.shape).clone()
    return out


def grown(state: dict[str, Tensor], depth: int) -> dict[str, Tensor]:
    """Spread the layers of a decoder over `depth` layers and fill up with copies that start as the identity."""
    layers: dict[int, dict[str, Tensor]] = {}
    out: dict[str, Any] = {}
    for key, value in state.items():
        found = LAYER.match(key)
        if found is None:
            out[key] = value
        else:
            layers.setdefault(int(found[1]), {})[found[2]] = value
    if any(name not in layer for layer in layers.values() for name in RESIDUAL_WEIGHTS):
        return state  # without ReZero there is no layer that does nothing
    sources = [position * len(layers) // depth for position in range(depth)]
    for position, source in enumerate(sources):
        added = position > 0 and sources[position - 1] == source
        for key, value in layers[source].items():
            out[f"layers.{position}.{key}"] = (
                value.new_zeros(()) if added and key in RESIDUAL_WEIGHTS else value.clone()
            )
    return out

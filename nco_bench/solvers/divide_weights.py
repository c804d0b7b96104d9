"""Where GLOP and H-TSP find their weights: none ship, and the authors keep theirs outside of their repositories."""

from __future__ import annotations

from nco_bench.errors import BadWeightsError
from nco_bench.models.registry import entry
from nco_bench.weights.pulling import find
from nco_bench.weights.store import SUFFIX, WeightsFile, cache_folder

WHAT = {"glop": "FOLDER", "h-tsp": "FILE"}


def find_weights(model: str, asked: str | None, problem: str) -> WeightsFile:
    """Return the weights asked for, or those imported under the model's name.

    Raises
    ------
    BadWeightsError
        When there are none; the message says how to get some.
    """
    own = model if problem == "tsp" else f"{model}-{problem}"
    if asked is None and not (cache_folder() / f"{own}{SUFFIX}").is_file():
        option = "" if problem == "tsp" else f" --problem {problem}"
        raise BadWeightsError(
            f"{model}: no weights here and none ship; download the authors' (linked from the README of "
            f"github.com/{entry(model).repository}) and run 'nco-bench weights import {model} {WHAT[model]}{option}'; "
            "'--weights random' runs an untrained network."
        )
    return find(asked or own, model, problem)

"""What GLOP and H-TSP share: none of their weights ship, and the authors keep theirs outside of their repositories."""

from __future__ import annotations

from nco_bench.errors import BadWeightsError
from nco_bench.weights.choice import at_hand, how_to_get
from nco_bench.weights.pulling import find
from nco_bench.weights.store import WeightsFile

REFUSED = dict.fromkeys(
    ("--coordinate-scale", "--logit-scale"), "{} has no effect on its networks; leave it out."
)
"""Options that mean nothing to either, see `nco_bench.solvers.network.Family`."""


def find_weights(model: str, asked: str | None, problem: str) -> WeightsFile:
    """Return the weights asked for, or those imported under the model's name.

    Raises
    ------
    BadWeightsError
        When there are none; the message says how to get some.
    """
    own = model if problem == "tsp" else f"{model}-{problem}"
    if asked is None and not at_hand(own):
        advice = how_to_get(model, problem)
        raise BadWeightsError(
            f"{model}: no weights here and none ship; {advice.before} and run '{advice.command}'; "
            "'--weights random' runs an untrained network."
        )
    return find(asked or own, model, problem)

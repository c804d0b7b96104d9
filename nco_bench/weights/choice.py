"""Which weights a model runs with when none are named, and the one command that gets what is missing.

Listings, error messages and solvers ask here, so that what is advised is what works.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path

from nco_bench.cards import Card, OfficialFile, network_card, official_weights, weights_owner
from nco_bench.errors import BadWeightsError
from nco_bench.weights.manifest import manifest_path
from nco_bench.weights.store import (
    INSTALL,
    SUFFIX,
    WeightsFile,
    cache_folder,
    files_called,
    is_separate,
    resolve,
)

LABELS = "labels.npz"
LABELLED = {
    "tsp": f"nco-bench generate tsp --n 20 --count 20000 --reference lkh3 --out {LABELS}",
    "cvrp": f"nco-bench generate cvrp --n 20 --count 20000 --reference hgs --out {LABELS}",
}
"""What makes labels to imitate."""

TASK_EXAMPLES = {"algorithmic": "knapsack", "algorithmic-regression": "fractional-knapsack"}
"""A task of each kind: weights belong to one task."""

LRA_STEPS = 20_000
LRA_EXAMPLE = "lra-listops32"
"""ListOps short enough to learn in minutes, made here; the benchmark's own data must be pulled."""


@dataclass(frozen=True)
class Advice:
    """How to get a model's weights.

    Attributes
    ----------
    state
        ``pull`` (official weights are fetched), ``import`` (the authors keep theirs elsewhere: download, then import) or
        ``train``.
    command
        One line for a shell.
    before
        What has to be done by hand first; empty where nothing.
    """

    state: str
    command: str
    before: str = ""


def at_hand(name: str) -> bool:
    """Whether weights of this name are in the user's cache or shipped."""
    return bool(files_called(name))


def default_weights(model: str, problem: str, size: int) -> str:
    """Name the weights that a routing model runs with when none are named.

    Those that are shipped or in the cache under the model's name; else the official ones whose training size is nearest
    (the smaller of two); else the model's name. Models that are another's but for a logit scale take those after their own.
    """
    trained_as = (model, weights_owner(model))
    own, *others = (name if problem == "tsp" else f"{name}-{problem}" for name in trained_as)
    for name in (own, *others):
        if at_hand(name):
            return name
    found = [
        (re.search(r"(\d+)$", w.name), w.name)
        for w in official_weights().values()
        if (w.model, w.problem) == (trained_as[-1], problem)
    ]
    sizes = [(abs(int(m[1]) - size), int(m[1]), name) for m, name in found if m]
    return min(sizes)[2] if sizes else own


def how_to_get(model: str, problem: str) -> Advice:
    """Say how to get the weights that a model runs with by default.

    Parameters
    ----------
    model
        Name of a model or of its solver.
    problem
        What the weights are for; for networks of one task the task's name.
    """
    known = network_card(model)
    if any(is_separate(name) for name in _usual_names(known.name, problem)):
        return Advice("install", INSTALL)
    owner = weights_owner(known.name)
    if any((w.model, w.problem) == (owner, problem) for w in official_weights().values()):
        return Advice("pull", f"nco-bench weights pull {known.weights_of or model}")
    if known.weights_from:
        return _import(known, problem)
    return Advice("train", _training(known, problem))


def _usual_names(model: str, problem: str) -> tuple[str, ...]:
    """Names under which our own weights of a model would be: of a routing network, of a network of one task."""
    owner = weights_owner(model)
    own = (model, owner) if problem == "tsp" else (f"{model}-{problem}", f"{owner}-{problem}")
    return (*own, f"{model}-{problem}-seed0", f"{model}-120x100")


def _import(known: Card, problem: str) -> Advice:
    option = "" if problem == "tsp" else f" --problem {problem}"
    command = f"nco-bench weights import {known.name} {known.weights_are}{option}"
    return Advice("import", command, f"download the authors' from {known.weights_from}")


def _training(known: Card, problem: str) -> str:
    """The command that trains a model into the cache, where its solver finds the weights."""
    model, learner = known.name, next(iter(known.learners), "")
    if learner == "lra":
        task, data = ("lra-listops", LRA_EXAMPLE) if problem in ("lra", "lra-listops") else (problem, problem)
        return f"nco-bench train {model} --data {data} --budget 15m --out {_kept(f'{model}-{task}')}"
    if learner == "tasks":
        task = TASK_EXAMPLES.get(problem, problem)
        return f"nco-bench train {model} --data {task} --budget 15m --out {_kept(f'{model}-{task}-seed0')}"
    if learner == "packing":
        return f"nco-bench train {model} --budget 1h --out {_kept(model)}"
    own = model if problem == "tsp" else f"{model}-{problem}"
    return f"{LABELLED[problem]} && nco-bench train {model} --data {LABELS} --budget 1h --out {_kept(own)}"


def lra_training(model: str, task: str) -> str:
    """The command that trains a Long Range Arena network as long as its benchmark does, see `campaigns/tropical.toml`."""
    steps = f"--config steps={LRA_STEPS}"
    return f"nco-bench train {model} --data {task} {steps} --out {_kept(f'{model}-{task}')}"


def campaign_training(paper: str, name: str) -> str:
    """The command that trains a network of a paper's campaign, from a checkout, to where runs find it by its name."""
    return f"nco-bench train --campaign campaigns/{paper}.toml --stage {name} --out {_shown(cache_folder())}"


def packing_training(model: str, base: str) -> str:
    """The command that trains a packing network for the bin ``LENGTHxWIDTH`` into the cache, where its solver finds it."""
    return f"nco-bench train {model} --config bin={base} --budget 1h --out {_kept(f'{model}-{base}')}"


def _kept(name: str) -> str:
    return _shown(cache_folder() / f"{name}{SUFFIX}")


def _shown(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def find(name: str, model: str, problem: str) -> WeightsFile:
    """Find weights by name or path; official ones that a mirror holds are imported on the way.

    ``official-tsp100`` means ``MODEL-official-tsp100``.

    Raises
    ------
    BadWeightsError
        When they are missing, damaged, changed, or for another model.
    """
    table = official_weights()
    full = next((n for n in (name, f"{model}-{name}", f"{weights_owner(model)}-{name}") if n in table), None)
    if full is None:
        by_default = name in (model, f"{model}-{problem}")
        return resolve(name, model, problem, remedy=_remedy(model, problem) if by_default else "")
    place = cache_folder() / f"{full}{SUFFIX}"
    # The manifest is written last: another process may be at it, or was killed before.
    if not (place.is_file() and manifest_path(place).is_file()):
        from nco_bench.weights.pulling import in_mirror, pull

        if in_mirror(table[full]) is None:
            raise BadWeightsError(
                f"The official weights {full} are not here; get them with 'nco-bench weights pull {full}'."
            )
        pull(full, lambda _: None)
    return resolve(full, model, problem)


def find_or_default(name: str | None, model: str, problem: str, size: int) -> WeightsFile:
    """Find the weights that were named, else those that a routing model runs with for instances of a size.

    Raises
    ------
    BadWeightsError
        When there are none; the message says how to get some.
    """
    chosen = name or default_weights(model, problem, size)
    if not name and not at_hand(chosen):
        advice = how_to_get(model, problem)
        if advice.state == "import":
            raise BadWeightsError(
                f"{model}: no weights here and none ship; {advice.before} and run '{advice.command}'; "
                "'--weights random' runs an untrained network."
            )
    return find(chosen, model, problem)


def before_pull(entry: OfficialFile) -> dict[str, str]:
    """Return what is known of official weights before they are pulled, and the command that does."""
    told = {"url": entry.url, "state": "not pulled yet", "command": f"nco-bench weights pull {entry.name}"}
    return {key: value for key, value in asdict(entry).items() if key != "size_bytes"} | told


def _remedy(model: str, problem: str) -> str:
    """Say which command gets weights of a model, for the end of a message."""
    advice = how_to_get(model, problem)
    verb = {"pull": "get official ones with", "train": "make them with"}.get(
        advice.state, f"{advice.before} and run"
    )
    return f"{verb} '{advice.command}'"

"""Whether a solver can run as it is, and the one command that makes it: listings and their tests ask here."""

from __future__ import annotations

from dataclasses import dataclass

from nco_bench.cards import Card
from nco_bench.solvers.availability import availability
from nco_bench.weights.choice import at_hand, default_weights, how_to_get
from nco_bench.weights.shelf import list_weights
from nco_bench.weights.store import SUFFIX, weights_folders

READY = "ready"
STATES = {
    READY: "runs as it is",
    "install": "a package, perhaps that of our weights, or a program is missing",
    "pull": "official weights are fetched by the command",
    "import": "the authors keep their weights elsewhere: download them, then import them",
    "train": "nobody publishes weights: the command trains some",
}
USUAL_SIZE = 100


@dataclass(frozen=True)
class Readiness:
    """What stands between a solver and its first solution.

    Attributes
    ----------
    states
        One of `STATES` by problem; ``any`` for solvers that do not say what they solve.
    commands
        By problem, what makes it ready; empty where it is.
    before
        What has to be done by hand before the command; empty where nothing.
    """

    states: dict[str, str]
    commands: dict[str, str]
    before: str = ""

    @property
    def available(self) -> bool:
        """Whether it can solve one of its problems as it is."""
        return READY in self.states.values()

    @property
    def state(self) -> str:
        """In a word, or by problem where they differ: ``ready (cvrp: pull)``."""
        words = list(dict.fromkeys(self.states.values()))
        if len(words) == 1:
            return words[0]
        main = next(iter(self.states.values()))
        return f"{main} ({', '.join(f'{p}: {s}' for p, s in self.states.items() if s != main)})"

    @property
    def command(self) -> str:
        """The command for the first problem that is not ready; empty where all are."""
        return next(iter(self.commands.values()), "")

    @property
    def missing(self) -> str:
        """What is missing, in one line; empty where all is ready."""
        return "; ".join(
            f"{problem}: {self.states[problem]}: {command}" for problem, command in self.commands.items()
        )


def readiness(info: Card) -> Readiness:
    """Look for programs, packages and weights; nothing is imported, loaded or fetched."""
    found = availability(info)
    states, commands, before = {}, {}, ""
    for problem in info.problems or ("any",):
        if problem not in found.backends:
            states[problem], commands[problem] = "install", info.install.partition("   #")[0] or found.missing
            continue
        if info.kind != "neural" or _has_weights(info, problem):
            states[problem] = READY
            continue
        advice = how_to_get(info.name, problem)
        states[problem], commands[problem], before = advice.state, advice.command, advice.before
    return Readiness(states, commands, before)


def _has_weights(known: Card, problem: str) -> bool:
    """Whether the weights that the solver takes by default are here."""
    if known.weights == "task":
        return any(path for folder in weights_folders() for path in folder.glob(f"{known.name}-*{SUFFIX}"))
    if known.weights == "any":
        return any(w.manifest.model == known.model for w in list_weights())
    return at_hand(default_weights(known.model, problem, USUAL_SIZE))

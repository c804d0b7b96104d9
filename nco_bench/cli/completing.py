"""What the Tab key offers: names of solvers, datasets, tables, weights and the like, looked up without heavy imports.

``nco-bench --install-completion`` installs it for bash, zsh or fish.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from typing import Any

from nco_bench.cli import COMPLETING


def solvers() -> Iterable[str]:
    """Names of all solvers, those of installed packages included."""
    from nco_bench.solvers.registry import all_solvers

    return all_solvers()


def weights() -> Iterable[str]:
    """Names of shipped, cached and official weights."""
    from nco_bench.cards import official_weights
    from nco_bench.weights.shelf import list_weights

    return [*(w.path.stem for w in list_weights()), *official_weights()]


def pullable() -> Iterable[str]:
    """Official weights, and the models that have such."""
    from nco_bench.cards import official_weights

    return [*dict.fromkeys(w.model for w in official_weights().values()), *official_weights()]


def tables() -> Iterable[str]:
    """Tables of `report`."""
    from nco_bench.reports.tables.table import PRESETS

    return PRESETS


def paper_tables() -> Iterable[str]:
    """Numbers of the tables that can be reproduced, of the paper that stands in the line.

    Taken from the line itself: while an option has no value yet, click has not parsed what stands before it.
    """
    from nco_bench.papers.preset import has_preset
    from nco_bench.papers.published import list_tables

    line = re.split(r"\s+", os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or "")
    return [str(t.number) for t in list_tables() if t.paper in line and has_preset(t.paper, t.number)]


def kinds() -> Iterable[str]:
    """What `list` lists."""
    from nco_bench.cli.inventory import KINDS

    return KINDS


def listed(kind: str) -> Callable[[], Iterable[str]]:
    """Names of a kind that `list` knows."""

    def names() -> Iterable[str]:
        from nco_bench.cli.inventory import list_objects
        from nco_bench.datasets.places import Places

        return [one["name"] for one in list_objects(kind, Places.from_environment())]

    return names


def everything() -> Iterable[str]:
    """All that `show` knows by name."""
    return [
        *solvers(),
        *weights(),
        *(n for kind in ("tables", "datasets", "distributions") for n in listed(kind)()),
    ]


def runs() -> Iterable[str]:
    """Ids of the runs in the folder that the environment names, or the usual one."""
    from nco_bench.study import results_folder

    return sorted(path.parent.name for path in results_folder(None).glob("*/run.json"))


def problems() -> Iterable[str]:
    """What `generate` generates."""
    from nco_bench.datasets.generators import GENERATORS
    from nco_bench.problems.tasks.table import TASKS

    return [*GENERATORS, *TASKS]


datasets, models = listed("datasets"), listed("models")
COMPLETERS: dict[str, Callable[[], Iterable[str]]] = {
    "solvers": solvers, "solver": solvers, "solver_a": solvers, "solver_b": solvers, "reference": solvers, "check": solvers,
    "data": datasets, "dataset": datasets, "weights": weights, "start": weights, "model": models,
    "decoding": listed("decodings"), "distribution": listed("distributions"), "paper": listed("papers"), "what": kinds,
    "show name": everything, "weights pull name": pullable, "weights show name": weights, "weights export name": weights,
    "report table": tables, "reproduce table": paper_tables, "generate problem": problems,
    "runs": runs,
}  # fmt: skip
"""By an option's or argument's name, or by command and name where the name alone would not do."""


def completer(command: str, parameter: str) -> Callable[[Any, Any, str], list[str]] | None:
    """Return what completes a parameter of a command, as click calls it; None where nothing is known."""
    names = COMPLETERS.get(f"{command} {parameter}".strip()) or COMPLETERS.get(parameter)
    return None if names is None else (lambda _context, _parameter, typed: _fitting(names(), typed))


def _fitting(names: Iterable[str], typed: str) -> list[str]:
    """Names that begin with what was typed, without the part that bash takes for an earlier word."""
    kept = (
        len(typed) - len(re.split("[:=]", typed)[-1]) if os.environ.get(COMPLETING) == "complete_bash" else 0
    )
    return [name[kept:] for name in dict.fromkeys(names) if name.startswith(typed) and " " not in name]


def rejoin_words() -> None:
    """Undo bash's cutting of words at ``:`` and ``=``, so that ``cvrplib:X`` is completed as one name."""
    if os.environ.get(COMPLETING) != "complete_bash":
        return
    words = (
        os.environ["COMP_WORDS"].split("\n")
        if "\n" in os.environ["COMP_WORDS"]
        else os.environ["COMP_WORDS"].split()
    )
    last = int(os.environ["COMP_CWORD"])
    joined: list[str] = []
    for index, word in enumerate([*words, ""][: last + 1]):
        glued = index > 0 and joined and (word in (":", "=", "::") or joined[-1][-1:] in (":", "="))
        if glued and not joined[-1].startswith("-"):
            joined[-1] += word
        else:
            joined.append(word)
    os.environ["COMP_WORDS"], os.environ["COMP_CWORD"] = "\n".join(joined), str(len(joined) - 1)

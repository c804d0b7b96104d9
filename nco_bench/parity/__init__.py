"""Parity with official code: `check_fixture` imports official weights and compares our outputs with the official ones.

To add a family, write ``check(fixture) -> ParityResult`` in a file here and name it in `CHECKERS`.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from nco_bench.errors import UnknownNameError

if TYPE_CHECKING:
    from nco_bench.parity.fixture import ParityResult

# What the fixture's JSON calls the model (lower case, without its problem) -> "module:function".
CHECKERS: dict[str, str] = {
    "am": "nco_bench.parity.am:check",
    "pomo": "nco_bench.parity.pomo:check",
    "elg": "nco_bench.parity.elg:check",
    "invit": "nco_bench.parity.invit:check",
    "dgl": "nco_bench.parity.dgl:check",
    "glop": "nco_bench.parity.glop:check",
    "difusco": "nco_bench.parity.difusco:check",
    "difusco-tsp-mcts": "nco_bench.parity.difusco_mcts:check",
    "htsp": "nco_bench.parity.htsp:check",
    "lehd": "nco_bench.parity.lehd:check",
    "bq-nco": "nco_bench.parity.bq:check",
    "esf-tsp": "nco_bench.parity.bq:check_esf",
    "esf": "nco_bench.parity.esf:check",
    "sigd": "nco_bench.parity.sigd:check",
    "sigd (lehd variant)": "nco_bench.parity.sigd:check",
    "sil": "nco_bench.parity.sit:check",
    "tasks": "nco_bench.parity.tasks:check",
    "tropical": "nco_bench.parity.tropical:check",
}


def check_fixture(path: Path | str) -> ParityResult:
    """Compare our model with the official outputs that a fixture holds, on one thread.

    Parameters
    ----------
    path
        Either file of the pair ``NAME.safetensors`` and ``NAME.json``.

    Raises
    ------
    BadInputError
        If the fixture is incomplete.
    UnknownNameError
        If no checker answers to its model.
    """
    from nco_bench.nn.threads import one_thread
    from nco_bench.parity.fixture import read_fixture

    fixture = read_fixture(path)
    module, _, function = _checker(fixture.meta).partition(":")
    # Threads add the parts of a sum in an order of their own: GLOP's are 1.3e-4 off with three.
    with one_thread():
        return getattr(importlib.import_module(module), function)(fixture)


def _checker(meta: dict[str, str]) -> str:
    """Find the checker by the JSON's ``model``, or by the first words of its ``fixture``."""
    name = str(meta.get("model") or meta.get("fixture") or "").lower()
    if name in CHECKERS:
        return CHECKERS[name]
    parts = name.split("-")
    for length in range(len(parts), 0, -1):
        if "-".join(parts[:length]) in CHECKERS:
            return CHECKERS["-".join(parts[:length])]
    raise UnknownNameError(
        "fixture model", name, CHECKERS, "Its JSON names the model in `model` or `fixture`."
    )

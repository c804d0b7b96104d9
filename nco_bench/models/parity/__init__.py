"""Parity with official code: `check_fixture` imports official weights and compares our outputs with the official ones.

To add a family, write ``check(fixture) -> ParityResult`` in a file here and name it in `CHECKERS`.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from nco_bench.errors import UnknownNameError

if TYPE_CHECKING:
    from nco_bench.models.parity.fixture import ParityResult

# What the fixture's JSON calls the model (lower case, without its problem) -> "module:function".
CHECKERS: dict[str, str] = {
    "am": "nco_bench.models.parity.am:check",
    "pomo": "nco_bench.models.parity.pomo:check",
    "elg": "nco_bench.models.parity.elg:check",
    "invit": "nco_bench.models.parity.invit:check",
    "dgl": "nco_bench.models.parity.dgl:check",
    "glop": "nco_bench.models.parity.glop:check",
    "difusco": "nco_bench.models.parity.difusco:check",
    "difusco-tsp-mcts": "nco_bench.models.parity.difusco_mcts:check",
    "htsp": "nco_bench.models.parity.htsp:check",
    "lehd": "nco_bench.models.parity.lehd:check",
    "bq-nco": "nco_bench.models.parity.bq:check",
    "esf-tsp": "nco_bench.models.parity.bq:check_esf",
    "esf": "nco_bench.models.parity.esf:check",
    "sigd": "nco_bench.models.parity.sigd:check",
    "sigd (lehd variant)": "nco_bench.models.parity.sigd:check",
    "sil": "nco_bench.models.parity.sit:check",
    "tasks": "nco_bench.models.parity.tasks:check",
    "tropical": "nco_bench.models.parity.tropical:check",
}


def check_fixture(path: Path | str) -> ParityResult:
    """Compare our model with the official outputs that a fixture holds.

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
    from nco_bench.models.parity.fixture import read_fixture

    fixture = read_fixture(path)
    module, _, function = _checker(fixture.meta).partition(":")
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

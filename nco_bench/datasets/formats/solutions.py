"""One solution for an instance, from any file that may hold it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.formats.assemble import drop_closing_node, from_routes, routes_of
from nco_bench.datasets.formats.cvrplib import read_solution as read_sol
from nco_bench.datasets.formats.reading import read_bytes
from nco_bench.datasets.formats.tsplib import read_tour
from nco_bench.errors import BadInputError
from nco_bench.problems import Instance

HELP = (
    "expected a .tour, a .sol, a JSON list (or an object that has one as solution, tour or routes), or node numbers "
    "separated by spaces"
)
BOX = ("x", "y", "z", "orientation")


def read_solution(path: Path, instance: Instance) -> NDArray[np.int64]:
    """Read a solution of `instance`.

    TSPLIB tours count from 1, everything else from 0. The closing node of a tour is dropped where its value says
    so; a JSON list may hold a list that is the tour. For CVRP: CVRPLIB routes, a JSON list of routes, or a node sequence
    with 0 for each depot visit (a 0 is added at either end where it is missing). For packings: x, y, z and orientation of
    each box, in one list or a list per box. The solution is not judged here.

    Parameters
    ----------
    path
        ``.tour``, ``.sol``, JSON (a list, or an object with ``tour``, ``solution`` or ``routes``), or a text of whole
        numbers; an INViT line (``0,3,1 length seconds``) too. Plain or .gz, told by the content.
    instance
        What it solves.

    Raises
    ------
    BadInputError
        When the file holds no such solution.
    """
    path = Path(path)
    text = read_bytes(path).decode("latin-1").lstrip("\ufeff\xef\xbb\xbf").strip()
    if not text:
        raise BadInputError(f"{path}: the file is empty; {HELP}.")
    if re.search(r"^\s*TOUR_SECTION", text, re.MULTILINE | re.IGNORECASE):
        _needs(path, instance, "tsp", "a TSPLIB tour")
        return read_tour(path)
    if re.match(r"route\s*#?\s*\d*\s*:", text, re.IGNORECASE):
        _needs(path, instance, "cvrp", "CVRPLIB routes")
        return read_sol(path)[0]
    if text[0] in "[{":
        return _close(_json(path, text, instance), instance)
    nodes = _plain(path, text)
    if (
        instance.problem == "cvrp"
        and 0 not in nodes
        and any(len(line.split()) > 1 for line in text.splitlines()[1:])
    ):
        raise BadInputError(
            f"{path}: lines of nodes without a depot; begin each route with 'Route #1:', or put a 0 between routes."
        )
    return _close(nodes, instance)


def _needs(path: Path, instance: Instance, kind: str, what: str) -> None:
    if instance.problem != kind:
        raise BadInputError(f"{path}: {what}, but {instance.name} is a {instance.problem} instance.")


def _close(nodes: NDArray[np.int64], instance: Instance) -> NDArray[np.int64]:
    """Bring to the form of the problem: no closing node for TSP, the depot at both ends for CVRP."""
    if instance.problem == "tsp":
        return drop_closing_node(nodes, instance.n)
    if instance.problem == "cvrp" and nodes.size:
        start = [] if nodes[0] == 0 else [0]
        end = [] if nodes[-1] == 0 else [0]
        return np.concatenate((np.array(start, dtype=np.int64), nodes, np.array(end, dtype=np.int64)))
    return nodes


def _json(path: Path, text: str, instance: Instance) -> NDArray[np.int64]:
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise BadInputError(f"{path}: not valid JSON; {HELP}.") from None
    if isinstance(value, dict):
        value = next((value[key] for key in ("solution", "tour", "routes") if key in value), None)
    if isinstance(value, list) and value and all(isinstance(row, list) for row in value):
        rows = [_integers(path, row) for row in value]
        if instance.problem == "tsp" and len(rows) == 1:  # a batch of one tour
            return rows[0]
        if instance.problem == "bpp3d":  # a row per box
            for number, row in enumerate(rows):
                if len(row) != len(BOX):
                    has = f"has {len(row)} numbers" if len(row) != 1 else "has one number"
                    raise BadInputError(f"{path}: box {number} {has}; expected {', '.join(BOX)}.")
            return np.array([number for row in rows for number in row], dtype=np.int64)
        _needs(path, instance, "cvrp", "a list of routes")
        # A 0 within a row ends a route.
        return from_routes([route for row in rows for route in routes_of(row)])
    return _integers(path, value)


def _integers(path: Path, value: Any) -> NDArray[np.int64]:
    if not isinstance(value, list) or not all(type(node) is int and abs(node) < 2**62 for node in value):
        raise BadInputError(f"{path}: no list of whole numbers; {HELP}.")
    return np.array(value, dtype=np.int64)


def _plain(path: Path, text: str) -> NDArray[np.int64]:
    words = text.split()
    if "," in words[0] and len(words) <= 3:  # INViT: nodes, length, seconds
        words = [word for word in words[0].split(",") if word]
    for number, line in enumerate(text.splitlines() if len(words) == len(text.split()) else [], start=1):
        for word in line.split():
            if not re.fullmatch(r"[+-]?\d{1,18}", word):
                raise BadInputError(f"{path}:{number}: {word[:40]!r} is not a node number; {HELP}.")
    if not all(re.fullmatch(r"[+-]?\d{1,18}", word) for word in words):
        raise BadInputError(f"{path}: not node numbers; {HELP}.")
    return np.array([int(word) for word in words], dtype=np.int64)

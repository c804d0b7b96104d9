"""DIFUSCO as a solver: heat maps by diffusion, greedy merging, and what may follow it (2-opt, or MCTS in its place).

On a CPU one heat map is made at a time, so that solutions do not depend on the batch to the last bit; on a GPU as many as
fit its memory. A time limit is looked at between samples and within 2-opt and MCTS; the first heat map is always finished.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from nco_bench.cards import card
from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import BadInputError, BadWeightsError
from nco_bench.nn.device import PerDevice, on_cpu
from nco_bench.problems import Instance
from nco_bench.progress import tracked
from nco_bench.solvers.decoding.draws import streams
from nco_bench.solvers.decoding.spec import Decoding
from nco_bench.solvers.edges.diffusion import heat_maps, nearest_graph
from nco_bench.solvers.edges.difusco import SCHEDULES, Difusco, EdgeGraph
from nco_bench.solvers.edges.mcts import by_clock, by_restarts, search
from nco_bench.solvers.edges.merge import EdgeMap, edge_map, lengths, merge_greedily
from nco_bench.solvers.edges.two_opt import improve_best_first
from nco_bench.solvers.network import Family, NetworkSolver, to_unit_square
from nco_bench.solvers.protocol import Outcome, Solved, SolverOptions
from nco_bench.weights.choice import at_hand
from nco_bench.weights.shelf import list_weights
from nco_bench.weights.store import SUFFIX, WeightsFile, resolve

MODEL = "difusco"
AUTO, DENSE = "auto", "dense"
DENSE_UP_TO = 200
NEIGHBOURS = ((700, 50), (2**63, 100))
"""Largest size and how many neighbours, by the sizes of the paper: 50 at 500 nodes, 100 at 1,000 and 10,000."""
TWO_OPT_MOVES = ((9_999, 1_000), (2**63, 5_000))


@dataclass(frozen=True)
class DifuscoParams:
    """What `nco-bench show difusco` lists; `neighbours` is 0 for the complete graph and None for the default."""

    steps: int
    schedule: str
    neighbours: int | None
    improve: str
    two_opt_moves: int | None
    mcts_seconds: float
    mcts_restarts: int


class DifuscoSolver(NetworkSolver):
    """DIFUSCO; ``--weights random`` runs an untrained network."""

    family = Family(
        params={
            "steps": (int, 50),
            "schedule": (str, "cosine"),
            "neighbours": (str, AUTO),
            "improve": (str, "none"),
            "two_opt_moves": (str, AUTO),
            "mcts_seconds": (float, 0.1),
            "mcts_restarts": (int, 0),
        },
        choices={"schedule": SCHEDULES, "improve": ("none", "two-opt", "mcts")},
        refused={"--coordinate-scale": "{} is for models with relative positions; leave it out."},
        budget=PerDevice(cpu=0, gpu=2**30),  # floats of all edges (4 GiB); on a CPU one heat map at a time
        largest_batch=256,
    )

    def __init__(self, options: SolverOptions) -> None:
        super().__init__(options)
        _check_decoding(self.decoding)
        self.settings = read(self.params, self.decoding)
        self.samples = self.decoding.k if self.decoding.name == "sample" else 1

    def find_weights(self, dataset: Dataset) -> WeightsFile:
        """Return the weights named, or the imported ones of the nearest size."""
        return find_weights(self.options.weights, dataset.sizes[1])

    def adapted(self, policy: nn.Module, dataset: Dataset) -> nn.Module:
        """Refuse more steps than there are times."""
        times = cast("Difusco", policy).config.timesteps
        if self.settings.steps > times:
            raise BadInputError(
                f"{MODEL}: parameter steps={self.settings.steps}: the model knows {times} time steps."
            )
        return policy

    def warm_up(self, dataset: Dataset) -> None:
        """Compile what makes heat maps on the CPU, and tours of them."""
        points = np.random.default_rng(0).random((8, 2))
        if on_cpu(self.options.device):
            with torch.inference_mode():
                self.policy(
                    EdgeGraph(torch.from_numpy(points[None]).float()), torch.zeros(1, 8, 8), torch.ones(1)
                )
        self._tour(edge_map(points, np.ones((8, 8))), 0, time.perf_counter() + 60.0, warm_up=True)

    def cost(self, dataset: Dataset) -> int:
        """Floats of the edges of an instance."""
        return self.samples * self._floats(dataset.sizes[1])

    def _floats(self, n: int) -> int:
        """Floats of the edges of a heat map."""
        width = self.policy.config.width if self.policy is not None else 256
        return n * self._degree(n) * width

    def _rows(self, n: int) -> int:
        """How many heat maps are made together."""
        return max(1, self.room // self._floats(n))

    def _degree(self, n: int) -> int:
        """Edges per node; `n` in the complete graph."""
        count = self.settings.neighbours
        if count is None:
            count = 0 if n <= DENSE_UP_TO else _by_size(NEIGHBOURS, n)
        return min(count or n, n)

    def together(self, batch: Sequence[Instance]) -> int:
        """As many as fit."""
        return min(super().together(batch), self._rows(batch[0].n))

    def decode(self, batch: Sequence[Instance], seed: int, time_limit: float | None) -> list[Outcome]:
        """Make heat maps and tours of them, and say how long that took."""
        start = time.perf_counter()
        tours = self._tours(batch, seed, start, time_limit)
        each = (time.perf_counter() - start) / len(batch)
        return [Solved(tour, seconds=each) for tour in tours]

    def _tours(
        self, group: Sequence[Instance], seed: int, start: float, time_limit: float | None
    ) -> list[NDArray[np.integer]]:
        """Draw samples until there are enough or time is up, and keep the shortest tour of each instance."""
        n = group[0].n
        if n <= 3:
            return [np.arange(n)] * len(group)
        points = [to_unit_square(instance.arrays()["coords"]) for instance in group]
        degree = self._degree(n)
        near = None if degree == n else [nearest_graph(p, degree) for p in points]
        together = max(1, self._rows(n) // len(group))
        best: list[tuple[float, NDArray[np.int64]]] = []
        for sample in tracked(range(0, self.samples, together), "draw"):
            count = min(together, self.samples - sample)
            maps = self._maps(points, near, seed, sample, count)
            found = []
            for j in range(len(group)):
                stop = None if time_limit is None else start + time_limit * (j + 1)
                tours = [self._tour(m, seed + j, stop) for m in maps[j * count : (j + 1) * count]]
                found.append(min(((_length(points[j], t), t) for t in tours), key=lambda pair: pair[0]))
            best = (
                found
                if not best
                else [min(a, b, key=lambda p: p[0]) for a, b in zip(best, found, strict=True)]
            )
            if time_limit is not None and time.perf_counter() - start > time_limit * len(group):
                break
        return [tour for _, tour in best]

    def _maps(
        self,
        points: list[NDArray[np.float64]],
        near: list[NDArray[np.int64]] | None,
        seed: int,
        sample: int,
        count: int,
    ) -> list[EdgeMap]:
        """Draw `count` heat maps per instance, instance by instance, from number `sample` on."""
        device = self.options.device
        coords = torch.from_numpy(np.stack(points)).float().to(device).repeat_interleave(count, dim=0)
        ends = None
        if near is not None:
            ends = torch.from_numpy(np.stack(near)).to(device).repeat_interleave(count, dim=0)
        stream = streams(torch.arange(seed, seed + len(points)), sample, count).flatten()
        scores = heat_maps(
            self.policy,
            EdgeGraph(coords, ends),
            stream,
            steps=self.settings.steps,
            schedule=self.settings.schedule,
        )
        rows = scores.cpu().numpy()
        return [
            edge_map(points[r // count], rows[r], None if near is None else near[r // count])
            for r in range(len(rows))
        ]

    def _tour(
        self, edges: EdgeMap, seed: int, stop: float | None, *, warm_up: bool = False
    ) -> NDArray[np.int64]:
        """Make a tour of a heat map."""
        params, n = self.settings, len(edges.coords)
        tour = merge_greedily(edges).tour
        most = params.two_opt_moves or _by_size(TWO_OPT_MOVES, n)
        if params.improve == "two-opt":
            return improve_best_first(edges.coords, tour, most, stop)[0]
        if params.improve == "none":
            return tour
        if warm_up or params.mcts_restarts:
            budget = by_restarts(params.mcts_restarts, stop)
        else:
            until = time.perf_counter() + params.mcts_seconds * n
            budget = by_clock(until if stop is None else min(stop, until))
        return search(edges, seed, budget, tour, most)


def _check_decoding(decoding: Decoding) -> None:
    if decoding.name not in ("greedy", "sample") or decoding.augmentation > 1:
        raise BadInputError(
            f"{MODEL}: decoding {decoding} is not for heat maps of edges; use greedy or sample:K."
        )


def read(given: Mapping[str, Any], decoding: Decoding) -> DifuscoParams:
    """Read the parameters.

    Raises
    ------
    BadInputError
        For a value out of range, or two that do not go together.
    """
    for key, least in (("steps", 1), ("mcts_seconds", 0), ("mcts_restarts", 0)):
        if not least <= given[key] < float("inf"):
            raise BadInputError(f"{MODEL}: parameter {key}={given[key]}: expected at least {least}.")
    if decoding.knn is not None and given["neighbours"] != AUTO:
        raise BadInputError(f"{MODEL}: give either neighbours={given['neighbours']} or knn={decoding.knn}.")
    if given["improve"] == "mcts" and decoding.name == "sample":
        raise BadInputError(f"{MODEL}: improve=mcts searches from one heat map; use --decoding greedy.")
    near = DENSE if given["neighbours"] == DENSE else _count("neighbours", given["neighbours"], 2)
    return DifuscoParams(
        steps=given["steps"],
        schedule=given["schedule"],
        neighbours=decoding.knn if decoding.knn is not None else 0 if near == DENSE else near,  # type: ignore[arg-type]
        improve=given["improve"],
        two_opt_moves=_count("two_opt_moves", given["two_opt_moves"], 1),
        mcts_seconds=given["mcts_seconds"],
        mcts_restarts=given["mcts_restarts"],
    )


def _count(key: str, text: str, least: int) -> int | None:
    """Read a number, or None for ``auto``."""
    if text == AUTO:
        return None
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < least:
        also = " or dense" if key == "neighbours" else ""
        raise BadInputError(
            f"{MODEL}: parameter {key}={text!r}: expected auto{also}, or a number of at least {least}."
        )
    return int(text)


def _by_size(table: tuple[tuple[int, int], ...], n: int) -> int:
    return next(value for largest, value in table if n <= largest)


def _length(points: NDArray[np.float64], tour: NDArray[np.int64]) -> float:
    return float(lengths(points, tour, np.roll(tour, -1)).sum())


def find_weights(name: str | None, size: int) -> WeightsFile:
    """Find imported weights: those named, else those called ``difusco``, else those whose name ends in the nearest size.

    Raises
    ------
    BadWeightsError
        When there are none; the message says what gets them.
    """
    command = f"nco-bench weights import {MODEL} FILE" + (f" --name {name}" if name else "")
    get = f"download a checkpoint of the authors from {card(MODEL).weights_from} and run '{command}'"
    if name is not None:
        plain = not name.endswith(SUFFIX) and name == name.rpartition("/")[2]
        if plain and not at_hand(name):
            raise BadWeightsError(
                f"No weights called {name!r} for {MODEL}; 'nco-bench weights list' shows what there is. "
                f"To get them, {get}."
            )
        return resolve(name, MODEL, "tsp")
    names = [w.path.stem for w in list_weights() if w.manifest.model == MODEL]
    if MODEL in names:
        return resolve(MODEL, MODEL, "tsp")
    sizes = [
        (abs(int(m[1]) - size), int(m[1]), known) for known in names if (m := re.search(r"(\d+)$", known))
    ]
    if not sizes:
        raise BadWeightsError(
            f"{MODEL}: no weights ship with nco-bench and none were imported or trained; {get}; train it (nco-bench train "
            f"{MODEL}); or run an untrained network with --weights random."
        )
    return resolve(min(sizes)[2], MODEL, "tsp")

"""GLOP as a solver: insertion tours that revisers improve, and for the CVRP a partition network before them.

Without parameters the settings are those of the official README for the size (`preset`). Differences from the official
code: every instance draws its own insertion orders from its own seed, where the code shares them within a data set; and a
reviser whose segments are longer than the tour is left out, where the code stops.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.kool import kool_tsp
from nco_bench.errors import BadInputError
from nco_bench.nn.device import PerDevice, on_cpu
from nco_bench.problems import Instance
from nco_bench.problems.cvrp import CVRPInstance
from nco_bench.problems.tsp import TSPInstance
from nco_bench.solvers.decoding.draws import instance_draws
from nco_bench.solvers.divide.glop import Glop, lengths_of
from nco_bench.solvers.divide.glop_partition import affinities
from nco_bench.solvers.divide.glop_revision import Revision, Tours, solve_tsp
from nco_bench.solvers.divide.glop_routes import (
    drawn,
    giant_tours,
    joined,
    likeliest,
    padded_routes,
    partition_graph,
    routes_of,
)
from nco_bench.solvers.network import Family, NetworkSolver, deadline, to_unit_square
from nco_bench.solvers.protocol import Failure, Outcome, Solved, SolverOptions, read_params
from nco_bench.solvers.small import easy_routes, easy_tour

if TYPE_CHECKING:
    from nco_bench.solvers.classical.lkh3 import LKH3

LEAST_NODES = 4
CVRPLIB_EDGES, CVRPLIB_ROUNDS = 300, ((50, 5), (20, 5))
"""What the official evaluation on CVRPLIB takes beside features of its own; its partition network has six layers."""

TSPLIB_WIDTH = 128


def preset(problem: str, n: int, library: bool = False) -> Revision:
    """Return the settings of the official README for a size.

    Parameters
    ----------
    problem
        ``tsp`` or ``cvrp`` (for each of its routes).
    n
        Nodes or customers; sizes that the README does not name take those of the nearest that it does.
    library
        Whether the instance is one of TSPLIB, which has settings of its own.
    """
    if problem == "cvrp":
        return Revision(((50, 5), (20, 5)) if 1500 < n <= 3500 else ((20, 5),))
    if library:
        small = {50: ((20, 10), (10, 5)), 100: ((50, 10), (20, 5)), 150: ((100, 10), (50, 5), (20, 5))}
        rounds = next((r for most, r in small.items() if n < most), ((100, 10), (50, 10), (20, 5)))
        return Revision(rounds, TSPLIB_WIDTH, augment=n >= 150, prune=False)
    if n <= 200:
        rounds = ((100, 20), (50, 10), (20, 10), (10, 5))
        return Revision(rounds, 140, augment=False, prune=False, sample=True)
    if n < 5000:
        return Revision(((100, 20), (50, 25), (20, 5)), 10)
    return Revision(((100, 50), (50, 25), (20, 5)))


def edges_for(n: int) -> int:
    """Return how many edges each node of the partition graph has, for n customers."""
    return 100 if n <= 1500 else 200


class GlopSolver(NetworkSolver):
    """GLOP for TSP and CVRP; ``--weights random`` runs untrained networks."""

    family = Family(
        params={
            "lengths": (str, ""),
            "iterations": (str, ""),
            "width": (int, 0),
            "augment": (str, ""),
            "prune": (str, ""),
            "sample": (str, ""),
            "edges": (int, 0),
            "partitions": (int, 1),
            "cvrplib": (bool, False),
            "subsolver": (str, "revisers"),
        },
        choices={"subsolver": ("revisers", "lkh3")},
        refused=dict.fromkeys(
            ("--coordinate-scale", "--logit-scale"), "{} has no effect on its networks; leave it out."
        ),
        budget=PerDevice(cpu=20_000, gpu=2_000_000),
    )

    def __init__(self, options: SolverOptions) -> None:
        super().__init__(options)
        self._lkh3: LKH3 | None = None
        if self.decoding.name != "greedy":
            raise BadInputError(
                f"{self.name}: --decoding {options.decoding}: expected greedy; see sample=true."
            )
        for key in ("width", "edges", "partitions"):
            if key in options.params and self.params[key] < 1:
                raise BadInputError(f"{self.name}: parameter {key}={self.params[key]}: expected at least 1.")
        self.revision("tsp", 1000)  # refuses parameters that do not fit each other

    def revision(self, problem: str, n: int, library: bool = False) -> Revision:
        """Return the settings for a size: the preset with the user's parameters.

        Raises
        ------
        BadInputError
            For lengths and iterations that do not fit each other, or settings that mean nothing for the CVRP.
        """
        given, chosen = self.params, preset(problem, n, library)
        if problem == "cvrp" and given["cvrplib"]:
            chosen = replace(chosen, rounds=CVRPLIB_ROUNDS)
        if given["lengths"]:
            lengths = lengths_of(given["lengths"])
            if len(counts := _counts(self.name, given["iterations"])) != len(lengths):
                raise BadInputError(
                    f"{self.name}: lengths={given['lengths']} needs as many iterations, such as iterations="
                    f"{','.join('5' for _ in lengths)}."
                )
            chosen = replace(chosen, rounds=tuple(zip(lengths, counts, strict=True)))
        elif given["iterations"]:
            raise BadInputError(f"{self.name}: iterations={given['iterations']} needs lengths=... beside it.")
        flags = {key: given[key] for key in ("augment", "prune", "sample") if given[key]}
        if flags:
            known = {key: (bool, False) for key in flags}
            chosen = replace(chosen, **read_params(self.name, flags, **known))
        return replace(chosen, width=given["width"] or chosen.width)

    def unsupported(self, dataset: Dataset) -> str | None:
        """Return a reason for instances without coordinates, with route length limits or fractional demands."""
        reason = super().unsupported(dataset)
        if reason is not None:
            return reason
        routes = self.params["subsolver"] == "lkh3"
        if dataset.problem == "tsp" and (
            self.params["edges"] or self.params["partitions"] > 1 or self.params["cvrplib"] or routes
        ):
            return "edges, partitions, cvrplib and subsolver are parameters for the CVRP"
        if dataset.problem == "cvrp" and (self.params["width"] or self.params["prune"]):
            return "width and prune are parameters for the TSP"
        return _lkh3().unsupported(kool_tsp(20, count=1)) if routes else None

    def prepare(self, dataset: Dataset) -> None:
        """Load the networks, and start LKH-3 where it solves the routes."""
        super().prepare(dataset)
        if self.params["subsolver"] == "lkh3":
            self._lkh3 = _lkh3()
            self._lkh3.prepare(kool_tsp(20, count=1))

    def close(self) -> None:
        """Free the networks, and stop LKH-3."""
        super().close()
        if self._lkh3 is not None:
            self._lkh3.close()

    def build(self, dataset: Dataset, config: dict[str, Any]) -> nn.Module:
        """Build the networks of a stored configuration, or a reviser for every length needed."""
        if self.weights is None:
            config = {"lengths": ",".join(str(n) for n in sorted(self._needed(dataset), reverse=True))}
        return super().build(dataset, config)

    def adapted(self, policy: nn.Module, dataset: Dataset) -> nn.Module:
        """Check that there is a reviser for every length needed."""
        glop = cast("Glop", policy)
        missing = sorted(self._needed(dataset) - set(glop.lengths))
        if missing:
            raise BadInputError(
                f"{self.name}: its weights hold revisers of length {glop.config.lengths}, not "
                f"{','.join(map(str, missing))}; import those too, or choose with lengths=...:iterations=..."
            )
        return policy

    def _needed(self, dataset: Dataset) -> set[int]:
        """Lengths of segments in all revisions."""
        revisions = (self.revision(i.problem, i.n, _is_library(i)) for i in dataset.instances)
        return {length for revision in revisions for length, _ in revision.rounds}

    def warm_up(self, dataset: Dataset) -> None:
        """Import what inserts, and compile what partitions on the CPU."""
        import random_insertion  # noqa: F401

        if dataset.problem == "cvrp" and on_cpu(self.options.device):
            with torch.inference_mode():
                self.policy.partition(
                    torch.zeros(2, 3), torch.zeros(2, 1, 2), torch.zeros(2, 1, dtype=torch.int64)
                )

    def batch_size(self, dataset: Dataset) -> int:
        """Return how many instances are solved together; one at a time for the CVRP."""
        return 1 if dataset.problem == "cvrp" else super().batch_size(dataset)

    def cost(self, dataset: Dataset) -> int:
        """Nodes of all tours of an instance."""
        n = dataset.sizes[1]
        return n * self.revision("tsp", n, _is_library(dataset.instances[0])).width

    def together(self, batch: Sequence[Instance]) -> int:
        """TSP instances of one size and one preset together, others alone."""
        alike = batch[0].problem == "tsp" and len({(i.n, _is_library(i)) for i in batch}) == 1
        return len(batch) if alike else 1

    def decode(self, batch: Sequence[Instance], seed: int, time_limit: float | None) -> list[Outcome]:
        """Revise tours, or partition one CVRP instance and revise its routes, until time is up."""
        end = deadline(time_limit, len(batch))
        if batch[0].problem == "cvrp":
            return [self._routes(cast("CVRPInstance", batch[0]), seed, end)]
        return self._tours(cast("Sequence[TSPInstance]", batch), seed, end)

    def _tours(self, batch: Sequence[TSPInstance], seed: int, end: float | None) -> list[Outcome]:
        size = batch[0].n
        if size < LEAST_NODES:
            return [easy_tour(instance) or np.arange(size) for instance in batch]
        revision = self.revision("tsp", size, _is_library(batch[0]))
        scaled = np.stack([to_unit_square(i.arrays()["coords"]) for i in batch]).astype(np.float32)
        seeds = torch.arange(seed, seed + len(batch))
        draws = instance_draws(seeds)
        orders = [draws.permutations(w, 0, size).numpy() for w in range(revision.insertions(size))]
        initial = torch.from_numpy(np.stack([insertion_tours(scaled, order) for order in orders]))
        device = self.options.device
        found = solve_tsp(
            self._revisers(revision),
            torch.from_numpy(scaled).to(device),
            initial.to(device),
            revision,
            seeds=seeds,
            deadline=end,
        )
        return list(found.nodes.cpu().numpy())

    def _revisers(self, revision: Revision) -> dict[int, Any]:
        return {length: self.policy.reviser(length) for length, _ in revision.rounds}

    def _routes(self, instance: CVRPInstance, seed: int, end: float | None) -> Outcome:
        """Partition into routes, greedily or by sampling, improve every route, and keep the cheapest partition."""
        easy = easy_routes(instance)
        if easy is not None:
            return easy
        arrays, device = instance.arrays(), self.options.device
        scaled = to_unit_square(np.concatenate([arrays["depot"].reshape(1, 2), arrays["customers"]]))
        coords = torch.from_numpy(scaled.astype(np.float32))
        demand = torch.from_numpy(np.concatenate([[0], arrays["demand"]]).astype(np.int64)).to(device)
        capacity = int(np.floor(instance.capacity))
        library = bool(self.params["cvrplib"])
        edges = self.params["edges"] or (CVRPLIB_EDGES if library else edges_for(instance.n))
        graph = partition_graph(coords.to(device), demand, instance.capacity, edges, library=library)
        weights = affinities(self.policy.partition(graph.nodes, graph.edges, graph.neighbours))
        count = int(self.params["partitions"])
        pick = likeliest if count == 1 else drawn(seed, count)
        giants = giant_tours(weights, graph.neighbours, demand, capacity, pick, count)
        revision = self.revision("cvrp", instance.n)
        improved = [self._sub_tours(coords, tour.cpu(), revision, seed, end) for tour in giants]
        _, best = min(improved, key=lambda found: found[0])
        return best

    def _sub_tours(
        self, coords: Tensor, giant: Tensor, revision: Revision, seed: int, end: float | None
    ) -> tuple[float, NDArray[np.int64]]:
        """Improve every route of a giant tour; return the total length and the sequence of nodes."""
        if self._lkh3 is not None:
            return _solved_routes(self._lkh3, coords.numpy(), routes_of(giant), seed, end)
        nodes = padded_routes(routes_of(giant))
        points = coords[nodes]
        initial = torch.from_numpy(insertion_tours(points.numpy(), np.arange(points.shape[1])))
        device = self.options.device
        seeds = torch.arange(len(nodes)) + (seed << 16)
        found: Tours = solve_tsp(
            self._revisers(revision),
            points.to(device),
            initial[None].to(device),
            revision,
            seeds=seeds,
            deadline=end,
        )
        visits = nodes.gather(1, found.nodes.cpu())
        return float(found.lengths().sum()), joined(visits).numpy()


def _lkh3() -> LKH3:
    from nco_bench.solvers.classical.lkh3 import LKH3  # most runs do without

    return LKH3(SolverOptions(solver="lkh3"))


def _solved_routes(
    lkh3: LKH3, coords: NDArray[np.float32], routes: Sequence[Tensor], seed: int, end: float | None
) -> tuple[float, NDArray[np.int64]]:
    """Solve the TSP of every route by LKH-3; one that it fails on, such as for want of time, keeps its order.

    Returns the total length and the sequence of nodes.
    """
    visits = [np.concatenate([[0], route.numpy()]) for route in routes]
    instances = [TSPInstance(str(i), coords[nodes].astype(np.float64)) for i, nodes in enumerate(visits)]
    each = None if end is None else max(0.01, (end - time.perf_counter()) / len(instances))
    outcomes = lkh3.solve(instances, seed=seed << 16, time_limit=each, progress=lambda _: None)
    total, sequence = 0.0, [np.zeros(1, np.int64)]
    for nodes, outcome in zip(visits, outcomes, strict=True):
        found = outcome.solution if isinstance(outcome, Solved) else outcome
        tour = np.arange(len(nodes)) if isinstance(found, Failure) else np.asarray(found)
        ordered = nodes[np.roll(tour, -int(np.flatnonzero(tour == 0)[0]))]
        points = coords[ordered].astype(np.float64)
        total += float(np.linalg.norm(points - np.roll(points, -1, axis=0), axis=1).sum())
        sequence += [ordered[1:], np.zeros(1, np.int64)]
    return total, np.concatenate(sequence)


def insertion_tours(coords: NDArray[np.float32], order: NDArray[np.integer]) -> NDArray[np.int64]:
    """Insert the nodes of each instance in an order, by the package that the official code uses.

    Parameters
    ----------
    coords
        ``(B, N, 2)`` float32, N >= 3.
    order
        ``(N,)`` for all, or ``(B, N)``.
    """
    from random_insertion import tsp_random_insertion_parallel

    tours = tsp_random_insertion_parallel(coords, order, threads=torch.get_num_threads())
    return np.asarray(tours).astype(np.int64)


def _is_library(instance: Instance) -> bool:
    """Tell TSPLIB's instances, which are scored with its rounding, from generated ones."""
    return instance.problem == "tsp" and instance.convention != "euclidean"


def _counts(name: str, text: str) -> list[int]:
    parts = text.replace("-", ",").split(",") if text else []
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise BadInputError(f"{name}: iterations={text!r}: expected whole numbers >= 1, such as 20,25,5.")
    return [int(part) for part in parts]

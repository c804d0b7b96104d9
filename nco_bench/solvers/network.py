"""The one adapter between networks and the solver protocol, and how instances are given to networks.

Instances are given to a network in the unit square: coordinates that already lie there stay as they are, others
are shifted to the origin and divided by the longer side of their bounding box, one scale for both axes, so
that shapes are kept. Tours are scored on the raw coordinates, by the referee, like everybody's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nco_bench.cards import card
from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import BadInputError, NcoBenchError, UnknownNameError
from nco_bench.nn.build import build_path_policy, refused_sizes
from nco_bench.nn.device import PerDevice, full_convolutions, on_cpu
from nco_bench.nn.memory import keep_freed_memory
from nco_bench.problems import Instance
from nco_bench.problems.tsp import TSPInstance
from nco_bench.progress import tracked
from nco_bench.solvers.decoding.spec import Decoding, parse_decoding
from nco_bench.solvers.protocol import Failure, Outcome, Progress, Solved, SolverOptions, read_params
from nco_bench.solvers.small import join_fixed_edges

if TYPE_CHECKING:
    from nco_bench.weights.store import WeightsFile

SMALL = 100
"""Nodes: what networks are trained on, so that no logit scale refuses so few, as it may those of a set."""
RANDOM_WEIGHTS = "random"
RANDOM_SEED = 1234
"""Of untrained networks, which are the same everywhere."""

Network = TypeVar("Network", bound=nn.Module)


def unsuited(dataset: Dataset, *, fractional: bool = False) -> str | None:
    """Return why a routing network cannot take a dataset, or None: a matrix, a route length limit, fractional demands.

    Parameters
    ----------
    dataset
        Instances of the TSP or CVRP.
    fractional
        Whether the network takes demands that are no whole numbers.
    """
    for instance in dataset.instances:
        arrays = instance.arrays()
        if instance.convention == "explicit":
            return f"needs coordinates, {instance.name} is given by a distance matrix"
        if "max_route_length" in arrays:
            return f"does not know route length limits, {instance.name} has one"
        if not fractional and "demand" in arrays and (arrays["demand"] % 1 != 0).any():
            return f"keeps loads as whole numbers, {instance.name} has fractional demands"
    return None


def facts_of(weights: WeightsFile | None) -> dict[str, Any]:
    """Return what a record says about the weights; None means an untrained network."""
    return {"name": RANDOM_WEIGHTS, "sha256": RANDOM_WEIGHTS} if weights is None else weights.facts()


def built(build: Callable[[], Network], weights: WeightsFile | None) -> Network:
    """Build a network from a fixed seed and load its weights; None leaves it untrained.

    The global generator is left as it was.

    Raises
    ------
    BadWeightsError
        When the weights do not fit.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(RANDOM_SEED)
        network = build()
    if weights is not None:
        from nco_bench.weights.store import load_into

        load_into(network, weights)
    return network


ONE = PerDevice(cpu=1, gpu=1)


@dataclass(frozen=True)
class Family:
    """What a family of networks declares beside its cards and the methods of `NetworkSolver` that differ for it.

    Attributes
    ----------
    decodes
        Whether there is a decoding to choose.
    params, choices
        Parameters as `read_params` takes them, and all values of those that have few.
    refused
        Options of the command line that mean nothing here, each with the end of its message (``{}`` is the option).
    fractional
        Whether demands that are no whole numbers are taken.
    mixed_sizes
        Whether instances of several sizes are solved together; else those of one size are, and others one by one.
    budget, largest_batch
        How much suits a device of each kind at once, in units of `NetworkSolver.cost`, and how many instances at most
        (``--batch-size auto``).
    """

    decodes: bool = True
    params: Mapping[str, tuple[type, Any]] = field(default_factory=dict)
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    fractional: bool = False
    mixed_sizes: bool = False
    budget: PerDevice = ONE
    largest_batch: int = 2**31


class NetworkSolver:
    """A network as a solver: weights -> device -> precision -> batches -> outcomes, once for every family.

    A family is a class that sets `family`, writes `decode`, and replaces what else differs for it.
    ``--weights random`` runs an untrained network.
    """

    family = Family()

    def __init__(self, options: SolverOptions) -> None:
        self.options, family = options, self.family
        self.name, known = options.solver, card(options.solver)
        self.model = known.model  # what its weights are called
        if not family.decodes and options.decoding not in (None, "greedy"):
            raise BadInputError(f"{self.name}: it answers directly; leave --decoding out.")
        self.decoding: Decoding = parse_decoding(options.decoding or known.decodings[0])
        self.params = read_params(self.name, options.params, **family.params)
        for key, values in family.choices.items():
            if self.params[key] not in values:
                raise UnknownNameError(f"value of parameter {key} of {self.name}", self.params[key], values)
        given = {"--logit-scale": options.logit_scale, "--coordinate-scale": options.coordinate_scale}
        for option, why in family.refused.items():
            if given[option] is not None:
                raise BadInputError(f"{self.name}: {why.format(option)}")
        self.policy: Any = None  # each family knows its own
        self.weights: WeightsFile | None = None
        self.refused: dict[int, NcoBenchError] = {}
        """Sizes that the logit scale does not take."""

    def unsupported(self, dataset: Dataset) -> str | None:
        """Return why the network cannot take a dataset, or None."""
        return unsuited(dataset, fractional=self.family.fractional)

    def prepare(self, dataset: Dataset) -> None:
        """Find weights, build the network around them, move it to the device and make it ready."""
        if on_cpu(self.options.device):
            keep_freed_memory()
        self.weights = self.weights_to_load(dataset)
        config = {} if self.weights is None else dict(self.weights.manifest.config)
        self.refused = self._refused_sizes(dataset, config)
        policy = built(lambda: self.build(dataset, config), self.weights)
        self.policy = self.adapted(policy.to(self.options.device), dataset).eval()
        with torch.inference_mode(), full_convolutions(self.options.device):
            self.warm_up(dataset)

    def weights_to_load(self, dataset: Dataset) -> WeightsFile | None:
        """Return what `prepare` loads, None for an untrained network; a run asks all its networks before it solves."""
        return None if self.options.weights == RANDOM_WEIGHTS else self.find_weights(dataset)

    def check_sizes(self, dataset: Dataset) -> None:
        """Refuse a dataset whose every instance is of a size that the logit scale does not take.

        Where only some are, those fail. A run asks before it solves, and of the whole set: a part may have only such.

        Raises
        ------
        NcoBenchError
            With what the scale says of the first instance.
        """
        if self.options.logit_scale is not None:
            weights = self.weights_to_load(dataset)
            refused = self._refused_sizes(dataset, {} if weights is None else weights.manifest.config)
            if all(instance.n in refused for instance in dataset):
                raise refused[dataset.instances[0].n]

    def _refused_sizes(self, dataset: Dataset, config: Mapping[str, Any]) -> dict[int, NcoBenchError]:
        if self.options.logit_scale is None:
            return {}
        sizes = {instance.n for instance in dataset}
        return refused_sizes(self.model, dataset.problem, self.options.logit_scale, sizes, **config)

    def find_weights(self, dataset: Dataset) -> WeightsFile:
        """Return the weights that were asked for, or those that suit the dataset; `BadWeightsError` says how to get some."""
        from nco_bench.weights.choice import find_or_default

        return find_or_default(self.options.weights, self.model, dataset.problem, dataset.sizes[1])

    def build(self, dataset: Dataset, config: dict[str, Any]) -> nn.Module:
        """Build the network of a stored configuration; an empty one belongs to no weights."""
        return build_path_policy(self.model, dataset.problem, logit_scale=self.options.logit_scale, **config)

    def adapted(self, policy: nn.Module, dataset: Dataset) -> nn.Module:
        """Return the network with its settings (precision, neighbours), or refuse those that it cannot have."""
        return policy

    def warm_up(self, dataset: Dataset) -> None:
        """Import and compile what the first batch would wait for; a network that answers directly does so once."""
        if not self.family.decodes:
            self.decode(dataset.instances[:1], 0, None)

    def weights_facts(self) -> dict[str, Any]:
        """Return what a record says about the weights."""
        return facts_of(self.weights)

    def batch_size(self, dataset: Dataset) -> int:
        """Return how many instances are solved together."""
        smallest, largest = dataset.sizes
        if smallest != largest and not self.family.mixed_sizes:
            return 1
        return max(1, min(self.family.largest_batch, self.room // self.cost(dataset)))

    @property
    def room(self) -> int:
        """The budget of the device."""
        return self.family.budget.on(self.options.device)

    def cost(self, dataset: Dataset) -> int:
        """Return what one instance takes of the budget."""
        return 1

    def together(self, batch: Sequence[Instance]) -> int:
        """Return how many instances of a batch are decoded at once; all, or one where sizes differ."""
        return len(batch) if self.family.mixed_sizes or len({instance.n for instance in batch}) == 1 else 1

    def solve(
        self, batch: Sequence[Instance], *, seed: int, time_limit: float | None, progress: Progress
    ) -> list[Outcome]:
        """Solve instances, each with its own seed."""
        outcomes: list[Outcome] = []
        size = self.together(batch)
        for first in tracked(range(0, len(batch), size), "instance" if size == 1 else "group"):
            group, error = batch[first : first + size], self.refused.get(batch[first].n)
            if error is not None:  # then all of them are of this size
                outcomes += [Failure("failed", str(error))] * len(group)
            else:
                with torch.inference_mode(), full_convolutions(self.options.device):
                    found = self.decode(group, seed + first, time_limit)
                outcomes += map(with_fixed_edges, group, found)
            progress(len(outcomes))
        return outcomes

    def decode(self, batch: Sequence[Instance], seed: int, time_limit: float | None) -> list[Outcome]:
        """Solve instances at once; `seed` is that of the first, `time_limit` in seconds per instance."""
        raise NotImplementedError

    def close(self) -> None:
        """Free the network."""
        self.policy = None


def with_fixed_edges(instance: Instance, outcome: Outcome) -> Outcome:
    """Let a tour hold the edges that its instance fixes, of which no network knows."""
    if not isinstance(instance, TSPInstance) or not instance.fixed_edges or isinstance(outcome, Failure):
        return outcome
    if isinstance(outcome, Solved):
        return replace(outcome, solution=join_fixed_edges(instance, outcome.solution))
    return join_fixed_edges(instance, outcome)


def deadline(time_limit: float | None, count: int) -> float | None:
    """Return when the time of so many instances is over, as `time.perf_counter` tells it."""
    return None if time_limit is None else time.perf_counter() + time_limit * count


def to_unit_square(coords: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shift and scale coordinates into the unit square, one scale for both axes.

    Parameters
    ----------
    coords
        ``(N, 2)`` raw coordinates.

    Returns
    -------
    NDArray
        ``(N, 2)``; the same array where it already lies in the unit square; zeros where all points are equal.
    """
    low, high = coords.min(axis=0), coords.max(axis=0)
    if low.min() >= 0.0 and high.max() <= 1.0:
        return coords
    side = float((high - low).max())
    return (coords - low) / (side if side > 0 else 1.0)


def to_unit_square_by_one_range(coords: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shift both axes by the least coordinate of either and scale by their common range, as LEHD's, SIT's and ELG's do.

    Coordinates are ``(N, 2)``; in the unit square they stay as they are, as those codes scale instances of libraries only.
    """
    low, high = coords.min(), coords.max()
    if low >= 0.0 and high <= 1.0:
        return coords
    return (coords - low) / (high - low if high > low else 1.0)


def to_tensors(
    batch: Sequence[Instance], scaled: Callable[[NDArray[np.float64]], NDArray[np.float64]] = to_unit_square
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return coordinates ``(B, N, 2)``, and demands ``(B, N)`` and capacities ``(B,)`` for the CVRP, its depot first.

    Parameters
    ----------
    batch
        Instances of one size.
    scaled
        How coordinates ``(N, 2)`` of an instance come into the unit square.
    """
    arrays = [instance.arrays() for instance in batch]
    if batch[0].problem == "tsp":
        return torch.from_numpy(np.stack([scaled(a["coords"]) for a in arrays])), None, None
    nodes = [np.concatenate([a["depot"].reshape(1, 2), a["customers"]]) for a in arrays]
    demand = np.stack([np.concatenate([[0], a["demand"]]) for a in arrays])
    capacity = np.array([float(a["capacity"]) for a in arrays])
    coords = np.stack([scaled(n) for n in nodes])
    return torch.from_numpy(coords), torch.from_numpy(demand), torch.from_numpy(capacity)


def small_problem(dataset: Dataset) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return one instance of `SMALL` nodes as `to_tensors` does, to compile on what is compiled at first use."""
    coords = torch.rand(1, SMALL + (dataset.problem == "cvrp"), 2, generator=torch.Generator().manual_seed(0))
    if dataset.problem == "tsp":
        return coords, None, None
    demand = torch.arange(SMALL + 1).remainder(9)[None]
    return coords, demand, torch.tensor([20.0], dtype=torch.float64)

"""H-TSP as a solver: episodes of the upper and the lower model, optionally on all eight symmetries, then improvement.

The lower model starts a trajectory at every city of a fragment, so nothing is random before improvement, which draws its
points from the seed. Differences from the official code: improvement keeps the shortest tour that it met, and instances
smaller than a fragment are solved as one. A time limit ends improvement; the tour itself is always completed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import BadInputError
from nco_bench.nn.build import build_path_policy
from nco_bench.problems import Instance
from nco_bench.problems.tsp import TSPInstance
from nco_bench.solvers.decoding.spec import parse_decoding
from nco_bench.solvers.decoding.symmetries import SYMMETRIES, symmetries
from nco_bench.solvers.divide.htsp import Htsp
from nco_bench.solvers.divide.htsp_episode import Sizes, begin, construct, improve
from nco_bench.solvers.divide.weights import find_weights
from nco_bench.solvers.network import RANDOM_WEIGHTS, built, facts_of, to_unit_square, unsuited
from nco_bench.solvers.protocol import Outcome, Progress, SolverOptions, one_by_one, read_params
from nco_bench.solvers.small import easy_tour, join_fixed_edges
from nco_bench.weights.store import WeightsFile

EPISODES_PER_BATCH = {"cpu": 1, "cuda": 64}
LEAST_FRAGMENT = 4


class HtspSolver:
    """H-TSP; ``--weights random`` runs untrained networks."""

    def __init__(self, options: SolverOptions) -> None:
        self.name, self.options = options.solver or "h-tsp", options
        decoding = parse_decoding(options.decoding or "greedy")
        if decoding.name != "greedy" or decoding.knn is not None:
            raise BadInputError(f"{self.name}: --decoding {options.decoding}: expected greedy or x8.")
        self.copies = decoding.augmentation
        for option, value in (
            ("--coordinate-scale", options.coordinate_scale),
            ("--logit-scale", options.logit_scale),
        ):
            if value is not None:
                raise BadInputError(f"{self.name}: {option} has no effect on its networks; leave it out.")
        params = read_params(
            self.name,
            options.params,
            fragment=(int, 200),
            new=(int, 0),
            neighbours=(int, 40),
            improve=(int, 0),
        )
        fragment = params["fragment"]
        new = params["new"] or max(1, fragment - 10)
        if fragment < LEAST_FRAGMENT or not 1 <= new <= fragment - 2:
            raise BadInputError(
                f"{self.name}: fragment={fragment}, new={new}: expected at least {LEAST_FRAGMENT} cities, and new "
                "from 1 to two less."
            )
        if params["neighbours"] < 1 or params["improve"] < 0:
            raise BadInputError(f"{self.name}: expected neighbours >= 1 and improve >= 0.")
        self.sizes, self.steps = Sizes(fragment, new, params["neighbours"]), params["improve"]
        self.policy: Htsp | None = None
        self.weights: WeightsFile | None = None

    def unsupported(self, dataset: Dataset) -> str | None:
        """Return a reason for instances without coordinates."""
        return unsuited(dataset)

    def prepare(self, dataset: Dataset) -> None:
        """Load weights, move the networks to the device."""
        config: dict[str, Any] = {}
        if self.options.weights != RANDOM_WEIGHTS:
            self.weights = find_weights("h-tsp", self.options.weights, dataset.problem)
            config = self.weights.manifest.config
        sizes = {"problem": dataset.problem, **config}
        policy = built(lambda: build_path_policy("h-tsp", **sizes), self.weights)
        assert isinstance(policy, Htsp)
        self.policy = policy.to(self.options.device).eval()

    def weights_facts(self) -> dict[str, Any]:
        """Return what a record says about the weights."""
        return facts_of(self.weights)

    def batch_size(self, dataset: Dataset) -> int:
        """Return how many instances are solved together; one at a time on a CPU, and where sizes differ."""
        smallest, largest = dataset.sizes
        if smallest != largest:
            return 1
        return max(1, EPISODES_PER_BATCH[self.options.device.partition(":")[0]] // self.copies)

    def solve(
        self, batch: Sequence[Instance], *, seed: int, time_limit: float | None, progress: Progress
    ) -> list[Outcome]:
        """Solve instances of equal size together, others one by one."""
        if len({instance.n for instance in batch}) > 1:
            return one_by_one(self.solve, batch, seed=seed, time_limit=time_limit, progress=progress)
        assert self.policy is not None
        instances = [instance for instance in batch if isinstance(instance, TSPInstance)]
        if instances[0].n <= 3:
            progress(len(batch))
            return [easy_tour(instance) or np.arange(instance.n) for instance in instances]
        deadline = None if time_limit is None else time.perf_counter() + time_limit * len(batch)
        scaled = np.stack([to_unit_square(i.arrays()["coords"]) for i in instances]).astype(np.float32)
        seen = torch.from_numpy(scaled)
        copies = symmetries(seen) if self.copies == SYMMETRIES else seen
        sizes = self.sizes.fit(instances[0].n)
        episodes = [begin(coords.numpy(), sizes.neighbours) for coords in copies]
        generators = [
            np.random.default_rng([seed + i // self.copies, i % self.copies]) for i in range(len(copies))
        ]
        with torch.inference_mode():
            construct(self.policy, episodes, sizes)
            tours = improve(self.policy, episodes, sizes, self.steps, generators, deadline)
        progress(len(batch))
        outcomes: list[Outcome] = []
        for i, instance in enumerate(instances):
            mine = tours[i * self.copies : (i + 1) * self.copies]
            lengths = [_length(scaled[i], tour) for tour in mine]
            outcomes.append(join_fixed_edges(instance, mine[int(np.argmin(lengths))]))
        return outcomes

    def close(self) -> None:
        """Free the networks."""
        self.policy = None


def _length(coords: np.ndarray, tour: np.ndarray) -> float:
    points = coords[tour].astype(np.float64)
    return float(np.linalg.norm(points - np.roll(points, -1, axis=0), axis=1).sum().round(9))

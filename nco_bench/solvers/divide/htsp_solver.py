"""H-TSP as a solver: episodes of the upper and the lower model, optionally on all eight symmetries, then improvement.

The lower model starts a trajectory at every city of a fragment, so nothing is random before improvement, which draws its
points from the seed. Differences from the official code: improvement keeps the shortest tour that it met, and instances
smaller than a fragment are solved as one. A time limit ends improvement; the tour itself is always completed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch

from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import BadInputError
from nco_bench.nn.device import PerDevice
from nco_bench.problems import Instance
from nco_bench.problems.tsp import TSPInstance
from nco_bench.solvers.decoding.instances import SYMMETRIES, symmetries
from nco_bench.solvers.divide.htsp_episode import Sizes, begin, construct, improve
from nco_bench.solvers.network import Family, NetworkSolver, deadline, to_unit_square
from nco_bench.solvers.protocol import Outcome, SolverOptions
from nco_bench.solvers.small import easy_tour

LEAST_FRAGMENT = 4


class HtspSolver(NetworkSolver):
    """H-TSP; ``--weights random`` runs untrained networks."""

    family = Family(
        params={"fragment": (int, 200), "new": (int, 0), "neighbours": (int, 40), "improve": (int, 0)},
        refused=dict.fromkeys(
            ("--coordinate-scale", "--logit-scale"), "{} has no effect on its networks; leave it out."
        ),
        budget=PerDevice(cpu=1, gpu=64),
    )

    def __init__(self, options: SolverOptions) -> None:
        super().__init__(options)
        if self.decoding.name != "greedy" or self.decoding.knn is not None:
            raise BadInputError(f"{self.name}: --decoding {options.decoding}: expected greedy or x8.")
        self.copies = self.decoding.augmentation
        fragment, neighbours, self.steps = (self.params[k] for k in ("fragment", "neighbours", "improve"))
        new = self.params["new"] or max(1, fragment - 10)
        if fragment < LEAST_FRAGMENT or not 1 <= new <= fragment - 2:
            raise BadInputError(
                f"{self.name}: fragment={fragment}, new={new}: expected at least {LEAST_FRAGMENT} cities, and new "
                "from 1 to two less."
            )
        if neighbours < 1 or self.steps < 0:
            raise BadInputError(f"{self.name}: expected neighbours >= 1 and improve >= 0.")
        self.sizes = Sizes(fragment, new, neighbours)

    def cost(self, dataset: Dataset) -> int:
        """Episodes of an instance."""
        return self.copies

    def decode(self, batch: Sequence[Instance], seed: int, time_limit: float | None) -> list[Outcome]:
        """Construct the tours, improve them until time is up, and keep the shortest of each instance."""
        instances, copies = cast("Sequence[TSPInstance]", batch), self.copies
        if instances[0].n <= 3:
            return [easy_tour(instance) or np.arange(instance.n) for instance in instances]
        end = deadline(time_limit, len(batch))
        scaled = np.stack([to_unit_square(i.arrays()["coords"]) for i in instances]).astype(np.float32)
        seen = torch.from_numpy(scaled)
        seen = symmetries(seen) if copies == SYMMETRIES else seen
        sizes = self.sizes.fit(instances[0].n)
        episodes = [begin(coords.numpy(), sizes.neighbours) for coords in seen]
        generators = [np.random.default_rng([seed + i // copies, i % copies]) for i in range(len(seen))]
        construct(self.policy, episodes, sizes)
        tours = improve(self.policy, episodes, sizes, self.steps, generators, end)
        outcomes: list[Outcome] = []
        for i in range(len(instances)):
            mine = tours[i * copies : (i + 1) * copies]
            lengths = [_length(scaled[i], tour) for tour in mine]
            outcomes.append(mine[int(np.argmin(lengths))])
        return outcomes


def _length(coords: np.ndarray, tour: np.ndarray) -> float:
    points = coords[tour].astype(np.float64)
    return float(np.linalg.norm(points - np.roll(points, -1, axis=0), axis=1).sum().round(9))

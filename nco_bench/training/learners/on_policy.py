"""Learning from the states that the policy itself comes to (DAgger, Ross, Gordon and Bagnell 2011), on the TSP.

Pieces of optimal tours show a policy only states in which no mistake was made before. In decoding it makes some, and
comes to states that it has never seen: nodes left behind, detours to make good. So, now and then, the policy solves
some instances greedily; at random places of its tours, what is left is solved anew, near-optimally, as a path from where it
stands through the nodes that remain to the start. These paths fill a pool that training draws from, beside pieces of labels.

The labels of the pool are fast-tsp's, within a time for each, or what the policy went on to do where that is shorter.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nco_bench.errors import BadInputError
from nco_bench.nn.device import exact
from nco_bench.solvers.path.construct import greedy
from nco_bench.solvers.path.precision import at_precision
from nco_bench.solvers.path.problem import tsp_problem
from nco_bench.training.data import LabelStream
from nco_bench.training.learner import Loss
from nco_bench.training.learners.best_paths import Solvers, best_paths, loaded_fast_tsp
from nco_bench.training.learners.pieces import SubPaths, draw_length, transformed
from nco_bench.training.learners.supervised import Supervised
from nco_bench.training.recipes import Recipe, batch_now

Shipping = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class OnPolicyRecipe(Recipe):
    """Numbers of learning from the policy's own states; see `Recipe` for the rest.

    Attributes
    ----------
    share
        Of the updates, how many learn from the pool; the others learn from pieces of the labels.
    pool
        Paths that are kept; then new ones take the place of the oldest.
    rollouts, every
        Instances that the policy solves at a time, and updates from one time to the next.
    cuts
        States that are solved of each of its tours.
    window
        A path of L rows is drawn from those of the pool with at most this many more: the state to learn is at most so many
        optimal decisions after one that the policy came to.
    solve_seconds
        For a path of 100 nodes, shorter ones in proportion.
    solvers
        Processes that solve states while training goes on, and are given new ones as soon as they run out, at the earliest
        after `every` updates. With 0 training waits, and two runs with the same seed are the same.
    """

    share: float = 0.6
    pool: int = 40_000
    rollouts: int = 128
    every: int = 200
    cuts: int = 16
    window: int = 6
    solve_seconds: float = 0.005
    solvers: int = 0


class Pool:
    """Solved paths of up to `rows` rows, which end in the last column, so that a cut at the front is a slice."""

    def __init__(self, size: int, rows: int) -> None:
        self.coords = np.zeros((size, rows, 2), np.float32)
        self.rows = np.zeros(size, np.int32)
        self.added = 0

    def __len__(self) -> int:
        return min(self.added, len(self.rows))

    def add(self, path: NDArray[np.floating]) -> None:
        """Keep a path ``(L, 2)`` in place of the oldest."""
        place = self.added % len(self.rows)
        self.coords[place, -len(path) :] = path
        self.rows[place] = len(path)
        self.added += 1

    def draw(self, length: int, count: int, window: int, rng: np.random.Generator) -> NDArray[np.float32]:
        """Return `count` paths ``(count, length, 2)`` cut down at the front; shorter ones while none is so long."""
        rows = self.rows[: len(self)]
        length = min(length, int(rows.max()))
        near = np.flatnonzero((rows >= length) & (rows <= length + window))
        chosen = near if len(near) else np.flatnonzero(rows >= length)
        return self.coords[rng.choice(chosen, count), self.coords.shape[1] - length :]


class OnPolicy:
    """Learning from labels and from the policy's own states, as one way to learn that the training loop takes.

    Parameters
    ----------
    policy
        A path policy.
    stream
        Labelled TSP instances; the policy solves some of them.
    recipe, seed, device
        As `Supervised` takes them.

    Raises
    ------
    BadInputError
        For other problems, and without fast-tsp.
    """

    shares_batches = True
    """Several processes may train together; each fills a pool of its own."""

    def __init__(
        self, policy: Any, stream: LabelStream, recipe: OnPolicyRecipe, seed: int, device: torch.device
    ) -> None:
        if stream.problem != "tsp":
            raise BadInputError(
                f"learner=on-policy: learns the TSP only, {stream.shards[-1]} is {stream.problem}."
            )
        loaded_fast_tsp()
        self.supervised = Supervised(policy, stream, recipe, seed, device)
        self.policy, self.stream, self.recipe, self.seed, self.device = policy, stream, recipe, seed, device
        self.group, self.teacher = self.supervised.group, self.supervised.teacher
        self.extra: nn.ModuleDict = self.supervised.extra
        self.pool: Pool | None = None
        self._solvers = Solvers(recipe.solvers, recipe.solve_seconds) if recipe.solvers else None
        self._filled_at = 0
        self._shipping: Shipping | None = None
        self._size = 0

    @property
    def solved(self) -> int:
        """How many states were solved for the pool, by all processes together."""
        return 0 if self.pool is None else self.pool.added * self.group.size

    def look_at(self, shipping: Shipping) -> None:
        """Take what puts the weights to ship into the policy."""
        self._shipping = shipping

    def loss(self, step: int, fraction: float) -> Loss:
        """Return the loss of the next batch, of labels or of the pool; now and then, fill the pool first."""
        self._refill(step)
        rng = np.random.default_rng([self.seed, step, 1])
        if self.pool is None or not len(self.pool) or rng.random() >= self.recipe.share:
            return self.supervised.loss(step, fraction)
        longest = min(self.recipe.longest, self.pool.coords.shape[1])
        length = draw_length(self.recipe.shortest, longest, self.recipe.lengths, rng)
        drawn = self.pool.draw(length, batch_now(self.recipe, step), self.recipe.window, self._own(step, 2))
        coords = torch.from_numpy(drawn).to(self.device, non_blocking=True)
        if self.recipe.symmetries:
            coords = transformed(coords, self._own(step, 3).integers(8, size=len(drawn)))
        return self.supervised.paths_loss(SubPaths(coords, False, self._size), step)

    def _own(self, step: int, stream: int) -> np.random.Generator:
        """Draw what each process draws for itself."""
        return np.random.default_rng([self.seed, step, stream, self.group.rank])

    def _refill(self, step: int) -> None:
        """Fill the pool: every so many updates, or with what others have solved meanwhile."""
        if self._solvers is None:
            if step % self.recipe.every == 0:
                self._fill(step)
            return
        for path in self._solvers.take():
            assert self.pool is not None
            self.pool.add(path)
        if not self._solvers.busy and (self.pool is None or step - self._filled_at >= self.recipe.every):
            self._filled_at = step
            self._fill(step)

    def _fill(self, step: int) -> None:
        """Let the policy solve instances, and solve what it leaves at random places of its tours, or have it solved."""
        assert self._shipping is not None
        batch = self.stream.take(self.recipe.rollouts)
        size = batch.ordered.shape[1]
        if not batch.tours or (self.pool is not None and size != self._size):
            return  # solved paths are no instances, and the pool is of one size
        ordered = batch.ordered[self.group.rows(len(batch.ordered)).numpy()]
        rng = self._own(step, 4)
        if self.pool is None:
            self.pool, self._size = Pool(self.recipe.pool, size), size
        begin = rng.integers(self._size, size=len(ordered))  # where tours begin
        rows = (begin[:, None] + np.arange(self._size)) % self._size
        coords = np.take_along_axis(ordered, rows[:, :, None], axis=1)
        for points, tour in zip(coords, self._tours(coords), strict=True):
            closed = points[np.append(tour, 0)]
            places = rng.permuted(np.arange(1, self._size - 2))[: self.recipe.cuts]
            left = [closed[done:] for done in np.sort(places)]
            if self._solvers is not None:
                self._solvers.give(left)
                continue
            for path in best_paths(left, self.recipe.solve_seconds):
                self.pool.add(path)

    def _tours(self, coords: NDArray[np.float32]) -> NDArray[np.int64]:
        """Solve instances greedily from node 0 with the weights to ship."""
        assert self._shipping is not None
        was_training = self.policy.training
        with self._shipping() as policy:
            policy.eval()
            fast = "fp32" if policy.in_place else self.recipe.precision
            running = at_precision(policy, type(policy).__name__, fast)
            with exact(self.device):  # of its own precision, not the update's
                found = greedy(running, tsp_problem(torch.from_numpy(coords).to(self.device)))
        self.policy.train(was_training)
        order = found.order.cpu().numpy()
        return np.concatenate([np.zeros((len(order), 1), np.int64), order], axis=1)

    def close(self) -> None:
        """End the processes that solve."""
        if self._solvers is not None:
            self._solvers.close()

    def position(self) -> dict[str, Any]:
        """Return where this stands among the labels, how many paths were solved, and the size of their instances."""
        solved = 0 if self.pool is None else self.pool.added
        return {**self.supervised.position(), "solved": solved, "size": self._size}

    def seek(self, position: dict[str, Any], *, adopt: bool = False) -> None:
        """Go to a saved position; raises `BadInputError` for other data, unless it is to be adopted."""
        labels = {k: v for k, v in position.items() if k not in ("solved", "size")}
        self.supervised.seek(labels, adopt=adopt)
        self._size = position.get("size", 0)
        solved = position.get("solved", 0)
        if self.pool is not None and min(solved, self.recipe.pool) == len(self.pool):
            self.pool.added = solved  # the oldest stand where they stood

    def tensors(self) -> dict[str, Tensor]:
        """Return the pool."""
        if self.pool is None:
            return {}
        kept = len(self.pool)
        return {
            "coords": torch.from_numpy(self.pool.coords[:kept]),
            "rows": torch.from_numpy(self.pool.rows[:kept]),
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take back what `tensors` returned."""
        if "rows" not in tensors:
            return
        kept = min(len(tensors["rows"]), self.recipe.pool)
        self.pool = Pool(self.recipe.pool, tensors["coords"].shape[1])
        self.pool.coords[:kept] = tensors["coords"][-kept:].numpy()
        self.pool.rows[:kept] = tensors["rows"][-kept:].numpy()
        self.pool.added = kept

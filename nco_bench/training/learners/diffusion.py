"""Learning to take the noise off the edges of good tours (DIFUSCO, Section 3), as its code does.

Each update puts noise of a random time on the edges of labelled tours; the network is to say which edges are the tour's
(categorical diffusion) or what the noise is (Gaussian). All draws are a function of seed, update and place in the batch, so
that neither devices nor processes change them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nco_bench.errors import BadInputError
from nco_bench.solvers.decoding.draws import Draws, instance_draws, scaled
from nco_bench.solvers.edges.diffusion import heat_maps, nearest_graph, normal_draws
from nco_bench.solvers.edges.difusco import Difusco, EdgeGraph
from nco_bench.solvers.edges.merge import edge_map, lengths, merge_greedily
from nco_bench.solvers.edges.noising import denoised, denoising_loss, noised, tour_edges
from nco_bench.training.courses import Assignment, Course, Prepared
from nco_bench.training.data import LabelStream
from nco_bench.training.distributed import group
from nco_bench.training.learner import Loss, Measure
from nco_bench.training.learners.pieces import transformed
from nco_bench.training.learners.supervised_course import prepare_with
from nco_bench.training.recipes import LoopRecipe

TIME, NOISE, ANGLE, STRETCH = 0, 1, 2, 3
"""Kinds of draws."""


@dataclass(frozen=True)
class DiffusionRecipe(LoopRecipe):
    """How DIFUSCO learns; see `LoopRecipe` for the rest.

    Attributes
    ----------
    neighbours
        Nearest nodes that each node is joined to, itself among them; 0 for the complete graph.
    symmetries
        Turn and mirror instances at random (x8).
    recompute
        Compute layers again for their gradients, in place of keeping all of it; saves memory and costs a third more time.
    validation_steps
        Steps of inference when validating, after which the heat map is merged greedily.
    """

    learner: str = "diffusion"
    batch: int = 64
    lr: float = 2e-4
    weight_decay: float = 1e-4
    decay_all: bool = True
    clip: float = 0.0
    schedule: str = "cosine"
    final_lr: float = 0.0
    validation_instances: int = 8
    neighbours: int = 0
    symmetries: bool = False
    recompute: bool = False
    validation_steps: int = 50


class Diffusion:
    """Supervised learning of a denoiser, as one way to learn that the training loop takes.

    Parameters
    ----------
    policy
        A `Difusco`.
    stream
        Labelled TSP instances.
    recipe, seed
        Graph and symmetries; the seed of all draws.
    device
        Where the policy is.
    """

    shares_batches = True
    """Several processes may train together, see `distributed`."""

    def __init__(
        self, policy: Difusco, stream: LabelStream, recipe: DiffusionRecipe, seed: int, device: torch.device
    ) -> None:
        self.policy, self.stream, self.recipe, self.seed, self.device = policy, stream, recipe, seed, device
        self.group = group()
        self.extra = nn.ModuleDict()
        policy.recomputes = recipe.recompute

    def loss(self, step: int, fraction: float) -> Loss:
        """Return the loss of the next instances; with the seed, `step` decides all draws."""
        batch = self.stream.take(self.recipe.batch)
        if not batch.tours:
            raise BadInputError("--data: holds paths; difusco learns from whole tours.")
        ordered, rng = batch.ordered, np.random.default_rng([self.seed, step])
        keys = torch.from_numpy(rng.integers(2**62, size=len(ordered)))
        if self.recipe.symmetries:
            turned = transformed(torch.from_numpy(ordered), rng.integers(8, size=len(ordered)))
            ordered = turned.numpy()
        mine = self.group.rows(len(ordered))
        loss = self.tours_loss(ordered[mine.numpy()], instance_draws(keys[mine].to(self.device)))
        return Loss(loss, loss, len(ordered))

    def tours_loss(self, ordered: NDArray[np.float32], draws: Draws) -> Tensor:
        """Return the mean loss over the edges of instances ``(B, N, 2)`` in the order of their tours."""
        config, nodes = self.policy.config, ordered.shape[1]
        graph = tour_graph(ordered, self.recipe.neighbours, self.device)
        edges = tour_edges((torch.arange(nodes, device=self.device) + 1)[None] % nodes, graph.neighbours)
        edges = edges.expand(graph.shape)
        time = 1 + scaled(draws.uniform(0, TIME), config.timesteps).squeeze(1)
        count = nodes * edges.shape[2]

        def uniform(kind: int) -> Tensor:
            return draws.uniform(0, kind, count).view(edges.shape)

        noise = normal_draws(uniform(NOISE), uniform(ANGLE)) if config.kind == "gaussian" else uniform(NOISE)
        state = noised(config, edges, time, noise.float(), uniform(STRETCH).float())
        return denoising_loss(config, denoised(self.policy, graph, state, time), edges, noise.float())

    def position(self) -> dict[str, Any]:
        """Return where in the data this stands."""
        return self.stream.position()

    def seek(self, position: dict[str, Any], *, adopt: bool = False) -> None:
        """Go to a saved position; raises `BadInputError` for other data, unless it is to be adopted."""
        self.stream.seek(position, adopt=adopt)


def tour_graph(coords: NDArray[np.float32], neighbours: int, device: torch.device) -> EdgeGraph:
    """Return the graphs of instances ``(B, N, 2)``: of so many nearest neighbours, or complete for 0."""
    points = torch.from_numpy(np.ascontiguousarray(coords)).to(device)
    if not 0 < neighbours < coords.shape[1]:
        return EdgeGraph(points)
    near = np.stack([nearest_graph(one.astype(np.float64), neighbours) for one in coords])
    return EdgeGraph(points, torch.from_numpy(near).to(device))


def merged_gap(policy: Difusco, ordered: NDArray[np.float32], recipe: DiffusionRecipe) -> Measure:
    """Make a heat map of each instance, merge it greedily, and compare with the label, ``(B, N, 2)`` in its order."""
    device, gaps = next(policy.parameters()).device, []
    label = np.arange(ordered.shape[1])
    for index, one in enumerate(ordered):
        graph = tour_graph(one[None], recipe.neighbours, device)
        key = instance_draws(torch.tensor([index])).stream
        heat = heat_maps(policy, graph, key, steps=recipe.validation_steps).cpu().numpy()[0]
        points = one.astype(np.float64)
        near = None if graph.neighbours is None else graph.neighbours[0].cpu().numpy()
        tour = merge_greedily(edge_map(points, heat, near)).tour
        found, wanted = (lengths(points, t, np.roll(t, -1)).sum() for t in (tour, label))
        gaps.append(100 * (found / wanted - 1))
    return Measure.of(np.array(gaps))


def prepare(assignment: Assignment) -> Prepared:
    """Build the network, read labels, hold some out."""
    recipe: DiffusionRecipe = assignment.recipe

    def judge(policy: Any, ordered: NDArray[np.float32]) -> Measure:
        return merged_gap(policy, ordered, recipe)

    prepared = prepare_with(
        assignment, Diffusion, judge, f"a heat map in {recipe.validation_steps} steps, merged greedily"
    )
    times = cast("Difusco", prepared.policy).config.timesteps
    if recipe.validation_steps > times:
        raise BadInputError(
            f"--config validation_steps={recipe.validation_steps}: the model knows {times} time steps."
        )
    return prepared


def checked(model: str, recipe: DiffusionRecipe) -> DiffusionRecipe:
    """Check a recipe; raises `BadInputError`."""
    if recipe.neighbours == 1:
        raise BadInputError("--config neighbours=1: a node is its own nearest; give 2 or more, or 0 for all.")
    if recipe.validation_steps < 1:
        raise BadInputError(f"--config validation_steps={recipe.validation_steps}: expected more than 0.")
    return recipe


COURSE = Course("diffusion", DiffusionRecipe, prepare, checked)

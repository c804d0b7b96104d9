"""Every path model learns from labels: given the same few pieces again and again, it must come to know them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nco_bench.cards import networks
from nco_bench.datasets.dataset import Dataset, Origin, Reference
from nco_bench.datasets.storage import save_dataset
from nco_bench.nn.build import build_path_policy
from nco_bench.problems import cvrp
from nco_bench.solvers.decoding.insertion import insert_cvrp
from nco_bench.solvers.path.policy import PathNodes, path_state
from nco_bench.solvers.path.problem import route_arrays
from nco_bench.training.data import Batch, LabelStream
from nco_bench.training.learner import Loss
from nco_bench.training.learners.pieces import draw_route_pieces
from nco_bench.training.learners.supervised import (
    NodeTokens,
    Supervised,
    next_visit_loss,
)
from nco_bench.training.recipes import recipe_for
from nco_bench.training.shards import pack_routes, read_shard
from nco_bench.training.trainer import Trainer

PATH_MODELS = {name: card for name, card in networks().items() if card.family == "path"}
LIGHT: dict[str, dict[str, int]] = {
    "decoder-6x128": {"depth": 2, "width": 32, "heads": 2, "ffn": 64},
    "lehd": {"width": 32, "heads": 2, "ffn": 64, "decoder_layers": 2},
    "bq": {"width": 32, "heads": 2, "ffn": 64, "layers": 3},
    "sigd": {"width": 32, "heads": 2, "ffn": 64, "blocks": 2},
    "sigd-lehd": {"width": 32, "heads": 2, "ffn": 64, "blocks": 2},
    "sit": {"width": 32, "heads": 2, "ffn": 64, "layers": 2, "repeats": 4},
    "pens-a": {"width": 32, "heads": 2, "ffn": 64, "layers": 2},
    "pens-r": {"width": 32, "heads": 2, "ffn": 64, "layers": 2},
    "pens-ar": {"width": 32, "heads": 2, "ffn": 64, "layers": 2},
    "coordns": {"width": 32, "heads": 2, "ffn": 64, "layers": 2},
}


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eighty CVRP instances of 8 customers with solutions by insertion."""
    rng = np.random.default_rng(5)
    instances, references = [], []
    for number in range(80):
        coords, demand = rng.random((9, 2)), rng.integers(1, 5, 8)
        instance = cvrp.CVRPInstance(f"r{number}", coords[0], coords[1:], demand, capacity=10)
        order, via = insert_cvrp(coords.astype(np.float32), np.concatenate([[0], demand]), 10)
        solution = route_arrays(torch.from_numpy(order)[None], torch.from_numpy(via)[None])[0]
        instances.append(instance)
        references.append(Reference(cvrp.score(instance, solution), "insertion", solution))
    dataset = Dataset("routes", "cvrp", instances, references, Origin("test"))
    return save_dataset(dataset, tmp_path_factory.mktemp("routes") / "routes.npz")


class Same:
    """A stream that returns the same instances forever."""

    def __init__(self, problem: str, batch: Batch) -> None:
        self.problem, self.batch = problem, batch

    def take(self, count: int) -> Batch:
        """Return them."""
        return self.batch


def _memorised(model: str, problem: str, batch: Batch) -> tuple[float, float]:
    """Learn the same pieces again and again; returns the first loss and the lowest of the last ten.

    At this rate a step now and then overshoots, on which one depends on the machine's rounding: one such is no forgetting.
    """
    torch.manual_seed(0)
    policy: Any = build_path_policy(model, problem, **LIGHT[model]).train()
    recipe = recipe_for(model, {"shortest": "7", "longest": "7", "longest_start": "7"})
    learner = Supervised(policy, Same(problem, batch), recipe, 1, torch.device("cpu"))  # type: ignore[arg-type]
    optimizer = torch.optim.Adam([*policy.parameters(), *learner.extra.parameters()], lr=3e-3)
    losses = []
    for _ in range(80):
        torch.manual_seed(1)  # else PENS draws other node vectors each time, and learns nothing by heart
        loss = learner.loss(0, 1.0)  # the same step draws the same pieces
        optimizer.zero_grad()
        loss.total.backward()
        optimizer.step()
        losses.append(loss.reported.item())
    return losses[0], min(losses[-10:])


@pytest.mark.parametrize("model", list(LIGHT))
def test_pieces_of_tours_are_learned(model: str, shards: list[Path]) -> None:
    batch = read_shard(shards[0])
    first, last = _memorised(model, "tsp", Batch(batch.ordered[:6], True))
    assert last < 0.7 * first


@pytest.mark.parametrize("model", ["lehd", "bq", "sigd", "sigd-lehd", "sit"])
def test_pieces_of_routes_are_learned(model: str, routes: Path) -> None:
    first, last = _memorised(model, "cvrp", Batch(read_shard(routes).ordered[:6], True))
    assert last < 0.7 * first


def test_every_path_model_has_recipes() -> None:
    for model in PATH_MODELS:
        assert recipe_for(model, {}).steps == 0
        assert recipe_for(model, {"recipe": "paper"}).optimizer in ("adam", "adamw")
    assert recipe_for("lehd", {"recipe": "paper"}).lr == 1e-4
    assert recipe_for("bq-esf", {"recipe": "paper"}).batch == 512


def test_pieces_of_routes_keep_loads(routes: Path) -> None:
    """Whatever was reversed and rotated, the piece can be driven: loads fit, and the vehicle ends at the depot."""
    packed = LabelStream([routes], 0).take(64).ordered
    for customers in (2, 5, 8):
        rng = np.random.default_rng(customers)
        coords, demand, remaining, via, capacity = draw_route_pieces(packed, customers, rng, True)
        assert coords.shape == (64, customers + 1, 2)
        assert (demand[:, -1] == 0).all()
        left = remaining.clone()
        for place in range(1, customers):
            left = torch.where(via[:, place], capacity, left) - demand[:, place]
            assert (left >= 0).all()


def test_pieces_of_whole_solutions_have_their_length(routes: Path) -> None:
    """All customers, reversed and rotated: as long as the label."""
    packed = LabelStream([routes], 0).take(16).ordered
    coords, demand, remaining, via, capacity = draw_route_pieces(packed, 8, np.random.default_rng(1), True)
    assert via[:, 0].all()
    assert torch.equal(remaining + demand[:, 0], capacity)
    depot = coords[:, -1:]
    points = coords[:, :-1]
    previous = torch.where(via[..., None], depot, points.roll(1, 1))
    # The way back to the depot ends each route: one per flag.
    home = (points - depot).norm(dim=2)[torch.cat([via[:, 1:], torch.ones_like(via[:, :1])], 1)].sum()
    length = (points - previous).norm(dim=2).sum() + home
    flags, xy = packed[:, 1:, 3] > 0, packed[..., :2]
    expected = 0.0
    for instance, flag in zip(xy, flags, strict=True):
        here = instance[0]
        for point, start in zip(instance[1:], flag, strict=True):
            if start:
                expected += float(np.linalg.norm(here - instance[0]))
                here = instance[0]
            expected += float(np.linalg.norm(point - here))
            here = point
        expected += float(np.linalg.norm(here - instance[0]))
    assert float(length) == pytest.approx(expected, rel=1e-5)


def test_a_piece_ends_with_every_route_equally_often() -> None:
    """LEHD and SIT draw the route whose end is the piece's uniformly, also where it does not divide the customers."""
    xy = [[0.5, 0.5], [0.1, 0.5], [0.3, 0.5], [0.7, 0.5], [0.9, 0.5]]
    solution = np.array([1, 0, 2, 0, 3, 4])  # three routes of four customers
    packed = pack_routes(np.array(xy), np.array([0, 1, 1, 1, 1]), 2, solution)
    coords, *_ = draw_route_pieces(np.stack([packed] * 6000), 2, np.random.default_rng(0), False)
    last = coords[:, -2, 0]
    shares = [float((last < 0.2).float().mean()), float(((last > 0.2) & (last < 0.5)).float().mean())]
    assert [*shares, 1 - sum(shares)] == pytest.approx([1 / 3] * 3, abs=0.03)


def test_the_loss_of_a_visit_by_hand() -> None:
    scores = torch.tensor([[[1.0, 2.0], [0.0, -math.inf]]])
    total = math.log(math.e + math.e**2 + 1)
    for flag, score in ((False, 1.0), (True, 2.0)):
        loss = next_visit_loss(scores, torch.tensor([flag]), closed=False)
        assert loss.item() == pytest.approx(total - score, rel=1e-6)
    both = next_visit_loss(scores, torch.tensor([True]), closed=True)
    assert both.item() == pytest.approx(total - math.log(math.e + math.e**2), rel=1e-6)


@pytest.mark.parametrize("model", ["lehd", "bq", "sit", "coordns"])
def test_the_auxiliary_loss_sees_the_nodes_between_in_their_order(model: str) -> None:
    torch.manual_seed(0)
    policy: Any = build_path_policy(model, "tsp", **LIGHT[model]).train()
    for parameter in policy.parameters():  # ReZero's zeros would hide the layers
        torch.nn.init.normal_(parameter, std=0.2)
    tokens, kept = NodeTokens(policy), []
    coords = torch.rand(1, 9, 2)
    swapped = coords[:, [0, 1, 2, 5, 4, 3, 6, 7, 8]]
    for points in (coords, swapped):
        nodes = PathNodes(points, None, 9)
        policy.scores(path_state(nodes, policy.embed(nodes), torch.arange(9)[None], closed=False))
        kept.append(tokens.take(7)[0])
    plain, other = kept
    alike = (plain[:, None] - other[None]).norm(dim=2).argmin(dim=1).tolist()
    assert alike == [0, 1, 4, 3, 2, 5, 6]  # of nodes 1..7, the third and the fifth changed places


@pytest.mark.parametrize("slope", [0, 1])
@pytest.mark.parametrize("optimizer", ["adamw", "adam", "muon"])
def test_weight_decay_leaves_trainable_slopes_alone_and_their_gradient_moves_them(
    optimizer: str, slope: int, tmp_path: Path
) -> None:
    """PENS, A.3: with weight decay they converged to zero. Where the loss has no gradient only decay moves a weight."""
    policy: Any = build_path_policy("pens-a", "tsp", **LIGHT["pens-a"], trainable_slopes=True).train()
    recipe = recipe_for("pens-a", {"optimizer": optimizer, "lr": "0.1", "weight_decay": "0.5"})

    class Nothing:
        """A learner whose loss has gradients of zero, but for the slopes where asked."""

        extra = torch.nn.ModuleDict()

        def loss(self, step: int, fraction: float) -> Loss:
            """Return 0."""
            total = (
                torch.stack([p.sum() for p in policy.parameters()]).sum() * 0 + slope * policy.slopes.sum()
            )
            return Loss(total, total, 1)

    slopes, matrix = policy.slopes.detach().clone(), policy.key.weight.detach().clone()
    Trainer(policy, Nothing(), recipe, tmp_path, {}).update(1.0)  # type: ignore[arg-type]
    assert torch.equal(policy.slopes.detach(), slopes) == (slope == 0)
    assert not torch.equal(policy.key.weight.detach(), matrix)


def test_the_penalty_of_slopes_is_part_of_the_loss_and_not_of_what_is_reported() -> None:
    policy: Any = build_path_policy(
        "pens-a", "tsp", **LIGHT["pens-a"], trainable_slopes=True, slope_penalty=3.0
    )
    with torch.no_grad():
        policy.slopes.zero_()
    ordered = np.random.default_rng(1).random((4, 8, 2)).astype(np.float32)
    recipe = recipe_for("pens-a", {"shortest": "7", "longest": "7", "longest_start": "7", "auxiliary": "0"})
    learner = Supervised(policy.train(), Same("tsp", Batch(ordered, True)), recipe, 1, torch.device("cpu"))  # type: ignore[arg-type]
    loss = learner.loss(0, 1.0)
    assert float((loss.total - loss.reported).detach()) == pytest.approx(3.0)

"""Self-improved learning: pseudo-labels never get longer, stay solutions, and a run continues where it was."""

from __future__ import annotations

import copy
import itertools
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from nco_bench.cards import card
from nco_bench.datasets.names import parse_generated
from nco_bench.errors import BadInputError
from nco_bench.nn.build import build_path_policy
from nco_bench.problems import cvrp
from nco_bench.solvers.decoding.spec import parse_decoding
from nco_bench.solvers.path.decode import decode_path
from nco_bench.solvers.path.policy import PathNodes, PathPolicy, PathState
from nco_bench.solvers.path.problem import cvrp_problem, route_arrays, tsp_problem
from nco_bench.training.learners.pseudo_labels import PseudoLabels, SelfRecipe, draw_instances
from nco_bench.training.learners.sampling import sample_without_replacement
from nco_bench.training.learners.self_improved import SelfImproved
from nco_bench.training.learners.self_improved_course import COURSE
from nco_bench.training.run import train

LIGHT = {"width": 16, "heads": 2, "ffn": 32, "layers": 1, "repeats": 2}


class Fixed(PathPolicy):
    """A policy that scores nodes by a fixed table, whatever is left."""

    problem = "tsp"

    def __init__(self, weights: list[float]) -> None:
        self.log = torch.log(torch.tensor(weights, dtype=torch.float64))

    def embed(self, nodes: Any) -> torch.Tensor:
        """Return the weights of the nodes."""
        return self.log.expand(len(nodes.coords), -1)[..., None]

    def scores(self, state: PathState) -> torch.Tensor:
        """Return them for the candidates."""
        return state.features[:, 1:-1, 0]


def _probability(order: tuple[int, ...], weights: list[float]) -> float:
    left, probability = sum(weights[1:]), 1.0
    for node in order:
        probability *= weights[node] / left
        left -= weights[node]
    return probability


def test_samples_are_distinct_and_the_first_is_drawn_from_the_policy() -> None:
    """The sample with the largest perturbed value follows the policy; compared with the exact distribution (3! tours)."""
    weights = [1.0, 1.0, 2.0, 4.0]
    problem = tsp_problem(torch.rand(4000, 4, 2, generator=torch.Generator().manual_seed(1)))
    paths = sample_without_replacement(Fixed(weights), problem, 3, torch.Generator().manual_seed(2))  # type: ignore[arg-type]
    orders = paths.order.view(-1, 3, 3)
    for row in orders[:200].tolist():
        assert len({tuple(order) for order in row}) == 3
    found = Counter(tuple(order) for order in orders[:, 0].tolist())
    for order in itertools.permutations((1, 2, 3)):
        expected = _probability(order, weights)
        error = math.sqrt(expected * (1 - expected) / 4000)
        assert found[order] / 4000 == pytest.approx(expected, abs=4.5 * error)
    row = tuple(orders[0, 0].tolist())
    assert paths.log_prob[0].item() == pytest.approx(math.log(_probability(row, weights)), rel=1e-6)


def test_all_solutions_are_found_where_few_exist() -> None:
    problem = tsp_problem(torch.rand(1, 4, 2, generator=torch.Generator().manual_seed(1)))
    paths = sample_without_replacement(Fixed([1.0, 1, 2, 3]), problem, 50, torch.Generator().manual_seed(0))  # type: ignore[arg-type]
    assert {tuple(o) for o in paths.order.tolist()} == set(itertools.permutations((1, 2, 3)))
    assert paths.log_prob.exp().sum().item() == pytest.approx(1.0)


class Repaired(PathPolicy):
    """Scores customers by a fixed table, directly and via the depot, and leaves what does not fit to the repair rule."""

    problem, repairs = "cvrp", True

    def embed(self, nodes: PathNodes) -> torch.Tensor:
        """Return the logarithms of both weights of each node."""
        table = torch.tensor([[1.0, 1], [1, 1], [3, 3], [1, 3]], dtype=torch.float64)
        return table.log().expand(len(nodes.coords), -1, -1)

    def scores(self, state: PathState) -> torch.Tensor:
        """Return them for the candidates."""
        return state.features[:, 1:-1]


def test_a_customer_is_drawn_as_often_as_by_both_choices_that_the_repair_rule_makes_one() -> None:
    """At the depot either choice goes there: 2, 6 and 4 of 12; the larger of each pair would be 1, 3 and 3 of 7."""
    count = 4000
    demand = torch.tensor([0, 1, 1, 1]).repeat(count, 1)
    problem = cvrp_problem(torch.rand(count, 4, 2), demand, torch.full((count,), 3))
    paths = sample_without_replacement(Repaired(), problem, 2, torch.Generator().manual_seed(3))
    first = paths.order.view(count, 2, 3)[:, 0, 0]
    for customer, expected in ((1, 1 / 6), (2, 1 / 2), (3, 1 / 3)):
        error = math.sqrt(expected * (1 - expected) / count)
        assert (first == customer).double().mean().item() == pytest.approx(expected, abs=4.5 * error)


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
@pytest.mark.parametrize("method", ["prc", "samples"])
def test_labels_never_get_longer_and_stay_solutions(problem: str, method: str) -> None:
    torch.manual_seed(0)
    recipe = SelfRecipe(size=12, instances=8, method=method, iterations=4, samples=8, chunk=5)
    labels = PseudoLabels(problem, recipe, 1)
    policy = build_path_policy("sit", problem, **LIGHT)
    lengths = [labels.lengths()]
    for round_number in range(3):
        labels.improve(policy, round_number)
        lengths.append(labels.lengths())
    for before, after in itertools.pairwise(lengths):
        assert (after <= before + 1e-9).all()
    if (method, problem) == (
        "prc",
        "tsp",
    ):  # an untrained policy rarely beats insertion by samples, or with loads
        assert lengths[-1].sum() < lengths[0].sum()
    if problem == "tsp":
        assert torch.equal(labels.order.sort(1).values, torch.arange(12).expand(8, -1))
        return
    instances = labels.instances
    assert instances.demand is not None
    assert instances.capacity is not None
    assert labels.via is not None
    for row, solution in enumerate(route_arrays(labels.order, labels.via)):
        coords = instances.coords[row].double().numpy()
        demand, capacity = instances.demand[row, 1:].numpy(), float(instances.capacity[row])
        instance = cvrp.CVRPInstance("i", coords[0], coords[1:], demand, capacity)
        assert cvrp.violations(instance, solution) == ()
        assert cvrp.score(instance, solution) == pytest.approx(labels.lengths()[row].item(), rel=1e-6)


@pytest.mark.parametrize(("walk", "problem"), [("no", "tsp"), ("yes", "tsp"), ("yes", "cvrp")])
def test_a_self_improved_run_resumes_on_the_same_trajectory(tmp_path: Path, walk: str, problem: str) -> None:
    config = {
        "learner": "self-improved", "size": "8", "instances": "6", "batch": "3", "rounds_updates": "4", "steps": "15",
        "iterations": "2", "longest": "9", "longest_start": "9", "validation_instances": "4", "log_every": "1",
        "checkpoint_every": "0", "judged_updates": "1", "walk": walk, "schedule": "constant",
        **{f"model.{key}": str(value) for key, value in LIGHT.items()},
    }  # fmt: skip
    whole = train("sit", (), config, out=tmp_path / "whole", problem=problem, progress="silent")
    for steps in range(1, 15):  # cut after every update
        short = {**config, "steps": str(steps)}
        resumed = steps > 1
        train(
            "sit",
            (),
            short,
            out=tmp_path / "cut",
            problem=problem,
            resume=resumed,
            adopt=True,
            progress="silent",
        )
    cut = train(
        "sit", (), config, out=tmp_path / "cut", problem=problem, resume=True, adopt=True, progress="silent"
    )
    assert (whole.steps, cut.steps) == (15, 15)
    ours, theirs = (load_file(done.weights) for done in (whole, cut))
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())
    assert np.isfinite(whole.validation_gap or np.nan)


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_segments_of_the_improvement_are_no_longer_than_l_max(problem: str) -> None:
    """Algorithm 1 gives l_max to LocalReconstruction too; the paper's Table 5 varies it."""
    torch.manual_seed(0)
    recipe = SelfRecipe(size=60, instances=2, iterations=12, chunk=2, shortest=4, longest=9, longest_start=9)
    labels = PseudoLabels(problem, recipe, 1)
    policy: Any = build_path_policy("sit", problem, **LIGHT)
    seen: list[int] = []
    embed = policy.embed

    def watched(nodes: Any) -> torch.Tensor:
        seen.append(nodes.coords.shape[1] - (problem == "cvrp"))  # a segment's nodes, the depot not counted
        return embed(nodes)

    policy.embed = watched
    labels.improve(policy, 1)
    assert len(seen) == 12
    assert max(seen) <= 9
    assert len(set(seen)) > 3


@pytest.mark.parametrize(
    ("size", "capacity"),
    [
        (100, 50),
        (200, 80),
        (300, 100),
        (500, 100),
        (700, 100),
        (1000, 250),
        (5000, 500),
        (10_000, 1000),
        (50_000, 2000),
    ],
)
def test_cvrps_have_the_capacities_of_the_literature(size: int, capacity: int) -> None:
    """SIT, section 5, and 100 for 300 to 700 customers (appendix H)."""
    assert draw_instances("cvrp", size, 1, 5, 3).capacity.tolist() == [capacity]


@pytest.mark.parametrize("size", [10, 15, 50, 250, 700, 2000, 7000, 20_000])
def test_cvrps_have_the_capacity_of_the_dataset_of_their_size(size: int) -> None:
    """Otherwise what is trained at `size=2000` would be another problem than `--data cvrp2000`."""
    named = dict(parse_generated(f"cvrp{size}").params)
    assert draw_instances("cvrp", size, 1, 5, 3).capacity.tolist() == [int(named["capacity"])]


def test_a_round_ends_with_the_best_of_its_weights() -> None:
    """SIT, Appendix E: each iteration saves the model with the best greedy performance, which the next one begins with."""
    torch.manual_seed(0)
    recipe = SelfRecipe(
        size=10, instances=4, batch=4, iterations=1, chunk=4, longest=11, longest_start=11, rounds_updates=4,
        judged_updates=1,
    )  # fmt: skip
    policy: Any = build_path_policy("sit", "tsp", **LIGHT)
    held_out = draw_instances("tsp", 10, 32, 5, 3)
    learner = SelfImproved(policy, PseudoLabels("tsp", recipe, 1), held_out, recipe, 1, torch.device("cpu"))
    tried: dict[int, tuple[float, dict[str, torch.Tensor]]] = {}

    def disturb(step: int) -> None:
        """Draw other weights after an update, and note how long their greedy tours are."""
        with torch.no_grad():
            for value in policy.parameters():
                value.normal_(0, 0.3, generator=torch.Generator().manual_seed(90 + step))
        tried[step] = (_mean_tour(policy, held_out.coords), copy.deepcopy(policy.state_dict()))

    def best(steps: range) -> dict[str, torch.Tensor]:
        return min((tried[step] for step in steps), key=lambda entry: entry[0])[1]

    for step in range(9):
        learner.loss(step, 0.0)
        if step in (4, 8):  # a new round has begun, with the best of the four before
            expected = best(range(step - 3, step + 1))
            assert all(torch.equal(value, expected[k]) for k, value in policy.state_dict().items())
        disturb(step + 1)
    for last in (4, 8):  # else the test would say nothing
        assert tried[last][0] > min(tried[step][0] for step in range(last - 3, last))
    chosen = learner.chosen(9)
    assert all(torch.equal(value, tried[9][1][k]) for k, value in chosen.items())


def _mean_tour(policy: Any, coords: torch.Tensor) -> float:
    """Mean length of greedy tours from node 0, by the referee."""
    tours = decode_path(policy, coords, None, None, decoding=parse_decoding("greedy"), seed=0)
    points = coords.double().numpy()
    pairs = [(points[row][tour], points[row][np.roll(tour, -1)]) for row, tour in enumerate(tours)]
    return float(np.mean([np.linalg.norm(a - b, axis=1).sum() for a, b in pairs]))


@pytest.mark.parametrize("improve_first", [False, True])
def test_a_trained_network_improves_the_labels_before_it_learns_from_them(improve_first: bool) -> None:
    """SIT, Algorithm 1: an iteration re-constructs the labels with the model that it has, then trains it on them."""
    recipe = SelfRecipe(
        size=40, instances=8, batch=4, iterations=20, chunk=8, longest=8, longest_start=8, rounds_updates=4,
        improve_first=improve_first,
    )  # fmt: skip
    torch.manual_seed(3)
    labels, held_out = PseudoLabels("tsp", recipe, 5), draw_instances("tsp", 40, 2, 5, 3)
    by_insertion = labels.lengths()
    learner = SelfImproved(
        build_path_policy("sit", **LIGHT), labels, held_out, recipe, 5, torch.device("cpu")
    )
    learner.loss(0, 0.0)
    assert (labels.lengths() <= by_insertion).all()
    assert bool((labels.lengths() < by_insertion).any()) is improve_first
    assert learner.rounds == 0


def test_the_paper_recipe_makes_an_update_per_decision() -> None:
    """SIT, Table 6 and Algorithm 4: 8 iterations x 20 epochs x 20,000 / 256 batches x (omega - 2) decisions."""
    recipe = COURSE.recipe("sit", {"recipe": "paper"})
    decisions = np.mean([omega - 2 for omega in range(4, 1001)])
    batches = math.ceil(20_000 / 256)
    assert recipe.walk
    assert recipe.steps == 8 * 20 * batches * decisions
    assert recipe.rounds_updates == 20 * batches * decisions
    assert recipe.decay_every == recipe.judged_updates == batches * decisions
    assert card("sit").paper_samples("self-improved", "tsp", 1000) == 8 * 20 * 20_000 * decisions
    assert card("sit").paper_samples("self-improved", "cvrp", 10_000) == 4 * 20 * 200 * decisions
    assert card("sit").paper_samples("self-improved", "tsp", 100) is None


def test_ema_is_refused() -> None:
    with pytest.raises(BadInputError, match="best weights of a round"):
        COURSE.recipe("sit", {"ema": "0.9"})

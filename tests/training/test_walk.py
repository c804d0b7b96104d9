"""A walk learns every decision of a piece: the states are those that decoding along the label would see."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nco_bench.solvers.path.policy import PathPolicy, PathState
from nco_bench.training.courses import course_for
from nco_bench.training.data import Batch, LabelStream
from nco_bench.training.learners.supervised import Supervised
from nco_bench.training.recipes import Recipe
from nco_bench.training.shards import pack_routes

RECIPE = Recipe(batch=3, shortest=4, longest=11, longest_start=11, symmetries=False, walk=True)


class Watch(torch.nn.Module, PathPolicy):
    """A policy without preference that keeps what it sees."""

    def __init__(self, problem: str) -> None:
        super().__init__()
        self.problem = problem
        self.states: list[PathState] = []

    def embed(self, nodes: Any) -> torch.Tensor:
        """Return the coordinates."""
        return nodes.coords

    def scores(self, state: PathState) -> torch.Tensor:
        """Keep the state; all candidates are alike."""
        self.states.append(state)
        shape = (len(state.coords), state.candidates, 2)[: 3 if self.problem == "cvrp" else 2]
        return torch.zeros(shape)


class Routes:
    """One CVRP solution, again and again."""

    problem = "cvrp"

    def __init__(self, packed: np.ndarray) -> None:
        self.packed = packed

    def take(self, count: int) -> Batch:
        """Return it."""
        return Batch(self.packed, True)

    def position(self) -> dict[str, Any]:
        """Stand where it stands."""
        return {}


def _walks(states: list[PathState]) -> Iterator[list[PathState]]:
    """Cut a run of states into walks: each state of one has a row less than the one before."""
    walk = [states[0]]
    for state in states[1:]:
        if state.coords.shape[1] >= walk[-1].coords.shape[1]:
            yield walk
            walk = []
        walk.append(state)


def test_a_walk_goes_from_the_first_to_the_last_decision_of_a_piece(shards: list[Path]) -> None:
    """Algorithm 4: for t = 2 ... omega - 1, of a piece of omega nodes, each update after the other."""
    policy = Watch("tsp")
    learner = Supervised(policy, LabelStream(shards, 1), RECIPE, 1, torch.device("cpu"))
    for step in range(150):
        learner.loss(step, 0.0)
    walks = list(_walks(policy.states))
    assert len({walk[0].coords.shape[1] for walk in walks}) > 4
    for walk in walks:
        omega = walk[0].coords.shape[1]
        assert len(walk) == omega - 2
        for t, state in enumerate(walk):
            assert torch.equal(state.coords, walk[0].coords[:, t:])
            assert state.closed == (omega == 11 and t == 0)


def test_loads_along_a_walk_are_those_of_the_routes() -> None:
    """Customers 1 to 6 in routes (1 2 3) and (4 5 6), demands 1 to 6, capacity 20: what is left, by hand."""
    coords = np.random.default_rng(0).random((7, 2))
    packed = pack_routes(coords, np.arange(7), 20, np.array([0, 1, 2, 3, 0, 4, 5, 6, 0]))[None]
    policy = Watch("cvrp")
    learner = Supervised(policy, Routes(packed), RECIPE, 1, torch.device("cpu"))  # type: ignore[arg-type]
    for step in range(60):
        learner.loss(step, 0.0)
    walks = list(_walks(policy.states))
    for walk in walks:
        lefts = [round(20 * state.remaining.item()) for state in walk if state.remaining is not None]
        served = [round(20 * state.demand[0, 0].item()) for state in walk if state.demand is not None]
        assert lefts == _lefts(lefts[0], served)
    assert any(walk[0].closed for walk in walks)
    assert {len(walk) for walk in walks} == {2, 3, 4, 5, 6}


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("lehd", {"recipe": "paper-cvrp"}),
        ("sit", {"recipe": "paper"}),
        ("sit", {"recipe": "paper-without-sit"}),
        ("sit", {"learner": "self-improved", "recipe": "paper"}),
        ("sit", {"learner": "self-improved", "recipe": "paper-100k"}),
        ("bq", {"learner": "self-improved", "recipe": "paper-5k"}),
    ],
)
def test_pieces_of_routes_have_four_customers_or_more_in_the_papers_that_say_so(
    model: str, options: dict[str, str]
) -> None:
    """`torch.randint(low=4, ...)` in the codes of LEHD and SIT, Uniform[4, l_max] in SIT's Algorithms 3 and 4."""
    recipe: Any = course_for(model, options, has_data=True)[1].recipe(model, options)
    coords = np.random.default_rng(0).random((7, 2))
    packed = pack_routes(coords, np.arange(7), 20, np.array([0, 1, 2, 3, 0, 4, 5, 6, 0]))[None]
    policy = Watch("cvrp")
    own = dataclasses.replace(recipe, batch=1, longest=6, longest_start=6)
    learner = Supervised(policy, Routes(packed), own, 1, torch.device("cpu"))  # type: ignore[arg-type]
    for step in range(60):
        learner.loss(step, 0.0)
    # The vehicle stands at the first customer: a piece of four has three decisions.
    assert {len(walk) for walk in list(_walks(policy.states))[:-1]} == {3, 4, 5}


def _lefts(first: int, served: list[int]) -> list[int]:
    """Follow customers by their demands; 0 is the depot, and the routes are {1, 2, 3} and {4, 5, 6}."""
    lefts = [first]
    for before, now in itertools.pairwise(served):
        new_route = before == 0 or (before <= 3) != (now <= 3)
        lefts.append((20 if new_route else lefts[-1]) - now)
    return lefts


@pytest.mark.parametrize("updates", [1, 2, 5, 9, 14])
def test_a_walk_goes_on_where_it_was_interrupted(shards: list[Path], updates: int) -> None:
    one, other = Watch("tsp"), Watch("tsp")
    whole = Supervised(one, LabelStream(shards, 1), RECIPE, 1, torch.device("cpu"))
    for step in range(updates):
        whole.loss(step, 0.0)
    resumed = Supervised(other, LabelStream(shards, 1), RECIPE, 1, torch.device("cpu"))
    resumed.seek(whole.position())
    one.states.clear()
    for step in range(updates, updates + 12):
        whole.loss(step, 0.0)
        resumed.loss(step, 0.0)
    for mine, theirs in zip(one.states, other.states, strict=True):
        assert torch.equal(mine.coords, theirs.coords)

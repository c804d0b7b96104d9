"""Learning from the policy's own states: what is solved, what the pool holds, what is drawn, and that a run continues."""

from __future__ import annotations

import itertools
import multiprocessing
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from nco_bench.errors import BadInputError
from nco_bench.nn.build import build_path_policy
from nco_bench.seals import unseal_document
from nco_bench.solvers.path.construct import greedy
from nco_bench.solvers.path.problem import tsp_problem
from nco_bench.training.data import LabelStream
from nco_bench.training.learners import best_paths
from nco_bench.training.learners.best_paths import Solvers, best_path, walk_length
from nco_bench.training.learners.on_policy import OnPolicy, OnPolicyRecipe, Pool
from nco_bench.training.run import train

pytest.importorskip("fast_tsp", reason="fast-tsp is not installed")

CONFIG = {
    "learner": "on-policy", "recipe": "flagship", "model.depth": "1", "model.width": "16", "model.heads": "2",
    "model.head_dim": "16", "batch": "4", "longest": "11", "longest_start": "11", "validation_instances": "2",
    "rollouts": "3", "every": "2", "pool": "20", "cuts": "4", "warmup": "0", "log_every": "1", "checkpoint_every": "0",
}  # fmt: skip


@pytest.mark.parametrize("nodes", [2, 3, 4, 7])
def test_a_path_is_the_shortest_between_its_ends(nodes: int) -> None:
    for seed in range(20):
        path = np.random.default_rng(seed).random((nodes, 2))
        inner = itertools.permutations(range(1, nodes - 1))
        shortest = min(walk_length(path[[0, *order, nodes - 1]]) for order in inner)
        found = best_path(path, 0.001)
        assert sorted(map(tuple, found)) == sorted(map(tuple, path))
        assert (found[[0, -1]] == path[[0, -1]]).all()
        assert walk_length(found) == pytest.approx(shortest, abs=1e-4)


@pytest.mark.parametrize(("share", "taken"), [(1.0, 0), (0.1, 1)])
def test_a_search_that_the_machine_held_up_is_asked_again(
    share: float, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    square = np.abs(np.subtract.outer(np.arange(4), np.arange(4))).astype(np.int32)
    answers, clock = [[0, 2, 1, 3], [0, 1, 2, 3], [0, 2, 3, 1]], [0.0]
    left = iter(answers)

    def find_tour(distances: np.ndarray, duration_seconds: float) -> list[int]:
        clock[0] += duration_seconds
        return next(left)

    monkeypatch.setattr(best_paths, "loaded_fast_tsp", lambda: SimpleNamespace(find_tour=find_tour))
    monkeypatch.setattr(best_paths.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(best_paths.time, "thread_time", lambda: share * clock[0])
    assert best_paths._searched(square, 0.005).tolist() == answers[taken]
    assert len(list(left)) == (2 if share == 1 else 0)


def test_the_pool_keeps_the_newest_and_cuts_at_the_front() -> None:
    pool, rng = Pool(3, 10), np.random.default_rng(0)
    for rows in (4, 5, 9, 10):
        pool.add(np.full((rows, 2), rows) + np.arange(rows)[:, None] / 100)
    assert sorted(pool.rows) == [5, 9, 10]
    drawn = pool.draw(5, 50, 0, rng)
    assert drawn.shape == (50, 5, 2)
    assert np.allclose(drawn[:, :, 0], 5 + np.arange(5) / 100)
    longer = pool.draw(8, 50, 1, rng)
    assert np.allclose(longer[:, :, 0], 9 + np.arange(1, 9) / 100)
    assert pool.draw(11, 50, 6, rng).shape == (50, 10, 2)  # the longest there is
    farther = pool.draw(6, 50, 0, rng)  # no path is near: any that is long enough
    assert set(farther[:, 0, 0].round(2).tolist()) == set(np.float32([9.03, 10.04]).tolist())


def test_the_pool_holds_what_the_policy_left_in_the_best_order(shards: list[Path]) -> None:
    torch.manual_seed(3)
    policy: Any = build_path_policy("decoder-6x128", "tsp", depth=1, width=16, heads=2, ffn=32)
    recipe = OnPolicyRecipe(rollouts=5, cuts=100, pool=1000)
    learner = OnPolicy(policy, LabelStream(shards, 1), recipe, 7, torch.device("cpu"))

    @contextmanager
    def shipping() -> Iterator[Any]:
        yield policy

    solved: list[Any] = []
    real = learner._tours

    def tours(coords: Any) -> Any:
        solved.append((coords, real(coords)))
        return solved[-1][1]

    learner._tours = tours  # type: ignore[method-assign]
    learner.look_at(shipping)
    learner.loss(0, 0.0)
    (coords, found), pool = solved[0], learner.pool
    assert pool is not None
    assert sorted(pool.rows[: len(pool)]) == sorted(5 * list(range(4, 11)))
    order = greedy(policy.eval(), tsp_problem(torch.from_numpy(coords))).order.numpy()
    assert (found[:, 1:] == order).all()
    shorter = 0
    for place in range(len(pool)):
        path = pool.coords[place, -pool.rows[place] :]
        tour = coords[place // 7][np.append(found[place // 7], 0)]
        own = tour[-len(path) :]  # the policy's way from the same state
        assert (path[[0, -1]] == own[[0, -1]]).all()
        assert sorted(map(tuple, path)) == sorted(map(tuple, own))
        assert walk_length(path) <= walk_length(own)
        shorter += walk_length(path) < walk_length(own)
    assert shorter > 5


def test_every_update_may_learn_from_the_pool(shards: list[Path]) -> None:
    torch.manual_seed(3)
    policy: Any = build_path_policy("decoder-6x128", "tsp", depth=1, width=16, heads=2, ffn=32)
    recipe = OnPolicyRecipe(rollouts=3, cuts=4, share=1.0, batch=6, every=1000, longest=11, longest_start=11)
    learner = OnPolicy(policy, LabelStream(shards, 1), recipe, 7, torch.device("cpu"))

    @contextmanager
    def shipping() -> Iterator[Any]:
        yield policy

    learner.look_at(shipping)
    seen: list[Any] = []
    real = learner.supervised.paths_loss
    learner.supervised.paths_loss = lambda paths, step: seen.append(paths) or real(paths, step)  # type: ignore[method-assign]
    for step in range(12):
        learner.loss(step, 0.0)
    assert learner.pool is not None
    longest = int(learner.pool.rows.max())
    assert all(
        not paths.closed and paths.instance_size == 10 for paths in seen if paths.coords.shape[1] <= longest
    )
    assert any(paths.coords.shape[1] <= longest for paths in seen)


def test_a_run_goes_on_as_if_it_had_not_stopped(shards: list[Path], tmp_path: Path) -> None:
    """Up to twenty nodes fast-tsp is exact, so that the pool is the same each time."""
    whole = train("decoder-6x128", shards, {**CONFIG, "steps": "7"}, out=tmp_path / "a", progress="silent")
    train(
        "decoder-6x128", shards, {**CONFIG, "steps": "7"}, out=tmp_path / "b", progress="silent", until_step=3
    )
    cut = train(
        "decoder-6x128", shards, {**CONFIG, "steps": "7"}, out=tmp_path / "b", progress="silent", resume=True
    )
    # Updates 0, 2, 4 and 6 solve four states of three tours each.
    manifest = unseal_document(whole.manifest.read_bytes())
    assert "48 states that the policy came to" in manifest["notes"]
    assert (
        manifest["paper_samples"] == 61_440_000
    )  # of the paper's training from labels, which it is held against
    assert manifest["ours"]["states"].endswith("the paper: of labels alone")
    assert manifest["ours"]["batch"] == "4; the paper: 1024"
    here, there = load_file(whole.weights), load_file(cut.weights)
    assert all(torch.equal(value, there[name]) for name, value in here.items())


def test_what_it_cannot_learn_is_refused(shards: list[Path], tmp_path: Path) -> None:
    for change, said in (({"walk": "true"}, "walk"), ({"share": "1.5"}, "share"), ({"cuts": "0"}, "cuts")):
        with pytest.raises(BadInputError, match=said):
            train("decoder-6x128", shards, {**CONFIG, **change}, out=tmp_path / "w", progress="silent")


def test_others_solve_while_training_goes_on(shards: list[Path], tmp_path: Path) -> None:
    config = {**CONFIG, "steps": "120", "solvers": "2", "every": "4", "log_every": "120"}
    done = train("decoder-6x128", shards, config, out=tmp_path / "w", progress="silent")
    notes = unseal_document(done.manifest.read_bytes())["notes"]
    states = int(re.search(r"([\d,]+) states that the policy came to", notes)[1].replace(",", ""))  # type: ignore[index]
    assert states >= 12
    deadline = time.monotonic() + 20
    while multiprocessing.active_children() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not multiprocessing.active_children()


def test_solvers_give_back_what_they_were_given_in_its_best_order() -> None:
    paths = [np.random.default_rng(seed).random((6, 2)) for seed in range(4)]
    solvers = Solvers(1, 0.002)
    try:
        assert not solvers.busy
        for path in paths:
            solvers.give([path])
        assert solvers.busy
        found: list[np.ndarray] = []
        while len(found) < len(paths):
            found += solvers.take()
    finally:
        solvers.close()
    for path, one in zip(paths, found, strict=True):
        assert walk_length(one) == pytest.approx(walk_length(best_path(path, 0.002)))

"""INViT's training: the loss by hand, the frozen copy, both problems; its gradients are held by parity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from nco_bench.api import run
from nco_bench.errors import BadInputError
from nco_bench.nn.build import build_path_policy
from nco_bench.solvers.decoding.search import greedy_choice, sampling
from nco_bench.solvers.stepwise.local_steps import decode_local_views
from nco_bench.training.checkpoint import LAST, load_checkpoint, save_checkpoint
from nco_bench.training.learners import turned_copies
from nco_bench.training.learners.fresh_instances import FreshInstances
from nco_bench.training.learners.turned_copies import COURSE, LEARNED, TurnedCopies, _built
from nco_bench.training.run import train
from nco_bench.weights.manifest import read_manifest
from nco_bench.weights.store import resolve

CPU = torch.device("cpu")
CONFIG = {
    "batch": "8", "copies": "4", "size": "7", "steps": "4", "epoch_steps": "2", "evaluation": "2", "log_every": "1",
    "validation_instances": "3", "checkpoint_every": "0", "model.width": "16", "model.heads": "2", "model.ffn": "16",
}  # fmt: skip


def learner(problem: str = "tsp", **config: str) -> TurnedCopies:
    torch.manual_seed(0)
    policy: Any = build_path_policy("invit-2v", problem, width=16, heads=2, ffn=16)  # type: ignore[arg-type]
    recipe = COURSE.recipe(
        "invit-2v", {k: v for k, v in CONFIG.items() if not k.startswith("model.")} | config
    )
    return TurnedCopies(policy.train(), FreshInstances(problem, 7, 20.0), recipe, 5, CPU)


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_the_loss_is_what_samples_cost_more_than_greedy_ones(problem: str) -> None:
    learning = learner(problem)
    some, keys = learning._draw(LEARNED, 0)
    cost, log_prob = _built(learning.policy, some, keys, 0, sampling(keys, 0, 1, double=True))
    with torch.no_grad():
        compared, _ = _built(learning.policy, some, keys, 1, greedy_choice)
    assert log_prob is not None
    loss = learning.loss(0, 0.0)
    assert loss.samples == 8
    assert float(loss.total.detach()) == pytest.approx(
        float(((cost - compared) * log_prob.detach()).mean()), rel=1e-5
    )
    assert float(loss.reported) == pytest.approx(float(cost.mean()))
    loss.total.backward()
    assert all(p.grad is None for p in learning.extra.parameters())
    assert sum(float(p.grad.abs().sum()) for p in learning.policy.parameters() if p.grad is not None) > 0


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_what_is_computed_again_has_the_same_gradients_and_is_not_kept(problem: str) -> None:
    found, kept = [], []
    for recompute in ("false", "true"):
        learning, held = learner(problem, recompute=recompute), [0]

        def count(value: torch.Tensor, held: list[int] = held) -> torch.Tensor:
            held[0] += value.numel()
            return value

        with torch.autograd.graph.saved_tensors_hooks(count, lambda value: value):
            loss = learning.loss(0, 0.0)
        kept.append(held[0])
        loss.total.backward()
        found.append({name: p.grad for name, p in learning.policy.named_parameters() if p.grad is not None})
    assert kept[1] < kept[0] / 20
    assert found[0].keys() == found[1].keys()
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name], value)


def test_copies_are_turned_and_costs_are_of_the_instances_themselves() -> None:
    learning = learner()
    some, _ = learning._draw(LEARNED, 0)
    first, second = some.coords[:4], some.seen.coords[:4].double()
    assert torch.equal(first[0], first[1])
    torch.testing.assert_close(second[0], first[0])
    assert not torch.allclose(second[1], first[1])
    lengths = [torch.cdist(one, one) for one in (first[1], second[1])]
    ratio = lengths[1][0, 1:] / lengths[0][0, 1:]
    assert float(ratio.std()) < 1e-5


def test_greedy_costs_are_those_of_decoding() -> None:
    learning = learner("cvrp")
    some, keys = learning._draw(LEARNED, 0)
    with torch.no_grad():
        cost, _ = _built(learning.policy, some, keys, 0, greedy_choice)
    demands = some.seen.demands
    assert demands is not None
    routes = decode_local_views(
        learning.policy, some.seen.coords, demands.amount, demands.capacity, decoding=greedy()
    )
    for coords, route, found in zip(some.coords, routes, cost, strict=True):
        legs = coords[route[1:]] - coords[route[:-1]]
        assert float(found) == pytest.approx(float(legs.norm(dim=1).sum()), rel=1e-9)


def greedy() -> Any:
    from nco_bench.solvers.decoding.spec import parse_decoding

    return parse_decoding("greedy")


def test_the_frozen_copy_is_replaced_only_by_a_better_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    learning = learner(tolerance="0.5")
    with torch.no_grad():
        for parameter in learning.policy.parameters():
            parameter.add_(0.1)
    lengths = {"baseline": 5.0, "policy": 4.6}

    def told(self: TurnedCopies, policy: Any, epoch: int) -> float:
        return lengths["policy" if policy is self.policy else "baseline"]

    monkeypatch.setattr(turned_copies.TurnedCopies, "_best_of_copies", told)
    learning.loss(2, 0.0)
    assert learning.chosen(2) == {}
    lengths["policy"] = 4.4
    learning.loss(3, 0.0)
    assert learning.chosen(3) == {}, "the epoch has not ended"
    learning.loss(4, 0.0)
    exported = learning.chosen(4)
    assert all(torch.equal(value, exported[name]) for name, value in learning.policy.state_dict().items())


def test_best_of_copies_is_the_mean_of_the_shortest() -> None:
    learning = learner(evaluation="1")
    some, keys = learning._draw(turned_copies.JUDGED, 3)
    with torch.no_grad():
        cost, _ = _built(learning.policy, some, keys, 0, greedy_choice)
    assert learning._best_of_copies(learning.policy, 3) == pytest.approx(
        float((cost[:4].min() + cost[4:].min()) / 2)
    )


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_a_run_that_stopped_goes_on_as_if_it_had_not_and_runs(tmp_path: Path, problem: str) -> None:
    def weights(out: str, steps: str, *, resume: bool = False) -> Path:
        done = train(
            "invit-2v", [], CONFIG | {"steps": steps, "schedule": "constant", "tolerance": "0"}, out=tmp_path / out,
            problem=problem, resume=resume, adopt=resume, progress="silent",
        )  # fmt: skip
        return done.weights

    whole = load_file(weights("whole", "5"))
    weights("cut", "3")
    cut = weights("cut", "5", resume=True)
    assert all(torch.equal(value, load_file(cut)[name]) for name, value in whole.items())
    ran = run("invit-2v", f"{problem}10:seed=5:count=2", weights=str(cut), results=tmp_path / "r")
    assert ran.failed == 0


def test_what_a_second_name_trained_runs_and_goes_on(tmp_path: Path) -> None:
    """``invit`` is ``invit-3v``: its weights were refused, "these are weights of invit, not of invit-3v"."""
    small = CONFIG | {"steps": "1"}
    done = train("invit", config=small, out=tmp_path / "w", progress="silent")
    assert read_manifest(done.manifest).model == "invit-3v"
    for name in ("invit", "invit-3v"):
        assert resolve(str(done.weights), name).manifest.model == "invit-3v"
    folder = tmp_path / "w.training"
    checkpoint = load_checkpoint(folder / LAST)
    checkpoint.state["configuration"]["model"] = "invit"  # as versions wrote it that kept the second name
    save_checkpoint(folder, checkpoint)
    again = train("invit-3v", config=small, out=tmp_path / "w", progress="silent", resume=True)
    assert (again.steps, again.complete) == (1, True)


def test_greedy_solutions_become_shorter() -> None:
    learning = learner(batch="32", copies="2")
    learning.source = FreshInstances("tsp", 12)
    some, keys = learning._draw(turned_copies.VALIDATED, 0)

    def mean() -> float:
        with torch.no_grad():
            return float(_built(learning.policy, some, keys, 0, greedy_choice)[0].mean())

    before = mean()
    optimizer = torch.optim.Adam(learning.policy.parameters(), lr=1e-3)
    for step in range(120):
        loss = learning.loss(step, 0.0)
        optimizer.zero_grad()
        loss.total.backward()
        optimizer.step()
        if step % 20 == 19 and mean() < 0.9 * before:
            return
    raise AssertionError(f"{before:.3f} before, {mean():.3f} after 120 updates")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"batch": "9"}, "that the copies divide"),
        ({"size": "2"}, "at least 3"),
        ({"copies": "0"}, "at least 1"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, config: dict[str, str], said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        train("invit-2v", [], CONFIG | config, out=tmp_path / "w", progress="silent")


def test_labels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="leave --data out"):
        train("invit-2v", ["tsp100"], CONFIG, out=tmp_path / "w", progress="silent")

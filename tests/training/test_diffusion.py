"""DIFUSCO's training: it learns, restarts, shares its batches, and its weights run. The loss itself is held by parity."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from nco_bench.api import run
from nco_bench.errors import BadInputError
from nco_bench.solvers.decoding.draws import instance_draws
from nco_bench.solvers.edges.difusco import Difusco, DifuscoConfig
from nco_bench.training.data import LabelStream
from nco_bench.training.distributed import Group
from nco_bench.training.learners.diffusion import COURSE, Diffusion, merged_gap, tour_graph
from nco_bench.training.run import train

CPU = torch.device("cpu")
CONFIG = {
    "model.layers": "2", "model.width": "32", "batch": "8", "steps": "4", "log_every": "1", "validation_instances": "2",
    "validation_steps": "3", "checkpoint_every": "0",
}  # fmt: skip


def learner(shards: list[Path], **config: str) -> Diffusion:
    """A learner of a small network, with all weights drawn: a fresh one's edges hear nothing of its nodes."""
    torch.manual_seed(0)
    policy = Difusco(DifuscoConfig(layers=2, width=32, kind=config.pop("kind", "categorical"))).train()
    for parameter in policy.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    recipe = COURSE.recipe("difusco", {"batch": "6", "symmetries": "false", **config})
    return Diffusion(policy, LabelStream(shards, 3), recipe, 3, CPU)


def gradients(learning: Diffusion, step: int = 0) -> list[torch.Tensor]:
    learning.policy.zero_grad()
    learning.loss(step, 0.0).total.backward()
    return [p.grad.clone() for p in learning.policy.parameters() if p.grad is not None]


@pytest.mark.parametrize("kind", ["categorical", "gaussian"])
@pytest.mark.parametrize("neighbours", ["0", "4"])
def test_the_loss_of_one_instance_falls(shards: list[Path], kind: str, neighbours: str) -> None:
    learning = learner(shards, kind=kind, neighbours=neighbours)
    tour = LabelStream(shards, 3).take(1).ordered.repeat(16, axis=0)
    optimizer = torch.optim.Adam(learning.policy.parameters(), lr=5e-3)
    losses = []
    for step in range(60):
        draws = instance_draws(torch.arange(16) + 16 * step)
        loss = learning.tours_loss(tour, draws)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert np.mean(losses[-10:]) < 0.7 * np.mean(losses[:3])


def test_layers_computed_again_have_the_same_gradients(shards: list[Path]) -> None:
    kept, again = (gradients(learner(shards, recompute=flag)) for flag in ("false", "true"))
    assert all(torch.equal(a, b) for a, b in zip(kept, again, strict=True))


def test_two_processes_see_the_draws_of_one(shards: list[Path]) -> None:
    whole = gradients(learner(shards))
    parts = []
    for rank in range(2):
        learning = learner(shards)
        learning.group = Group(rank, 2)
        parts.append(gradients(learning))
    for one, a, b in zip(whole, *parts, strict=True):
        torch.testing.assert_close(one, (a + b) / 2, rtol=1e-4, atol=1e-6)


def test_an_edge_leads_to_the_next_node_and_may_be_missing(shards: list[Path]) -> None:
    ordered = LabelStream(shards, 3).take(2).ordered
    graph = tour_graph(ordered, 3, CPU)
    assert graph.neighbours is not None
    assert graph.shape == (2, 10, 3)
    assert torch.equal(graph.neighbours[..., 0], torch.arange(10).expand(2, 10))
    assert tour_graph(ordered, 10, CPU).neighbours is None


def test_a_run_that_stopped_goes_on_as_if_it_had_not(shards: list[Path], tmp_path: Path) -> None:
    def weights(out: str, steps: str, *, resume: bool = False) -> dict[str, torch.Tensor]:
        done = train(
            "difusco", shards, CONFIG | {"steps": steps, "schedule": "constant"}, out=tmp_path / out, resume=resume,
            adopt=resume, progress="silent",
        )  # fmt: skip
        return load_file(done.weights)

    whole = weights("whole", "4")
    weights("cut", "2")
    cut = weights("cut", "4", resume=True)
    assert all(torch.equal(value, cut[name]) for name, value in whole.items())


def test_weights_say_what_they_are_and_run(shards: list[Path], tmp_path: Path) -> None:
    done = train("difusco", shards, CONFIG, out=tmp_path / "difusco-tsp10", progress="silent")
    said = json.loads(done.manifest.read_text())
    assert (said["model"], said["samples"], said["paper_samples"]) == ("difusco", 32, 75_100_000)
    assert (
        said["validation"][0]["on"]
        == "labelled tsp10 held out of training, a heat map in 3 steps, merged greedily"
    )
    ran = run("difusco:steps=3", "tsp10:seed=5:count=2", weights=str(done.weights), results=tmp_path / "r")
    assert ran.failed == 0
    assert np.isfinite(ran.records["cost"]).all()


def test_the_measure_is_zero_for_a_heat_map_of_the_label(
    shards: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    learning = learner(shards)
    ordered = LabelStream(shards, 3).take(3).ordered
    following = torch.eye(10).roll(1, dims=1)[None]
    monkeypatch.setattr("nco_bench.training.learners.diffusion.heat_maps", lambda *_, **__: following + 1e-6)
    assert merged_gap(learning.policy.eval(), ordered, learning.recipe).value == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"neighbours": "1"}, "its own nearest"),
        ({"validation_steps": "0"}, "more than 0"),
        ({"validation_steps": "2000"}, "knows 1000 time steps"),
        ({"model.width": "40"}, "multiple of 32"),
    ],
)
def test_what_cannot_be_is_refused(
    shards: list[Path], tmp_path: Path, config: dict[str, str], said: str
) -> None:
    with pytest.raises(BadInputError, match=said):
        train("difusco", shards, CONFIG | config, out=tmp_path / "w", progress="silent")


def test_paths_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "paths.npz", paths=np.random.default_rng(0).random((8, 10, 2)))
    with pytest.raises(BadInputError, match="tours"):
        train("difusco", [tmp_path / "paths.npz"], CONFIG, out=tmp_path / "w", progress="silent")

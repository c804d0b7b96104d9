"""Training of the task networks: it learns, it resumes on its path, and rounds stay comparable."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from nco_bench.errors import BadInputError, ResultsError, UnknownNameError
from nco_bench.problems.tasks import TASKS, VARIANTS
from nco_bench.training.learners.task_course import CHAPTER, COURSE, TaskLearner, batch_of, untrained
from nco_bench.training.run import checked
from nco_bench.training.task_campaign import (
    Member,
    campaign,
    main,
    members_of,
    next_round,
    target_samples,
    train_member,
)
from nco_bench.weights.store import load_state, verify


def weights_after(member: Member, rounds: list[int], folder: Path) -> dict[str, torch.Tensor]:
    for samples in rounds:
        train_member(member, samples, folder, float("inf"))
    return load_state(verify(folder / f"round-{rounds[-1]}" / f"{member.name}.safetensors"))


def test_a_resumed_training_ends_where_an_uninterrupted_one_does(tmp_path: Path) -> None:
    member = Member("subset-sum", "tropical", 1)
    whole = weights_after(member, [3000], tmp_path / "whole")
    parts = weights_after(member, [1000, 2000, 3000], tmp_path / "parts")
    assert all(torch.equal(whole[key], parts[key]) for key in whole)


def test_a_learner_that_seeks_draws_what_comes_next() -> None:
    task = TASKS["quickselect"]
    policy = untrained("vanilla", task, 0)
    first, second = (TaskLearner(policy, task, 4, 7) for _ in range(2))
    for _ in range(CHAPTER + 3):
        first.loss(0, 0.0)
    second.seek(first.position())
    assert first.loss(0, 0.0).total.item() == second.loss(0, 0.0).total.item()
    with pytest.raises(ResultsError, match="not 8"):
        TaskLearner(policy, task, 4, 8).seek(first.position())


@pytest.mark.slow
def test_tropical_attention_learns_quickselect_beyond_the_trivial_predictor(tmp_path: Path) -> None:
    done = train_member(Member("quickselect", "tropical", 0), 40_000, tmp_path, float("inf"))
    assert done is not None
    assert done.score > 45.0  # all-positive reaches an F1 of 35


def test_a_stop_leaves_the_weights_of_the_last_complete_round(tmp_path: Path) -> None:
    members = members_of(["subset-sum"], ["vanilla", "adaptive"], [0])
    folder, out = tmp_path / "campaign", tmp_path / "weights"
    assert campaign(members, start=1000, budget_s=0.0, folder=folder, out=out) == 0
    assert not out.exists()
    assert train_member(members[0], 1000, folder, float("inf")) is not None
    train_member(members[1], 1000, folder, float("inf"))
    # Everything of the first round stands already; the second has no time.
    complete = campaign(members, start=1000, budget_s=0.001, folder=folder, out=out)
    assert complete == 1000
    assert {verify(path).manifest.samples for path in out.glob("*.safetensors")} == {1000}
    with pytest.raises(BadInputError, match="other networks"):
        campaign(members[:1], start=1000, budget_s=1.0, folder=folder, out=out)
    (folder / "campaign.json").write_text(json.dumps({"samples": 3}))
    with pytest.raises(BadInputError, match="damaged"):
        campaign(members, start=1000, budget_s=1.0, folder=folder, out=out)


def test_rounds_double_until_the_time_allows_less() -> None:
    assert next_round(64_000, 1e-3, 1e6) == 128_000
    assert next_round(64_000, 1e-3, 20.0) == 82_000
    assert next_round(64_000, 1e-3, 5.0) == 0
    assert next_round(8_000_000, 1e-6, 1e6) == 10_000_000
    assert next_round(64_000, 1e-3, 1e6, most=100_000) == 100_000
    assert next_round(64_000, 1e-3, 1e6, most=64_000) == 0


@pytest.mark.parametrize("network", ["vanilla", "adaptive", "tropical"])
@pytest.mark.parametrize("task", ["quickselect", "subset-sum", "fractional-knapsack"])
def test_a_step_neither_leaves_the_device_of_the_network_nor_waits_for_it(network: str, task: str) -> None:
    # Tensors of the meta device have no values: whatever reads one on the host, or mixes devices, raises.
    policy = untrained(network, TASKS[task], 0).to("meta")
    loss = TaskLearner(policy, TASKS[task], 4, 0).loss(0, 0.0)
    loss.total.backward()  # type: ignore[no-untyped-call]
    used = [p for name, p in policy.named_parameters() if not name.startswith("last_norm")]
    assert all(p.grad is not None and p.grad.device.type == "meta" for p in used)


def test_graph_tasks_get_a_quarter_in_whole_batches() -> None:
    assert target_samples(Member("scc", "tropical", 0), 64_000) == 16_000
    assert target_samples(Member("scc", "tropical", 0), 1000) == 240
    assert target_samples(Member("knapsack", "tropical", 0), 64_000) == 64_000


@pytest.mark.parametrize("network", ["tropical", "ut-vanilla"])
@pytest.mark.parametrize("name", TASKS)
def test_the_papers_recipe_has_ten_million_samples_of_every_task(network: str, name: str) -> None:
    """Table 5's caption; Appendix F has 500 instances per update, 16 for graphs."""
    recipe = COURSE.recipe(network, {"recipe": "paper"}, (name,))
    graph = name in ("floyd-warshall", "scc")
    assert (recipe.steps, batch_of(recipe, TASKS[name])) == ((625_000, 16) if graph else (20_000, 500))
    _, _, _, run = checked(network, (name,), {"recipe": "paper"}, None)
    assert run == recipe


def test_steps_of_graph_tasks_are_what_was_asked_for() -> None:
    def steps(config: dict[str, str], data: str) -> int:
        return int(COURSE.recipe("tropical", config, (data,)).steps)

    assert steps({"steps": "20000"}, "scc") == 20_000
    assert steps({"steps": "0"}, "scc") == 0  # as long as the budget lasts
    assert steps({"graph_batch": "32"}, "scc:variant=dense") == 312_500
    assert steps({"graph_batch": "32"}, "knapsack") == 20_000
    assert steps({"batch": "100"}, "knapsack") == 20_000
    assert COURSE.recipe("tropical", {}).steps == 20_000


def test_mistakes_are_named() -> None:
    with pytest.raises(UnknownNameError, match="knapsack"):
        members_of(["knapsak"], ["tropical"], [0])
    with pytest.raises(BadInputError, match="predecessors"):
        untrained("tropical", VARIANTS["floyd-warshall"]["predecessors"], 0)
    np.testing.assert_equal(len(members_of(list(TASKS), ["tropical", "vanilla"], [0, 1])), 44)


def test_a_device_that_is_not_here_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--budget", "1s", "--folder", str(tmp_path / "f"), "--out", str(tmp_path / "o")]
    assert main([*arguments, "--device", "tpu"]) == 2
    assert capsys.readouterr().err == "error: --device tpu: not on this machine; give cpu, or auto.\n"
    assert not (tmp_path / "f").exists()

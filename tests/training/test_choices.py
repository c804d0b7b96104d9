"""``paper`` means the paper: its numbers, nothing it does not ask for, and whatever else is ours is said to be."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from nco_bench.cards import trained_by
from nco_bench.cli.inventory import show_object
from nco_bench.datasets.load import Places
from nco_bench.nn.build import build_path_policy
from nco_bench.training.choices import RUN_CONTROL, departures, paper_of
from nco_bench.training.courses import COURSES, load_course
from nco_bench.training.recipes import rate, recipe_for
from nco_bench.training.run import train
from nco_bench.training.trainer import Trainer
from nco_bench.weights.manifest import read_manifest

LIGHT = {
    "model.depth": "1",
    "model.width": "16",
    "model.heads": "2",
    "model.head_dim": "8",
    "model.ffn": "32",
}


def test_the_papers_of_decoders_and_pens_ask_for_no_symmetries_and_no_clipping() -> None:
    """Decoder scaling, section 3 and Table 9; PENS, section 5: what they list, and nothing beside."""
    decoder = recipe_for("decoder-12x256", {"recipe": "paper"})
    listed = {
        "batch": 1024, "steps": 60_000, "optimizer": "adamw", "weight_decay": 0.01, "lr": 1.25e-4,
        "schedule": "exponential", "decay": 0.997, "decay_every": 100,
    }  # fmt: skip
    assert {key: getattr(decoder, key) for key in listed} == listed
    pens = recipe_for("pens-a", {"recipe": "paper"})
    listed = {"batch": 1024, "steps": 1_000_000, "optimizer": "adamw", "lr": 1e-4, "schedule": "cosine"}
    assert {key: getattr(pens, key) for key in listed} == listed
    assert pens.lr * rate(pens, pens.steps, 1.0) == pytest.approx(1e-5)
    for recipe in (decoder, pens):
        assert (recipe.clip, recipe.symmetries, recipe.warmup, recipe.ema) == (0.0, False, 0, 0.0)
        assert (recipe.auxiliary, recipe.grow, recipe.precision) == (0.0, 0.0, "fp32")


def test_without_rezero_the_warm_up_is_that_of_appendix_b5() -> None:
    """Fifty steps with a start factor of 0.1; PyTorch's LinearLR of these numbers is the reference."""
    recipe = recipe_for("decoder-42x128", {"recipe": "paper-without-rezero"})
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], lr=1.0)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=50)
    for step in range(60):
        assert rate(recipe, step, 0.0) == pytest.approx(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()


def test_adamw_of_the_paper_moves_all_parameters_as_pytorchs_own(tmp_path: Path) -> None:
    """With gradients of zero only weight decay acts: everything shrinks by lr times 0.01, biases and scalars too."""
    policy = build_path_policy("decoder-6x128", depth=1, width=16, heads=2, head_dim=8, ffn=32)
    with torch.no_grad():
        for value in policy.parameters():
            value.fill_(1.0)
    recipe = dataclasses.replace(recipe_for("decoder-6x128", {"recipe": "paper"}), lr=0.1)
    trainer = Trainer(policy, _Nothing(), recipe, tmp_path, {})  # type: ignore[arg-type]
    for value in policy.parameters():
        value.grad = torch.zeros_like(value)
    for group in trainer.optimizer.param_groups:
        group["lr"] = group["peak"]
    trainer.optimizer.step()
    assert {round(float(v.detach().flatten()[0]), 6) for v in policy.parameters()} == {0.999}


class _Nothing:
    """A learner with nothing to train along."""

    extra = torch.nn.ModuleDict()


CHOICES = {
    "length of pieces", "direction of pieces", "pieces", "batches", "first epoch", "first round", "validation_instances",
    "best weights", "states", "labels", "weights", "distribution",
    "starts", "start", "norm",
}  # fmt: skip
"""What trainings choose beside the numbers that move weights; some keep the best weights of a validation."""


def test_every_mark_is_a_number_of_the_recipe_that_moves_weights_or_a_known_choice() -> None:
    seen = set()
    for learner, course in COURSES.items():
        for model in trained_by(learner):
            for name, paper in load_course(course).papers(model).items():
                numbers = {f.name for f in dataclasses.fields(paper.recipe)} - RUN_CONTROL
                assert set(paper.ours) <= numbers | CHOICES, (model, name)
                assert paper.ours, "a manifest without any could be of a version that did not say"
                assert all(len(why) > 10 for why in paper.ours.values()), (model, name)
                seen |= set(paper.ours)
    assert seen >= CHOICES


@pytest.mark.parametrize("model", ["pens-a", "pens-r", "pens-ar", "coordns", "decoder-6x128"])
def test_learning_whole_tours_is_said_to_be_ours(model: str) -> None:
    """Neither paper says whether origin and destination may be one city, whose next city is either neighbour."""
    paper = load_course(COURSES["supervised"]).papers(model)["paper"]
    assert paper.recipe.longest == paper.nodes + 1
    assert "both neighbours" in paper.ours["longest"]


def test_a_number_that_is_ours_stays_marked_when_it_is_changed() -> None:
    """A recipe that departs in a marked and in a stated number: both are told, and which the paper states."""
    paper = load_course(COURSES["supervised"]).papers("pens-a")["paper"]
    assert "beta2" in paper.ours
    assert "batch" not in paper.ours
    changed = dataclasses.replace(paper.recipe, beta2=0.5, batch=7, log_every=3)
    found = departures(changed, paper)
    assert found["beta2"] == f"0.5; our choice for the paper: {paper.recipe.beta2}"
    assert found["batch"] == "7; the paper: 1024"
    assert set(found) == set(paper.ours) | {"batch"}


def test_instances_of_another_size_than_the_papers_are_a_departure() -> None:
    paper = load_course(COURSES["supervised"]).papers("pens-a")["paper"]
    assert departures(paper.recipe, paper, 20)["size"] == "20; the paper: 100"
    assert "size" not in departures(paper.recipe, paper, 100)
    assert "size" not in departures(paper.recipe, paper)


@pytest.mark.parametrize(
    ("recipe", "nodes"),
    [("paper", 100), ("paper-50", 50), ("paper-500", 500), ("paper-1000", 1000), ("paper-10000", 10_000)],
)
def test_each_recipe_of_difusco_is_for_labels_of_its_own_size(recipe: str, nodes: int) -> None:
    """All samples of the paper on labels of another size are not the paper's training."""
    paper = load_course(COURSES["diffusion"]).papers("difusco")[recipe]
    assert "size" not in departures(paper.recipe, paper, nodes)
    assert departures(paper.recipe, paper, 20)["size"] == f"20; the paper: {nodes}"


def test_a_recipe_without_a_budget_can_name_the_size_of_its_labels() -> None:
    paper = load_course(COURSES["supervised"]).papers("sit")["paper-without-sit"]
    assert departures(paper.recipe, paper, 20)["size"] == "20; the paper: 100"


def test_how_difusco_is_watched_and_fits_into_memory_is_no_departure() -> None:
    """Steps of a validation and layers computed again move no weight; they made weights of its recipe other ones."""
    paper = load_course(COURSES["diffusion"]).papers("difusco")["paper"]
    changed = dataclasses.replace(paper.recipe, validation_steps=5, recompute=True)
    assert departures(changed, paper) == dict(paper.ours)


def test_bq_lowers_its_rate_after_epochs_0_50_and_100() -> None:
    """Its code multiplies by 0.99 at the end of epoch e where e % 50 == 0; an epoch is 1,000,000 / 512 = 1953 updates."""
    recipe, epoch = recipe_for("bq", {"recipe": "paper"}), 1_000_000 / 512
    passed = 0
    for number in range(120):
        for share in (0.1, 0.9):
            assert rate(recipe, int((number + share) * epoch), 0.0) == pytest.approx(0.99**passed), number
        passed += number % 50 == 0
    assert recipe.steps == pytest.approx(1000 * epoch, rel=1e-3)


@pytest.mark.parametrize(
    ("recipe", "batch", "steps", "first", "later"),
    [
        ("pomo", 64, 2000 * 100_000 / 64, 1e9, 1e9),
        ("pomo-2021", 64, 3100 * 100_000 / 64, 3000 * 100_000 / 64, 1e9),
        ("pomo-2021-cvrp", 64, 8100 * 10_000 / 64, 8000 * 10_000 / 64, 8050 * 10_000 / 64),
    ],
)
def test_pomos_rate_falls_to_a_tenth_where_its_code_says(
    recipe: str, batch: int, steps: float, first: float, later: float
) -> None:
    """OLD_ipynb_ver: 2,000 epochs, LR_DECAY_GAMMA 1; NEW_py_ver: milestones 3001 of 3100, 8001 and 8051 of 8100."""
    own = load_course(COURSES["policy-gradient"]).recipe("pomo", {"recipe": recipe})
    assert (own.batch, own.steps, own.clip, own.weight_decay) == (batch, pytest.approx(steps), 0.0, 1e-6)
    for step in (0, own.steps // 2, first - 2, first + 2, later - 2, later + 2, own.steps - 1):
        if step < own.steps:
            wanted = 0.1 ** ((step > first) + (step > later))
            assert rate(own, int(step), 0.0) == pytest.approx(wanted), step


def test_the_cvrp_of_100_customers_has_ams_smaller_batch() -> None:
    """pretrained/cvrp_100/args.json: 640,000 instances an epoch in batches of 256; cvrp_20 and cvrp_50 have 512."""
    papers = load_course(COURSES["policy-gradient"]).papers("am")
    own = papers["am-cvrp"]
    found = paper_of(papers, "am", "cvrp")
    assert found == own
    recipe: Any = own.recipe
    assert recipe.batch * recipe.epoch_steps == 640_000
    assert recipe.steps == 100 * recipe.epoch_steps
    assert "batch" not in departures(papers["am"].recipe, own)
    assert papers["am"].recipe.batch * recipe.epoch_steps == 1_280_000


@pytest.mark.parametrize(
    ("model", "shortest", "longest"),
    [("bq", 3, 101), ("lehd", 4, 100), ("sit", 4, 100)],
)
def test_pieces_of_cvrp_solutions_have_as_many_customers_as_the_codes_say(
    model: str, shortest: int, longest: int
) -> None:
    """BQ-NCO: what follows a place in 0..N-2, from the depot at place 0, so 3 rows to N + 1; LEHD: 4 to N customers.

    Of a piece with `rows` rows one is the depot at its end; N + 1 customers stand for the whole solution.
    """
    name = "paper-without-sit" if model == "sit" else "paper-cvrp"
    recipe = load_course(COURSES["supervised"]).recipe(model, {"recipe": name})
    assert (recipe.shortest - 1, recipe.longest) == (shortest, longest)
    if model != "bq":  # 977 batches of mean 51 decisions, an epoch
        assert recipe.decay_every == pytest.approx(1e6 / 1024 * 51, rel=2e-3)
        assert recipe.steps == pytest.approx(40 * recipe.decay_every, rel=2e-3)


def test_what_was_changed_on_the_way_is_a_departure_too() -> None:
    """A run that ends with the paper's numbers and had others before is not the paper's."""
    paper = load_course(COURSES["supervised"]).papers("pens-a")["paper"]
    history: list[dict[str, Any]] = [
        {"step": 0, "changed": {"lr": 0.1}, "was": {"lr": 0.2}},
        {"step": 7, "changed": {"batch": 9}, "was": {"batch": 4, "log_every": 3}},
        {"step": 8, "loss": 1.0},
        {"step": 9, "changed": {"batch": 1024}, "was": {"batch": 9, "steps": 12}},
    ]
    found = departures(paper.recipe, paper, history=history)
    assert found["batch"] == "1024 (4 until update 7, 9 until update 9); the paper: 1024"
    assert "lr" not in found, "before the first update nothing was learned"
    assert found["steps"].startswith("1000000 (12 until update 9)"), "a cosine lands there"
    constant = dataclasses.replace(paper, recipe=dataclasses.replace(paper.recipe, schedule="constant"))
    assert "steps" not in departures(constant.recipe, constant, history=history)


def test_what_a_paper_has_for_other_rows_is_no_departure() -> None:
    """EIE's CVRP networks of C_v = 15 and 20 learn at 5e-5."""
    paper = load_course(COURSES["policy-gradient"]).papers("am")["eie"]
    assert "lr" not in departures(dataclasses.replace(paper.recipe, lr=5e-5), paper)
    assert departures(dataclasses.replace(paper.recipe, lr=2e-5), paper)["lr"] == "2e-05; the paper: 0.0001"


def test_a_departure_says_what_the_paper_has() -> None:
    papers = load_course(COURSES["supervised"]).papers("decoder-6x128")
    paper = paper_of(papers, "", "tsp")
    assert paper is not None
    ours = departures(recipe_for("decoder-6x128", {}), paper)
    assert ours["batch"] == "32; the paper: 1024"
    assert ours["symmetries"] == "True; the paper: False"
    assert "precision" in ours
    assert "log_every" not in ours


@pytest.mark.parametrize(
    ("recipe", "problem", "found"),
    [
        ("", "cvrp", "paper-cvrp"),
        ("small", "tsp", "paper"),
        ("paper", "cvrp", "paper-cvrp"),
        ("paper-cvrp", "tsp", "paper-cvrp"),
    ],
)
def test_a_training_is_held_against_the_recipe_it_was_given(recipe: str, problem: str, found: str) -> None:
    papers = load_course(COURSES["supervised"]).papers("lehd")
    assert paper_of(papers, recipe, problem) is papers[found]


def test_manifest_and_show_say_what_is_ours(shards: list[Path], tmp_path: Path) -> None:
    config = {**LIGHT, "recipe": "paper", "batch": "4", "steps": "2"}
    done = train("decoder-6x128", shards, config, out=tmp_path / "w", progress="silent")
    manifest = read_manifest(done.manifest)
    assert manifest.ours["batch"] == "4; the paper: 1024"
    assert manifest.ours["decay_all"].startswith("not stated")
    assert "weight_decay" not in manifest.ours
    shown = show_object("decoder-6x128", Places.from_environment(tmp_path))["training"]["supervised"]["paper"]
    assert shown["source"] == "decoder scaling, section 3 and Table 9"
    assert shown["recipe"]["weight_decay"] == 0.01
    assert set(shown["ours"]) <= set(manifest.ours)
    json.dumps(shown)


def test_shipped_weights_say_how_their_training_differs(tmp_path: Path) -> None:
    """sit-cvrp (batch 32, clip 1, one decision per piece) is from before manifests had a field `ours`."""
    places = Places.from_environment(tmp_path)
    shown = show_object("sit-cvrp", places)["ours"]
    assert shown["batch"] == "32; the paper: 256"
    assert shown["walk"] == "False; the paper: True"
    assert shown["clip"] == "1.0; our choice for the paper: 10.0"


def test_a_warm_up_from_zero_stays_as_it_was() -> None:
    recipe = recipe_for("decoder-6x128", {"warmup": "20"})
    assert [rate(recipe, step, 0.0) for step in (0, 9, 19)] == pytest.approx([0.05, 0.5, 1.0], rel=1e-6)
    assert math.isclose(rate(recipe, 20, 0.0), 1.0)

"""Printed settings beside ours: read from recipes, compared exactly, and a reason where they differ."""

from __future__ import annotations

import dataclasses

import pytest

torch = pytest.importorskip("torch")

from nco_bench.papers import settings  # noqa: E402
from nco_bench.papers.judging import Verdict  # noqa: E402
from nco_bench.papers.preset import numeric_cells  # noqa: E402
from nco_bench.papers.published import PublishedCell, load_table  # noqa: E402
from nco_bench.papers.settings import Ours, judge_setting, read  # noqa: E402

TABLES = {
    ("decoder-scaling", 9): settings.decoder_settings,
    ("pens", "settings"): settings.pens_settings,
    ("eie", "settings"): settings.eie_settings,
    ("sit", "settings"): settings.sit_settings,
    ("sit", 6): settings.sit_training_settings,
    ("tropical", 5): settings.tropical_settings,
}


@pytest.mark.parametrize(("paper", "number"), TABLES)
def test_every_printed_setting_is_compared_and_a_difference_has_a_reason(
    paper: str, number: int | str
) -> None:
    table = load_table(paper, number)
    found = TABLES[paper, number](table, "smoke")
    for cell in numeric_cells(table):
        entry = found[cell.row, cell.column]
        verdict = entry if isinstance(entry, Verdict) else entry[1]
        assert verdict.status in ("setting matches", "setting differs"), cell
        assert verdict.status != "setting differs" or verdict.reason.rpartition(": ")[2], cell


def status(value: str, number: float | None, unit: str, ours: float | str | None) -> str:
    cell = PublishedCell("row", "Value", value, number, unit, None)
    return judge_setting(cell, Ours(ours, "recipe: field", "why")).status


def test_settings_match_exactly_but_counts_of_parameters_to_the_printed_digit() -> None:
    assert status("1024", 1024, "count", 1024) == "setting matches"
    assert status("1.25×10^{-4}", 1.25e-4, "rate", 1.26e-4) == "setting differs"
    assert status("2.8M", 2.8, "million parameters", 2.84) == "setting matches"
    assert status("2.8M", 2.8, "million parameters", 3.17) == "setting differs"
    assert status("AdamW", None, "setting", "adamw") == "setting matches"
    assert status("AdamW", None, "setting", "adam") == "setting differs"


def test_a_setting_that_our_recipe_lacks_differs_and_says_so() -> None:
    cell = PublishedCell("row", "Value", "0.95", 0.95, "factor", None)
    verdict = judge_setting(cell, read(object(), "shrink", "recipe"))
    assert (verdict.status, verdict.reason) == (
        "setting differs", "recipe: shrink: there is no such field; our choice"
    )  # fmt: skip


def test_a_changed_recipe_changes_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    from nco_bench.training import recipes

    table = load_table("decoder-scaling", 9)
    value, verdict = settings.decoder_settings(table, "smoke")["Batch size", "Value"]
    assert (value, verdict.status) == (1024, "setting matches")
    built = recipes.recipes_of
    monkeypatch.setattr(
        recipes,
        "recipes_of",
        lambda *of: {name: dataclasses.replace(recipe, batch=512) for name, recipe in built(*of).items()},
    )
    value, verdict = settings.decoder_settings(table, "smoke")["Batch size", "Value"]
    assert (value, verdict.status) == (512, "setting differs")


def test_sits_recipe_at_1k_nodes_has_every_setting_of_its_column() -> None:
    table = load_table("sit", 6)
    found = settings.sit_training_settings(table, "smoke")
    for row in table.rows:
        assert found[row, "TSP1K"][1].status == found[row, "CVRP1K"][1].status == "setting matches", row


NOISE = "Perturbative Noise Range"
NOT_AS_PRINTED = {
    ("SubsetSumDecision", "Target Range | Low"), ("SubsetSumDecision", "Target Range | High"),
    ("Quickselect", f"{NOISE} | Low"), ("Quickselect", f"{NOISE} | High"),
    ("FloydWarshall", f"{NOISE} | High"),
}  # fmt: skip
"""The docstrings of the three tasks say how their default variants differ from the printed ranges."""


def test_ranges_of_tropicals_table_5_match_where_the_default_variants_draw_them() -> None:
    table = load_table("tropical", 5)
    found = settings.tropical_settings(table, "smoke")
    differ = {
        (c.row, c.column)
        for c in numeric_cells(table)
        if found[c.row, c.column][1].status == "setting differs" and c.column != "Epochs"
    }
    assert differ == NOT_AS_PRINTED
    _, verdict = found["Quickselect", f"{NOISE} | High"]
    assert verdict.reason == (
        "task quickselect: perturbative noise range: variant normalised draws real numbers from 0 to 1; "
        "as printed with variant=raw or legacy"
    )
    highest, verdict = found["FloydWarshall", f"{NOISE} | High"]
    assert (highest, verdict.reason.rpartition(": ")[2]) == (
        11, "variant legacy draws 1 to 11; as printed with no variant",
    )  # fmt: skip


@pytest.mark.parametrize("network", ["tropical", "vanilla", "adaptive", "ut-vanilla", "ut-adaptive"])
def test_networks_and_training_are_as_tropicals_text_states_beside_its_table_5(network: str) -> None:
    """Appendix F and section 4; the note of the table says so."""
    from nco_bench.problems.tasks import TASKS
    from nco_bench.solvers.sequences.task_networks import build_task_network
    from nco_bench.training.learners.task_course import COURSE, batch_of

    config = build_task_network(network, 1, False).config
    assert (config.layers, config.heads, config.width, config.max_steps) == (1, 2, 64, 32)
    for name, task in TASKS.items():
        recipe = COURSE.recipe(network, {"recipe": "paper"}, (name,))
        assert (recipe.optimizer, recipe.lr, recipe.schedule) == ("adamw", 1e-3, "constant")
        assert batch_of(recipe, task) == (16 if task.graph else 500)
        assert (task.train_n, task.length_ood_n) == (8, 16 if task.graph else 64)


def test_a_generator_that_draws_otherwise_changes_tropicals_table_5(monkeypatch: pytest.MonkeyPatch) -> None:
    from nco_bench.problems.tasks import knapsack
    from nco_bench.problems.tasks.spec import Ranges

    drawn = knapsack.sample
    monkeypatch.setattr(
        knapsack,
        "sample",
        lambda d, n, ranges, variant: drawn(d, n, Ranges((2, 9), (10, 20), (1, 10)), variant),
    )
    found = settings.tropical_settings(load_table("tropical", 5), "smoke")
    lowest, verdict = found["Knapsack", "Value Range | Low"]
    assert (lowest, verdict.status) == (2, "setting differs")
    assert found["Knapsack", "Weight Range | Low"][1].status == "setting matches"


def test_the_target_that_subset_sum_draws_is_what_its_instances_hold() -> None:
    """Table 5 prints 1 to 10; half of the targets are any sum that can be reached, and those may be negative."""
    from nco_bench.problems.tasks import generate

    targets = generate("subset-sum", count=500).inputs[:, 0, -1]
    assert targets.min() < 1
    assert targets.max() > 10
    legacy = generate("subset-sum", count=500, variant="legacy").inputs[:, 0, -1]
    assert (legacy.min(), legacy.max()) == (1, 10)

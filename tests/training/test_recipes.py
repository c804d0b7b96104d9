"""Overrides of a recipe: typed, checked, with the nearest name for a misspelt one; schedules and curriculum by hand."""

from __future__ import annotations

import pytest

from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.training.recipes import auxiliary_now, batch_now, longest_now, rate, recipe_for

MODEL = "decoder-6x128"


def test_values_take_the_type_of_their_field() -> None:
    recipe = recipe_for(MODEL, {"batch": "64", "lr": "2e-3", "symmetries": "no", "precision": "bf16"})
    assert (recipe.batch, recipe.lr, recipe.symmetries, recipe.precision) == (64, 2e-3, False, "bf16")


def test_the_paper_recipe_is_that_of_appendix_c() -> None:
    recipe = recipe_for(MODEL, {"recipe": "paper"})
    assert (recipe.batch, recipe.steps, recipe.lr, recipe.weight_decay) == (1024, 60_000, 1.25e-4, 0.01)
    # 0.997 every 100 steps: 0.997^600 at the end.
    assert rate(recipe, 60_000, 1.0) == pytest.approx(0.1648, abs=1e-4)


@pytest.mark.parametrize("key", ["bach", "lerning_rate", "recip"])
def test_unknown_keys_get_the_nearest_name(key: str) -> None:
    with pytest.raises(UnknownNameError, match=f"Unknown training option '{key}'.*nco-bench show MODEL"):
        recipe_for(MODEL, {key: "1"})
    with pytest.raises(
        UnknownNameError, match=r"as model\.width"
    ):  # what is the network's has a name of its own
        recipe_for(MODEL, {"width": "1"})
    with pytest.raises(UnknownNameError, match="Did you mean 'batch'"):
        recipe_for(MODEL, {"bach": "1"})


@pytest.mark.parametrize(
    ("key", "value", "cause"),
    [
        ("batch", "many", "expected a whole number"),
        ("batch", "2.5", "expected a whole number"),
        ("batch", "0", "expected more than 0"),
        ("lr", "fast", "expected a number"),
        ("lr", "nan", "expected a number"),
        ("lr", "-1", "expected more than 0"),
        ("ema", "1", "expected less than 1"),
        ("beta2", "1", "expected less than 1"),
        ("symmetries", "perhaps", "expected true or false"),
        ("shortest", "2", "expected 3 <= shortest"),
        ("longest", "10", "expected 3 <= shortest"),
        ("grow", "2", "expected 0 to 1"),
        ("fewest_customers", "1", "expected 0, or 2 <= fewest_customers"),
    ],
)
def test_impossible_values_are_named(key: str, value: str, cause: str) -> None:
    with pytest.raises(BadInputError, match=f"{key}(=| is '){value}.*{cause}"):
        recipe_for(MODEL, {key: value})


def test_unknown_schedules_and_recipes_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="cosine"):
        recipe_for(MODEL, {"schedule": "cosin"})
    with pytest.raises(UnknownNameError, match="paper"):
        recipe_for(MODEL, {"recipe": "papers"})


def test_cosine_rises_over_the_warmup_and_falls_to_its_end() -> None:
    recipe = recipe_for(MODEL, {"schedule": "cosine", "warmup": "10", "final_lr": "0.01"})
    assert rate(recipe, 0, 0.0) == pytest.approx(0.1)
    assert rate(recipe, 9, 0.0) == pytest.approx(1.0)
    assert rate(recipe, 100, 0.5) == pytest.approx(0.505)
    assert rate(recipe, 100, 1.0) == pytest.approx(0.01)


def test_batches_double_after_twice_as_many_updates_each_time() -> None:
    recipe = recipe_for(MODEL, {"batch": "32", "batch_doubles": "100", "largest_batch": "128"})
    steps = (0, 99, 100, 299, 300, 699, 700, 10_000)
    assert [batch_now(recipe, step) for step in steps] == [32, 32, 64, 64, 128, 128, 128, 128]
    kept = recipe_for(MODEL, {"batch": "32"})
    assert {batch_now(kept, step) for step in steps} == {32}
    largest = recipe_for(MODEL, {"batch": "256", "batch_doubles": "100", "largest_batch": "128"})
    assert batch_now(largest, 5000) == 256  # a limit below the batch does not shrink it


def test_the_auxiliary_loss_fades_by_half_lives() -> None:
    recipe = recipe_for(MODEL, {"auxiliary": "0.2", "auxiliary_half": "1000"})
    assert [auxiliary_now(recipe, step) for step in (0, 1000, 3000)] == pytest.approx([0.2, 0.1, 0.025])
    assert auxiliary_now(recipe_for(MODEL, {"auxiliary": "0.2"}), 10**6) == 0.2


def test_sub_paths_grow_to_the_whole_tour() -> None:
    recipe = recipe_for(MODEL, {"longest_start": "21", "longest": "101", "grow": "0.5"})
    assert [longest_now(recipe, share) for share in (0.0, 0.25, 0.5, 1.0)] == [21, 61, 101, 101]

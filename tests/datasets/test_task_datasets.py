"""Datasets of the tasks: names parse, sets are stored and read back."""

from pathlib import Path

import pytest

from nco_bench.datasets.generate import generate
from nco_bench.datasets.load import Places, load_dataset, stored_path
from nco_bench.datasets.names import parse_generated, specify
from nco_bench.datasets.storage import load_saved, save_dataset
from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.problems.tasks import VARIANTS


@pytest.mark.parametrize(
    ("name", "canonical", "n"),
    [
        ("quickselect", "quickselect", 8),
        ("quickselect:id", "quickselect", 8),
        ("knapsack:length-ood:n=64", "knapsack:length-ood", 64),
        ("knapsack:n=32:length-ood", "knapsack:length-ood:n=32", 32),
        ("scc:length-ood", "scc:length-ood", 16),
        ("three-sum16", "three-sum:n=16", 16),
        ("convex-hull:noise-ood:seed=7:count=100", "convex-hull:noise-ood:seed=7:count=100", 8),
        ("floyd-warshall:variant=legacy", "floyd-warshall", 8),
        ("floyd-warshall:variant=distances:seed=2", "floyd-warshall:variant=distances:seed=2", 8),
    ],
)
def test_names_have_one_canonical_form(name, canonical, n):
    spec = parse_generated(name)
    assert spec is not None
    assert (spec.name, spec.n) == (canonical, n)
    assert parse_generated(canonical).name == canonical


@pytest.mark.parametrize("task", VARIANTS)
def test_stored_sets_read_back_with_the_same_hash(task, tmp_path: Path):
    for variant in VARIANTS[task]:
        made = generate(task, 6, 9, "noise-ood", 3, variant=variant)
        stored = load_saved(save_dataset(made, tmp_path / f"{variant}.npz"))
        assert stored.sha256 == made.sha256
        assert [i.task.variant for i in stored] == [variant] * 9
        assert (stored.instances[4].inputs == made.instances[4].inputs).all()
        assert (stored.instances[4].targets == made.instances[4].targets).all()


def test_a_longer_stored_set_serves_a_shorter_one(tmp_path: Path):
    made = generate("scc", 8, 12)
    save_dataset(made, stored_path(made.name, tmp_path))
    found = load_dataset("scc:count=5", Places(tmp_path))
    assert found.sha256 == generate("scc", 8, 5).sha256


def test_settings_are_different_sets_and_noise_is_not():
    sets = {s: generate("knapsack", 8, 20, s) for s in ("id", "value-ood", "noise-ood")}
    assert len({d.sha256 for d in sets.values()}) == 3
    pairs = zip(sets["id"], sets["noise-ood"], strict=True)
    assert all((a.targets == b.targets).all() for a, b in pairs)


def test_the_usual_distribution_of_other_problems_means_the_training_distribution():
    assert specify("knapsack", 8, 100).name == "knapsack:count=100"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("knapsack:lenght-ood", "Did you mean 'length-ood'"),
        ("quickselect:variant=rwa", "Known: legacy, normalised, raw|Did you mean 'raw'"),
        ("knapsack:m=3", "Known: count, n, seed, variant"),
        ("knapsak", "Did you mean 'knapsack'"),
    ],
)
def test_unknown_parts_bring_near_names(name, message, tmp_path: Path):
    with pytest.raises(UnknownNameError, match=message):
        load_dataset(name, Places(tmp_path))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("knapsack:n=4096", "give 2 to 2048 tokens"),
        ("scc:n=65", "give 2 to 64 nodes"),
        ("knapsack:count=0", "at least 1 instance"),
        ("knapsack:id:value-ood", "at most one setting"),
        ("knapsack:n=8:n=9", "n is given twice"),
        ("knapsack:seed=x", "seed is 'x'; expected a whole number"),
    ],
)
def test_parts_that_make_no_sense_are_refused(name, message, tmp_path: Path):
    with pytest.raises(BadInputError, match=message):
        load_dataset(name, Places(tmp_path))

"""The referee of the tasks: what an answer must look like, and how it is scored and counted."""

import re

import numpy as np
import pytest

from nco_bench.errors import BadInputError
from nco_bench.problems import algorithmic, algorithmic_regression
from nco_bench.problems.algorithmic import TaskInstance
from nco_bench.problems.algorithmic_regression import as_numbers, as_stored
from nco_bench.problems.tasks import generate

COINS = TaskInstance("a", "min-coin-change", "mask", np.array([[1, 4], [3, 4], [9, 4]]), np.array([1, 1, 0]))
DISTANCES = TaskInstance("b", "floyd-warshall", "legacy", np.zeros((4, 3)), np.array([0.0, 2.0, 2.0, 0.0]))
BEFORE = TaskInstance("c", "floyd-warshall", "predecessors", np.zeros((4, 3)), np.array([2, 0, 1, 2]))


def test_classes_are_scored_by_the_fraction_of_right_answers():
    answer = np.array([1, 0, 1], dtype=np.int32)
    assert algorithmic.violations(COINS, answer) == ()
    assert algorithmic.score(COINS, answer) == pytest.approx(1 / 3)
    for kind in (np.int32, np.uint8, np.uint64):  # a stranger's answers may be of any
        assert algorithmic.counts(COINS, answer.astype(kind)) == {"tp": 1, "fp": 1, "fn": 1, "tn": 0}


def test_several_classes_are_counted_as_right_or_wrong():
    assert algorithmic.counts(BEFORE, np.array([2, 0, 0, 2])) == {"correct": 3, "tokens": 4}
    assert algorithmic.violations(BEFORE, np.array([3, 0, 0, 2])) == ("class 3 is outside 0..2",)


def test_numbers_are_scored_by_their_mean_squared_error():
    answer = as_stored(np.array([0.0, 1.0, 5.0, 0.0]))
    assert answer.dtype == np.int32
    assert algorithmic_regression.violations(DISTANCES, answer) == ()
    assert algorithmic_regression.score(DISTANCES, answer) == (1 + 9) / 4
    assert algorithmic_regression.counts(DISTANCES, answer) == {"squared_error": 10.0, "tokens": 4}


def test_stored_numbers_come_back_bit_for_bit():
    numbers = np.array([0.1, -3e38, 1e-40, -0.0], dtype=np.float32)
    assert as_numbers(as_stored(numbers)).tobytes() == numbers.tobytes()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([1, 0], "2 answers, expected 3"),
        ([[1, 0, 0]], r"flat array of integers, got int64 with shape \(1, 3\)"),
        ([0.2, 0.9, 0.1], "flat array of integers, got float64"),
        ([0, 2, 0], "class 2 is outside 0..1"),
        ([0, -1, 0], "class -1 is outside 0..1"),
    ],
)
def test_misshapen_classes_are_named(answer, message):
    [found] = algorithmic.violations(COINS, np.array(answer))
    assert re.search(message, found)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_is_a_violation(number):
    answer = as_stored(np.array([0.0, 0.0, number, 0.0]))
    assert algorithmic_regression.violations(DISTANCES, answer) == ("answer 2 is not a finite number",)


def test_an_entry_beyond_32_bits_is_a_violation():
    [found] = algorithmic_regression.violations(DISTANCES, np.array([0, 2**40, 0, 0]))
    assert "does not fit into 32 bits" in found


@pytest.mark.parametrize(
    ("inputs", "targets"),
    [
        (np.zeros((3, 3)), np.zeros(3)),
        (np.zeros((3, 2)), np.zeros(2)),
        (np.full((3, 2), np.nan), np.zeros(3)),
    ],
)
def test_a_damaged_instance_is_refused(inputs, targets):
    with pytest.raises(BadInputError, match=r"^d: "):
        TaskInstance("d", "min-coin-change", "mask", inputs, targets)


@pytest.mark.parametrize("variant", ["legacy", "predecessors"])
def test_a_batch_scores_as_its_answers_do_one_by_one(variant):
    module = algorithmic_regression if variant == "legacy" else algorithmic
    made = generate("floyd-warshall", count=20, variant=variant)
    pairs = zip(made.inputs, made.targets, strict=True)
    instances = [TaskInstance(str(i), "floyd-warshall", variant, *pair) for i, pair in enumerate(pairs)]
    generator = np.random.default_rng(0)
    drawn = generator.integers(0, 9, (20, 64))
    answers = [as_stored(row * 0.3) if variant == "legacy" else row.astype(np.int32) for row in drawn]
    alone = [module.score(i, a) for i, a in zip(instances, answers, strict=True)]
    assert module.score_batch(instances, answers).tolist() == pytest.approx(alone, rel=1e-12)
    wrong = as_stored(np.full(64, np.nan)) if variant == "legacy" else np.full(64, 9, dtype=np.int32)
    assert module.score_batch(instances, [*answers[:19], wrong]) is None
    assert module.score_batch(instances, [*answers[:19], answers[19][:5]]) is None

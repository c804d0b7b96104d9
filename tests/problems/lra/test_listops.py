"""ListOps: values against a recursive evaluator of our own here, lengths, streams."""

from __future__ import annotations

import itertools
import statistics

import numpy as np
import pytest

from nco_bench.errors import BadInputError
from nco_bench.problems.lra.listops import SYMBOLS, bounds, distinct, expressions


def parsed(symbols: list[str], start: int = 0) -> tuple[int, int, int]:
    """Value, end and depth of the expression at `start`: a plain recursive descent."""
    if symbols[start].isdigit():
        return int(symbols[start]), start + 1, 1
    operator, arguments, at, depth = symbols[start], [], start + 1, 0
    while symbols[at] != "]":
        value, at, below = parsed(symbols, at)
        arguments.append(value)
        depth = max(depth, below)
    assert 2 <= len(arguments) <= 10
    value = {
        "[MIN": min,
        "[MAX": max,
        "[MED": lambda a: int(statistics.median(a)),
        "[SM": lambda a: sum(a) % 10,
    }[operator](arguments)
    return value, at + 1, depth + 1


@pytest.mark.parametrize(("n", "count"), [(64, 500), (200, 200), (2000, 60)])
def test_values_are_those_of_a_recursive_evaluator_and_lengths_in_range(n: int, count: int) -> None:
    low, high = bounds(n)
    for tokens, value in distinct(n, 7, count):
        symbols = [SYMBOLS[t] for t in tokens]
        found, end, depth = parsed(symbols)
        assert (found, end) == (value, len(symbols))
        assert depth <= 10
        assert low < len(symbols) < high


def test_the_benchmarks_lengths() -> None:
    assert bounds(2000) == (500, 2000)


def test_a_shorter_set_is_the_beginning_of_a_longer_one_and_expressions_differ() -> None:
    longer = distinct(24, 3, 700)
    for (a, x), (b, y) in zip(distinct(24, 3, 50), longer, strict=False):
        assert x == y
        np.testing.assert_array_equal(a, b)
    assert len({tokens.tobytes() for tokens, _ in longer}) == 700


def test_training_draws_are_not_those_of_a_set() -> None:
    drawn = {tokens.tobytes() for tokens, _ in itertools.islice(expressions(64, 3, purpose=1), 300)}
    assert not drawn & {tokens.tobytes() for tokens, _ in distinct(64, 3, 300)}


def original_tree(rng: np.random.Generator, most: int, depth: int = 1) -> list[str]:
    """The published rule: a node is an operator with probability 0.25 above depth 10. One of ``most`` symbols is left."""
    if depth >= 10 or rng.random() > 0.25:
        return [str(rng.integers(10))]
    operator = ("[MIN", "[MAX", "[MED", "[SM")[rng.integers(4)]
    tree = [operator]
    for _ in range(rng.integers(2, 11)):
        tree += original_tree(rng, most - len(tree), depth + 1)
        if len(tree) >= most:
            break
    return [*tree, "]"]


def test_lengths_and_classes_fall_as_by_the_published_rule() -> None:
    from scipy import stats

    rng = np.random.default_rng(5)
    low, high = bounds(200)
    reference: list[list[str]] = []
    while len(reference) < 600:
        tree = original_tree(rng, high)
        if low < len(tree) < high:
            reference.append(tree)
    ours = list(itertools.islice(expressions(200, 11), 600))
    lengths = stats.ks_2samp([len(t) for t in reference], [len(t) for t, _ in ours])
    assert lengths.pvalue > 1e-3
    classes = np.array(
        [
            np.bincount([parsed(t)[0] for t in reference], minlength=10),
            np.bincount([v for _, v in ours], minlength=10),
        ]
    )
    assert stats.chi2_contingency(classes + 1).pvalue > 1e-3


def test_unsupported_length_names_the_range() -> None:
    with pytest.raises(BadInputError, match="12 to 2000"):
        bounds(5000)

"""Settings are read one way everywhere, and a mistake is named with its place and its remedy."""

from __future__ import annotations

import pytest

from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.settings import pairs, parse


def test_keys_come_in_order_and_values_may_hold_anything() -> None:
    assert list(pairs("here", ["two-opt=5", "path=a=b", "empty="]).items()) == [
        ("two_opt", "5"), ("path", "a=b"), ("empty", ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        (["knn"], BadInputError, "here: expected KEY=VALUE, got 'knn'"),
        (["=3"], UnknownNameError, "Unknown option ''"),
        (["knm=3"], UnknownNameError, "Unknown option 'knm'. Did you mean 'knn'"),
        (["knn=3", "knn=4"], BadInputError, "here: knn is given twice; keep one"),
        (["two-opt=1", "two_opt=2"], BadInputError, "here: two_opt is given twice"),
    ],
)
def test_a_wrong_part_is_named(parts: list[str], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pairs("here", parts, "option", ("knn", "two_opt"))


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("-7", int, -7), ("+7", int, 7), ("1e-3", float, 0.001), ("Off", bool, False), ("yes", bool, True),
        ("1", bool, True), (" as is ", str, " as is "),
    ],
)  # fmt: skip
def test_values_are_read_as_their_type(text: str, kind: type, value: object) -> None:
    found = parse("it", text, kind)
    assert (found, type(found)) == (value, kind)


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("1e3", int, "a whole number."), ("1_000", int, "a whole number."), ("٣", int, "a whole number."),
        ("9" * 19, int, "a whole number."), ("", int, "a whole number."), ("x", float, "a number."),
        ("nan", float, "a number."), ("inf", float, "a number."), ("2", bool, "true or false."),
    ],
)  # fmt: skip
def test_what_is_no_such_value_is_refused(text: str, kind: type, expected: str) -> None:
    with pytest.raises(BadInputError) as caught:
        parse("seed of tsp20", text, kind)
    assert str(caught.value) == f"seed of tsp20 is {text!r}; expected {expected}"


def test_a_range_holds_its_ends_and_stands_in_the_message() -> None:
    assert [parse("it", text, int, low=1, high=1_000_000) for text in ("1", "1000000")] == [1, 1_000_000]
    with pytest.raises(BadInputError, match=r"it is '0'; expected a whole number in \[1, 1,000,000\]"):
        parse("it", "0", int, low=1, high=1_000_000)
    with pytest.raises(BadInputError, match=r"it is '-0.5'; expected a number of at least 0"):
        parse("it", "-0.5", float, low=0)

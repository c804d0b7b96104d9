"""What --decoding accepts, and what it says about the rest."""

from __future__ import annotations

import subprocess
import sys

import pytest

from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.solvers.decoding.spec import Decoding, parse_decoding, spelt


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("greedy", Decoding("greedy")),
        ("x8", Decoding("greedy", augmentation=8)),
        ("greedy+x8", Decoding("greedy", augmentation=8)),
        ("beam:16,knn=250", Decoding("beam", 16, knn=250)),
        ("rrc:10,knn=20", Decoding("rrc", 10, knn=20, init="greedy")),
        ("sample:1280+x8", Decoding("sample", 1280, augmentation=8)),
        ("multistart", Decoding("multistart", 0)),
        ("rrc:1000", Decoding("rrc", 1000, init="greedy")),
        ("prc:100,init=nearest", Decoding("prc", 100, init="nearest")),
        ("prc:100,length=50", Decoding("prc", 100, init="insertion", length=50)),
    ],
)
def test_decodings_parse_and_their_spelling_parses_back(text: str, expected: Decoding) -> None:
    assert parse_decoding(text) == expected
    assert parse_decoding(str(expected)) == expected


def test_one_decoding_has_one_spelling() -> None:
    assert [spelt(text) for text in ("greedy+x8", "x8", " greedy+x8,knn=9", "beam:4+x8")] == [
        "x8", "x8", "x8,knn=9", "beam:4+x8",
    ]  # fmt: skip
    assert str(parse_decoding("greedy+x8,knn=9")) == "x8,knn=9"


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("beem:16", UnknownNameError, "Did you mean 'beam'"),
        ("beam:16,kmn=2", UnknownNameError, "Did you mean 'knn'"),
        ("greedy,length=20", UnknownNameError, "option of decoding greedy 'length'"),
        ("prc:10,init=wild", UnknownNameError, "greedy, insertion, nearest"),
        ("beam", BadInputError, "how many beams"),
        ("beam:0", BadInputError, r"beams is .0.; expected a whole number in \[1, 10,000,000\]"),
        ("beam:many", BadInputError, "whole number"),
        ("greedy:3", BadInputError, "takes no number"),
        ("prc:10,length=3", BadInputError, r"length is .3.; expected a whole number in \[4, "),
        ("beam:4,knn", BadInputError, "expected KEY=VALUE, got 'knn'"),
    ],
)
def test_a_mistake_is_named_with_its_remedy(text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        parse_decoding(text)


def test_decodings_and_models_can_be_listed_without_torch() -> None:
    code = (
        "import sys; from nco_bench.solvers.decoding import spec; from nco_bench.nn import build;"
        "import nco_bench.parity; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

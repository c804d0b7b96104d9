"""Texts as numbers: several columns are numbered alike, whatever their own lists are."""

from __future__ import annotations

import numpy as np
import pytest

from nco_bench.runs.codes import Codes, unified

pa = pytest.importorskip("pyarrow")


def column(*chunks: list[str | None]) -> object:
    return pa.chunked_array([pa.array(chunk).dictionary_encode() for chunk in chunks])


def test_columns_with_equal_other_and_overlapping_lists_are_numbered_alike() -> None:
    columns = [column(["b", "a", "b"], ["c"]), column(["b", "a", "a"]), column(["d", "a", "e"])]
    codes, texts = unified(columns, 10)
    assert [texts[code] for code in codes] == ["b", "a", "b", "c", "b", "a", "a", "d", "a", "e"]
    assert sorted(texts) == ["a", "b", "c", "d", "e"]


def test_lists_of_one_text_cut_otherwise_are_not_taken_for_equal() -> None:
    codes, texts = unified([column(["ab", "c"]), column(["a", "bc"])], 4)
    assert [texts[code] for code in codes] == ["ab", "c", "a", "bc"]


def test_a_missing_text_and_a_list_that_repeats_one_are_refused() -> None:
    with pytest.raises(ValueError, match="no text"):
        unified([column(["a", None])], 2)
    twice = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", "a"]))
    with pytest.raises(ValueError, match="twice"):
        unified([pa.chunked_array([twice])], 2)


def test_codes_go_on_where_they_stopped() -> None:
    codes = Codes()
    assert codes.numbers(["x", "y"], np.int16).tolist() == [0, 1]
    assert codes.numbers(["z"], np.int16).tolist() == [2]
    assert codes.numbers(["y", "w"], np.int16).tolist() == [1, 3]

"""The restricted unpickler: plain data in, code out."""

from __future__ import annotations

import collections
import datetime
import os
import pickle
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nco_bench.datasets.formats import read_file
from nco_bench.datasets.formats.safe_pickle import load_one, read_pickle
from nco_bench.errors import BadInputError


class Hostile:
    """Pickles as a call."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = (function, args)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", range(6))
def test_plain_data_comes_back_unchanged_in_every_protocol(protocol: int) -> None:
    value = [
        1,
        -(10**30),
        2.5,
        "text",
        b"bytes",
        bytearray(b"more"),
        True,
        None,
        (1, (2,)),
        {"a": [1.0], 3: "b"},
    ]
    assert load_one(pickle.dumps(value, protocol), "x")[0] == value


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.arange(6).reshape(2, 3).T,
        np.arange(3, dtype=">i2"),
        np.array(["a", "bcd"]),
        np.array([True, False]),
        np.empty((0, 2)),
        np.array(3.5),
        np.asfortranarray(np.random.default_rng(0).random((3, 4)).astype(np.float32)),
    ],
    ids=["float64", "transposed", "big-endian", "text", "bool", "empty", "scalar-array", "fortran"],
)
def test_arrays_come_back_unchanged(array: np.ndarray, protocol: int) -> None:
    back = load_one(pickle.dumps({"x": array}, protocol), "x")[0]["x"]
    assert type(back) is np.ndarray
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


def test_numpy_scalars_become_numbers() -> None:
    assert load_one(pickle.dumps([np.float32(0.5), np.int64(7), np.bool_(True)]), "x")[0] == [0.5, 7, True]


def test_shared_lists_stay_shared_and_cycles_end() -> None:
    part = [np.arange(2)]
    back = load_one(pickle.dumps([part, part]), "x")[0]
    assert back[0] is back[1]
    loop: list[Any] = [np.arange(2)]
    loop.append(loop)
    back = load_one(pickle.dumps(loop), "x")[0]
    assert back[1] is back


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Hostile(os.system, "exit 1"), "system"),
        ([[0.1, 0.2], {"deep": [Hostile(os.system, "exit 1")]}], "system"),
        (Hostile(eval, "1 + 1"), "eval"),
        (Hostile(getattr, os, "system"), "getattr|system|import"),
        (Hostile(subprocess.Popen, ["true"]), "Popen"),
        (Hostile(np.fromfile, "/etc/hostname"), "fromfile"),
        (Hostile(np.load, "x.npy"), "load"),
        (datetime.date(2024, 1, 1), "date"),
        ({1, 2}, "set"),
        (collections.OrderedDict(a=1), "OrderedDict"),
        (Path("x"), "Path"),
        (os.system, "system"),
        (np.float64, "float64"),
    ],
)
def test_everything_else_is_refused_by_name(value: Any, name: str, protocol: int) -> None:
    try:
        data = pickle.dumps(value, protocol)
    except (pickle.PicklingError, AttributeError, TypeError):
        return  # not even picklable
    with pytest.raises(BadInputError, match=f"evil.pkl: refused, the pickle holds .*({name})"):
        load_one(data, "evil.pkl")


def test_a_hostile_file_runs_nothing(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    for name in ("evil.pkl", "evil.pickle"):
        (tmp_path / name).write_bytes(pickle.dumps([Hostile(os.system, f"touch {flag}")]))
        with pytest.raises(BadInputError, match="refused") as caught:
            read_file(tmp_path / name)
        assert "\n" not in str(caught.value)
    assert not flag.exists()


def test_object_arrays_and_structured_arrays_are_refused() -> None:
    for array in (np.array([[1], "x"], dtype=object), np.zeros(2, dtype=[("a", "f8")])):
        with pytest.raises(BadInputError, match="refused"):
            load_one(pickle.dumps(array), "x")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x80\x04]r\xff\xff\xff\x7f.", "memo index"),
        (b"\x80\x04]p99999999999\n.", "memo index"),
        (b"\x80\x05\x96\x00\x00\x00\x00\x00\x00\x01\x00.", "length beyond"),
        (b"\x80\x04X\xff\xff\xff\x7fab.", "length beyond"),
        (b"\x80\x04\x82\x01.", "extension code"),
        (b"\x80\x04](e", "cut off"),
        (b"\x80\x04cos\nsystem\n(S'x'\ntR.", "os.system"),
        (b"(ios\nsystem\nS'x'\no.", "os.system|not a readable"),
        # The state of an allowed function: an attempt to replace its defaults.
        (b"\x80\x02cnumpy\ndtype\nN}X\x0c\x00\x00\x00__defaults__)s\x86b.", "change a function|refused"),
    ],
    ids=["memo", "text-memo", "bytearray", "string", "extension", "no-stop", "global", "inst", "defaults"],
)
def test_crafted_streams_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(BadInputError, match=reason):
        load_one(data, "x")


def test_reading_needs_no_suffix_and_sees_through_gz(tmp_path: Path) -> None:
    import gzip

    (tmp_path / "a.pkl.gz").write_bytes(gzip.compress(pickle.dumps([1.5])))
    assert read_pickle(tmp_path / "a.pkl.gz") == [1.5]


def test_a_name_cannot_break_the_message_into_lines_or_reach_the_terminal() -> None:
    data = b"\x80\x04\x8c\x0aos\n\x1b[2J\n\x00y\x8c\x06system\x93."
    with pytest.raises(BadInputError, match="refused, the pickle holds the name os") as caught:
        load_one(data, "x")
    assert str(caught.value).isprintable()

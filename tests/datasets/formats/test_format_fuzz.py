"""Fuzz: whatever the bytes, a reader returns a dataset or raises the documented error, and soon."""

from __future__ import annotations

import gzip
import io
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nco_bench.datasets.dataset import Dataset, Origin, Reference
from nco_bench.datasets.formats import (
    FORMATS,
    detect,
    read_file,
    read_solution,
    write_file,
)
from nco_bench.datasets.formats.pomo import torch_bytes
from nco_bench.datasets.formats.safe_pickle import load_one
from nco_bench.datasets.formats.torch_archive import read_torch_archive
from nco_bench.errors import NcoBenchError
from nco_bench.problems.cvrp import CVRPInstance
from nco_bench.problems.tsp import TSPInstance

QUICK = settings(
    max_examples=40,
    deadline=5000,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
POINTS = np.array([[0.0, 0.25], [1.0, 0.5], [0.75, 1.0], [0.125, 0.375], [0.5, 0.625]])
TSP = Dataset(
    "t",
    "tsp",
    (TSPInstance("t", POINTS),),
    (Reference(1.0, "test", np.array([0, 2, 1, 4, 3])),),
    Origin("test"),
)
CVRP = Dataset(
    "c",
    "cvrp",
    (CVRPInstance("c", POINTS[0], POINTS[1:], np.array([1, 2, 3, 4]), 5),),
    (Reference(1.0, "test", np.array([0, 1, 4, 0, 2, 3, 0])),),
    Origin("test"),
)
MATRIX = TSPInstance("m", None, "explicit", np.array([[0.0, 1, 2], [1, 0, 3], [2, 3, 0]]))
LIBRARY = Dataset(
    "l",
    "tsp",
    (TSPInstance("l", POINTS * 8, "tsplib-nint", fixed_edges=((0, 1),)),),
    (Reference(9.0, "x"),),
    Origin("test"),
)


def _examples() -> list[tuple[str, bytes]]:
    """Make a small valid file of every format, to be damaged."""
    import tempfile

    out = []
    with tempfile.TemporaryDirectory() as folder:
        for entry in FORMATS.values():
            if entry.write is None or entry.name == "nco-bench":
                continue
            for dataset in (TSP, CVRP, LIBRARY, Dataset("m", "tsp", (MATRIX,), (None,), Origin("test"))):
                path = Path(folder) / f"x{entry.suffixes[0]}"
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    try:
                        write_file(dataset, path, entry.name)
                    except NcoBenchError:
                        continue
                out.append((path.name, path.read_bytes()))
    return out


EXAMPLES = _examples()
WORDS = [
    b"nan",
    b"-1",
    b"1e999",
    b"999999999999",
    b"0",
    b"EOF",
    b"\n",
    b"\r",
    b"\x00",
    b"DIMENSION : 7\n",
    b":",
    b",",
    b"[",
    b"]",
]
WORDS += [b"[", b"]", b"output", b"-inf", b"1.5", b"\xff\xfe", b"DEMAND_SECTION\n", b"EXPLICIT", b"."]


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, bytes]:
    """Draw a valid file with a few bytes cut, replaced, repeated or inserted."""
    name, content = draw(st.sampled_from(EXAMPLES))
    data = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        size = draw(st.integers(0, 12))
        action = draw(st.sampled_from(["cut", "drop", "word", "byte", "repeat"]))
        if action == "cut":
            del data[at:]
        elif action == "drop":
            del data[at : at + size]
        elif action == "word":
            data[at : at + size] = draw(st.sampled_from(WORDS))
        elif action == "byte" and data:
            data[at] = draw(st.integers(0, 255))
        else:
            data[at:at] = data[max(at - 8 * size, 0) : at]
    return name, bytes(data)


def is_one_line(error: NcoBenchError) -> None:
    assert "\n" not in str(error)
    assert len(str(error)) < 1500


def read_anyhow(path: Path, fmt: str | None = None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            dataset = read_file(path, fmt)
        except NcoBenchError as error:
            is_one_line(error)
            return
    for instance in dataset.instances:
        assert instance.n >= 1
        assert all(np.isfinite(array).all() for array in instance.arrays().values())


def test_there_is_an_example_of_every_format() -> None:
    suffixes = {name for name, _ in EXAMPLES}
    assert suffixes == {f"x{entry.suffixes[0]}" for entry in FORMATS.values() if entry.write}
    assert len(EXAMPLES) >= 20


@given(file=damaged())
@settings(QUICK, max_examples=200)
def test_damaged_files(tmp_path: Path, file: tuple[str, bytes]) -> None:
    name, data = file
    path = tmp_path / name
    path.write_bytes(data)
    read_anyhow(path)


@given(file=damaged(), fmt=st.sampled_from([entry.name for entry in FORMATS.values() if entry.read]))
@settings(QUICK, max_examples=150)
def test_damaged_files_read_as_another_format(tmp_path: Path, file: tuple[str, bytes], fmt: str) -> None:
    path = tmp_path / file[0]
    path.write_bytes(file[1])
    read_anyhow(path, fmt)


@given(
    data=st.binary(max_size=300),
    name=st.sampled_from(["x.tsp", "x.pkl", "x.pt", "x.npz", "x.txt", "x.vrp.gz"]),
)
@settings(QUICK, max_examples=150)
def test_random_bytes(tmp_path: Path, data: bytes, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    read_anyhow(path)


NUMBERS = st.floats() | st.integers(-(10**6), 10**6) | st.sampled_from(["x", "", "1 2", "-1", "1e5"])


@given(
    dimension=st.integers(-2, 9) | st.sampled_from([10**15, "x", ""]),
    kind=st.sampled_from(["EUC_2D", "GEO", "ATT", "EXPLICIT", "SPECIAL", ""]),
    layout=st.sampled_from(["FULL_MATRIX", "UPPER_ROW", "LOWER_DIAG_ROW", "FUNCTION"]),
    section=st.sampled_from(
        ["NODE_COORD_SECTION", "EDGE_WEIGHT_SECTION", "DEMAND_SECTION", "DEPOT_SECTION", "FIXED_EDGES"]
    ),
    rows=st.lists(st.lists(NUMBERS, max_size=4), max_size=8),
)
@settings(QUICK, max_examples=150)
def test_keyword_files_of_any_content(
    tmp_path: Path, dimension: object, kind: str, layout: str, section: str, rows: list[list[object]]
) -> None:
    body = "\n".join(" ".join(map(str, row)) for row in rows)
    head = f"DIMENSION: {dimension}\nCAPACITY: 9\nEDGE_WEIGHT_TYPE: {kind}\nEDGE_WEIGHT_FORMAT: {layout}\n"
    text = f"{head}{section}\n{body}\n"
    for name, fmt in (("x.tsp", "tsplib"), ("x.vrp", "cvrplib")):
        (tmp_path / name).write_text(text)
        read_anyhow(tmp_path / name, fmt)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.binary(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=20,
)


@given(value=PLAIN, fmt=st.sampled_from(["kool", "gumbeldore", "elg", None]), protocol=st.integers(0, 5))
@settings(QUICK, max_examples=100)
def test_pickles_of_any_plain_data(tmp_path: Path, value: object, fmt: str | None, protocol: int) -> None:
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(value, protocol))
    read_anyhow(tmp_path / "x.pkl", fmt)


@given(data=st.data())
@settings(QUICK, max_examples=150)
def test_damaged_pickles_and_torch_files(tmp_path: Path, data: st.DataObject) -> None:
    array = np.arange(6.0).reshape(3, 2)
    raw = data.draw(st.sampled_from([pickle.dumps([array, {"a": (1, b"x")}], p) for p in range(6)]))
    raw = raw if data.draw(st.booleans()) else torch_bytes({"a": array.astype(np.float32)})
    damage = bytearray(raw)
    for _ in range(data.draw(st.integers(1, 4))):
        damage[data.draw(st.integers(0, len(damage) - 1))] = data.draw(st.integers(0, 255))
    try:
        load_one(bytes(damage), "x")
    except NcoBenchError as error:
        is_one_line(error)
    (tmp_path / "x.pt").write_bytes(bytes(damage))
    try:
        read_torch_archive(tmp_path / "x.pt")
    except NcoBenchError as error:
        is_one_line(error)


@given(text=st.text(alphabet='0123456789 -,.[]{}":\nRouteCs#', max_size=80))
@settings(QUICK, max_examples=200)
def test_solution_files_of_any_content(tmp_path: Path, text: str) -> None:
    (tmp_path / "s").write_text(text)
    for instance in (TSP.instances[0], CVRP.instances[0]):
        try:
            solution = read_solution(tmp_path / "s", instance)
        except NcoBenchError as error:
            is_one_line(error)
        else:
            assert solution.dtype == np.int64


@pytest.mark.parametrize("suffix", [".tsp", ".vrp", ".txt", ".pkl", ".npz", ".pt"])
def test_cut_off_gz_of_every_kind(tmp_path: Path, suffix: str) -> None:
    content = next(data for name, data in EXAMPLES if name == f"x{suffix}")
    packed = gzip.compress(content)
    (tmp_path / f"x{suffix}.gz").write_bytes(packed)
    assert detect(tmp_path / f"x{suffix}.gz")
    (tmp_path / f"x{suffix}.gz").write_bytes(packed[: len(packed) - 6])
    with pytest.raises(NcoBenchError, match="cut off"):
        read_file(tmp_path / f"x{suffix}.gz")


def test_a_hostile_nesting_ends_soon(tmp_path: Path) -> None:
    # Each level holds the former twice: 2^60 leaves if anything walks it naively.
    value: list[object] = [0.5, 0.5]
    for _ in range(60):
        value = [value, value]
    out = io.BytesIO()
    pickle.dump([value], out)
    for fmt in ("kool", "gumbeldore", "elg"):
        (tmp_path / "x.pkl").write_bytes(out.getvalue())
        with pytest.raises(NcoBenchError):
            read_file(tmp_path / "x.pkl", fmt)

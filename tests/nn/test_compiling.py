"""Compiled functions whose cache on disk is of another version, or torn."""

from __future__ import annotations

import importlib.util
import pickle
from pathlib import Path
from types import ModuleType

import pytest

numba = pytest.importorskip("numba")

SOURCE = """
from nco_bench.nn.compiling import njit

@njit(cache=True)
def double(x):
    return 2 * x
"""
REMOVED = b"cnco_bench.a_module_of_before\nPair\n."  # a class by its name, as a pickle has it


def imported(path: Path) -> ModuleType:
    """The module as a process of its own would import it."""
    spec = importlib.util.spec_from_file_location("cached_functions", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("suffix", "written"),
    [
        (".nbi", pickle.dumps(numba.__version__) + REMOVED),
        (".nbi", b""),
        (".nbc", REMOVED),
        (".nbc", b""),
    ],
    ids=["index of a class that is gone", "empty index", "data of a class that is gone", "empty data"],
)
def test_a_cache_that_cannot_be_read_is_written_anew(tmp_path: Path, suffix: str, written: bytes) -> None:
    path = tmp_path / "cached_functions.py"
    path.write_text(SOURCE)
    assert imported(path).double(2) == 4
    [file] = (tmp_path / "__pycache__").glob(f"*{suffix}")
    file.write_bytes(written)
    assert imported(path).double(3) == 6
    assert len(file.read_bytes()) > len(written)
    again = imported(path).double
    assert again(4) == 8
    assert sum(again.stats.cache_hits.values()) == 1

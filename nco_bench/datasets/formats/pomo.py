"""POMO .pt (Kwon et al. 2020): a dict of tensors ``depot_xy (B, 1, 2)``, ``node_xy (B, N, 2)``, ``node_demand (B, N)``.

Demands are divided by the capacity and stored as float32. Where they are exactly the float32 quotients of whole
numbers by one capacity up to 100,000, those whole numbers and the smallest such capacity are restored, so that
loads add up without rounding; else the capacity is 1. A bare tensor ``(B, N, 2)`` or ``node_xy`` alone is read as TSP.
No solutions. Read and written without torch; the same arrays in an .npz are read, too.
"""

from __future__ import annotations

import io
import struct
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.formats.assemble import FileWarning, cvrp_instance, plain_cvrp, same_size, whole
from nco_bench.datasets.formats.reading import (
    MAX_BINARY_BYTES,
    read_bytes,
    read_npz,
    shown,
    stem,
    write_bytes,
)
from nco_bench.datasets.formats.rl4co import batch
from nco_bench.datasets.formats.torch_archive import read_torch_archive
from nco_bench.datasets.formats.values import points
from nco_bench.errors import BadInputError
from nco_bench.problems.tsp import TSPInstance

MAX_CAPACITY = 100_000
MAX_DISTINCT = 1000
"""More distinct demands than this are not the quotients of a benchmark's whole demands."""


def read(path: Path) -> Dataset:
    """Read a .pt or .npz file of instances."""
    content = read_npz(path) if _is_npz(path) else read_torch_archive(path)
    if isinstance(content, np.ndarray) and content.ndim == 3:
        return _tsp(content, path)
    if not isinstance(content, dict) or "node_xy" not in content:
        keys = (
            ", ".join(shown(key) for key in list(content)[:6])
            if isinstance(content, dict)
            else type(content).__name__
        )
        raise BadInputError(
            f"{path}: expected node_xy (TSP) or depot_xy, node_xy and node_demand (CVRP), found {keys}; "
            "is it a checkpoint?"
        )
    arrays = {str(key): value for key, value in content.items() if isinstance(value, np.ndarray)}
    customers = batch(arrays, "node_xy", 3, path)
    if not {"depot_xy", "node_demand"} & set(content):
        return _tsp(customers, path)
    count = len(customers)
    depot = batch(arrays, "depot_xy", 2, path, count)
    demand = batch(arrays, "node_demand", 2, path, count)
    whole_demand, capacity = whole_demands(demand)
    instances = [
        cvrp_instance(
            f"{stem(path)}/{i}", depot[i], customers[i], whole_demand[i], capacity, f"{path}: instance {i}"
        )
        for i in range(count)
    ]
    return whole(path, "pomo", instances)


def _is_npz(path: Path) -> bool:
    with io.BytesIO(read_bytes(path, MAX_BINARY_BYTES)) as file:
        if not zipfile.is_zipfile(file):
            return False
        with zipfile.ZipFile(file) as archive:
            return "node_xy.npy" in archive.namelist()


def _tsp(coords: NDArray[Any], path: Path) -> Dataset:
    rows = [
        TSPInstance(f"{stem(path)}/{i}", points(c, f"{path}: instance {i}")) for i, c in enumerate(coords)
    ]
    return whole(path, "pomo", rows)


def whole_demands(demand: NDArray[Any]) -> tuple[NDArray[Any], float | int]:
    """Undo the division by the capacity where it can be undone exactly.

    Parameters
    ----------
    demand
        Quotients, float32 as stored.

    Returns
    -------
    tuple
        Whole demands and their capacity, or the quotients as float64 and 1.
    """
    distinct = np.unique(demand.astype(np.float32))
    if distinct.size <= MAX_DISTINCT and np.isfinite(distinct).all() and (distinct >= 0).all():
        candidates = np.arange(1, MAX_CAPACITY + 1)
        for quotient in distinct:
            counts = np.rint(np.float64(quotient) * candidates).astype(np.float32)
            candidates = candidates[counts / candidates.astype(np.float32) == quotient]
        if candidates.size:
            capacity = int(candidates[0])
            return np.rint(demand.astype(np.float64) * capacity).astype(np.int64), capacity
    return demand.astype(np.float64), 1


def write(dataset: Dataset, path: Path) -> None:
    """Write a .pt file that torch.load reads; all instances need one size and are rounded to float32."""
    instances = plain_cvrp(dataset, "pomo")
    same_size(instances, dataset, "pomo")
    exact = {
        "depot_xy": np.stack([i.depot[None] for i in instances if i.depot is not None]),
        "node_xy": np.stack([i.customers for i in instances if i.customers is not None]),
    }
    arrays = {key: array.astype(np.float32) for key, array in exact.items()}
    if any(not np.array_equal(arrays[key], exact[key]) for key in exact):
        warnings.warn(f"{path}: rounded to float32, as POMO expects.", FileWarning, stacklevel=2)
    arrays["node_demand"] = np.stack(
        [i.demand.astype(np.float32) / np.float32(i.capacity) for i in instances]
    )
    write_bytes(path, torch_bytes(arrays))


def torch_bytes(arrays: dict[str, NDArray[np.float32]]) -> bytes:
    """Serialise a dict of float32 arrays as ``torch.save`` does, opcode by opcode."""
    program = io.BytesIO()
    program.write(b"\x80\x02}(")  # protocol 2, an empty dict, a mark
    for key, (name, array) in enumerate(arrays.items()):
        program.write(_text(name) + b"ctorch._utils\n_rebuild_tensor_v2\n(")
        program.write(b"(" + _text("storage") + b"ctorch\nFloatStorage\n" + _text(str(key)) + _text("cpu"))
        program.write(_integer(array.size) + b"tQ" + _integer(0))
        strides = [step // array.itemsize for step in np.ascontiguousarray(array).strides]
        for numbers in (array.shape, strides):
            program.write(b"(" + b"".join(map(_integer, numbers)) + b"t")
        program.write(b"\x89ccollections\nOrderedDict\n)RtR")  # requires_grad False, no hooks; call
    program.write(b"u.")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        members = {"data.pkl": program.getvalue(), "byteorder": b"little", "version": b"3\n"}
        members |= {
            f"data/{key}": np.ascontiguousarray(a, "<f4").tobytes() for key, a in enumerate(arrays.values())
        }
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(f"archive/{name}", (1980, 1, 1, 0, 0, 0)), content)
    return out.getvalue()


def _text(text: str) -> bytes:
    raw = text.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def _integer(value: int) -> bytes:
    return b"\x8a\x08" + struct.pack("<q", value)

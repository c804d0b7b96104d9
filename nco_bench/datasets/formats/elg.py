"""ELG .pkl (Gao et al. 2024): one TSPLIB instance ``(coordinates, optimum)`` per file, or a tensor ``(B, N, 2)``.

The optimum is TSPLIB's, so the single instances get TSPLIB's rounding. ELG's CVRP and other TSP files are in the
form of Kool et al. (format ``kool``).
"""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np

from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.formats.assemble import the_only_instance, whole
from nco_bench.datasets.formats.detection import reading_as
from nco_bench.datasets.formats.reading import MAX_BINARY_BYTES, read_bytes, stem, write_bytes
from nco_bench.datasets.formats.torch_archive import load_pickle_with_tensors
from nco_bench.datasets.formats.values import one_number, points
from nco_bench.errors import BadInputError
from nco_bench.problems.tsp import TSPInstance


def read(path: Path) -> Dataset:
    """Read an ELG .pkl; pickles go through the restricted unpickler."""
    content = load_pickle_with_tensors(read_bytes(path, MAX_BINARY_BYTES), str(path))
    if isinstance(content, np.ndarray) and content.ndim == 3:
        rows = [
            TSPInstance(f"{stem(path)}/{i}", points(c, f"{path}: instance {i}"))
            for i, c in enumerate(content)
        ]
        return whole(path, "elg", rows)
    if not isinstance(content, (list, tuple)) or len(content) != 2:
        raise BadInputError(
            f"{path}: expected (coordinates, optimum) or an array (B, N, 2); as Kool's: {reading_as(path, 'kool')}"
        )
    coords = points(content[0], f"{path}: coordinates")
    optimum = one_number(content[1], f"{path}: optimum")
    return whole(path, "elg", [TSPInstance(stem(path), coords, "tsplib-nint")], stated=[float(optimum)])


def write(dataset: Dataset, path: Path) -> None:
    """Write one TSPLIB instance with its reference cost."""
    instance: TSPInstance = the_only_instance(dataset, "tsp", "elg")
    reference = dataset.references[0]
    if (
        instance.convention != "tsplib-nint"
        or instance.coords is None
        or instance.fixed_edges
        or reference is None
    ):
        raise BadInputError(
            f"{instance.name}: format 'elg' holds a TSPLIB instance of type EUC_2D with its optimum; "
            "use 'kool' for sets of random instances."
        )
    cost = reference.cost
    optimum = int(cost) if cost == int(cost) else cost
    write_bytes(path, pickle.dumps((instance.coords, optimum), protocol=4))

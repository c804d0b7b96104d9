"""What an archive of runs must hold before it is read: its hash was taken by whoever made it, so it proves no good will."""

from __future__ import annotations

import base64
import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from nco_bench.datasets.formats.reading import MAX_BINARY_BYTES, refuse_swollen
from nco_bench.errors import NcoBenchError, ResultsError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

OF_CELL = (
    "solver", "label", "solver_version", "decoding", "kind", "config_sha256", "dataset", "dataset_sha256", "problem",
    "problem_version", "objective", "device",
)  # fmt: skip
"""Facts of its cell that stand in a record's row, so that the rows say all by themselves."""

MAX_FACTS_BYTES = 128 << 20
"""Limit for what stands once per run, uncompressed."""
RUN_ID = re.compile(r"[^\W_][\w.+-]{0,200}")
"""Names of folders, and nothing that leads elsewhere."""


def archive_schema() -> pa.Schema:
    """Return the columns of an archive."""
    import pyarrow as pa

    types = {
        "run": pa.string(), "version": pa.string(), "commit": pa.string(), "dirty": pa.bool_(),
        **dict.fromkeys((*OF_CELL, "weights", "weights_sha256"), pa.string()),
        "key": pa.string(), "cell": pa.int32(), "instance": pa.int32(), "name": pa.string(), "n": pa.int32(),
        "repeat": pa.int32(), "seed": pa.int64(), "status": pa.string(), "cost": pa.float64(), "reference": pa.float64(),
        "seconds": pa.float64(), "optimal": pa.bool_(), "solution_length": pa.int32(), "solution_sha256": pa.string(),
        "convention": pa.string(), "message": pa.string(), "instance_sha256": pa.string(), "counts": pa.string(),
        "solution": pa.list_(pa.int32()),
    }  # fmt: skip
    return pa.schema(list(types.items()))


def runs_described(path: Path, encoded: bytes, rows: int) -> list[dict[str, Any]]:
    """Return what an archive says of its runs.

    Raises
    ------
    ResultsError
        When it is damaged, swells, names a run that is no name of a folder, or counts other records than there are.
    """
    try:
        unpacking = zlib.decompressobj()
        content = unpacking.decompress(base64.b64decode(encoded), MAX_FACTS_BYTES)
        if unpacking.unconsumed_tail:
            raise ResultsError(
                f"{path}: refused, what it says of its runs takes more than {MAX_FACTS_BYTES >> 20} MiB."
            )
        runs = orjson.loads(content)
        names = [run["id"] for run in runs]
        wrong = next((name for name in names if not RUN_ID.fullmatch(name)), None)
        counts = [run["records"] for run in runs]
        whole = (
            len({*names}) == len(names)
            and all(type(count) is int and count >= 0 for count in counts)
            and sum(counts) == rows
            and all(isinstance(run["info"], dict) for run in runs)
            and all(
                isinstance(line, dict)
                for run in runs
                for file in ("cells", "traces")
                for line in run.get(file, ())
            )
        )
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        zlib.error,
        RecursionError,
        MemoryError,
    ) as error:
        raise ResultsError(
            f"{path}: damaged: what it says of its runs cannot be read ({type(error).__name__})."
        ) from None
    if wrong is not None:
        raise ResultsError(f"{path}: refused, {wrong[:60]!a} is no name of a run.")
    if not whole:
        raise ResultsError(f"{path}: damaged: what it says of its runs is not what it holds.")
    return list(runs)


def refuse_other_columns(path: Path, file: pq.ParquetFile, size: int) -> None:
    """Raise `ResultsError` for columns that are not those of an archive, or that swell to fill the memory."""
    found, metadata = file.schema_arrow, file.metadata
    for field in archive_schema():
        types = [found.field(name).type for name in found.names if name == field.name]
        solution = field.name == "solution" and types and str(types[0]).endswith(": int32>")
        if types != [field.type] and not solution:
            raise ResultsError(f"{path}: damaged: its column {field.name!r} is not that of an archive.")
    columns = [
        metadata.row_group(i).column(j)
        for i in range(metadata.num_row_groups)
        for j in range(metadata.num_columns)
    ]
    try:
        for column in columns:
            refuse_swollen(
                str(path), size, max(column.num_values * 8, column.total_uncompressed_size), MAX_BINARY_BYTES
            )
        refuse_swollen(str(path), size, 8 * metadata.num_rows * metadata.num_columns, MAX_BINARY_BYTES)
    except NcoBenchError as error:
        raise ResultsError(str(error)) from None

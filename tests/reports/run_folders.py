"""Small results folders, written by the same functions as the runner's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson

from nco_bench.runs.records import SCHEMA, Cell, Record, dump_line, record_key

ENVIRONMENT = {
    "cpu": "Test CPU @ 2.0 GHz",
    "cpu_affinity": 2,
    "gpu": [],
    "python": "3.11",
    "packages": {"numpy": "2.0"},
}

WriteCell = Callable[..., None]


def make_cell(index: int, solver: str, dataset: str, **facts: Any) -> Cell:
    """A cell with plain facts, any of them replaced."""
    plain: dict[str, Any] = {
        "cell": index, "solver": solver, "label": solver, "solver_version": "1", "decoding": "", "kind": "classical",
        "options": {"decoding": None, "weights": None, "params": {}}, "config_sha256": f"config-{solver}",
        "weights": None, "dataset": dataset, "dataset_sha256": f"sha-{dataset}", "problem": "tsp",
        "problem_version": "1", "objective": "min", "convention": "euclidean",
        "origin": {"generator": "nco-bench", "version": "1", "distribution": "uniform", "seed": 1234, "params": {}},
        "instances": 0, "repeats": 1, "seed": 1234, "reference_solver": "lkh3", "device": "cpu", "batch_size": 1,
        "latency_seconds": 0.01, "seconds_total": 1.0, "peak_memory_mb": 100.0, "peak_device_memory_mb": None,
    }  # fmt: skip
    merged = {**plain, **facts}
    if "config_sha256" not in facts:
        merged["config_sha256"] = f"config-{solver}-{merged['decoding']}"
    return Cell(**merged)


def make_records(
    cell: Cell,
    costs: Sequence[float | str],
    references: Sequence[float | None],
    *,
    n: int = 100,
    repeat: int = 0,
    seconds: float = 0.5,
    first: int = 0,
    names: Sequence[str] = (),
) -> list[Record]:
    """Records of one cell; a cost that is a word is the status of a failed solve."""
    records = []
    for index, (cost, reference) in enumerate(zip(costs, references, strict=True), start=first):
        failed = isinstance(cost, str)
        parts = {"config": cell.config_sha256, "dataset": cell.dataset_sha256, "seed": cell.seed}
        records.append(
            Record(
                key=record_key({**parts, "instance": index, "repeat": repeat}),
                cell=cell.cell,
                instance=index,
                name=names[index - first] if names else f"{cell.dataset}-{index}",
                n=n,
                repeat=repeat,
                seed=cell.seed + index,
                status=str(cost) if failed else "ok",
                cost=None if failed else float(cost),
                reference=reference,
                seconds=seconds,
                optimal=False,
                solution=None,
                solution_sha256=None,
                convention=cell.convention,
                message="it broke" if failed else "",
            )
        )
    return records


class Results:
    """A results folder under construction."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(
        self,
        name: str,
        *parts: tuple[Cell, list[Record]],
        schema: int = SCHEMA,
        environment: dict[str, Any] | None = None,
    ) -> Path:
        """Write one run of cells with their records."""
        folder = self.folder / name
        folder.mkdir(parents=True)
        info = {
            "schema": schema,
            "version": "0.1.0",
            "run_id": name,
            "environment": environment or ENVIRONMENT,
        }
        (folder / "run.json").write_bytes(orjson.dumps(info))
        (folder / "cells.jsonl").write_bytes(b"".join(dump_line(cell) for cell, _ in parts))
        (folder / "records.jsonl").write_bytes(b"".join(dump_line(r) for _, rs in parts for r in rs))
        return folder

"""Small real runs, and hands to change what they say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

import nco_bench
from nco_bench.seals import seal_line, unseal_document, unseal_line

HOSTILE = '<img src=x onerror="window.broken=1"></script><script>window.broken=1</script>\'`${window.broken=1}\u2028'
LENGTH = 6


def edit(run: Path, file: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Change every line of one of a run's files."""
    lines = [orjson.loads(unseal_line(line)) for line in (run / file).read_bytes().splitlines(keepends=True)]
    for line in lines:
        change(line)
    (run / file).write_bytes(b"".join(seal_line(orjson.dumps(line) + b"\n") for line in lines))


def solve(results: Path, solvers: list[str], data: str, **options: Any) -> list[Path]:
    """Run solvers; return the folders of their runs."""
    instances = results.parent / "instances"
    done = nco_bench.run(solvers, data, results=results, instances=instances, device="cpu", **options)
    return [results / name for name in done.run_ids]


def make_hostile(run: Path) -> None:
    """Give a run's solver a name, a setting, a note and a message that no page may take for its own."""

    def cell(line: dict[str, Any]) -> None:
        if "label" in line:
            line["label"] = line["solver"] = HOSTILE
            line["config_sha256"] = "hostile"
            line["options"]["params"] = {"x": HOSTILE}
        line["notes"] = [HOSTILE]

    def record(line: dict[str, Any]) -> None:
        if line["instance"] == 1:
            line |= {
                "status": "failed",
                "cost": None,
                "solution": None,
                "solution_sha256": None,
                "message": HOSTILE,
            }

    edit(run, "cells.jsonl", cell)
    edit(run, "records.jsonl", record)
    info = unseal_document((run / "run.json").read_bytes())
    info["command"] = HOSTILE
    (run / "run.json").write_bytes(orjson.dumps(info))

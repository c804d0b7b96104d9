"""Results folders as nco-bench 0.1 wrote them."""

from __future__ import annotations

from pathlib import Path

import orjson

from nco_bench.runs.records import record_key
from nco_bench.seals import unseal_document, unseal_line


def as_schema_1(folder: Path) -> None:
    """Rewrite runs as 0.1.0 wrote them: keys of the dataset's hash, gaps, no instance's hash, nothing asked."""
    for path in folder.glob("*/run.json"):
        info = unseal_document(path.read_bytes()) | {"schema": 1}
        path.write_bytes(orjson.dumps(info))
        found = {}
        for name in ("cells.jsonl", "records.jsonl"):
            raw = (path.parent / name).read_bytes().splitlines(keepends=True)
            lines = [orjson.loads(unseal_line(line)) for line in raw]
            for line in lines:
                if name == "cells.jsonl":
                    line.pop("asked", None)
                    found[line["cell"]] = found.get(line["cell"], {}) | line
                    continue
                cell = found[line["cell"]]
                del line["instance_sha256"]
                line["gap_percent"] = None
                parts = {
                    "config": cell["config_sha256"],
                    "dataset": cell["dataset_sha256"],
                    "seed": cell["seed"],
                }
                line["key"] = record_key({**parts, "instance": line["instance"], "repeat": line["repeat"]})
            (path.parent / name).write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))

"""Every flipped byte is noticed: `verify`, or the load, names the file; what earlier versions wrote is still read."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from amounts import amount

from nco_bench.datasets import ledger
from nco_bench.datasets.dataset import Reference
from nco_bench.datasets.generate import generate
from nco_bench.datasets.ledger_file import faults, ledger_path
from nco_bench.datasets.load import Places
from nco_bench.datasets.storage import load_saved, save_dataset
from nco_bench.errors import NcoBenchError
from nco_bench.reports.frame.load import load_frame
from nco_bench.runs.display import QuietDisplay
from nco_bench.runs.finding import find_runs
from nco_bench.runs.packing import pack
from nco_bench.runs.request import RunRequest
from nco_bench.runs.runner import run
from nco_bench.runs.stored_run import Run
from nco_bench.runs.verify import verify
from nco_bench.seals import unseal_document, unseal_line
from nco_bench.weights.store import SHIPPED
from nco_bench.weights.store import verify as verify_weights

FLIPS = amount(100, 500)
"""Of each of twelve kinds of file: some 5,000 together, and none of them may go unnoticed."""
SOLVER = """
import numpy as np
from nco_bench.solvers import Solved, register

@register("traced", problems=("tsp",))
class Traced:
    def __init__(self, options): pass
    def unsupported(self, dataset): return None
    def prepare(self, dataset): pass
    def solve(self, batch, *, seed, time_limit, progress):
        return [Solved(np.arange(i.n), trace=((0.1, 9.0), (0.2, 8.0))) if "3" not in i.name
                else np.zeros(i.n, int) for i in batch]
"""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with traces, an infeasible record and a dataset with references."""
    folder = tmp_path_factory.mktemp("stored")
    (folder / "traced.py").write_text(SOLVER)
    data = generate("tsp", 8, 4, "uniform", 3)
    data = data.with_references([Reference(9.0, "x", np.arange(8), params="a=1"), None, None, None])
    path = save_dataset(data, folder / "set.npz")
    run(
        RunRequest((str(folder / "traced.py"),), (str(path),), folder / "runs", Places(folder)),
        QuietDisplay(),
    )
    assert findings(folder) == []
    return folder


def findings(folder: Path) -> list[str]:
    return [str(f) for f in verify(folder / "runs", (), Places(folder)).findings]


def unnoticed(path: Path, check: Callable[[], object], flips: int = FLIPS) -> list[tuple[int, int]]:
    """Flip bytes one at a time, every one at least once where there are more flips; return those that `check` lets pass.

    The count of all is printed (`pytest -s`).

    `check` returns something true, or raises an error of ours, where it sees a fault.
    """
    content, rng, missed = path.read_bytes(), random.Random(20), []
    places = list(range(len(content)))
    chosen = (
        rng.sample(places, flips)
        if flips < len(places)
        else places + rng.choices(places, k=flips - len(places))
    )
    try:
        for place in chosen:
            change = rng.choice([1 << rng.randrange(8), rng.randrange(1, 256)])
            path.write_bytes(content[:place] + bytes([content[place] ^ change]) + content[place + 1 :])
            try:
                noticed = bool(check())
            except NcoBenchError as error:
                noticed = str(error) != ""
            if not noticed:
                missed.append((place, change))
    finally:
        path.write_bytes(content)
    print(f"{path.name}: {len(chosen):,} flips, {len(missed)} unnoticed")
    return missed


@pytest.mark.parametrize(
    "name", ["records.jsonl", "cells.jsonl", "solutions.bin", "run.json", "traces.jsonl"]
)
def test_a_flipped_byte_of_a_run_is_named(stored: Path, name: str) -> None:
    [path] = (stored / "runs").glob(f"*/{name}")
    assert unnoticed(path, lambda: findings(stored)) == []


def test_a_flipped_byte_of_records_is_named_by_a_report_too(stored: Path) -> None:
    [path] = (stored / "runs").glob("*/records.jsonl")
    assert not load_frame(stored / "runs", instances=stored).records.empty
    missed = unnoticed(path, lambda: load_frame(stored / "runs", instances=stored) is None)
    # A last line without its end is one that a killed run did not finish: only `verify` tells the two apart.
    assert {place for place, _ in missed} <= {path.stat().st_size - 1}


def test_a_flipped_byte_of_an_archive_is_a_finding_beside_the_others(stored: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    folder = tmp_path / "runs"
    shutil.copytree(stored / "runs", folder)
    out = folder / "packed.parquet"
    pack(find_runs(folder), out, {})
    [name] = {run.name for run in folder.iterdir() if run.is_dir()}
    assert found_by_verify(folder, stored) == []
    assert unnoticed(out, lambda: found_by_verify(folder, stored)) == []
    (folder / name / "records.jsonl").write_bytes(b"{}\n")
    out.write_bytes(out.read_bytes()[:-1])
    found = found_by_verify(folder, stored)
    assert {text.partition(":")[0] for text in found} == {"packed.parquet", name}
    (folder / name / "run.json").write_bytes(b"{")
    assert {text.partition(":")[0] for text in found_by_verify(folder, stored)} == {"packed.parquet", name}


def found_by_verify(folder: Path, stored: Path) -> list[str]:
    return [str(f) for f in verify(folder, (), Places(stored)).findings]


@pytest.mark.parametrize("name", ["set.npz", "set.json"])
def test_a_flipped_byte_of_a_dataset_is_named(stored: Path, name: str) -> None:
    def check() -> bool:
        load_saved(stored / "set.npz")
        return False

    assert unnoticed(stored / name, check) == []


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ledger")
    data = generate("tsp", 6, 12, "uniform", 5)
    tour = np.array([0, 2, 1, 3, 5, 4])
    found = ledger.improve(data, [ledger.Candidate(i, tour, "x", "a=1", 0.5) for i in range(12)], folder)
    assert {one.status for one in found} == {"improved"}
    assert list(faults(folder)) == []
    return folder


def _rows(folder: Path) -> object:
    with sqlite3.connect(ledger_path(folder)) as opened:
        return [
            opened.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()
            for table in ("reference", "place")
        ]


def test_a_flipped_byte_of_the_ledger_is_named_or_changes_nothing_that_is_read(references: Path) -> None:
    # An SQLite file has bytes that mean nothing (unused space, counters of its writer): they may change.
    before = _rows(references)

    def check() -> bool:
        return bool(list(faults(references))) or _rows(references) == before

    assert unnoticed(ledger_path(references), check) == []


def test_a_ledger_of_before_is_read_and_gets_its_seals_when_it_is_written(tmp_path: Path) -> None:
    data, tour = generate("tsp", 6, 2, "uniform", 5), np.array([0, 2, 1, 3, 5, 4])
    ledger.improve(data, [ledger.Candidate(0, tour, "x")], tmp_path)
    with sqlite3.connect(ledger_path(tmp_path)) as old:
        for table in ("reference", "place"):
            old.execute(f"ALTER TABLE {table} DROP COLUMN seal")
        old.execute("PRAGMA user_version = 0")
    assert list(faults(tmp_path)) == []
    assert ledger.load(data, tmp_path).references[0] is not None
    ledger.improve(data, [ledger.Candidate(1, tour, "x")], tmp_path)
    assert list(faults(tmp_path)) == []
    with sqlite3.connect(ledger_path(tmp_path)) as changed:
        assert changed.execute("SELECT count(*) FROM reference WHERE length(seal) = 16").fetchone() == (2,)
        changed.execute("UPDATE reference SET optimal = 1 WHERE rowid = 1")
    (fault,) = faults(tmp_path)
    assert "was changed after it was written" in fault


def test_every_shipped_manifest_is_sealed() -> None:
    unsealed = [
        p.name
        for p in SHIPPED.glob("*.json")
        if not p.name.endswith(".calibration.json")  # factors, bound to their weights by hash; no manifest
        and unseal_document(p.read_bytes()) == json.loads(p.read_bytes())
    ]
    assert unsealed == [], "python tools/seal_manifests.py seals them"


@pytest.mark.parametrize("suffix", ["safetensors", "json"])
def test_a_flipped_byte_of_shipped_weights_is_named(tmp_path: Path, suffix: str) -> None:
    source = min(SHIPPED.glob("*.safetensors"), key=lambda path: path.stat().st_size)
    for ending in (".safetensors", ".json"):
        (tmp_path / f"w{ending}").write_bytes(source.with_suffix(ending).read_bytes())

    def check() -> bool:
        verify_weights(tmp_path / "w.safetensors")
        return False

    assert not check()
    assert unnoticed(tmp_path / f"w.{suffix}", check) == []


def test_runs_and_datasets_without_seals_are_still_read(stored: Path, tmp_path: Path) -> None:
    (folder,) = (stored / "runs").iterdir()
    old = tmp_path / "runs" / folder.name
    old.mkdir(parents=True)
    for path in folder.iterdir():
        content = path.read_bytes()
        if path.suffix == ".jsonl":
            content = b"".join(map(unseal_line, content.splitlines(keepends=True)))
            assert b'"crc"' not in content
        elif path.suffix == ".json":
            content = json.dumps(unseal_document(content)).encode()
        (old / path.name).write_bytes(content)
    assert len(list(Run(old).records())) == 4
    assert [str(f) for f in verify(tmp_path / "runs", (), Places(stored)).findings] == []
    (tmp_path / "set.npz").write_bytes((stored / "set.npz").read_bytes())
    manifest = unseal_document((stored / "set.json").read_bytes())
    (tmp_path / "set.json").write_text(json.dumps(manifest))
    assert load_saved(tmp_path / "set.npz").sha256 == load_saved(stored / "set.npz").sha256

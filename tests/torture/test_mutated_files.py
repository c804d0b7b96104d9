"""Every reader, given files that were damaged: the documented error in one line, soon, and in little memory."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import random
import resource
import shutil
import tarfile
import time
import warnings
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from amounts import amount

from nco_bench.datasets import ledger
from nco_bench.datasets.dataset import Dataset, Reference
from nco_bench.datasets.formats import FORMATS, read_file, read_solution, write_file
from nco_bench.datasets.formats.pomo import torch_bytes
from nco_bench.datasets.formats.safe_pickle import load_one
from nco_bench.datasets.generate import generate
from nco_bench.datasets.ledger_file import ledger_path
from nco_bench.datasets.pull import pull
from nco_bench.datasets.storage import load_saved, save_dataset
from nco_bench.errors import NcoBenchError
from nco_bench.runs.archives import archived_runs
from nco_bench.runs.display import QuietDisplay
from nco_bench.runs.finding import find_runs
from nco_bench.runs.packing import pack
from nco_bench.runs.request import RunRequest
from nco_bench.runs.runner import run
from nco_bench.solvers.external.program import load_program
from nco_bench.study import read_study
from nco_bench.training.campaign_file import read_campaign
from nco_bench.weights.importing import official_state
from nco_bench.weights.manifest import read_manifest
from nco_bench.weights.store import SHIPPED
from nco_bench.weights.store import verify as verify_weights

CASES = amount(1_000, 100_000)
SECONDS, MEGABYTES = 5.0, 500
WORDS = [
    b"nan",
    b"-1",
    b"1e999",
    b"99999999999999999999",
    b"0",
    b"\n",
    b"\x00",
    b"[",
    b"{",
    b'"',
    b"\xff\xfe",
    b"=",
    b"null",
]
CAMPAIGN = b'[[stage]]\nname = "a"\nmodel = "am"\ndata = ["x.npz"]\nbudget = "5m"\n'
STUDY = b'solver = ["am", "lkh3"]\ndata = ["tsp100"]\nseed = 3\nlimit = "1-5"\n'
PROGRAM = b'argv = ["/bin/cat"]\nname = "x"\nproblems = ["tsp"]\ntimeout = 3.5\n'
Reader = Callable[[Path], object]


def _dataset(problem: str) -> Dataset:
    data = generate(problem, 8, 2, "uniform", 3)
    tour = np.arange(8) if problem == "tsp" else np.array([0, *[x for c in range(1, 9) for x in (c, 0)]])
    return data.with_references([Reference(99.0, "x", tour), None])


def _formats(folder: Path) -> list[Path]:
    """A valid file of every format that can be written."""
    files = []
    for entry in FORMATS.values():
        for problem in ("tsp", "cvrp"):
            data = _dataset(problem)
            one = Dataset(data.name, problem, data.instances[:1], data.references[:1], data.origin)
            for dataset in (data, one):
                path = folder / f"{entry.name}-{problem}-{len(dataset)}{entry.suffixes[0]}"
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    try:
                        if entry.write is not None:
                            write_file(dataset, path, entry.name)
                            files.append(path)
                    except NcoBenchError:
                        continue
    return files


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, Reader]]:
    """Real files, each with what reads it."""
    folder = tmp_path_factory.mktemp("corpus")
    found: list[tuple[Path, Reader]] = [(path, read_file) for path in _formats(folder)]
    assert len(found) > 20
    tour = next(path for path, _ in found if path.suffix == ".tour")
    found.append((tour, lambda path: read_solution(path, _dataset("tsp").instances[0])))
    texts: list[tuple[str, bytes, Reader]] = [
        ("x.pkl", pickle.dumps([np.arange(6.0).reshape(3, 2), {"a": (1, b"x")}]), lambda p: load_one(p.read_bytes(), "x")),
        ("w.pt", torch_bytes({"a": np.arange(6, dtype=np.float32)}), official_state),
        ("study.toml", STUDY, read_study), ("campaign.toml", CAMPAIGN, read_campaign),
        ("solver.toml", PROGRAM, load_program),
    ]  # fmt: skip
    for name, content, reader in texts:
        (folder / name).write_bytes(content)
        found.append((folder / name, reader))
    data = save_dataset(_dataset("tsp"), folder / "saved.npz")
    found += [
        (data, load_saved),
        (data.with_suffix(".json"), lambda path: load_saved(path.with_suffix(".npz"))),
    ]
    shipped = min(SHIPPED.glob("*.safetensors"), key=lambda path: path.stat().st_size)
    for path in (shipped, shipped.with_suffix(".json")):
        shutil.copy(path, folder / f"weights{path.suffix}")
    found += [(folder / "weights.json", read_manifest), (folder / "weights.safetensors", official_state)]
    run(RunRequest(("nearest-neighbor",), (str(data),), folder / "runs", _places(folder)), QuietDisplay())
    for name in ("run.json", "cells.jsonl", "records.jsonl", "solutions.bin"):
        found.append((next((folder / "runs").glob(f"*/{name}")), _read_runs))
    ledger.improve(_dataset("tsp"), [ledger.Candidate(0, np.array([0, 2, 1, 3, 4, 5, 6, 7]), "x")], folder)
    found.append((ledger_path(folder), lambda path: ledger.load(_dataset("tsp"), path.parents[1])))
    for name in ("archive.zip", "archive.tar", "archive.tar.gz"):
        _archive(folder / name, "tsp/eil51.tsp", b"NAME: eil51\nDIMENSION: 2\n")
        found.append((folder / name, lambda path: pull("tsplib/eil51", path.parent / "pulled", archive=path)))
    if find_spec("pyarrow"):
        pack(find_runs(folder / "runs"), folder / "packed.parquet", {})
        found.append((folder / "packed.parquet", _read_archive))
    for path, reader in found:
        read_or_refuse(path, reader)
    return found


def _places(folder: Path) -> object:
    from nco_bench.datasets.load import Places

    return Places(folder)


def read_or_refuse(path: Path, reader: Reader) -> None:
    """Read a file; only the documented error may come."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            reader(path)
        except NcoBenchError as error:
            if "\n" in str(error) or len(str(error)) > 3000:
                raise RuntimeError(f"not one short line: {str(error)[:300]!r}") from error


def _read_runs(path: Path) -> None:
    for one in find_runs(path.parents[1]):
        one.cells()
        for record in one.records():
            if record.solution:
                one.solution(record)


def _read_archive(path: Path) -> None:
    for one in archived_runs(path):
        one.cells()
        for record in one.records():
            one.solution(record)


def _archive(path: Path, name: str, content: bytes) -> None:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(name, content)
        return
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as tar:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))


def mutated(content: bytes, other: bytes, rng: random.Random) -> bytes:
    """Cut, drop, repeat, replace or flip a few bytes, or put in a piece of another file."""
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at, size = rng.randrange(len(data) + 1), rng.choice([1, 2, 4, 12, 60])
        match rng.randrange(7):
            case 0:
                del data[at:]
            case 1:
                del data[at : at + size]
            case 2:
                data[at : at + rng.choice([0, size])] = rng.choice(WORDS)
            case 3 | 4 if at < len(data):
                data[at] ^= rng.randrange(1, 256)
            case 5:
                data[at:at] = data[max(at - 8 * size, 0) : at] * rng.choice([1, 1, 30])
            case _:
                start = rng.randrange(len(other) + 1)
                data[at:at] = other[start : start + size]
    return bytes(data)


def test_mutated_files_end_with_the_documented_error(corpus: list[tuple[Path, Reader]]) -> None:
    rng = random.Random(20)
    contents = {path: path.read_bytes() for path, _ in corpus}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wrong: dict[str, str] = {}
    for case in range(CASES):
        path, reader = corpus[case % len(corpus)]
        data = mutated(contents[path], rng.choice(list(contents.values())), rng)
        path.write_bytes(data)
        began = time.monotonic()
        try:
            read_or_refuse(path, reader)
        except Exception as error:
            wrong.setdefault(f"{path.name}: {type(error).__name__}: {str(error)[:150]}", data[:200].hex())
        seconds = time.monotonic() - began
        path.write_bytes(contents[path])
        if seconds > SECONDS:
            wrong[f"{path.name} took {seconds:.1f} s"] = data[:200].hex()
    assert not wrong, "\n".join(f"{told}\n    of {start}" for told, start in wrong.items())
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < MEGABYTES


def _npz(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


HEADER = "{'descr': '<f8', 'fortran_order': False, 'shape': (%s,), }"


def _npy(shape: str, content: bytes) -> bytes:
    header = (HEADER % shape).ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + content


def test_lying_and_swelling_files_are_refused_soon_and_small(tmp_path: Path) -> None:
    import torch  # noqa: F401  its import is no part of a reader's time

    bomb = b"0" * (16 << 20)
    objects = tmp_path / "objects.npz"
    np.savez(objects, coords=np.array([{"a": 1}], dtype=object), allow_pickle=True)
    huge = (2**62).to_bytes(8, "little") + b"{}"
    lying = json.dumps({"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}).encode()
    (tmp_path / "huge.safetensors").write_bytes(huge)
    (tmp_path / "lying.safetensors").write_bytes(len(lying).to_bytes(8, "little") + lying)
    (tmp_path / "bomb.tsp.gz").write_bytes(gzip.compress(bomb, 1) * 33)
    (tmp_path / "deep.json").write_bytes(b"[" * 200_000)
    (tmp_path / "deep.npz").write_bytes(objects.read_bytes())
    save_dataset(_dataset("tsp"), tmp_path / "swell.npz")
    _npz(tmp_path / "swell.npz", name=bomb, convention=bomb)
    _npz(tmp_path / "shape.npz", coords=_npy(str(10**15), b"\0" * 80))
    cases: list[tuple[str, Reader]] = [
        ("objects.npz", read_file), ("huge.safetensors", official_state), ("lying.safetensors", official_state),
        ("bomb.tsp.gz", read_file), ("deep.json", read_manifest), ("deep.npz", read_file), ("swell.npz", load_saved),
        ("shape.npz", read_file),
    ]  # fmt: skip
    for name, reader in cases:
        before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
        with pytest.raises(NcoBenchError) as caught:
            reader(tmp_path / name)
        assert name.split(".")[0] in str(caught.value)
        assert "\n" not in str(caught.value)
        assert time.monotonic() - began < SECONDS, name
        assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < 2 * MEGABYTES, name
    assert not verify_weights_passes(tmp_path / "lying.safetensors")


def verify_weights_passes(path: Path) -> bool:
    try:
        verify_weights(path)
    except NcoBenchError:
        return False
    return True

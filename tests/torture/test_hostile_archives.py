"""Archives made to harm: names that lead out, and little files that would fill the memory: one line each, soon and small."""

from __future__ import annotations

import base64
import gzip
import lzma
import pickle
import resource
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import orjson
import pytest

from nco_bench.cli.app import run as command
from nco_bench.datasets.formats import read_file
from nco_bench.datasets.formats.torch_archive import load_torch_bytes
from nco_bench.datasets.generate import generate
from nco_bench.datasets.load import Places
from nco_bench.datasets.pull import pull
from nco_bench.datasets.storage import load_saved, save_dataset
from nco_bench.errors import NcoBenchError
from nco_bench.runs.archives import FACTS, HASH, NO_HASH, RUNS, archived_runs, digest
from nco_bench.runs.display import QuietDisplay
from nco_bench.runs.finding import find_runs
from nco_bench.runs.packing import pack
from nco_bench.runs.request import RunRequest
from nco_bench.runs.runner import run

SECONDS, MEGABYTES = 60.0, 500
"""The issue's bounds are 5 s and 500 MB; the time is that of a machine that is busy with other work."""
SWOLLEN = 320 << 20
"""What the little files of these tests hold, uncompressed; beyond what a file of any size may."""


def refused(read: Callable[[], object]) -> str:
    """Return the message of what must be refused soon and small."""
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    with pytest.raises(NcoBenchError) as caught:
        read()
    assert time.monotonic() - began < SECONDS
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < MEGABYTES
    assert str(caught.value).isprintable()
    return str(caught.value)


def fill(file: IO[bytes]) -> None:
    """Write zeros, without having them in memory."""
    for _ in range(SWOLLEN >> 20):
        file.write(bytes(1 << 20))


def swollen_tar(path: Path, type_: bytes) -> Path:
    """A compressed archive with one member of this kind."""
    with gzip.open(path, "wb", compresslevel=1) as out:
        member = tarfile.TarInfo("eil51.tsp")
        member.type, member.size = type_, SWOLLEN
        out.write(member.tobuf(tarfile.GNU_FORMAT))
        fill(out)
    return path


def swollen_zip(path: Path, name: str) -> Path:
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as made,
        made.open(name, "w") as member,
    ):
        fill(member)
    return path


@pytest.mark.parametrize("kind", ["file", "long name", "extended header"])
def test_a_tar_whose_members_swell_is_refused(kind: str, tmp_path: Path) -> None:
    types = {
        "file": tarfile.REGTYPE,
        "long name": tarfile.GNUTYPE_LONGNAME,
        "extended header": tarfile.XHDTYPE,
    }
    archive = swollen_tar(tmp_path / "a.tar.gz", types[kind])
    assert archive.stat().st_size < 8 << 20
    told = refused(lambda: pull("tsplib/eil51", tmp_path / "i", archive=archive))
    assert "a.tar.gz" in told
    assert not (tmp_path / "i").exists()


def test_a_zip_whose_members_swell_or_lie_is_refused_by_member(tmp_path: Path) -> None:
    swollen_zip(tmp_path / "a.zip", "eil51.tsp")
    report = pull("tsplib/eil51", tmp_path / "i", archive=tmp_path / "a.zip")
    assert "larger than" in dict(report.failed)["eil51"]
    content = (tmp_path / "a.zip").read_bytes()
    small = (100).to_bytes(4, "little")
    (tmp_path / "a.zip").write_bytes(content.replace(SWOLLEN.to_bytes(4, "little"), small))
    report = pull("tsplib/eil51", tmp_path / "i", archive=tmp_path / "a.zip")
    assert "cannot be read" in dict(report.failed)["eil51"]
    assert not (tmp_path / "i").exists()


@pytest.mark.parametrize("ending", ["tsp.gz", "npz", "pt", "pkl.gz"])
def test_files_that_swell_are_refused(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"bomb.{ending}"
    if ending.endswith("gz"):
        with gzip.open(path, "wb", compresslevel=1) as file:
            fill(file)
    else:
        swollen_zip(path, {"npz": "coords.npy", "pt": "archive/data.pkl"}[ending])
    read = (
        (lambda: load_torch_bytes(path.read_bytes(), "bomb.pt"))
        if ending == "pt"
        else (lambda: read_file(path))
    )
    told = refused(read)
    assert "bomb" in told


def test_a_stored_dataset_that_swells_or_holds_objects_is_refused(tmp_path: Path) -> None:
    path = save_dataset(generate("tsp", 8, 2, "uniform", 3), tmp_path / "set.npz")
    swollen_zip(path, "name.npy")
    assert "swell" in refused(lambda: load_saved(path))
    np.savez(path, name=np.array([{"a": 1}], dtype=object), allow_pickle=True)
    assert "set.npz" in refused(lambda: load_saved(path))


def test_a_pickle_that_builds_much_of_little_is_refused(tmp_path: Path) -> None:
    doubling = pickle.PROTO + b"\x02" + b"]q\x00" + b"h\x00h\x00\x86q\x00" * 60 + b"."
    for name, content in (
        ("tuples.pkl", doubling),
        ("length.pkl", b"\x80\x04\x8e" + (2**62).to_bytes(8, "little") + b"."),
    ):
        (tmp_path / name).write_bytes(content)
        refused(lambda path=tmp_path / name: read_file(path))


def test_other_compressions_of_a_tar_are_bounded_too(tmp_path: Path) -> None:
    header = tarfile.TarInfo("eil51.tsp")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, SWOLLEN
    (tmp_path / "a.tar.xz").write_bytes(lzma.compress(header.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20)))
    assert "a piece of" in refused(
        lambda: pull("tsplib/eil51", tmp_path / "i", archive=tmp_path / "a.tar.xz")
    )


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of one run."""
    pytest.importorskip("pyarrow")
    folder = tmp_path_factory.mktemp("packed")
    data = save_dataset(generate("tsp", 8, 4, "uniform", 3), folder / "set.npz")
    run(RunRequest(("nearest-neighbor",), (str(data),), folder / "runs", Places(folder)), QuietDisplay())
    pack(find_runs(folder / "runs"), folder / "runs.parquet", {})
    return folder / "runs.parquet"


def forged(
    packed: Path, out: Path, change: Callable[[list[dict[str, Any]]], object], columns: Any = None
) -> Path:
    """Write an archive with other words about its runs, or other columns, and a hash that is right."""
    import pyarrow.parquet as pq

    table = pq.read_table(packed)
    metadata = dict(table.schema.metadata)
    described = orjson.loads(zlib.decompress(base64.b64decode(metadata[RUNS])))
    words = change(described)
    once = words if isinstance(words, bytes) else orjson.dumps(described)
    with pq.ParquetWriter(out, (columns or table).schema.remove_metadata(), store_schema=False) as writer:
        writer.write_table((columns or table).replace_schema_metadata(None))
        writer.add_key_value_metadata(
            {FACTS: metadata[FACTS], RUNS: base64.b64encode(zlib.compress(once)), HASH: NO_HASH}
        )
    data = out.read_bytes()
    place = data.rfind(NO_HASH)
    out.write_bytes(data[:place] + digest(data, NO_HASH) + data[place + len(NO_HASH) :])
    return out


def test_a_forged_archive_with_honest_words_is_read(packed: Path, tmp_path: Path) -> None:
    assert len(archived_runs(forged(packed, tmp_path / "a.parquet", lambda _: None))) == 1


@pytest.mark.parametrize(
    "name", ["..", ".", "", "../../evil", "/tmp/evil", "a/b", ".moving", "a\nb", "\x1b[2J", 7, None]
)
def test_a_run_with_a_name_that_leads_out_is_refused(name: object, packed: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    archive = forged(packed, tmp_path / "in" / "a.parquet", lambda runs: runs[0].update(id=name))
    told = refused(lambda: archived_runs(archive))
    assert "a.parquet" in told
    assert command(["runs", "unpack", str(archive), "--results", str(tmp_path / "out" / "runs")]) == 2
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"a.parquet"}


@pytest.mark.parametrize(
    "change",
    [
        lambda runs: runs[0].update(records=99), lambda runs: runs[0].update(records=-1), lambda runs: runs.append(runs[0]),
        lambda runs: runs[0].update(info=[]), lambda runs: runs[0].update(cells=[3]), lambda runs: runs[0].pop("id"),
        lambda runs: runs.clear(), lambda _: b"7", lambda _: b"{", lambda _: bytes(SWOLLEN), lambda _: b"[" * 10**6,
    ],
)  # fmt: skip
def test_an_archive_whose_words_are_not_what_it_holds_is_refused(
    change: Callable[[list[dict[str, Any]]], object], packed: Path, tmp_path: Path
) -> None:
    archive = forged(packed, tmp_path / "a.parquet", change)
    refused(lambda: archived_runs(archive))


def test_columns_of_another_kind_or_that_swell_are_refused(packed: Path, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(packed)
    place = table.schema.names.index("cost")
    text = table.set_column(place, "cost", pa.array(["x"] * table.num_rows))
    for columns in (text, table.drop_columns(["seed"])):
        archive = forged(packed, tmp_path / "a.parquet", lambda _: None, columns)
        assert "is not that of an archive" in refused(partial(archived_runs, archive))
    place, many = table.schema.names.index("solution"), SWOLLEN // 8
    long = pa.ListArray.from_arrays(
        pa.array([0, many, many, many, many], pa.int32()), pa.array(np.zeros(many, np.int32))
    )
    archive = forged(
        packed, tmp_path / "a.parquet", lambda _: None, table.set_column(place, "solution", long)
    )
    assert archive.stat().st_size < 1 << 20
    assert "swell" in refused(lambda: archived_runs(archive))


def test_a_forged_archive_beside_others_is_a_finding_of_verify(packed: Path, tmp_path: Path) -> None:
    results = tmp_path / "runs"
    results.mkdir()
    forged(packed, results / "evil.parquet", lambda runs: runs[0].update(id=".."))
    (results / "good.parquet").write_bytes(packed.read_bytes())
    assert command(["verify", "--results", str(results), "--instances", str(packed.parent)]) == 1

"""Pulling: from a mirror, an archive, and a site (a real server on this machine); damage never stays."""

from __future__ import annotations

import gzip
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from nco_bench.datasets.libraries import resolve_library
from nco_bench.datasets.pull import pull, verify
from nco_bench.errors import BadInputError, UnknownNameError


def raw(shared: Path, file: str) -> bytes:
    return gzip.decompress((shared / "instances" / file).read_bytes())


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_mirror_fills_the_folder_once(shared: Path, tmp_path: Path) -> None:
    seen: list[str] = []
    report = pull(
        "tsplib:pens-100", tmp_path, mirror=shared, progress=lambda done, total, name: seen.append(name)
    )
    assert len(report.fetched) == len(seen) == 12
    assert report.failed == ()
    again = pull("tsplib:pens-100", tmp_path, mirror=shared)
    assert (len(again.present), again.fetched) == (12, ())
    dataset = resolve_library("tsplib:pens-100", tmp_path)
    assert dataset is not None
    assert sum(r is not None and r.solution is not None for r in dataset.references) >= 6
    assert set(verify("tsplib:pens-100", tmp_path).values()) == {"ok"}


def test_a_damaged_file_is_noticed_and_fetched_again(shared: Path, tmp_path: Path) -> None:
    pull("tsplib/eil51", tmp_path, mirror=shared)
    path = tmp_path / "tsplib" / "eil51.tsp.gz"
    path.write_bytes(path.read_bytes()[:200])
    assert "cut off" in verify("tsplib/eil51", tmp_path)["eil51"]
    assert pull("tsplib/eil51", tmp_path, mirror=shared).fetched == ("eil51",)
    assert verify("tsplib/eil51", tmp_path) == {"eil51": "ok"}
    assert verify("tsplib/eil76", tmp_path) == {"eil76": "missing"}


def test_test_sets_come_from_the_mirror_byte_for_byte(shared: Path, tmp_path: Path) -> None:
    assert pull("lehd_tsp200", tmp_path, mirror=shared).fetched == ("lehd_tsp200",)
    original = shared / "instances" / "testsets" / "lehd_tsp200.npz"
    assert (tmp_path / "testsets" / "lehd_tsp200.npz").read_bytes() == original.read_bytes()


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_an_archive_at_hand_serves_too(shared: Path, tmp_path: Path, kind: str) -> None:
    content = {
        "Vrp-Set-A/A/A-n32-k5.vrp": raw(shared, "cvrplib/A/A-n32-k5.vrp.gz"),
        "A/A-n32-k5.sol": raw(shared, "cvrplib/A/A-n32-k5.sol.gz"),
    }
    archive = make_archive(tmp_path / f"a.{kind}", content)
    report = pull("cvrplib/A-n32-k5", tmp_path / "instances", archive=archive)
    assert report.fetched == ("A-n32-k5",)
    assert files_of(tmp_path / "instances") == ["cvrplib/A/A-n32-k5.sol.gz", "cvrplib/A/A-n32-k5.vrp.gz"]


def make_archive(path: Path, content: dict[str, bytes]) -> Path:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in content.items():
                archive.writestr(name, data)
        return path
    with tarfile.open(path, "w:gz") as tar:
        for name, data in content.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
@pytest.mark.parametrize(
    "evil", ["../evil.tsp", "/tmp/evil.tsp", "a/../../evil.tsp", "C:/evil.tsp", "..\\evil.tsp"]
)
def test_an_archive_that_points_outside_is_refused_whole(
    shared: Path, tmp_path: Path, kind: str, evil: str
) -> None:
    content = {"eil51.tsp": raw(shared, "tsplib/eil51.tsp.gz"), evil: b"x"}
    archive = make_archive(tmp_path / f"evil.{kind}", content)
    with pytest.raises(BadInputError, match="refused, the member"):
        pull("tsplib/eil51", tmp_path / "instances", archive=archive)
    assert files_of(tmp_path) == [archive.name]


def test_a_link_in_an_archive_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        link = tarfile.TarInfo("eil51.tsp")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with pytest.raises(BadInputError, match="is a link"):
        pull("tsplib/eil51", tmp_path / "instances", archive=tmp_path / "a.tar")


class Quiet(SimpleHTTPRequestHandler):
    """Serve files without talking."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    folder = tmp_path / "site"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    yield folder, {"tsplib": f"{address}/tsp", "cvrplib": f"{address}/instances"}
    server.shutdown()
    server.server_close()


def test_a_site_is_checked_and_resumed(
    shared: Path, tmp_path: Path, site: tuple[Path, dict[str, str]]
) -> None:
    folder, sites = site
    (folder / "tsp").mkdir()
    (folder / "instances" / "tai").mkdir(parents=True)
    (folder / "tsp" / "eil51.tsp.gz").write_bytes(
        gzip.compress(raw(shared, "tsplib/eil51.tsp.gz").replace(b"\n", b"\r\n"))
    )
    (folder / "tsp" / "st70.tsp.gz").write_bytes(
        gzip.compress(raw(shared, "tsplib/eil51.tsp.gz"))
    )  # the wrong one
    (folder / "instances" / "tai" / "tai75a.vrp").write_bytes(raw(shared, "cvrplib/Taillard/tai75a.vrp.gz"))
    report = pull("tsplib:EUC_2D:51-70", tmp_path / "i", sites=sites)
    assert report.fetched == ("eil51",)  # without its tour, which this site does not have
    reasons = dict(report.failed)
    assert "the source has no berlin52.tsp" in reasons["berlin52"]
    assert "not usable" in reasons["st70"]
    assert files_of(tmp_path / "i") == ["tsplib/eil51.tsp.gz"]
    assert pull("cvrplib/tai75a", tmp_path / "i", sites=sites).fetched == ("tai75a",)
    (folder / "tsp" / "berlin52.tsp.gz").write_bytes(
        (shared / "instances" / "tsplib" / "berlin52.tsp.gz").read_bytes()
    )
    assert pull("tsplib:EUC_2D:51-60", tmp_path / "i", sites=sites).fetched == ("berlin52",)


def test_offline_is_one_clear_line(tmp_path: Path) -> None:
    closed = {"tsplib": "http://127.0.0.1:9", "cvrplib": "http://127.0.0.1:9"}
    with pytest.raises(BadInputError, match=r"cannot reach .*; when offline, set NCO_BENCH_MIRROR") as caught:
        pull("tsplib", tmp_path, sites=closed, timeout_s=2)
    assert "\n" not in str(caught.value)
    assert files_of(tmp_path) == []


def test_a_wrong_mirror_or_name_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no folder 'instances' in this mirror"):
        pull("tsplib", tmp_path, mirror=tmp_path / "nothing")
    with pytest.raises(UnknownNameError, match="Unknown library 'tsplob'"):
        pull("tsplob", tmp_path)

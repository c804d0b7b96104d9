"""Pulling: from a mirror, an archive, and a site (a real server on this machine); damage never stays."""

from __future__ import annotations

import gzip
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from nco_bench.datasets.libraries import resolve_library
from nco_bench.datasets.pull import PullReport, pull, verify
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


Answers = dict[str, list[tuple[int, dict[str, str], bytes]]]
"""What a site sends for each path: status, further headers, body; the last answer is repeated."""


class Scripted(BaseHTTPRequestHandler):
    """Answer as written down; a Content-Length in the headers may lie."""

    answers: ClassVar[Answers]
    asked: ClassVar[list[str]]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        waiting = self.answers.get(self.path, [(404, {}, b"no such page")])
        status, headers, body = waiting[0] if len(waiting) == 1 else waiting.pop(0)
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


@dataclass(frozen=True)
class Site:
    """A site on this machine."""

    answers: Answers
    asked: list[str]
    addresses: dict[str, str]

    def serve(self, path: str, body: bytes, status: int = 200, **headers: str) -> None:
        """Send this for a path, after what it was told to send before."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers.setdefault(path, []).append((status, named, body))

    def pull(self, name: str, folder: Path) -> PullReport:
        return pull(name, folder, sites=self.addresses, pause_s=0)


@pytest.fixture
def site() -> Iterator[Site]:
    class Handler(Scripted):
        answers: ClassVar[Answers] = {}
        asked: ClassVar[list[str]] = []

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    yield Site(
        Handler.answers, Handler.asked, {"tsplib": f"{address}/tsp", "cvrplib": f"{address}/cvrplib/en"}
    )
    server.shutdown()
    server.server_close()


def test_tsplib_files_are_checked_and_a_second_pull_fetches_the_rest(
    shared: Path, tmp_path: Path, site: Site
) -> None:
    eil51 = raw(shared, "tsplib/eil51.tsp.gz")
    site.serve("/tsp/eil51.tsp.gz", gzip.compress(eil51.replace(b"\n", b"\r\n")))
    site.serve("/tsp/st70.tsp.gz", gzip.compress(eil51))  # the wrong one
    report = site.pull("tsplib:EUC_2D:51-70", tmp_path)
    assert report.fetched == ("eil51",)  # without its tour, which this site does not have
    reasons = dict(report.failed)
    assert "the source has no berlin52.tsp" in reasons["berlin52"]
    assert "not usable" in reasons["st70"]
    assert files_of(tmp_path) == ["tsplib/eil51.tsp.gz"]
    site.serve("/tsp/berlin52.tsp.gz", (shared / "instances" / "tsplib" / "berlin52.tsp.gz").read_bytes())
    assert site.pull("tsplib:EUC_2D:51-60", tmp_path).fetched == ("berlin52",)


CVRP_TABLE = """<table><tr><td><a href="/cvrplib/en/download/instance-set/4" title="Set File">zip</a></td></tr>
<tr><td><a href="/cvrplib/en/download/instance/4" title="Instance File">
    A-n32-k5
</a></td><td>$31$</td><td><a href="/cvrplib/en/download/bks/4" title="Solution File">$784$</a></td></tr>
<tr><td><a href="https://galgos.inf.puc-rio.br/cvrplib/en/download/instance/71"><b>tai75a</b></a></td></tr></table>"""


def test_cvrplib_files_are_found_by_the_numbers_in_its_table(
    shared: Path, tmp_path: Path, site: Site
) -> None:
    site.serve("/cvrplib/en/instances/1", CVRP_TABLE.encode(), Content_Type="text/html")
    site.serve("/cvrplib/en/download/instance/4", raw(shared, "cvrplib/A/A-n32-k5.vrp.gz"))
    site.serve("/cvrplib/en/download/bks/4", raw(shared, "cvrplib/A/A-n32-k5.sol.gz"))
    site.serve("/cvrplib/en/download/instance/71", raw(shared, "cvrplib/Taillard/tai75a.vrp.gz"))
    assert site.pull("cvrplib/tai75a", tmp_path).fetched == ("tai75a",)
    report = site.pull("cvrplib:A:n<=32", tmp_path)
    assert report.fetched == ("A-n32-k5",)
    assert [name for name, _ in report.failed] == ["A-n33-k5", "A-n33-k6"]  # not in this table
    assert site.asked.count("/cvrplib/en/instances/1") == 2  # once a pull, however many instances
    assert files_of(tmp_path) == [
        "cvrplib/A/A-n32-k5.sol.gz",
        "cvrplib/A/A-n32-k5.vrp.gz",
        "cvrplib/Taillard/tai75a.vrp.gz",
    ]


@pytest.mark.parametrize("page", [b"<html>Maintenance</html>", b""], ids=["other page", "nothing"])
def test_a_table_without_instances_stops_with_what_to_do_instead(
    tmp_path: Path, site: Site, page: bytes
) -> None:
    site.serve("/cvrplib/en/instances/1", page)
    with pytest.raises(BadInputError, match=r"no table of instances there.*NCO_BENCH_MIRROR.*--archive"):
        site.pull("cvrplib/A-n32-k5", tmp_path)
    assert files_of(tmp_path) == []


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"<!DOCTYPE html>\n<html><body>Moved</body></html>", "sent a web page in place of the file"),
        (b"\n <HTML><body>Please log in</body></HTML>", "sent a web page in place of the file"),
        (gzip.compress(bytes(range(256)), mtime=0)[:100], "damaged gzip data"),
        (b"", "not usable"),
    ],
    ids=["web page", "other web page", "cut gzip", "nothing"],
)
def test_what_is_not_the_file_is_refused_and_leaves_nothing(
    tmp_path: Path, site: Site, body: bytes, says: str
) -> None:
    site.serve("/tsp/eil51.tsp.gz", body)
    report = site.pull("tsplib/eil51", tmp_path)
    assert report.fetched == ()
    assert says in dict(report.failed)["eil51"]
    assert "\n" not in dict(report.failed)["eil51"]
    assert files_of(tmp_path) == []


def test_a_changed_coordinate_fails_the_checksum(shared: Path, tmp_path: Path, site: Site) -> None:
    changed = raw(shared, "tsplib/eil51.tsp.gz").replace(b"1 37 52", b"1 37 53")
    site.serve("/tsp/eil51.tsp.gz", gzip.compress(changed))
    assert "not the published eil51" in dict(site.pull("tsplib/eil51", tmp_path).failed)["eil51"]
    assert files_of(tmp_path) == []


def test_a_download_that_breaks_off_starts_again(shared: Path, tmp_path: Path, site: Site) -> None:
    whole = (shared / "instances" / "tsplib" / "eil51.tsp.gz").read_bytes()
    site.serve("/tsp/eil51.tsp.gz", whole[:100], Content_Length=str(len(whole)))
    site.serve("/tsp/eil51.tsp.gz", b"busy", status=503)
    site.serve("/tsp/eil51.tsp.gz", whole)
    assert site.pull("tsplib/eil51", tmp_path).fetched == ("eil51",)
    assert site.asked.count("/tsp/eil51.tsp.gz") == 3


def test_a_download_that_always_breaks_off_is_a_failure_that_leaves_nothing(
    shared: Path, tmp_path: Path, site: Site
) -> None:
    whole = (shared / "instances" / "tsplib" / "eil51.tsp.gz").read_bytes()
    site.serve("/tsp/eil51.tsp.gz", whole[:100], Content_Length=str(len(whole)))
    report = site.pull("tsplib/eil51", tmp_path)
    assert "run the command again" in dict(report.failed)["eil51"]
    assert site.asked.count("/tsp/eil51.tsp.gz") == 3
    assert files_of(tmp_path) == []


def test_chunks_that_stop_short_are_a_failure(tmp_path: Path, site: Site) -> None:
    site.serve("/tsp/eil51.tsp.gz", b"40\r\nNAME : eil51\n", Content_Length="", Transfer_Encoding="chunked")
    assert site.pull("tsplib/eil51", tmp_path).failed[0][0] == "eil51"
    assert files_of(tmp_path) == []


def test_a_redirect_is_followed(shared: Path, tmp_path: Path, site: Site) -> None:
    site.serve("/tsp/eil51.tsp.gz", b"", status=301, Location="/new/eil51.tsp.gz")
    site.serve("/new/eil51.tsp.gz", (shared / "instances" / "tsplib" / "eil51.tsp.gz").read_bytes())
    assert site.pull("tsplib/eil51", tmp_path).fetched == ("eil51",)


def test_a_redirect_to_a_local_file_is_not_followed(tmp_path: Path, site: Site) -> None:
    (tmp_path / "secret").write_text("NAME : eil51\n")
    site.serve("/tsp/eil51.tsp.gz", b"", status=302, Location=(tmp_path / "secret").as_uri())
    report = site.pull("tsplib/eil51", tmp_path / "i")
    assert "302" in dict(report.failed)["eil51"]
    assert files_of(tmp_path) == ["secret"]


@pytest.mark.parametrize("name", ["tsplib/../../etc/passwd", "cvrplib/../A-n32-k5", "testsets/../x"])
def test_a_name_that_points_outside_is_unknown(tmp_path: Path, site: Site, name: str) -> None:
    with pytest.raises(UnknownNameError):
        site.pull(name, tmp_path)
    assert site.asked == []


def test_a_folder_of_unpacked_files_serves_too(shared: Path, tmp_path: Path) -> None:
    unpacked = tmp_path / "unpacked" / "Set A" / "A"
    unpacked.mkdir(parents=True)
    for file in ("A-n32-k5.vrp", "A-n32-k5.sol"):
        (unpacked / file).write_bytes(raw(shared, f"cvrplib/A/{file}.gz"))
    report = pull("cvrplib/A-n32-k5", tmp_path / "i", archive=tmp_path / "unpacked")
    assert report.fetched == ("A-n32-k5",)
    assert files_of(tmp_path / "i") == ["cvrplib/A/A-n32-k5.sol.gz", "cvrplib/A/A-n32-k5.vrp.gz"]


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

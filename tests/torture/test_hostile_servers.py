"""Servers that mean harm, or are broken: commands end with one line and status 2, soon and small, and keep no half file."""

from __future__ import annotations

import gzip
import re
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from amounts import FULL

from nco_bench import cards, downloads
from nco_bench.cli.app import run
from nco_bench.datasets import lra, sites
from nco_bench.weights import pulling

PATIENCE_S = 0.5
"""How long the tests' client waits for a silent server."""
SECONDS, MEGABYTES = 60.0, 300
MOST_BYTES = 4 << 20
"""The tests' limit for a file, so that what is endless need not send hundreds of megabytes."""
OFFICIAL = "am-official-tsp20"
COMMANDS = {
    "tsplib": ["instances", "pull", "tsplib/eil51"],
    "cvrplib": ["instances", "pull", "cvrplib/A-n32-k5"],
    "testsets": ["instances", "pull", "fu_tsp500"],
    "lra": ["instances", "pull", "lra-image"],
    "weights": ["weights", "pull", OFFICIAL],
}
Send = Callable[[bytes], None]
Script = Callable[[Send], None]


def answer(body: bytes, *headers: str, status: str = "200 OK", announced: object = None) -> bytes:
    length = len(body) if announced is None else announced
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {length}", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def at_once(content: bytes) -> Script:
    return lambda send: send(content)


def without_end(start: bytes, piece: bytes, pause_s: float = 0.0) -> Script:
    def script(send: Send) -> None:
        send(start)
        while True:
            send(piece)
            time.sleep(pause_s)

    return script


def silent(start: bytes) -> Script:
    def script(send: Send) -> None:
        send(start)
        time.sleep(60)

    return script


def redirect(place: str, *headers: str, status: str = "302 Found") -> bytes:
    return answer(b"", f"Location: {place}", *headers, status=status)


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
UNBOUNDED = b"HTTP/1.1 200 OK\r\n\r\n"
ZEROS = bytes(1 << 16)
ESCAPE = "\x1b[2J\x1b]0;owned\x07"
SCRIPTS: dict[str, Script] = {
    # too little
    "nothing": at_once(b""),
    "an empty body": at_once(answer(b"")),
    "no content": at_once(b"HTTP/1.1 204 No Content\r\n\r\n"),
    "half of what it announces": at_once(answer(b"a" * 100, announced=200)),
    "a chunk that stops short": at_once(CHUNKED + b"40\r\nNAME"),
    "half of a line of its headers": at_once(b"HTTP/1.1 200 OK\r\nContent-Le"),
    # too much
    "a body without end": without_end(UNBOUNDED, ZEROS),
    "more than it announces": without_end(answer(b"", announced=10), ZEROS),
    "chunks without end": without_end(CHUNKED, b"10000\r\n" + ZEROS + b"\r\n"),
    "one chunk of less than nothing": without_end(CHUNKED + b"-1\r\n", ZEROS),
    "trailers without end": without_end(CHUNKED + b"0\r\n", b"X: y\r\n" * 1000),
    "headers without end": without_end(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 1000),
    "one header without end": without_end(b"HTTP/1.1 200 OK\r\nX: ", ZEROS),
    "interim answers without end": without_end(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    "a bomb of gzip": at_once(answer(gzip.compress(bytes(1 << 20)) * 100)),
    # lies
    "an announcement of exabytes": at_once(answer(b"abc", announced=2**62)),
    "an announcement that is no number": at_once(answer(b"abc", announced="\xb2")),
    "an announcement of 5,000 digits": at_once(answer(b"abc", announced="9" * 5000)),
    "an announcement below nothing": at_once(answer(b"abc", announced=-5)),
    "another file": at_once(answer(b"NAME : eil51\n" * 50)),
    "a part that was not asked for": at_once(answer(b"abc", status="206 Partial Content")),
    "a page": at_once(answer(b"<!DOCTYPE html><html>Sign in</html>")),
    # no HTTP, or nonsense in it
    "another protocol": at_once(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "bytes": at_once(bytes(range(256)) * 16),
    "a version that is not": at_once(b"HTTP/9.9 200 OK\r\n\r\n"),
    "a status that is not": at_once(b"HTTP/1.1 999 No\r\n\r\n"),
    "escapes of a terminal": at_once(answer(b"", status=f"500 {ESCAPE}")),
    # redirects
    "a circle": at_once(redirect("/")),
    "a redirect to a file": at_once(redirect("file:///etc/passwd")),
    "a redirect to ftp": at_once(redirect("ftp://127.0.0.1:9/x")),
    "a redirect to data": at_once(redirect("data:text/plain,NAME")),
    "a redirect to no place": at_once(redirect("http://[")),
    "a redirect to no port": at_once(redirect("http://127.0.0.1:99999999/")),
    "a redirect to nobody": at_once(redirect("http:///x")),
    "a redirect without a place": at_once(answer(b"", status="301 Moved")),
    "a redirect with escapes": at_once(redirect(f"http://{ESCAPE}/")),
    "a redirect with a body without end": without_end(
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\n\r\n", ZEROS
    ),
    # silence
    "silence": silent(b""),
    "silence after the headers": silent(answer(b"abc", announced=200)),
    "headers drop by drop": without_end(b"HTTP/1.1 200 OK\r\nX: ", b"y", 0.05),
    "a body drop by drop": without_end(answer(b"", announced=10**6), b"y", 0.05),
    "chunks drop by drop": without_end(CHUNKED, b"1\r\ny\r\n", 0.05),
}  # fmt: skip


@contextmanager
def served(script: Script) -> Iterator[str]:
    """Do this with every connection; the address is given."""

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            asked = b""
            while b"\r\n\r\n" not in asked:
                piece = connection.recv(4096)
                if not piece:
                    return
                asked += piece
            script(connection.sendall)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):  # a reset would take away what the client has not read yet
                pass

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def pull(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], int]:
    """Run a command whose sites are all at one address."""
    monkeypatch.setattr(downloads, "TIMEOUT_SECONDS", PATIENCE_S)
    monkeypatch.setattr(sites, "MAX_FILE_BYTES", MOST_BYTES)
    monkeypatch.setattr(lra, "MOST_BYTES", MOST_BYTES)
    monkeypatch.setattr(pulling, "MAX_BYTES", MOST_BYTES)
    monkeypatch.setattr(sites, "time", SimpleNamespace(sleep=lambda _: None))  # between attempts
    monkeypatch.setenv("NCO_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("NCO_BENCH_MIRROR", raising=False)

    def command(kind: str, address: str) -> int:
        for library in sites.SITES:
            monkeypatch.setitem(sites.SITES, library, address)
        file, _, md5 = lra.ARCHIVES["lra-image"]
        monkeypatch.setitem(lra.ARCHIVES, "lra-image", (file, f"{address}/{file}", md5))
        monkeypatch.setattr(cards, "RAW", address + "/{repository}/{path}")
        more = [] if kind == "weights" else ["--instances", str(tmp_path / "instances")]
        return run([*COMMANDS[kind], *more])

    return command


def kept(folder: Path) -> list[str]:
    """Files that a command left, but the part of weights from which the next pull goes on, and its lock."""
    return [
        path.name
        for path in folder.rglob("*")
        if path.is_file() and not (path.suffix in (".part", ".lock") and path.parent.name == "downloads")
    ]


EVERYWHERE = (
    "nothing", "an empty body", "a body without end", "more than it announces", "another file", "a circle",
    "a redirect to a file", "a redirect with escapes", "silence", "a body drop by drop",
)  # fmt: skip
"""Asked of every command; the rest of the two ways to download: a file in memory, and a part that is continued."""
CASES = [
    (fault, kind)
    for fault in SCRIPTS
    for kind in COMMANDS
    if FULL or kind in ("tsplib", "weights") or fault in EVERYWHERE
]


@pytest.mark.parametrize(("fault", "kind"), CASES)
def test_a_hostile_server_gets_one_line_and_status_2_soon_and_small(
    fault: str, kind: str, tmp_path: Path, pull: Callable[[str, str], int], capsys: pytest.CaptureFixture[str]
) -> None:
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    with served(SCRIPTS[fault]) as address:
        assert pull(kind, address) == 2
    assert time.monotonic() - began < SECONDS
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < MEGABYTES
    out, err = capsys.readouterr()
    told = [
        line
        for line in (out + err).splitlines()
        if not re.search(r": downloading http|: 0 fetched, 0 were", line)
    ]
    assert len(told) == 1, out + err
    assert "Traceback" not in told[0]
    assert told[0].isprintable()
    assert len(told[0]) < 1000
    assert kept(tmp_path) == []

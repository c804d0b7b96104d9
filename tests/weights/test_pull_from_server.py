"""`weights pull` from a server: a file of the official layout, byte for byte through hash, import and run."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from official_layouts import FIXTURES, checkpoint, random_state  # noqa: E402

from nco_bench import cards  # noqa: E402
from nco_bench.cli.app import run  # noqa: E402
from nco_bench.errors import BadWeightsError  # noqa: E402
from nco_bench.weights import pulling  # noqa: E402


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Serve a folder in the place of the authors' repositories."""
    folder = tmp_path / "served"
    serve = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), serve) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        monkeypatch.setattr(cards, "RAW", f"http://127.0.0.1:{http.server_port}/{{repository}}/{{path}}")
        monkeypatch.setenv("NCO_BENCH_CACHE", str(tmp_path / "cache"))
        monkeypatch.delenv("NCO_BENCH_MIRROR", raising=False)
        yield folder
        http.shutdown()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * name.endswith("cvrp100")) for name in FIXTURES]
)
def test_an_official_file_comes_through_byte_for_byte_and_runs(
    name: str, server: Path, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = cards.official_weights()[name]
    file = server / entry.repository / entry.path
    file.parent.mkdir(parents=True)
    state = random_state(name, shared / "parity")
    torch.save(checkpoint(name, state), file)
    with pytest.raises(BadWeightsError, match=r"is not .* expected " + entry.git_blob_sha1[:12]):
        pulling.pull(name, lambda _: None)  # random weights are not the authors'

    content = file.read_bytes()
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    table = {**cards.official_weights(), name: replace(entry, git_blob_sha1=blob)}
    monkeypatch.setattr(pulling, "official_weights", lambda: table)
    (pulled,) = pulling.pull(name, lambda _: None)
    (kept,) = (tmp_path / "cache" / "weights" / "downloads").glob(f"{blob}*")
    assert kept.read_bytes() == content
    assert pulled.manifest.recipe["imported_sha256"] == hashlib.sha256(content).hexdigest()
    data = f"{'cvrp' if 'cvrp' in name else 'tsp'}20:count=1"
    command = ["run", entry.model, "--weights", name, "--data", data, "--results", str(tmp_path / "runs")]
    assert run([*command, "--instances", str(tmp_path / "instances")]) == 0


def test_two_pulls_of_one_file_are_one_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They wrote into one part, and each took the mixture for what the server had sent."""
    monkeypatch.setenv("NCO_BENCH_CACHE", str(tmp_path))
    content, fetched = b"x" * 1000, []
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    entry = replace(cards.official_weights()["am-official-tsp100"], git_blob_sha1=blob)

    def fetch(_: object, part: Path) -> None:
        fetched.append(part)
        with part.open("ab", buffering=0) as file:
            for start in range(0, len(content), 250):
                file.write(content[start : start + 250])
                time.sleep(0.05)

    monkeypatch.setattr(pulling, "_fetch", fetch)
    with ThreadPoolExecutor(2) as threads:
        paths = list(threads.map(lambda _: pulling._download(entry, lambda _: None), range(2)))
    assert paths[0] == paths[1]
    assert paths[0].read_bytes() == content
    assert len(fetched) == 1


def test_a_pull_says_that_nothing_came_and_that_the_mirror_is_not_there(
    server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It told of a part that was kept where no byte had come, and went past a misspelt mirror to the network."""
    with pytest.raises(BadWeightsError, match=r"cannot be fetched \(.*\); nothing came\. Try again"):
        pulling.pull("am-official-tsp100", lambda _: None)
    monkeypatch.setenv("NCO_BENCH_MIRROR", str(tmp_path / "absent"))
    with pytest.raises(BadWeightsError, match=r"absent: no such folder; correct NCO_BENCH_MIRROR\."):
        pulling.pull("am-official-tsp100", lambda _: None)


def test_weights_that_ship_are_not_called_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NCO_BENCH_MIRROR", raising=False)
    with pytest.raises(BadWeightsError, match="pens-a: these weights are here already"):
        pulling.pull("pens-a", lambda _: None)

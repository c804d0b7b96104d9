"""Killed training, downloads, archives and merges: whole files or none, and the end of an uninterrupted command."""

from __future__ import annotations

import hashlib
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from amounts import amount
from safetensors.numpy import load_file
from starter import Starter

from nco_bench.datasets.generate import generate
from nco_bench.datasets.load import Places
from nco_bench.datasets.pull import verify as verify_instances
from nco_bench.datasets.storage import save_dataset
from nco_bench.runs import folders
from nco_bench.runs.archives import archived_runs
from nco_bench.runs.display import QuietDisplay
from nco_bench.runs.finding import find_runs
from nco_bench.runs.merging import merge
from nco_bench.runs.packing import contents
from nco_bench.runs.request import RunRequest
from nco_bench.runs.runner import run
from nco_bench.runs.stored_run import Run
from nco_bench.runs.verify import verify
from nco_bench.weights.store import verify as verify_weights

KILLS = amount(2, 50)
OFFICIAL = "am-official-tsp20"


def timed(starter: Starter, *arguments: object) -> float:
    began = time.monotonic()
    assert starter(*arguments) == 0
    return time.monotonic() - began


def test_killed_training_ends_with_the_weights_of_an_uninterrupted_one(
    tmp_path: Path, starter: Starter
) -> None:
    angles = np.random.default_rng(1).random((40, 10)) * 2 * np.pi
    coords, tours = np.stack([np.cos(angles), np.sin(angles)], -1) / 2 + 0.5, np.argsort(angles, axis=1)
    np.savez(tmp_path / "labels.npz", coords=coords, tours=tours)
    settings = [
        "steps=12", "batch=6", "longest=9", "longest_start=6", "log_every=1", "validation_instances=3",
        "checkpoint_every=0", "compile=false", "model.depth=2", "model.width=32",
        "model.heads=2", "model.ffn=64",
    ]  # fmt: skip
    command = ["train", "decoder-6x128", "--data", tmp_path / "labels.npz"]
    command += [part for setting in settings for part in ("--config", setting)]
    longest = timed(starter, *command, "--out", tmp_path / "whole.safetensors")
    expected, rng = load_file(tmp_path / "whole.safetensors"), random.Random(5)

    def resume(out: Path) -> list[str]:
        return ["--resume"] if (out.with_suffix(".training") / "checkpoint.safetensors").exists() else []

    def check(out: Path) -> None:
        found = load_file(out)
        assert expected.keys() == found.keys()
        for name, tensor in expected.items():
            np.testing.assert_array_equal(tensor, found[name], err_msg=name)

    for turn in range(KILLS):
        out = tmp_path / f"parts-{turn // 4}.safetensors"
        starter.killed(rng, longest, *command, "--out", out, *resume(out))
        if out.exists():
            check(out)
    assert starter(*command, "--out", out, *resume(out)) == 0
    check(out)
    assert verify_weights(out).manifest.steps == 12


class _Slowly(SimpleHTTPRequestHandler):
    """Serves files in small pieces, and from where they are asked for, as the sites do."""

    pieces = 40

    def do_GET(self) -> None:
        content = Path(self.translate_path(self.path)).read_bytes()
        begin = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        if begin >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        size = -(-len(content) // self.pieces)
        for at in range(begin, len(content), size):
            self.wfile.write(content[at : at + size])
            time.sleep(0.01)

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that were killed."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    with _Server(("127.0.0.1", 0), partial(_Slowly, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_killed_pull_of_instances_leaves_whole_files_or_none(
    shared: Path, tmp_path: Path, starter: Starter
) -> None:
    rng = random.Random(6)
    with served(shared / "instances" / "tsplib") as site:
        starter.environment["STARTER_SITES"] = site
        command = ["instances", "pull", "tsplib/eil51", "--instances"]
        longest = timed(starter, *command, tmp_path / "whole")
        for turn in range(KILLS):
            folder = tmp_path / f"part-{turn // 4}"
            starter.killed(rng, longest, *command, folder)
            assert verify_instances("tsplib/eil51", folder)["eil51"] in ("ok", "missing")
        assert starter(*command, folder) == 0
    assert verify_instances("tsplib/eil51", folder) == {"eil51": "ok"}
    assert _bytes_of(folder) == _bytes_of(tmp_path / "whole")


def _bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*.gz"))}


def test_a_killed_pull_of_weights_goes_on_and_ends_whole(tmp_path: Path, starter: Starter) -> None:
    import torch

    from nco_bench.cards import official_weights
    from nco_bench.nn.build import build_path_policy

    entry = official_weights()[OFFICIAL]
    file = tmp_path / "site" / entry.path
    file.parent.mkdir(parents=True)
    torch.manual_seed(1)
    torch.save({"model": build_path_policy(entry.model, entry.problem).state_dict()}, file)
    content = file.read_bytes()
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    rng, cache = random.Random(8), tmp_path / "whole"
    with served(tmp_path / "site") as site:
        starter.environment |= {
            "STARTER_SITES": site,
            "STARTER_BLOB": f"{OFFICIAL}={blob}",
            "NCO_BENCH_CACHE": str(cache),
        }
        longest = timed(starter, "weights", "pull", OFFICIAL)
        expected = verify_weights(cache / "weights" / f"{OFFICIAL}.safetensors").sha256
        for turn in range(KILLS):
            cache = tmp_path / f"part-{turn // 4}"
            starter.environment["NCO_BENCH_CACHE"] = str(cache)
            starter.killed(rng, longest, "weights", "pull", OFFICIAL)
            kept = cache / "weights" / f"{OFFICIAL}.safetensors"
            if kept.with_suffix(".json").exists():
                assert verify_weights(kept).sha256 == expected
            for whole in (cache / "weights" / "downloads").glob(f"{blob}.pt"):
                assert whole.read_bytes() == content
        assert starter("weights", "pull", OFFICIAL) == 0
    assert verify_weights(kept).sha256 == expected


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of four runs, beside their datasets."""
    folder = tmp_path_factory.mktemp("source")
    for seed in range(4):
        data = save_dataset(generate("tsp", 10, 6, "uniform", seed), folder / f"set{seed}.npz")
        request = RunRequest(("nearest-neighbor",), (str(data),), folder / "runs", Places(folder))
        run(request, QuietDisplay())
    return folder / "runs"


def found_in(runs: list[Run]) -> dict[str, dict[str, bytes]]:
    return {run.run_id: contents(run) for run in runs}


def test_a_killed_pack_leaves_the_archive_before_or_the_whole_new_one(
    source: Path, tmp_path: Path, starter: Starter
) -> None:
    expected = found_in(find_runs(source))
    command = ["runs", "pack", "--allow-dirty", "--results", source, "--out"]
    longest = timed(starter, *command, tmp_path / "whole.parquet")
    first = find_runs(source)[0].run_id
    assert starter("runs", "pack", first, *command[2:], tmp_path / "before.parquet") == 0
    whole, before = ((tmp_path / f"{name}.parquet").read_bytes() for name in ("whole", "before"))
    out, rng = tmp_path / "out.parquet", random.Random(9)
    for turn in range(KILLS):
        if turn % 3 == 0:
            out.unlink(missing_ok=True)
        elif turn % 3 == 1:
            out.write_bytes(before)
        there = out.read_bytes() if out.exists() else b""
        starter.killed(rng, longest, *command, out)
        assert (out.read_bytes() if out.exists() else b"") in (there, whole)
    assert starter(*command, out) == 0
    assert out.read_bytes() == whole
    assert found_in(archived_runs(out)) == expected
    assert starter("runs", "unpack", out, "--results", tmp_path / "unpacked") == 0
    assert found_in(find_runs(tmp_path / "unpacked")) == expected
    assert [str(f) for f in verify(tmp_path / "unpacked", (), Places(source.parent)).findings] == []


def test_killed_merges_leave_whole_runs(source: Path, tmp_path: Path, starter: Starter) -> None:
    expected, rng = found_in(find_runs(source)), random.Random(7)
    longest = timed(starter, "runs", "merge", source, "--results", tmp_path / "whole")
    for turn in range(KILLS):
        target = tmp_path / f"target-{turn // 3}"
        starter.killed(rng, longest, "runs", "merge", source, "--results", target)
        assert found_in(find_runs(target)).items() <= expected.items()
    assert starter("runs", "merge", source, "--results", target) == 0
    assert found_in(find_runs(target)) == expected
    assert [str(f) for f in verify(target, (), Places(source.parent)).findings] == []


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_killed_exports_leave_whole_files_or_none(
    source: Path, tmp_path: Path, starter: Starter, ending: str
) -> None:
    command = ["runs", "export", "--results", source, "--instances", source.parent, "--out"]
    longest = timed(starter, *command, tmp_path / f"whole.{ending}")
    whole, rng, out = (tmp_path / f"whole.{ending}").read_bytes(), random.Random(10), tmp_path / f"o.{ending}"
    for _ in range(KILLS):
        starter.killed(rng, longest, *command, out)
        assert not out.exists() or out.read_bytes() == whole
        out.unlink(missing_ok=True)
    assert starter(*command, out) == 0
    assert out.read_bytes() == whole


def test_a_merge_of_a_longer_copy_that_ends_at_any_rename_loses_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, whole = tmp_path / "target", find_runs(source)[0]
    short = target / whole.run_id
    short.mkdir(parents=True)
    for path in whole.folder.iterdir():
        content = path.read_bytes()
        if path.name == "records.jsonl":
            content = b"".join(content.splitlines(keepends=True)[:2])
        (short / path.name).write_bytes(content)
    before = [record.key for record in Run(short).records()]
    rename, left = os.replace, 0

    def dying(*names: object) -> None:
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= 1
        rename(*names)  # type: ignore[arg-type]

    for allowed in range(4):
        left = allowed
        monkeypatch.setattr(os, "replace", dying)
        with pytest.raises(KeyboardInterrupt):
            merge([whole.folder], target)
        monkeypatch.setattr(os, "replace", rename)
        assert {*before} <= {record.key for record in Run(short).records()}
        (found,) = verify(target, (), Places(source.parent)).findings  # its cells know of more than it has
        assert "holds 2 records, and the run had written 6 when it ended" in str(found)
    assert merge([whole.folder], target).extended == (whole.run_id,)
    assert verify(target, (), Places(source.parent)).findings == ()
    assert contents(Run(short)) == contents(whole)
    assert not (target / folders.ASIDE).exists()

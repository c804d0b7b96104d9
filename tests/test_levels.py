"""How far long work is: nothing where nobody listens, and the share of the whole where somebody does."""

from __future__ import annotations

import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch

from nco_bench.nn.build import build_path_policy
from nco_bench.nn.threads import in_threads
from nco_bench.progress import BYTES, Batch, Level, clock, opened, report, tracked
from nco_bench.runs.display import working_of
from nco_bench.solvers.decoding.spec import parse_decoding
from nco_bench.solvers.path.decode import decode_path


def test_a_loop_that_nobody_listens_to_is_left_alone() -> None:
    items = [1, 2]
    assert tracked(items, "step") is items
    with opened("part", 2):
        assert tracked(items, "step") is items


def test_a_loop_that_was_left_ends_with_the_outermost_level() -> None:
    items = [1, 2]
    with Level():
        left = iter(tracked(items, "step"))
        next(left)
    assert tracked(items, "step") is items
    left.close()  # type: ignore[attr-defined]
    assert tracked(items, "step") is items


def test_an_inner_loop_moves_the_share_of_the_outer_one_by_the_work_of_its_item() -> None:
    shares, places = [], []
    with Level() as root:
        for _ in tracked(["small", "large"], "size", [1.0, 3.0]):
            for _ in tracked(range(2), "factor"):
                shares.append(root.share())
                places.append(root.within[0].place())
    assert shares == [0.0, 0.125, 0.25, 0.625]
    assert places[-1] == "1/2 sizes, 1/2 factors"
    assert not root.within


def test_parts_within_a_step_move_no_share() -> None:
    """A network passes over them once a layer; taken for units of work they promised millions of hours."""
    nodes = torch.rand(1, 1200, 2, generator=torch.Generator().manual_seed(1))
    policy = build_path_policy("sit", "tsp", width=16, heads=2, ffn=32, layers=2, repeats=2).eval()
    seen = []

    def look() -> None:
        if "1/2 parts" in root.place():
            seen.append(root.share())
            raise TimeoutError

    with Level("", 1, changed=look) as root, pytest.raises(TimeoutError):
        decode_path(policy, nodes, decoding=parse_decoding("greedy"))
    assert seen == [0.0]


def test_a_loop_that_ends_when_all_is_done_says_where_it_is_and_the_next_begins_anew() -> None:
    with Level() as root:
        for _ in tracked(range(2), "group"):
            report(1, 4, "step")
            first = root.share()
            report(9, 4, "step")  # more than was guessed
    assert first == pytest.approx(0.5 + 0.125)


def test_what_comes_before_does_not_count() -> None:
    with Level() as root, opened("", 1, counts=False):
        for _ in tracked(range(2), "step"):
            assert root.share() == 0.0
            assert root.within[0].place() == f"{root.within[0].within[0].count}/2 steps"


def test_the_larger_of_what_a_solver_counts_and_what_its_loops_say() -> None:
    with Level() as root, opened("", 10, kind=Batch) as batch:
        batch.reach(5)
        with opened("step", 4) as steps:
            steps.reach(1)
            assert working_of(root)[:3] == (5.0, 10, "1/4 steps")
            steps.reach(3)
            assert working_of(root).words() == "batch 75 % (3/4 steps)"


def test_threads_share_a_level_and_count_their_parts() -> None:
    seen: list[float] = []

    def work(part: int, stopped: threading.Event) -> int:
        for _ in tracked(range(10), "step"):
            seen.append(root.share())
        return part

    with torch.inference_mode(), Level() as root:
        assert in_threads(work, range(4), threads=2) == [0, 1, 2, 3]
    assert max(seen) > 0.9
    assert seen[0] == 0.0
    assert not root.within


def test_bytes_and_times_are_said_as_people_read_them() -> None:
    level = Level(BYTES, 40_000_000)
    level.began = time.monotonic() - 10
    level.reach(10_000_000)
    assert level.pace() == "10.0/40.0 MB, 1.0 MB/s, 0:00:30 left"
    assert clock(3661) == "1:01:01"


@pytest.mark.parametrize("decoding", ["greedy", "beam:3", "rrc:5", "prc:5", "sample:3", "greedy+x8"])
@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_solutions_are_the_same_and_the_share_rises_to_all(decoding: str, problem: str) -> None:
    torch.manual_seed(1)
    policy = build_path_policy("bq", problem).eval()
    generator = torch.Generator().manual_seed(2)
    coords = torch.rand(3, 12, 2, generator=generator)
    loads = () if problem == "tsp" else (torch.ones(3, 12, dtype=torch.int64), torch.full((3,), 5))
    if loads:
        loads[0][:, 0] = 0
    solve = partial(decode_path, policy, coords, *loads, decoding=parse_decoding(decoding), seed=7)
    alone, shares = solve(), []
    with Level(changed=lambda: shares.append(batch.share())) as root, opened("", 3, kind=Batch) as batch:
        watched = solve()
    assert all(np.array_equal(a, b) for a, b in zip(alone, watched, strict=True))
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)
    assert len(set(shares)) >= 5
    assert not root.within


def test_a_download_counts_bytes_of_those_expected(tmp_path: Path) -> None:
    from nco_bench.weights.pulling import _receive

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    (tmp_path / "file").write_bytes(bytes(3 << 20))
    told: list[str] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with Level(changed=lambda: told.append(root.within[0].place())) as root:
            _receive(f"http://127.0.0.1:{server.server_port}/file", tmp_path / "part")
        server.shutdown()
    assert told[-1] == "3.1/3.1 MB"
    assert len(told) >= 3


def test_a_file_that_is_read_counts_its_instances(tmp_path: Path) -> None:
    """`convert`, and every command that is given a file: solutions are scored again, which takes the time."""
    from nco_bench.datasets.formats import read_file, write_file
    from nco_bench.datasets.generate import generate

    write_file(generate("tsp", 20, 40), tmp_path / "forty.pkl", "kool")
    told: list[str] = []
    with Level(changed=lambda: told.append(root.within[0].place())) as root:
        assert len(read_file(tmp_path / "forty.pkl", "kool")) == 40
    assert told[-1] == "40/40 instances"


def test_records_that_are_read_count_their_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`report` and `plot`: here a part for almost every record."""
    import nco_bench
    from nco_bench.reports.frame import lines
    from nco_bench.reports.frame.load import load_frame

    nco_bench.run(["nearest-neighbor"], data="tsp20:seed=5:count=6", results=tmp_path)
    monkeypatch.setattr(lines, "PIECE_BYTES", 200)
    told: list[str] = []
    with Level(changed=lambda: told.append(root.within[0].place())) as root:
        assert len(load_frame(tmp_path).records) == 6
    assert told[-1] == "6/6 parts"

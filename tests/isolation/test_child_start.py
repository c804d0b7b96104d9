"""A forked child must be as far from its parent as a fresh interpreter is; where a fork is not safe, none is made."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest

from nco_bench.errors import SolverFailedError
from nco_bench.isolation.child import ChildProcess
from nco_bench.isolation.start import Forked, may_fork
from nco_bench.isolation.transport import (
    pack_instances,
    pack_outcomes,
    unpack_instances,
    unpack_outcomes,
)
from nco_bench.problems.cvrp import CVRPInstance
from nco_bench.problems.tsp import TSPInstance
from nco_bench.solvers.protocol import Failure, Solved

linux = pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")
BATCH = [TSPInstance(f"i{j}", np.random.default_rng(j).random((5, 2))) for j in range(3)]
ARGUMENTS = {"seed": 7, "time_limit": None, "kill_after": None, "progress": lambda done: None}

FORKS_OR_NOT = """
import sys, threading
import numpy as np
from nco_bench.isolation.child import ChildProcess
from nco_bench.isolation.start import Forked
{before}
child = ChildProcess("child_targets:who_am_i", {{}})
child.start()
print(isinstance(child._process, Forked))
child.close()
{after}
"""


def forks(before: str = "", after: str = "") -> bool:
    """Start a child in a fresh process that has done something before; say whether it was a fork."""
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        [sys.executable, "-c", FORKS_OR_NOT.format(before=before, after=after)],
        capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "4"},
    )  # fmt: skip
    return {"True\n": True, "False\n": False}[done.stdout]


@linux
def test_a_process_with_numpy_alone_is_forked_even_with_the_threads_of_its_blas() -> None:
    assert forks("a = np.ones((400, 400)); a @ a")


@linux
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import types; sys.modules['torch'] = types.ModuleType('torch')", ""),
        ("stop = threading.Event(); threading.Thread(target=stop.wait).start()", "stop.set()"),
    ],
    ids=["torch", "Python thread"],
)
def test_a_process_with_torch_or_another_thread_is_not_forked(before: str, after: str) -> None:
    assert not forks(before, after)


@linux
def test_a_native_thread_that_python_does_not_know_is_seen_and_the_fork_given_up() -> None:
    # libc's own notification thread: mq_notify and timer_create make one; pthread_create is the plain way.
    before = (
        "import ctypes, time\n"
        "libc = ctypes.CDLL(None)\n"
        "handle = ctypes.c_ulong()\n"
        "libc.pthread_create.argtypes = [ctypes.c_void_p] * 4\n"
        "assert libc.pthread_create(ctypes.byref(handle), None, ctypes.cast(libc.pause, ctypes.c_void_p), None) == 0\n"
        "assert threading.active_count() == 1"
    )
    assert not forks(before, "sys.stdout.flush(); import os; os._exit(0)")


def child_facts(start_by: str) -> dict[str, object]:
    child = ChildProcess("child_targets:surroundings", {}, start_by=start_by)  # type: ignore[arg-type]
    try:
        outcome = child.solve(BATCH[:1], **ARGUMENTS)[0]  # type: ignore[arg-type]
        forked = isinstance(child._process, Forked)
    finally:
        child.close()
    assert isinstance(outcome, Failure)
    return {**dict(pair.split("=", 1) for pair in outcome.message.split(";")), "forked": forked}


@linux
def test_a_fork_has_none_of_our_files_signal_handlers_or_hooks(tmp_path: Path) -> None:
    """In a process of its own, since another test may have loaded torch or started threads here."""
    script = "import sys, pathlib, test_child_start as t; t.compare_surroundings(pathlib.Path(sys.argv[1]))"
    path = os.pathsep.join(p for p in (str(Path(__file__).parent), *sys.path) if p)
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


def compare_surroundings(folder: Path) -> None:
    """Compare what a forked child and a fresh one find around them."""
    assert may_fork()
    kept = (folder / "secret").open("w")
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        facts, fresh = child_facts("auto"), child_facts("spawn")
    finally:
        signal.signal(signal.SIGUSR1, before)
        kept.close()
    assert facts.pop("forked") is True
    assert fresh.pop("forked") is False
    assert facts == fresh
    assert "secret" not in str(facts["files"])


@linux
def test_closing_a_child_leaves_no_zombie_no_file_and_no_folder() -> None:
    def open_files() -> set[str]:
        return {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if int(fd) < 10_000
                and os.path.lexists(f"/proc/self/fd/{fd}")}  # fmt: skip

    before = open_files()
    child = ChildProcess("child_targets:who_am_i", {})
    child.start()
    process, folder = child._process, child._folder
    assert process is not None
    child.close()
    assert not folder.exists()
    assert not Path(f"/proc/{process.pid}").exists()
    assert open_files() <= before


@linux
def test_a_second_child_does_not_keep_the_first_alive_or_end_it() -> None:
    first, second = (ChildProcess("child_targets:who_am_i", {}) for _ in range(2))
    a = first.solve(BATCH, **ARGUMENTS)  # type: ignore[arg-type]
    b = second.solve(BATCH, **ARGUMENTS)  # type: ignore[arg-type]
    second.close()
    c = first.solve(BATCH, **ARGUMENTS)  # type: ignore[arg-type]
    first.close()
    pids = [[o.solution[0] for o in outcomes if isinstance(o, Solved)] for outcomes in (a, b, c)]
    assert len(pids[0]) == len(pids[1]) == 3
    assert set(pids[0]) == set(pids[2])
    assert not set(pids[0]) & set(pids[1])


def test_from_another_thread_a_child_is_a_fresh_interpreter() -> None:
    found: list[bool] = []

    def work() -> None:
        child = ChildProcess("child_targets:who_am_i", {})
        child.start()
        found.append(isinstance(child._process, Forked))
        child.close()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [False]


def cvrp(j: int) -> CVRPInstance:
    generator = np.random.default_rng(j)
    return CVRPInstance(
        f"c{j}",
        depot=generator.random(2),
        customers=generator.random((4, 2)),
        demand=np.arange(1, 5),
        capacity=9 + j,
    )


@pytest.mark.parametrize(
    "batch",
    [
        BATCH,
        [TSPInstance(f"i{n}", np.random.default_rng(n).random((n, 2))) for n in (3, 5, 4)],
        [cvrp(j) for j in range(3)],
        [BATCH[0], TSPInstance("matrix", None, "explicit", np.ones((4, 4)))],
        [BATCH[0], cvrp(1)],
    ],
    ids=["one size", "sizes differ", "CVRP", "a matrix among coordinates", "two problems"],
)
def test_instances_arrive_as_they_were_sent(batch: list[TSPInstance]) -> None:
    arrived = unpack_instances(pack_instances(batch))
    assert [type(i) for i in arrived] == [type(i) for i in batch]
    for there, here in zip(arrived, batch, strict=True):
        assert (there.name, there.n, there.convention) == (here.name, here.n, here.convention)
        assert there.arrays().keys() == here.arrays().keys()
        for key, array in here.arrays().items():
            assert there.arrays()[key].dtype == array.dtype
            assert there.arrays()[key].tobytes() == array.tobytes()


def test_outcomes_arrive_as_they_were_sent() -> None:
    plain = [Solved(np.arange(n, dtype=np.int32)[::-1], n == 3, 0.1 * n) for n in (3, 1, 4)]
    mixed = [*plain, Failure("failed", "why"), Solved(np.zeros(2, np.int32), trace=((0.5, 9.0),))]
    for sent in (plain, mixed):
        arrived = unpack_outcomes(pack_outcomes(sent))
        assert len(arrived) == len(sent)
        for there, here in zip(arrived, sent, strict=True):
            if isinstance(here, Failure) or isinstance(there, Failure):
                assert there == here
                continue
            assert isinstance(there, Solved)
            assert there.solution.tolist() == here.solution.tolist()
            assert (there.optimal, there.seconds, there.trace) == (here.optimal, here.seconds, here.trace)


def test_without_a_temporary_folder_a_child_says_so_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", os.path.join(os.devnull, "nowhere"))
    with pytest.raises(SolverFailedError, match=r"child_targets:who_am_i does not start: .*nowhere.*TMPDIR"):
        ChildProcess("child_targets:who_am_i", {}).start()

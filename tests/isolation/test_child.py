"""A native solver may exit, crash, hang or return nonsense: one failed instance, and the batch goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np
import psutil
import pytest

from nco_bench.errors import SolverFailedError
from nco_bench.isolation import child as child_module
from nco_bench.isolation.child import ChildProcess
from nco_bench.problems.tsp import TSPInstance
from nco_bench.solvers.protocol import Failure, Solved

BATCH = [TSPInstance(f"i{j}", np.random.default_rng(j).random((4 + j, 2))) for j in range(8)]


def run(
    what, *, function="misbehave", fresh=False, kill_after=None, progress=lambda done: None, start_by="auto"
):
    child = ChildProcess(f"child_targets:{function}", {"what": what}, fresh=fresh, start_by=start_by)
    try:
        return child.solve(BATCH, seed=100, time_limit=None, kill_after=kill_after, progress=progress)
    finally:
        child.close()


def assert_only_failure(outcomes, at, status, *words):
    failed = [j for j, outcome in enumerate(outcomes) if isinstance(outcome, Failure)]
    assert failed == [at]
    assert outcomes[at].status == status
    for word in words:
        assert word in outcomes[at].message
    for j, outcome in enumerate(outcomes):
        if j != at:
            assert outcome.solution.tolist() == list(range(BATCH[j].n))[::-1]


@pytest.mark.parametrize(("fresh", "start_by"), [(False, "auto"), (False, "spawn"), (True, "auto")])
@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("exit", ("exit status 3", "LKH says: cannot open file")),
        ("segfault", ("SIGSEGV",)),
        ("abort", ("SIGABRT",)),
        ("raise", ("ValueError: no such city",)),
        ("floats", ("float64", "not a solution")),
        ("nothing", ("not a solution",)),
    ],
)
def test_one_bad_instance_fails_alone(what, words, fresh, start_by):
    assert_only_failure(run({103: what}, fresh=fresh, start_by=start_by), 3, "failed", *words)


@pytest.mark.parametrize(("fresh", "start_by"), [(False, "auto"), (False, "spawn"), (True, "auto")])
def test_a_hang_inside_native_code_is_killed_and_the_batch_goes_on(fresh, start_by):
    outcomes = run({105: "hang"}, fresh=fresh, kill_after=1.0, start_by=start_by)
    assert_only_failure(outcomes, 5, "timeout", "killed after")


def test_a_crash_is_blamed_on_the_instance_only_if_a_new_process_crashes_too():
    outcomes = run({}, function="crash_after_two")
    assert [o.solution.tolist() for o in outcomes] == [list(range(i.n)) for i in BATCH]


def test_several_bad_instances_each_fail_alone():
    outcomes = run({100: "abort", 101: "abort", 107: "exit"})
    assert [isinstance(o, Failure) for o in outcomes] == [True, True, False, False, False, False, False, True]


def test_what_the_child_prints_does_not_reach_our_output(capfd):
    run({101: "noise", 102: "exit"})
    assert capfd.readouterr() == ("", "")


def test_a_child_that_cannot_start_says_why():
    child = ChildProcess("child_targets:misbehave", {"broken_start": True})
    with pytest.raises(SolverFailedError, match=r"libhgs\.so: cannot open shared object"):
        child.start()


def test_seconds_are_those_of_the_instance():
    outcomes = run({102: "sleep"})
    seconds = [outcome.seconds for outcome in outcomes]
    assert seconds[2] >= 0.3
    assert sorted(seconds)[len(seconds) // 2] < seconds[2]


def test_progress_counts_to_the_end_and_never_falls():
    seen = []
    run({102: "sleep", 104: "abort"}, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == len(BATCH)


def test_fresh_means_a_process_per_instance():
    shared = [tuple(o.solution) for o in run({}, function="who_am_i")]
    fresh = [tuple(o.solution) for o in run({}, function="who_am_i", fresh=True)]
    assert len({pid for pid, _ in shared}) == 1
    assert len({pid for pid, _ in fresh}) == len(BATCH)
    assert len({parent for _, parent in fresh}) == 1


@pytest.mark.parametrize("how", ["main thread", "other thread"])
def test_no_child_outlives_a_parent_that_is_killed(how):
    code = (
        "import sys, threading, time\n"
        "from nco_bench.problems.tsp import TSPInstance\n"
        "from nco_bench.isolation.child import ChildProcess\n"
        "import numpy as np\n"
        "def work():\n"
        "    child = ChildProcess('child_targets:misbehave', {'what': {0: 'hang'}})\n"
        "    child.start()\n"
        "    print(child._process.pid, flush=True)\n"
        "    child.solve([TSPInstance('a', np.eye(4, 2))], seed=0, time_limit=None, kill_after=None, progress=print)\n"
        f"{'work()' if how == 'main thread' else 't = threading.Thread(target=work); t.start(); t.join()'}\n"
    )
    path = os.pathsep.join(p for p in sys.path if p)
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    child = psutil.Process(int(parent.stdout.readline()))
    time.sleep(0.2)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    try:
        child.wait(20)
    except psutil.NoSuchProcess:
        return
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_an_interrupt_kills_the_child():
    child = ChildProcess("child_targets:misbehave", {"what": {101: "sleep"}})
    child.start()
    process = psutil.Process(child._process.pid)

    def interrupt(done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        child.solve(BATCH, seed=100, time_limit=None, kill_after=None, progress=interrupt)
    assert not process.is_running()


QUIETLY: dict[str, Any] = {"seed": 0, "time_limit": None, "kill_after": None, "progress": lambda done: None}


def test_the_child_is_used_again_by_the_next_batch():
    child = ChildProcess("child_targets:who_am_i", {})
    args = {"seed": 0, "time_limit": None, "kill_after": None, "progress": lambda done: None}
    first, second = child.solve(BATCH[:2], **args), child.solve(BATCH[:2], **args)
    child.close()
    assert isinstance(first[0], Solved)
    assert first[0].solution[0] == second[1].solution[0]


@pytest.mark.parametrize(
    "bad", [{}, {100: "exit"}, {103: "segfault"}, {107: "exit"}, {203: "exit"}, {105: "abort", 200: "exit"}]
)
def test_a_batch_that_waits_for_another_gets_its_own_outcomes(bad):
    child = ChildProcess("child_targets:misbehave", {"what": bad})
    start = time.perf_counter()
    try:
        waits = [
            child.begin(BATCH, seed=seed, time_limit=None, kill_after=None, progress=lambda _: None)
            for seed in (100, 200)
        ]
        (first, seconds), (second, more_seconds) = (wait() for wait in waits)
    finally:
        child.close()
    for seed, outcomes in ((100, first), (200, second)):
        assert [seed + j for j, o in enumerate(outcomes) if isinstance(o, Failure)] == [
            s for s in bad if seed <= s < seed + len(BATCH)
        ]
        solved = [(o, i) for o, i in zip(outcomes, BATCH, strict=True) if isinstance(o, Solved)]
        assert all(o.solution.tolist() == list(range(i.n))[::-1] for o, i in solved)
    assert 0 < more_seconds < time.perf_counter() - start
    assert sum(o.seconds for o in first if isinstance(o, Solved)) <= seconds


@pytest.mark.parametrize("send", ["send_rest", "send_what_fits"])
def test_seconds_count_from_before_the_sending_however_long_we_take_to_run_again(monkeypatch, send):
    def and_wait(connection, rest, send=getattr(child_module, send)):
        left = send(connection, rest)
        time.sleep(0.2)  # as on a busy machine: the child has answered long since
        return left

    child = ChildProcess("child_targets:misbehave", {"what": {}})
    try:
        child.start()
        monkeypatch.setattr(child_module, send, and_wait)
        begin = {"time_limit": None, "kill_after": None, "progress": lambda _: None}
        waits = [child.begin(BATCH, seed=seed, **begin) for seed in (100, 200)]
        for outcomes, seconds in (wait() for wait in waits):
            assert 0 < sum(o.seconds for o in outcomes if isinstance(o, Solved)) <= seconds
    finally:
        child.close()


def test_a_batch_that_waits_is_still_solved_when_the_child_before_it_could_not_be_replaced(monkeypatch):
    child = ChildProcess("child_targets:misbehave", {"what": {107: "exit"}})
    begin = {"time_limit": None, "kill_after": None, "progress": lambda _: None}
    try:
        first, second = child.begin(BATCH, seed=100, **begin), child.begin(BATCH, seed=200, **begin)
        with monkeypatch.context() as patch:
            patch.setattr(tempfile, "tempdir", "/nowhere/at/all")
            with pytest.raises(SolverFailedError, match="no folder for it"):
                first()
        assert len(child.solve(BATCH, seed=300, **begin)) == len(BATCH)
        assert all(isinstance(o, Solved) for o in second()[0])
    finally:
        child.close()


def test_a_dismissed_child_is_gone_and_the_next_batch_gets_another():
    child = ChildProcess("child_targets:who_am_i", {})
    try:
        (first,) = child.solve(BATCH[:1], **QUIETLY)
        child.dismiss()
        (second,) = child.solve(BATCH[:1], **QUIETLY)
    finally:
        child.close()
    assert isinstance(first, Solved)
    assert isinstance(second, Solved)
    assert first.solution[0] != second.solution[0]


def test_a_child_that_cannot_start_says_so_when_it_is_waited_for():
    child = ChildProcess("child_targets:nothing_of_this_name", {})
    child.launch()
    with pytest.raises(SolverFailedError, match=r"does not start.*nothing_of_this_name"):
        child.start()
    with pytest.raises(SolverFailedError, match="does not start"):  # nor later
        child.solve(BATCH[:1], **QUIETLY)


def test_a_batch_that_nobody_waits_for_does_not_disturb_the_next():
    child = ChildProcess("child_targets:misbehave", {"what": {}})
    try:
        first = child.begin(BATCH, **QUIETLY)
        child.begin(BATCH[:2], **QUIETLY)  # on its way to the child already
        (outcomes, _), after = first(), child.solve(BATCH[3:6], **QUIETLY)
    finally:
        child.close()
    assert [len(o.solution) for o in outcomes if isinstance(o, Solved)] == [i.n for i in BATCH]
    assert [len(o.solution) for o in after if isinstance(o, Solved)] == [i.n for i in BATCH[3:6]]


def test_a_message_larger_than_any_buffer_travels_ahead_in_part():
    large = [TSPInstance(name="large", coords=np.random.default_rng(j).random((20_000, 2))) for j in range(8)]
    child = ChildProcess("child_targets:misbehave", {"what": {}})
    try:
        waits = [child.begin(large, **QUIETLY) for _ in range(2)]
        lengths = [[len(o.solution) for o in wait()[0] if isinstance(o, Solved)] for wait in waits]
    finally:
        child.close()
    assert lengths == [[20_000] * 8] * 2

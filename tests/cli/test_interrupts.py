"""Ctrl-C at the moments where Python would print a traceback: in workers that start, in destructors, before the command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nco_bench.cli.app import _interrupted
from nco_bench.interrupts import interrupts_held

pytestmark = pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="no signal masks")


def test_a_process_that_starts_while_interrupts_are_held_ignores_them_from_its_beginning() -> None:
    code = """if True:
        import os, signal
        os.kill(os.getpid(), signal.SIGINT)  # held back since before Python began
        from nco_bench.interrupts import ignore_interrupts
        ignore_interrupts()
        os.kill(os.getpid(), signal.SIGINT)
        print("went on")
    """
    with interrupts_held():
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("went on\n", "")


def test_an_interrupt_that_falls_into_a_destructor_is_not_lost() -> None:
    code = """if True:
        import signal, time
        from nco_bench.interrupts import insist
        insist(signal.SIGINT, KeyboardInterrupt)
        class Unlucky:
            def __del__(self):
                signal.raise_signal(signal.SIGINT)
        try:
            Unlucky()
            time.sleep(30)
            print("lost")
        except KeyboardInterrupt:
            print("interrupted")
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("interrupted\n", "")


def test_an_interrupt_while_the_command_line_is_imported_ends_quietly() -> None:
    code = """if True:
        import sys
        class Interrupting:
            def find_spec(self, name, *_):
                if name == "nco_bench.cli.app":
                    raise KeyboardInterrupt
        sys.meta_path.insert(0, Interrupting())
        from nco_bench.__main__ import main
        main()
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


INTERRUPTED_WITHIN = {
    "a text that Python runs": "exec('raise KeyboardInterrupt')",
    "a field that a class gets": "type('Card', (), {'field': Field()})",
}


@pytest.mark.parametrize("place", INTERRUPTED_WITHIN)
def test_an_interrupt_has_its_status_wherever_it_falls(tmp_path: Path, place: str) -> None:
    """``python -m`` ended by the signal after the first, and a traceback came of the second: dataclasses are made so."""
    code = f"""if True:
        from nco_bench.cli import app
        class Field:
            def __set_name__(self, owner, name):
                raise KeyboardInterrupt
        class Interrupted:
            def main(*_, **__):
                {INTERRUPTED_WITHIN[place]}
        app.command = lambda *_, **__: Interrupted()
        app.main(["run", "lkh3"])
    """
    (tmp_path / "interrupted.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "interrupted"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (130, 1), done.stderr
    assert done.stderr.startswith("interrupted; what was done is kept.")


@pytest.mark.skipif(sys.platform != "linux", reason="looks for the workers in /proc")
def test_workers_that_are_interrupted_while_they_start_say_nothing(tmp_path: Path) -> None:
    command = ["generate", "tsp", "--n", "12", "--count", "4", "--reference", "two-opt", "--jobs", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "nco_bench", *command, "--instances", tmp_path, "--out", tmp_path / "set.npz"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    workers = b""
    while b"spawn_main" not in workers:
        assert process.poll() is None
        time.sleep(0.01)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        workers = b"".join(Path(f"/proc/{one}/cmdline").read_bytes() for one in children)
    time.sleep(0.15)
    os.killpg(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=120)
    assert process.returncode == 130, told
    assert "Traceback" not in told
    assert "KeyboardInterrupt" not in told


def test_what_an_interrupted_generation_leaves_is_said() -> None:
    """Instances alone are drawn again; what was solved of references is kept."""
    plain = ["generate", "tsp", "--n", "1000"]
    assert _interrupted(plain).startswith("interrupted; nothing was written.")
    assert _interrupted([*plain, "--reference", "lkh3"]).startswith("interrupted; what was done is kept.")

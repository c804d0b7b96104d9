"""Commands started as forks of one process that has everything imported, so that hundreds of them take minutes.

Run as a program it reads lines of JSON, environment and arguments, starts each command in a process group of its own, and
prints the group's number, then the exit status. In the environment ``STARTER_SITES`` names the address of a server in place
of the official sites, ``STARTER_BLOB`` official weights with the hash that they have there, ``STARTER_OUTPUT`` the file of
what is printed, if that is to be kept, and ``STARTER_FOLDER`` the working folder, if it is another.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module


class Starter:
    """A process that starts commands."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        self._group = 0
        self.environment: dict[str, str] = {}
        """Of the commands that are started from now on; ``STARTER_ERRORS`` is the file of what they print on stderr."""

    def start(self, arguments: Sequence[object]) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([self.environment, [str(a) for a in arguments]]) + "\n")
        self._process.stdin.flush()
        self._group = int(self._process.stdout.readline())

    def end(self, number: signal.Signals | None = None) -> int:
        """Send a signal to the whole group, if one is given; return the command's exit status, negative for a signal."""
        assert self._process.stdout is not None
        if number is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._group, number)
        return int(self._process.stdout.readline())

    def __call__(self, *arguments: object) -> int:
        self.start(arguments)
        return self.end()

    def killed(self, rng: random.Random, longest: float, *arguments: object) -> int:
        """Start a command and send it a signal at a random time: SIGKILL mostly, SIGTERM or SIGINT now and then."""
        self.start(arguments)
        time.sleep(rng.uniform(0.0, longest))
        number = rng.choice([*[signal.SIGKILL] * 8, signal.SIGTERM, signal.SIGINT])
        status = self.end(number)
        if number is not signal.SIGKILL:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._group, signal.SIGKILL)  # what the command left behind would write on
        return status

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _begin(environment: dict[str, str], arguments: list[str]) -> None:
    """Be the command, in this fork."""
    import nco_bench.datasets.pull
    from nco_bench.cli.app import main as command

    os.setsid()
    os.environ.update(environment)
    if "STARTER_SITES" in environment:
        nco_bench.datasets.pull.SITES = {"tsplib": environment["STARTER_SITES"]}
    if "STARTER_BLOB" in environment:
        _serve_weights_as(*environment["STARTER_BLOB"].split("="))
    errors = os.open(environment["STARTER_ERRORS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    null, told = os.open(os.devnull, os.O_RDWR), os.dup(1)
    kept = environment.get("STARTER_OUTPUT")
    output = os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if kept else null
    for number, target in ((0, null), (1, output), (2, errors)):
        os.dup2(target, number)
    os.chdir(environment.get("STARTER_FOLDER", "."))
    sys.argv = ["nco-bench", *arguments]
    os.write(told, b"%d\n" % os.getpid())
    os.close(told)
    command()


def _serve_weights_as(name: str, blob: str) -> None:
    from nco_bench import cards
    from nco_bench.weights import pulling

    cards.RAW = os.environ["STARTER_SITES"] + "/{path}"
    known = cards.official_weights()
    table = {name: replace(known[name], git_blob_sha1=blob)}
    pulling.official_weights = lambda: table


IMPORTED = (
    "pandas", "pyarrow.parquet", "torch._dynamo", "nco_bench.api", "nco_bench.datasets.pull", "nco_bench.runs.generating",
    "nco_bench.runs.packing", "nco_bench.training.run", "nco_bench.training.start", "nco_bench.weights.importing",
    "nco_bench.solvers.classical.two_opt", "nco_bench.solvers.path.decoder_only",
)  # fmt: skip
"""What commands import when they run."""


def main() -> None:
    import torch

    from nco_bench.cli.app import build

    build()
    for name in IMPORTED:
        import_module(name)
    torch.set_num_threads(1)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            status = 130
            try:
                _begin(*json.loads(line))
            except SystemExit as end:
                status = int(end.code or 0)
            finally:
                with suppress(OSError):
                    sys.stdout.flush()
                os._exit(status)
        _, status = os.waitpid(pid, 0)
        os.write(1, b"%d\n" % os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()

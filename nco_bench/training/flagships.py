"""Flagships: networks that are trained for days beside other work, on all cores at low priority.

    python -m nco_bench.training.flagships campaigns/flagships.toml campaign

starts or continues those that are not running, and says in a line each what they have reached; ``--status`` only says
it. The first networks of the file get the cores, one or ``processes`` each, or what is left of them. A process that gets
SIGTERM ends with a checkpoint; one that is killed loses what it did since its last, two minutes at most. The file names a
network per table::

    [[network]]
    model = "decoder-6x128"
    name = "shallow"         # of its weights; the model's name where it is missing, which is refused beside "model.KEY"
    seed = 20261
    labels = "tsp100"        # folder of shards in the campaign's folder; more may be added at any time
    validation = "tsp100-validation.npz"
    start = "decoder-6x128"  # weights to begin with; random ones where it is missing
    processes = 2            # that share every batch; 1 where it is missing
    config = { recipe = "flagship", batch = 32, "model.depth" = 3 }

Another batch or rate is adopted at the next start, and the manifest says from which step on it holds. On a CPU that has no
instructions for bf16 a network whose `config` asks for it is trained in fp32, and a line says so.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fcntl
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO

from nco_bench.errors import BadInputError, NcoBenchError, counted
from nco_bench.interrupts import Ending
from nco_bench.nn.device import CPU, bf16_is_slow
from nco_bench.nn.memory import keep_freed_memory
from nco_bench.training.campaign import last_checkpoint, take_turn
from nco_bench.training.campaign_file import Stage, read_networks
from nco_bench.training.checkpoint import load_state
from nco_bench.training.distributed import reports
from nco_bench.training.learner import said
from nco_bench.training.run import train
from nco_bench.training.together import MODULE as TOGETHER

NICENESS = 15


def locked(folder: Path, network: Stage) -> IO[str] | None:
    """Take the lock that a training process holds as long as it lives, with its id; None where one runs already."""
    folder.mkdir(parents=True, exist_ok=True)
    file = (folder / f"{network.name}.lock").open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def is_running(folder: Path, network: Stage) -> bool:
    """Tell whether a process trains this network."""
    lock = locked(folder, network)
    if lock is not None:
        lock.close()
    return lock is None


def describe(folder: Path, network: Stage) -> str:
    """Say in a line what a network has reached."""
    path = last_checkpoint(folder, network.name)
    activity = "running" if is_running(folder, network) else "stopped"
    if not path.exists():
        return f"{network.name}: {activity}, no checkpoint yet"
    progress = load_state(path)["progress"]
    cost = f"{progress['core_seconds'] / 3600:.2f} core-hours"
    measured = progress["validation"]
    judged = "not validated yet" if measured is None else (
        f"{said(measured['name'], measured['value'], measured['unit'])} ± {measured['ci95']:.2f}"
    )  # fmt: skip
    return f"{network.name}: {activity}, {counted(progress['samples'], 'sample')}, {cost}, {judged}"


def train_on(folder: Path, network: Stage) -> None:
    """Train until ended or killed; raises `BadInputError` where another process does so already.

    Of several processes of torchrun the first has the lock.
    """
    if reports():
        lock = locked(folder, network)
        if lock is None:
            raise BadInputError(f"{folder}: a process trains {network.name} already.")
        lock.truncate(0)
        print(os.getpid(), file=lock, flush=True)
    yield_to_others()
    keep_freed_memory()
    data, validation = (
        tuple(str(folder / name) for name in names) for names in (network.data, network.validation)
    )
    inside = dataclasses.replace(_at_speed(network), data=data, validation=validation)
    with Ending() as ending:
        take_turn(
            inside, folder, None, CPU, seed=0, trained=partial(train, asked_to_end=ending)
        )  # it has its own seed


def _at_speed(network: Stage) -> Stage:
    """Return a network as this processor trains it: in fp32 where bf16, which is asked for to be faster, is slower."""
    if network.config.get("precision") != "bf16" or not bf16_is_slow(CPU):
        return network
    if reports():
        print(
            f"{network.name}: in fp32, for this CPU has no instructions for bf16 (avx512_bf16, amx_bf16)",
            flush=True,
        )
    return dataclasses.replace(network, config={**network.config, "precision": "fp32"})


def yield_to_others() -> None:
    """Lower this process's priority, and its session's where it leads one.

    Linux weighs sessions against each other before processes (autogroups): there, a process's niceness counts within its
    session only.
    """
    os.nice(max(0, NICENESS - os.nice(0)))
    autogroup = Path("/proc/self/autogroup")
    if os.getsid(0) == os.getpid() and autogroup.exists():
        with contextlib.suppress(OSError):
            autogroup.write_text(str(NICENESS))


def share_cores(networks: Sequence[Stage], cores: int) -> list[Stage]:
    """Return the networks that get cores, the first ones first, each with as many processes as are left for it."""
    shared: list[Stage] = []
    for network in networks:
        processes = min(network.processes, cores - sum(earlier.processes for earlier in shared))
        if processes > 0:
            shared.append(dataclasses.replace(network, processes=processes))
    return shared


def start(file: Path, folder: Path, network: Stage) -> None:
    """Start the processes that train a network and outlive this one."""
    together = [TOGETHER, "--standalone", f"--nproc-per-node={network.processes}", "-m", "--"]
    command = [sys.executable, "-m", *(together if network.processes > 1 else ())]
    command += [__spec__.name, str(file), str(folder), "--train", network.name]
    with (folder / f"{network.name}.log").open("a") as log:
        subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True,
        )  # fmt: skip


def main() -> int:
    """Start or continue, or only say how far the networks are."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    parser.add_argument("--status", action="store_true", help="say how far they are, start nothing")
    parser.add_argument("--train", metavar="MODEL", help="train this one in this process")
    options = parser.parse_args()
    try:
        networks = read_networks(options.file)
        if options.train:
            train_on(options.folder, next(n for n in networks if n.name == options.train))
            return 0
        for network in share_cores(networks, 0 if options.status else options.cores):
            if not is_running(options.folder, network):
                start(options.file, options.folder, _at_speed(network))
        for network in networks:
            print(describe(options.folder, network))
        sys.stdout.flush()
    except BrokenPipeError:  # of a reader that has seen enough, as `head` has; what is left goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except NcoBenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

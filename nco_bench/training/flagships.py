"""Flagships: networks that are trained for days beside other work, one process per core at low priority.

    python -m nco_bench.training.flagships campaigns/flagships.toml campaign

starts or continues those that are not running, and says in a line each what they have reached; ``--status`` only says
it. The first networks of the file get the cores, one each. A process that is killed loses what it did since its last
checkpoint, two minutes at most. The file names a network per table::

    [[network]]
    model = "decoder-6x128"
    seed = 20261
    labels = "tsp100"        # folder of shards in the campaign's folder; more may be added at any time
    validation = "tsp100-validation.npz"
    start = "decoder-6x128"  # weights to begin with; random ones where it is missing
    config = { recipe = "flagship", batch = 32 }

Another batch or rate is adopted at the next start, and the manifest says from which step on it holds.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from nco_bench.errors import BadInputError, NcoBenchError
from nco_bench.training.checkpoint import LAST, load_state
from nco_bench.training.learner import said

NICENESS = 15
WITHOUT_END = 10**9
"""Updates: the run goes on until it is stopped."""

KEYS = {"model", "seed", "labels", "validation", "start", "config"}
OPTIONAL = {"start", "config"}


@dataclass(frozen=True)
class Flagship:
    """One table of the file; see the module."""

    model: str
    seed: int
    labels: str
    validation: str
    start: str | None = None
    config: dict[str, str] = field(default_factory=dict)


def read_flagships(file: Path) -> list[Flagship]:
    """Read the file; raises `BadInputError` for one that is missing, no TOML, or has other keys."""
    try:
        networks = tomllib.loads(file.read_text(encoding="utf-8"))["network"]
    except OSError as error:
        raise BadInputError(f"{file}: cannot be read ({error.strerror}).") from error
    except (tomllib.TOMLDecodeError, KeyError) as error:
        raise BadInputError(f"{file}: expected a list of [[network]] tables ({error}).") from error
    for number, network in enumerate(networks, 1):
        wrong = sorted((set(network) | OPTIONAL) ^ KEYS)
        if wrong:
            raise BadInputError(f"{file}: network {number}: {wrong[0]} is missing or unknown.")
    return [
        Flagship(**{**network, "config": {k: str(v) for k, v in network.get("config", {}).items()}})
        for network in networks
    ]


def weights_file(folder: Path, flagship: Flagship) -> Path:
    """Return where a flagship's weights are written, its checkpoints beside."""
    return folder / f"{flagship.model}.safetensors"


def locked(folder: Path, flagship: Flagship) -> IO[str] | None:
    """Take the lock that a training process holds as long as it lives, with its id; None where one runs already."""
    folder.mkdir(parents=True, exist_ok=True)
    file = (folder / f"{flagship.model}.lock").open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def is_running(folder: Path, flagship: Flagship) -> bool:
    """Tell whether a process trains this network."""
    lock = locked(folder, flagship)
    if lock is not None:
        lock.close()
    return lock is None


def describe(folder: Path, flagship: Flagship) -> str:
    """Say in a line what a network has reached."""
    path = weights_file(folder, flagship).with_suffix(".training") / LAST
    activity = "running" if is_running(folder, flagship) else "stopped"
    if not path.exists():
        return f"{flagship.model}: {activity}, no checkpoint yet"
    progress = load_state(path)["progress"]
    cost = f"{progress['core_seconds'] / 3600:.2f} core-hours"
    measured = progress["validation"]
    judged = "not validated yet" if measured is None else (
        f"{said(measured['name'], measured['value'], measured['unit'])} ± {measured['ci95']:.2f}"
    )  # fmt: skip
    return f"{flagship.model}: {activity}, {progress['samples']:,} samples, {cost}, {judged}"


def train_on(folder: Path, flagship: Flagship) -> None:
    """Train until killed; raises `BadInputError` where another process does so already."""
    from nco_bench.training.machine import keep_freed_memory
    from nco_bench.training.run import CHECKPOINTS, train

    lock = locked(folder, flagship)
    if lock is None:
        raise BadInputError(f"{folder}: a process trains {flagship.model} already.")
    lock.truncate(0)
    print(os.getpid(), file=lock, flush=True)
    yield_to_others()
    keep_freed_memory()
    weights = weights_file(folder, flagship)
    resume = (weights.with_suffix(CHECKPOINTS) / LAST).exists()
    train(
        flagship.model,
        [folder / flagship.labels],
        {"steps": str(WITHOUT_END), **flagship.config},
        resume=resume,
        adopt=True,
        out=weights,
        seed=flagship.seed,
        start=None if resume else flagship.start,
        validation=folder / flagship.validation,
    )


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


def start(file: Path, folder: Path, flagship: Flagship) -> None:
    """Start a process that trains a network and outlives this one."""
    command = [sys.executable, "-m", __spec__.name, str(file), str(folder), "--train", flagship.model]
    environment: dict[str, Any] = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (folder / f"{flagship.model}.log").open("a") as log:
        subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment, start_new_session=True
        )


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
        flagships = read_flagships(options.file)
        if options.train:
            train_on(options.folder, next(f for f in flagships if f.model == options.train))
            return 0
        for flagship in flagships[: options.cores]:
            if not options.status and not is_running(options.folder, flagship):
                start(options.file, options.folder, flagship)
        for flagship in flagships:
            print(describe(options.folder, flagship))
    except NcoBenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Training in a SLURM job: the functions that jobs call, and the processes in which a model is trained.

A job starts ``python -m nco_bench.training.job``, by torchrun where several processes train together, and goes on from the
last checkpoint wherever there is one. Arguments and result are files of JSON. When the job is warned (of its time limit, or
because others need its node) a file appears, and the processes end with a checkpoint.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from nco_bench.datasets.places import Places
from nco_bench.errors import NcoBenchError, ResultsError
from nco_bench.files import write
from nco_bench.interrupts import warnings_held
from nco_bench.training.together import MODULE as TOGETHER

if TYPE_CHECKING:
    from nco_bench.runs.cluster.task import Caller
    from nco_bench.training.run import TrainResult

MODULE = "nco_bench.training.job"
LOOK_SECONDS = 2.0
FIRST_PORT, PORTS = 20000, 20000
"""Ports of the first node, one by the job's number, at which torchrun's nodes meet."""


class InterruptedTrainingError(NcoBenchError):
    """The job was warned before a result was there."""


def train_model(arguments: dict[str, Any], caller: Caller) -> dict[str, Any] | None:
    """Train one model; None where the job was warned before the end, and on all nodes but the first."""
    call = dict(arguments)
    launch = call.pop("launch")
    try:
        result = trained(caller, launch, lambda at: caller.tell(solved=at), **call)
    except InterruptedTrainingError:
        return None
    return None if result is None or result.interrupted else result.as_dict()


def train_campaign(arguments: dict[str, Any], caller: Caller) -> dict[str, Any] | None:
    """Give some stages of a campaign their turns, each in processes of its own."""
    from nco_bench.training.campaign import run_campaign

    turns = 0

    def one_turn(**call: Any) -> TrainResult:
        nonlocal turns
        said = {**call, "data": list(call["data"]), "validation": list(map(str, call["validation"]))}
        said |= {"places": as_document(call["places"]), "out": str(call["out"])}
        result = trained(caller, arguments["launch"], lambda _: None, **said)
        assert result is not None, "campaigns train on one node"
        turns += not result.interrupted
        caller.tell(solved=turns)
        return result

    try:
        done = run_campaign(
            Path(arguments["file"]), Path(arguments["folder"]), arguments["data"], None, arguments["device"],
            arguments["seed"], _places(arguments["places"]), only=arguments["only"], trained=one_turn,
        )  # fmt: skip
    except InterruptedTrainingError:
        return None
    return done.as_dict() if not caller.warned or done.complete else None


def trained(
    caller: Caller, launch: Mapping[str, Any], tell: Callable[[int], None], **arguments: Any
) -> TrainResult | None:
    """Do what `run.train` does, in processes of its own.

    Parameters
    ----------
    caller
        The job.
    launch
        ``processes`` that train together per node, and ``nodes``.
    tell
        Takes the number of updates so far.
    arguments
        Of `run.train`, as JSON values.

    Returns
    -------
    TrainResult
        None on all nodes but the first.

    Raises
    ------
    InterruptedTrainingError
        When the job was warned and no checkpoint was written any more.
    TrainingStopped, NcoBenchError
        As `run.train` does.
    """
    from nco_bench.training.run import TrainResult, weights_path
    from nco_bench.training.trainer import TrainingStopped

    rank = int(os.environ.get("SLURM_PROCID", "0"))
    asked = caller.folder / f"train-{caller.index}-{rank}.json"
    answer = caller.folder / f"trained-{caller.index}.json"
    if rank == 0:
        answer.unlink(missing_ok=True)
    document = _continued(arguments, weights_path(Path(arguments["out"]), arguments["model"]))
    write(asked, orjson.dumps(document))
    command = launch_command(launch["processes"], launch["nodes"], os.environ)
    with warnings_held():
        process = subprocess.Popen([*command, str(asked), str(answer), str(caller.stop)])
    caller.process = process
    _watch(process, Path(arguments["out"]).with_suffix(".csv"), tell)
    if rank:
        return None
    if not answer.exists():
        if caller.warned:
            raise InterruptedTrainingError("the job was warned before the first checkpoint")
        raise ResultsError(
            f"training ended with status {process.returncode}; its last words are in {caller.folder / 'jobs'}"
        )
    found = orjson.loads(answer.read_bytes())
    if "error" in found:
        raise (TrainingStopped if found["stopped"] else ResultsError)(found["error"])
    return TrainResult.from_dict(found["result"])


def launch_command(processes: int, nodes: int, environment: Mapping[str, str]) -> list[str]:
    """Return the command that starts the processes of this node; torchrun's where there are several in all.

    What follows goes behind ``--``: torchrun takes ``--start`` even there for an abbreviation of an option of its own.
    """
    here = [sys.executable, "-u"]
    if processes * nodes == 1:
        return [*here, "-m", MODULE]
    run = [*here, "-m", TOGETHER, f"--nproc-per-node={processes}"]
    if nodes == 1:
        return [*run, "--standalone", "-m", "--", MODULE]
    job = environment["SLURM_JOB_ID"]
    port = FIRST_PORT + int(job) % PORTS
    meet = [f"--nnodes={nodes}", "--rdzv-backend=c10d", f"--rdzv-id={job}"]
    return [*run, *meet, f"--rdzv-endpoint={first_node(environment)}:{port}", "-m", "--", MODULE]


def first_node(environment: Mapping[str, str]) -> str:
    """Return the job's first node; SLURM takes its own lists of nodes apart."""
    listed = environment["SLURM_JOB_NODELIST"]
    if not set(listed) & set("[,"):
        return listed
    done = subprocess.run(
        ["scontrol", "show", "hostnames", listed], capture_output=True, text=True, check=True
    )
    return done.stdout.split()[0]


def as_document(places: Places) -> dict[str, str | None]:
    """Return places as JSON values, found from everywhere."""
    mirror = None if places.mirror is None else str(places.mirror.resolve())
    return {"instances": str(places.instances.resolve()), "mirror": mirror}


def _places(document: Mapping[str, str | None]) -> Places:
    mirror = document["mirror"]
    return Places(Path(str(document["instances"])), Path(mirror) if mirror else None)


def _continued(arguments: Mapping[str, Any], weights: Path) -> dict[str, Any]:
    """Return the arguments with which training begins, or goes on: what is left of the time, no start or branch again."""
    from nco_bench.training.checkpoint import LAST, load_state
    from nco_bench.training.run import CHECKPOINTS

    last = weights.with_suffix(CHECKPOINTS) / LAST
    if not last.exists():
        return dict(arguments)
    told = {**arguments, "resume": True, "start": None, "branch": None}
    total = arguments.get("total_s")
    if total is not None:
        told["budget_s"] = max(1.0, total - float(load_state(last)["progress"]["seconds"]))
    return told


def _watch(process: subprocess.Popen[bytes], log: Path, tell: Callable[[int], None]) -> None:
    """Wait for the end, and tell how far the log says that the training is."""
    seen = 0.0
    while True:
        try:
            process.wait(LOOK_SECONDS)
            return
        except subprocess.TimeoutExpired:
            if log.exists() and (now := log.stat().st_mtime) != seen:
                seen = now
                steps = [line.partition(",")[0] for line in log.read_text(encoding="utf-8").splitlines()[1:]]
                tell(int(float(steps[-1])) if steps else 0)


def main(asked: str, answer: str, stop: str) -> None:
    """Train in this process, alone or in a group, and write what came of it; the group's first process does."""
    from nco_bench.nn.memory import keep_freed_memory
    from nco_bench.training.run import train
    from nco_bench.training.trainer import TrainingStopped

    rank, size = (
        int(os.environ.get(name, default)) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1"))
    )
    print(f"process {rank + 1} of {size} on {socket.gethostname()}", flush=True)
    keep_freed_memory()
    call = orjson.loads(Path(asked).read_bytes())
    call.pop("total_s", None)
    call["places"] = _places(call["places"])
    for key in ("out", "tensorboard", "branch"):
        call[key] = None if call.get(key) is None else Path(call[key])
    call["validation"] = [Path(one) for one in call["validation"]]
    try:
        done = train(**{"progress": "lines", **call}, asked_to_end=partial(os.path.exists, stop))
        found: dict[str, Any] = {"result": done.as_dict()}
    except NcoBenchError as error:
        found = {"error": str(error), "stopped": isinstance(error, TrainingStopped)}
        if rank:  # what only this process knows, such as that its GPU is full, would be lost
            print(f"process {rank + 1} of {size}: {error}", flush=True)
    if rank == 0:
        write(Path(answer), orjson.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Train many small networks, all to the same number of samples, in rounds that each continue from the last.

``python -m nco_bench.training.task_campaign --budget 70m`` trains the five networks on the eleven tasks. Each round about
doubles the samples of every network; the last one is as long as the time allows. Weights are exported when a round is
complete, so that whatever stops a campaign, the exported networks are comparable; the same command goes on where it was.
A graph task gets a quarter of the samples of the others: its instances have eight times as many tokens.

Networks are trained one after another, or side by side with ``--jobs``. A batch of 500 fills a processor core: three seeds
stacked by `torch.func.vmap` took 1.1 to 1.25 times the processor time of three trainings, so seeds are not stacked.
"""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import json
import math
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from nco_bench.cards import trained_by
from nco_bench.errors import BadInputError, NcoBenchError, UnknownNameError, counted
from nco_bench.files import write
from nco_bench.nn.device import CPU, CUDA, count, is_name, kind
from nco_bench.problems.tasks import TASKS
from nco_bench.training.campaign import last_checkpoint, take_turn, weights_file
from nco_bench.training.campaign_file import Stage, seconds
from nco_bench.training.checkpoint import load_state
from nco_bench.training.learners.task_course import BATCH, GRAPH_BATCH, PAPER_SAMPLES
from nco_bench.weights.manifest import manifest_path
from nco_bench.weights.store import SHIPPED

GRAPH_SHARE = 4
SMALLEST_ROUND = 0.1
"""A last round adds at least this share of the samples so far, or is left out."""

RESERVE = 0.93
"""Share of the remaining time that a round is planned for."""

STATE = "campaign.json"
COLUMNS = ("step", "samples", "seconds", "loss")
SCORES = ("score", "validation_f1", "validation_mse")
"""Columns of the curves, and names of the score in the history; the first is version 0.2.0's."""


@dataclass(frozen=True)
class Member:
    """One network to train: on a task, from a seed."""

    task: str
    network: str
    seed: int

    @property
    def name(self) -> str:
        """Name of its weights."""
        return f"{self.network}-{self.task}-seed{self.seed}"

    @property
    def batch(self) -> int:
        """Instances per update."""
        return GRAPH_BATCH if TASKS[self.task].graph else BATCH

    @property
    def stage(self) -> Stage:
        """The network in a campaign, on the task's default variant, with the paper's recipe."""
        config = {"batch": str(self.batch), "steps": str(PAPER_SAMPLES // self.batch)}
        return Stage(self.name, self.network, data=(self.task,), config=config, seed=self.seed)


@dataclass(frozen=True)
class Done:
    """How far a member is.

    Attributes
    ----------
    samples, seconds
        In all, seconds of training alone.
    loss
        Running mean.
    score
        On fresh instances of the training distribution: F1 of the positive class in percent, or the mean squared error.
    """

    name: str
    samples: int
    seconds: float
    loss: float
    score: float


@dataclass(frozen=True)
class Complete:
    """The last complete round: its samples, and the wall seconds that the whole campaign needs per further sample."""

    samples: int
    pace: float


def target_samples(member: Member, samples: int) -> int:
    """Return the samples of a member in a round, whole batches."""
    share = samples // GRAPH_SHARE if TASKS[member.task].graph else samples
    return max(member.batch, share // member.batch * member.batch)


def train_member(
    member: Member, samples: int, folder: Path, until: float, device: str = "cpu"
) -> Done | None:
    """Train a member until it has seen `samples`, from where its checkpoint stands; copy it into the round's folder.

    Parameters
    ----------
    folder
        Of the campaign.
    until
        Wall time (`time.time`) at which to stop with a checkpoint.
    device
        ``cpu`` or ``cuda``; a checkpoint of the one goes on with the other.

    Returns
    -------
    Done or None
        None when the time ran out.
    """
    torch.set_num_threads(1)
    checkpoint, before = last_checkpoint(folder, member.name), folder / member.name
    if before.is_dir():  # where version 0.2.0 had the checkpoint
        before.rename(checkpoint.parent)
    left = None if until == math.inf else max(until - time.time(), 0.001)
    goal = target_samples(member, samples)
    done = take_turn(
        member.stage, folder, left, device, member.seed, progress="silent", until_step=goal // member.batch
    )
    if done.samples < goal or done.validation is None:
        return None
    for file in (done.weights, done.manifest):  # the manifest last, as everywhere
        write(folder / f"round-{samples}" / file.name, file.read_bytes())
    loss = load_state(checkpoint)["progress"]["loss"]
    return Done(member.name, done.samples, done.seconds, loss or 0.0, done.validation.value)


def run_round(
    members: Sequence[Member], samples: int, folder: Path, until: float, jobs: int, device: str = "cpu"
) -> Iterator[Done | None]:
    """Train all members to a round's samples, in `jobs` processes; yields in their order."""
    arguments = [(member, samples, folder, until, device) for member in members]
    if jobs == 1:
        for each in arguments:
            yield train_member(*each)
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(train_member, *zip(*arguments, strict=True))


def published_networks() -> list[str]:
    """Name the networks that have a column in the paper's tables."""
    return [name for name, card in trained_by("tasks").items() if "published" in card.facts]


def next_round(samples: int, seconds_per_sample: float, left: float, most: int = PAPER_SAMPLES) -> int:
    """Return the samples of the next round: twice as many, or what the time and `most` allow; 0 for none."""
    affordable = samples + int(RESERVE * left / seconds_per_sample)
    goal = min(2 * samples, affordable, most) // 2000 * 2000
    return goal if goal >= (1 + SMALLEST_ROUND) * samples else 0


def campaign(
    members: Sequence[Member],
    *,
    start: int,
    budget_s: float,
    folder: Path,
    out: Path,
    jobs: int = 1,
    most: int = PAPER_SAMPLES,
    device: str = "cpu",
) -> int:
    """Train all members round after round until the budget is spent.

    Parameters
    ----------
    start
        Samples of the first round; a campaign that goes on starts at its last complete round.
    folder, out
        Of checkpoints, and where the weights of complete rounds go.
    most
        Samples at which to stop: further seeds are compared with the first at equal training.
    device
        ``cpu`` or ``cuda``.

    Returns
    -------
    int
        Samples of the last complete round, 0 when there is none.
    """
    until, state = time.time() + budget_s, _read_state(folder, members)
    samples = next_round(state.samples, state.pace, budget_s, most) if state.samples else start
    while samples:
        seconds = 0.0
        for done in run_round(members, samples, folder, until, jobs, device):
            if done is None:
                print(f"time is up; weights of {counted(state.samples, 'sample')} stay", file=sys.stderr)
                return state.samples
            _say(done)
            seconds += done.seconds
        state = Complete(samples, seconds / samples / jobs)
        _publish(members, state, folder, out)
        samples = next_round(state.samples, state.pace, until - time.time(), most)
    return state.samples


def _say(done: Done) -> None:
    seen = counted(done.samples, "sample")
    text = f"{done.name}: {seen}, {done.seconds:.1f} s, loss {done.loss:.4f}, score {done.score:.4g}"
    print(text, file=sys.stderr, flush=True)


def _read_state(folder: Path, members: Sequence[Member]) -> Complete:
    """Return the last complete round; raises `BadInputError` where the folder holds a campaign of other members."""
    path = folder / STATE
    try:
        state = json.loads(path.read_text())
        names, complete = state["members"], Complete(int(state["samples"]), float(state["pace"]))
    except FileNotFoundError:
        return Complete(0, 0.0)
    except (ValueError, KeyError, TypeError) as error:
        raise BadInputError(f"{path}: damaged ({error!r}); remove it to start the rounds anew.") from error
    if names != [member.name for member in members]:
        raise BadInputError(
            f"{path}: a campaign of {len(names)} other networks stands there; choose another --folder for these."
        )
    return complete


def _publish(members: Sequence[Member], state: Complete, folder: Path, out: Path) -> None:
    """Copy the weights of a complete round out, write the curves, and note the round."""
    for member in members:
        weights = weights_file(folder / f"round-{state.samples}", member.name)
        for file in (weights, manifest_path(weights)):  # the manifest last, as everywhere
            write(out / file.name, file.read_bytes())
    curves = io.StringIO(newline="")
    table = csv.writer(curves)
    table.writerow(["network", "task", "seed", *COLUMNS, "score"])
    for member in members:
        for line in load_state(last_checkpoint(folder, member.name))["progress"]["history"]:
            score = next((line[key] for key in SCORES if key in line), "")
            values = [line.get(key, "") for key in COLUMNS]
            table.writerow([member.network, member.task, member.seed, *values, score])
    write(folder / "curves.csv", curves.getvalue())
    content = {"samples": state.samples, "pace": state.pace, "members": [m.name for m in members]}
    write(folder / STATE, json.dumps(content))


def members_of(tasks: Sequence[str], networks: Sequence[str], seeds: Sequence[int]) -> list[Member]:
    """Return all combinations, seed by seed; raises `UnknownNameError`."""
    for what, names, known in (("task", tasks, TASKS), ("network", networks, trained_by("tasks"))):
        for name in names:
            if name not in known:
                raise UnknownNameError(what, name, known)
    return [Member(t, n, s) for s, t, n in itertools.product(seeds, tasks, networks)]


def _device(name: str) -> str:
    """Return the device that a name means; raises `BadInputError` for one that is not here."""
    if name == "auto":
        return CUDA if count(CUDA) else CPU
    if not is_name(name) or count(kind(name)) <= int(name.partition(":")[2] or 0):
        raise BadInputError(f"--device {name}: not on this machine; give cpu, or auto.")
    return name


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign from the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m nco_bench.training.task_campaign", description=__doc__)
    parser.add_argument("--tasks", default=",".join(TASKS), help="comma-separated; default all")
    parser.add_argument(
        "--networks", default=",".join(published_networks()), help="comma-separated; default the paper's five"
    )
    parser.add_argument("--seeds", default="0", help="comma-separated whole numbers")
    parser.add_argument("--start", type=int, default=64_000, help="samples of the first round")
    parser.add_argument("--most", type=int, default=PAPER_SAMPLES, help="samples at which to stop")
    parser.add_argument("--budget", required=True, help="such as 70m")
    parser.add_argument("--folder", type=Path, default=Path("task-campaign"), help="checkpoints and curves")
    parser.add_argument("--out", type=Path, default=SHIPPED, help="where weights of complete rounds go")
    parser.add_argument("--jobs", type=int, default=1, help="processes of one thread each")
    parser.add_argument("--device", default="auto", help="cpu, cuda, or auto: a GPU where there is one")
    given = parser.parse_args(arguments)
    try:
        seeds = [int(s) for s in given.seeds.split(",")]
        members = members_of(given.tasks.split(","), given.networks.split(","), seeds)
        complete = campaign(
            members,
            start=given.start,
            budget_s=seconds(given.budget + "s" * given.budget[-1:].isdigit(), f"--budget {given.budget}"),
            folder=given.folder,
            out=given.out,
            jobs=given.jobs,
            most=given.most,
            device=_device(given.device),
        )
    except (NcoBenchError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())

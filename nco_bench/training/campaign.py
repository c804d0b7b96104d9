"""The campaign engine: networks take turns in a folder, each continued from its last checkpoint wherever the folder goes.

Three commands use it: ``nco-bench train --campaign`` (stages with time slices, or trained to their last step; this file),
`task_campaign` (rounds to one number of samples for all) and `flagships` (processes in the background). A TOML file names
the stages of the first::

    [[stage]]
    name = "decoder-6x128"          # of the weights; the model's name by default
    model = "decoder-6x128"
    slice = "9m"                    # wall time of one turn
    turns = 3                       # turns in all; 1 by default
    data = ["labels"]               # --data is used where it is missing
    problem = "tsp"                 # where the data do not say
    config = { batch = 64, lr = "1e-3" }
    seed = 5                        # --seed is used where it is missing
    start = "decoder-6x64"          # an earlier stage, whose weights it begins with
    hours = 2.5                     # expected on one H100, for --dry-run
    tables = "2, 12"                # of the paper, which look it up by name
    each = { seed = [0, 1, 2] }     # one network each: "{seed}" in texts is replaced

A stage without a slice is trained to its recipe's last step. Turns go around: the first turn of every stage, then the
second ones. Schedules run over all turns of a stage. Weights that tables look up are copied to the cache when the last turn
ends, so that ``run`` and ``reproduce`` find them by name. A turn ends with a checkpoint and weights in the folder;
``campaign.json`` there counts what is done. With a time limit the campaign stops after the turn that reaches it, and a slice
is cut to what is left. The folder and the labels are all that another machine needs to go on; files above 16 MB travel in
parts (`pack` and `unpack`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nco_bench.datasets.places import Places
from nco_bench.errors import BadInputError, NcoBenchError, UnknownNameError
from nco_bench.files import alone, write
from nco_bench.training.campaign_file import Stage, read_campaign
from nco_bench.training.checkpoint import LAST, PREVIOUS, load_state
from nco_bench.training.progress import Report
from nco_bench.training.run import CHECKPOINTS, TrainResult, train
from nco_bench.training.trainer import TrainingStopped
from nco_bench.weights.manifest import manifest_path
from nco_bench.weights.shelf import keep
from nco_bench.weights.store import SUFFIX, cache_folder

STATE, LOCK = "campaign.json", "campaign.lock"
PART_BYTES = 15 * 2**20
"""Largest piece of a packed file, below 16 MB."""

SHORTEST_TURN_S = 5.0


@dataclass(frozen=True)
class CampaignResult:
    """What a session of a campaign did: one line per turn, and what stopped; `complete` when no turn is left."""

    turns: tuple[str, ...]
    stopped: tuple[str, ...]
    complete: bool

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return dataclasses.asdict(self)

    def describe(self) -> str:
        """Say it, a line per turn."""
        end = "campaign complete" if self.complete else "turns are left: run the same command again"
        return "\n".join([*self.turns, *self.stopped, end])


def run_campaign(
    file: Path,
    folder: Path,
    data: Sequence[str | Path],
    budget_s: float | None,
    device: str,
    seed: int,
    places: Places | None = None,
    progress: str | Report = "lines",
    only: Sequence[str] = (),
    trained: Callable[..., TrainResult] = train,
) -> CampaignResult:
    """Give every stage its turns, from where an earlier session stopped.

    Parameters
    ----------
    file, folder
        The campaign; where its checkpoints, weights and state are.
    data
        Labelled data of the stages that name none.
    budget_s
        Wall time of this session; None for no limit.
    device, seed, places, progress
        As `run.train` takes them.
    only
        Names of stages that this session trains, so that several sessions share a campaign; all where there are none.
    trained
        Does a turn, as `run.train` does.

    Raises
    ------
    NcoBenchError
        For a campaign or data that the user can mend. A stage that has to stop (a loss that is no number) is reported, loses
        its other turns, and the campaign goes on.
    """
    stages = chosen_stages(read_campaign(file), only)
    state = _State.read(folder)
    began = time.monotonic()
    lines: list[str] = []
    stops: list[str] = []
    for turn, stage in _turns(stages):
        if state.done.get(stage.name, 0) > turn or stage.name in state.stopped:
            continue
        left = None if budget_s is None else budget_s - (time.monotonic() - began)
        if left is not None and left < min(SHORTEST_TURN_S, stage.slice_s or math.inf):
            return CampaignResult(tuple(lines), tuple(stops), complete=False)
        try:
            turn_left = _left_of_turn(stage, folder, turn, left)
            result = take_turn(
                _placed(stage, folder, data),
                folder,
                turn_left,
                device,
                seed,
                places,
                progress,
                trained=trained,
            )
            if result.interrupted:
                return CampaignResult(tuple(lines), tuple(stops), complete=False)
            lines.append(f"turn {turn + 1} of {stage.turns}: {result.describe()}")
            if stage.slice_s is None and not result.complete:
                return CampaignResult(tuple(lines), tuple(stops), complete=False)
            if stage.tables and turn + 1 == stage.turns:
                lines.append(_kept(weights_file(folder, stage.name)))
        except TrainingStopped as stop:
            stops.append(f"{stage.name}: {stop}")
            state.stopped[stage.name] = str(stop)
        with _locked(folder):
            state = _State.read(folder).with_stage(stage.name, turn + 1, state.stopped.get(stage.name))
            state.write(folder)
    return CampaignResult(tuple(lines), tuple(stops), complete=True)


def _kept(path: Path) -> str:
    """Put finished weights where tables look for them; say where that is, or why they are not there."""
    try:
        place = keep(path)
    except NcoBenchError as error:
        return f"{path}: not copied to the cache: {error}"
    if place is None:
        return (
            f"{path}: not copied to {cache_folder()}, which has other weights of this name; move those away, then copy "
            f"it with its manifest, {manifest_path(path).name}."
        )
    return f"{place}: found by name from now on, before what ships"


def _left_of_turn(stage: Stage, folder: Path, turn: int, left: float | None) -> float | None:
    """Return the seconds of a turn: what is left of its slice where it was interrupted, and of the session."""
    if stage.slice_s is None:
        return left
    path = last_checkpoint(folder, stage.name)
    seconds = float(load_state(path)["progress"]["seconds"]) if path.exists() else 0.0
    with _locked(folder):
        state = _State.read(folder)
        begun = state.begun.get(stage.name)
        if begun is None or begun[0] != turn:
            begun = (turn, seconds)
            state.begun[stage.name] = begun
            state.write(folder)
    rest = max(SHORTEST_TURN_S, stage.slice_s - (seconds - begun[1])) if seconds > begun[1] else stage.slice_s
    return rest if left is None else min(rest, left)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other sessions of the same campaign, on any machine that shares the folder, from its state."""
    folder.mkdir(parents=True, exist_ok=True)
    with alone(folder / LOCK):
        yield


def chosen_stages(stages: Sequence[Stage], only: Sequence[str]) -> list[Stage]:
    """Return the stages that are named, all where none are; raises `UnknownNameError`."""
    for name in only:
        if name not in [stage.name for stage in stages]:
            raise UnknownNameError("stage", name, [stage.name for stage in stages])
    return [stage for stage in stages if not only or stage.name in only]


def _turns(stages: Sequence[Stage]) -> list[tuple[int, Stage]]:
    most = max(stage.turns for stage in stages)
    return [(turn, stage) for turn in range(most) for stage in stages if turn < stage.turns]


def _placed(stage: Stage, folder: Path, data: Sequence[str | Path]) -> Stage:
    """Return a stage with the campaign's data where it has none, and with the weights that it begins with as a file."""
    start = None if stage.start is None else str(weights_file(folder, stage.start))
    return dataclasses.replace(stage, data=stage.data or tuple(map(str, data)), start=start)


def take_turn(
    stage: Stage, folder: Path, left: float | None, device: str, seed: int, places: Places | None = None,
    progress: str | Report = "lines", until_step: int | None = None, trained: Callable[..., TrainResult] = train,
) -> TrainResult:  # fmt: skip
    """Train a network of a campaign from where its last turn stopped: checkpoint and weights end up in the folder.

    Parameters
    ----------
    stage
        What is trained; its data, start and validation as `run.train` takes them.
    folder
        Of the campaign.
    left
        Seconds that the session has left; a slice is cut to them. None for no limit.
    device, seed, places, progress, until_step, trained
        As `run.train` takes them; the stage's own seed goes first.

    Raises
    ------
    NcoBenchError, TrainingStopped
        As `run.train` does.
    """
    resume = last_checkpoint(folder, stage.name).exists()
    limits = [limit for limit in (stage.slice_s, left) if limit is not None]
    return trained(
        model=stage.model,
        data=stage.data,
        config=stage.config,
        budget_s=min(limits, default=None),
        resume=resume,
        out=weights_file(folder, stage.name),
        seed=seed if stage.seed is None else stage.seed,
        device=device,
        progress=progress,
        validation=[Path(file) for file in stage.validation],
        adopt=True,
        places=places,
        problem=stage.problem,
        planned_s=None if stage.slice_s is None else stage.slice_s * stage.turns,
        start=None if resume else stage.start,
        until_step=until_step,
    )


def weights_file(folder: Path, name: str) -> Path:
    """Return where a campaign writes the weights of a network."""
    return folder / f"{name}{SUFFIX}"


def last_checkpoint(folder: Path, name: str) -> Path:
    """Return where a campaign keeps the last checkpoint of a network."""
    return weights_file(folder, name).with_suffix(CHECKPOINTS) / LAST


@dataclass
class _State:
    """Turns done per stage, why a stage was given up, and the turn in hand with the seconds trained before it."""

    done: dict[str, int]
    stopped: dict[str, str]
    begun: dict[str, tuple[int, float]] = field(default_factory=dict)

    @staticmethod
    def read(folder: Path) -> _State:
        path = folder / STATE
        if not path.exists():
            return _State({}, {})
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            begun = {name: (int(turn), float(at)) for name, (turn, at) in values.get("begun", {}).items()}
            return _State(dict(values["done"]), dict(values["stopped"]), begun)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadInputError(f"{path}: damaged ({error}); delete it to begin all turns anew.") from error

    def with_stage(self, name: str, turns: int, stopped: str | None) -> _State:
        """Return what is known with one stage's news; other sessions may have changed the others' meanwhile."""
        reasons = self.stopped if stopped is None else {**self.stopped, name: stopped}
        return _State({**self.done, name: turns}, reasons, self.begun)

    def write(self, folder: Path) -> None:
        write(folder / STATE, json.dumps(dataclasses.asdict(self), indent=1) + "\n")


def pack(folder: Path, bundle: Path) -> list[Path]:
    """Copy what a campaign needs to go on into `bundle`, in files below 16 MB with their hashes; returns them.

    Previous checkpoints stay behind.
    """
    written, index = [], {}
    jobs = folder / "slurm"  # what they note of themselves is of no use elsewhere
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and jobs not in p.parents):
        if path.name in (PREVIOUS, LOCK):
            continue
        content, name = path.read_bytes(), path.relative_to(folder).as_posix()
        parts = []
        for number, begin in enumerate(range(0, max(1, len(content)), PART_BYTES)):
            part = bundle / f"{name}.{number:03d}"
            write(part, content[begin : begin + PART_BYTES])
            written.append(part)
            parts.append(part.relative_to(bundle).as_posix())
        index[name] = {"sha256": hashlib.sha256(content).hexdigest(), "parts": parts}
    write(bundle / "bundle.json", json.dumps(index, indent=1) + "\n")
    return [*written, bundle / "bundle.json"]


def unpack(bundle: Path, folder: Path, say: Callable[[str], None] = lambda text: None) -> list[Path]:
    """Put a packed campaign together again; returns the files.

    Raises
    ------
    BadInputError
        When a part is missing or changed, or a name leads out of the folder.
    """
    try:
        index = json.loads((bundle / "bundle.json").read_text(encoding="utf-8"))
        entries = {name: (entry["sha256"], list(entry["parts"])) for name, entry in index.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInputError(f"{bundle / 'bundle.json'}: missing or damaged ({error}).") from error
    written = []
    for name, (digest, parts) in entries.items():
        for relative in (name, *parts):
            if Path(relative).is_absolute() or ".." in Path(relative).parts:
                raise BadInputError(
                    f"{bundle / 'bundle.json'}: the name {relative!r} leads out of the folder."
                )
        try:
            content = b"".join((bundle / part).read_bytes() for part in parts)
        except OSError as error:
            raise BadInputError(f"{bundle}: a part of {name} is missing ({error.strerror}).") from error
        if hashlib.sha256(content).hexdigest() != digest:
            raise BadInputError(f"{bundle}: {name} is not what was packed; copy the bundle again.")
        write(folder / name, content)
        written.append(folder / name)
        say(f"{folder / name}: {len(content) / 2**20:.1f} MiB")
    return written

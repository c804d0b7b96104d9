"""A cluster's profile: what its jobs ask for, from a TOML file, a named profile, and ``--slurm KEY=VALUE``."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.settings import parse
from nco_bench.toml_file import read_toml


@dataclass(frozen=True)
class Profile:
    """What every job of a cluster asks for.

    Attributes
    ----------
    partition, account, qos
        SLURM's; None leaves them to the cluster's defaults.
    time
        Minutes that a job may take. In a file or on the command line also ``H:MM:SS`` or ``D-HH:MM:SS``.
    memory
        Per node, as SLURM writes it (``16G``); None is the cluster's default.
    cpus
        Per job.
    gpus
        Per job of a solver that uses one; the others ask for none.
    nodes
        Per job that trains; what solves instances uses one.
    processes
        That train together on a node; None is one per GPU, or one.
    setup
        Shell lines before the job's program: ``module load ...``, ``source .../activate``.
    container
        Image that the program runs in, with Apptainer.
    extra
        Further options of ``sbatch``: ``{constraint = "a100", exclusive = true}``.
    parallel
        Jobs of an array that run at once; ``--jobs`` above 1 wins.
    shards
        Shards per solver and dataset; None sizes them by time.
    job_minutes
        Aim for the length of a job; None is half of `time`, at most an hour.
    retries
        How often a job that died (time limit, memory, node) is started again.
    warning
        Seconds before the time limit at which SLURM tells the job to stop; what it computes then is lost.
    python
        Command that starts Python on a node; None is the one that submits.
    """

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    time: int = 60
    memory: str | None = None
    cpus: int = 1
    gpus: int = 0
    nodes: int = 1
    processes: int | None = None
    setup: tuple[str, ...] = ()
    container: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    parallel: int = 100
    shards: int | None = None
    job_minutes: float | None = None
    retries: int = 3
    warning: int = 90
    python: str | None = None

    @property
    def target_seconds(self) -> float:
        """Return how long a job should take."""
        return 60 * (self.job_minutes or min(60.0, self.time / 2))


KEYS = tuple(one.name for one in fields(Profile))
NUMBERS: dict[str, tuple[type, float]] = {
    "cpus": (int, 1), "gpus": (int, 0), "nodes": (int, 1), "processes": (int, 1), "parallel": (int, 1), "shards": (int, 1),
    "job_minutes": (float, 0.01), "retries": (int, 0), "warning": (int, 1),
}  # fmt: skip
"""Type and least value of each key that is a number."""


def profiles_folder() -> Path:
    """Return the folder of named profiles in the user's configuration."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "nco-bench" / "clusters"


def named_profiles() -> dict[str, Path]:
    """Return the named profiles that there are."""
    return {path.stem: path for path in sorted(profiles_folder().glob("*.toml"))}


def read_profile(name: str | None, given: Mapping[str, str]) -> Profile:
    """Read a profile and put settings of the command line over it.

    Parameters
    ----------
    name
        A ``.toml`` file, the name of a profile, or None for SLURM's defaults.
    given
        ``--slurm``: texts by key.

    Raises
    ------
    UnknownNameError
        For a profile or key that there is not.
    BadInputError
        For a file that is no TOML, or a value that makes no sense.
    """
    values = {} if name is None else _from_file(_path_of(name))
    for key, text in given.items():
        if key not in KEYS:
            raise UnknownNameError("key of --slurm", key, KEYS)
        values[key] = _value(f"--slurm {key}", key, _split(key, text))
    return Profile(**values)


def refuse_without_slurm(executor: str, *settings: object) -> None:
    """Refuse an executor that there is not, and settings of SLURM for another; raises `BadInputError`."""
    if executor not in ("local", "slurm"):
        raise BadInputError(f"--executor {executor!r}: expected local or slurm.")
    if executor != "slurm" and any(settings):
        raise BadInputError("cluster, slurm and detach are of --executor slurm; add it, or leave them out.")


def _path_of(name: str) -> Path:
    path = Path(name)
    if path.suffix == ".toml" or path.is_file():
        return path
    known = named_profiles()
    if name not in known:
        raise UnknownNameError(
            "cluster profile", name, known, f"Name a .toml file, or put one into {profiles_folder()}."
        )
    return known[name]


def _from_file(path: Path) -> dict[str, Any]:
    found = {}
    for written, value in read_toml(path).items():
        key = written.replace("-", "_")
        if key not in KEYS:
            raise UnknownNameError(f"key of {path}", written, KEYS)
        found[key] = _value(f"{path}: {written}", key, value)
    return found


def _split(key: str, text: str) -> Any:
    """Read ``--slurm extra=constraint=a100,exclusive`` as the table of a file, and one line of setup as a list."""
    if key == "setup":
        return [text]
    if key != "extra":
        return text
    parts = [part.partition("=") for part in text.split(",")]
    return {name: value if equals else True for name, equals, value in parts}


def _value(place: str, key: str, value: Any) -> Any:
    if key == "time":
        return _minutes(place, value)
    if key in NUMBERS:
        kind, low = NUMBERS[key]
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise BadInputError(f"{place} is {value!r}; expected a number.")
        return parse(place, str(value), kind, low=low)
    if key == "extra":
        if not isinstance(value, Mapping) or not all(
            name and isinstance(one, str | int | bool) for name, one in value.items()
        ):
            raise BadInputError(f"{place} is {value!r}; expected a table of options of sbatch.")
        return {name.lstrip("-"): one for name, one in value.items()}
    if key == "setup":
        lines = [value] if isinstance(value, str) else value
        if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
            raise BadInputError(f"{place} is {value!r}; expected a list of shell lines.")
        return tuple(lines)
    if not isinstance(value, str) or not value:
        raise BadInputError(f"{place} is {value!r}; expected text.")
    if key == "memory" and not re.fullmatch(r"[1-9][0-9]*[KMGT]?B?", value):
        raise BadInputError(f"{place} is {value!r}; expected a size such as 16G.")
    return value


def _minutes(place: str, value: Any) -> int:
    """Read minutes, ``H:MM:SS`` or ``D-HH:MM:SS``; seconds count as a started minute, as SLURM takes them."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)", str(value))
    if match:
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        total = (days * 24 + hours) * 60 + minutes + (seconds > 0)
    elif re.fullmatch(r"[0-9]{1,7}", str(value)):
        total = int(value)
    else:
        total = 0
    if total < 1:
        raise BadInputError(f"{place} is {value!r}; expected minutes, H:MM:SS or D-HH:MM:SS.")
    return total


def python_command(profile: Profile, gpu: bool) -> str | None:
    """Return the command that starts Python on a node, or None for the one that submits."""
    if profile.container is None:
        return profile.python
    nvidia = " --nv" if gpu else ""
    return f"apptainer exec{nvidia} {shlex.quote(profile.container)} {profile.python or 'python3'}"

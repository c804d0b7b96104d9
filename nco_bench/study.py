"""A study: solvers x datasets x decodings x seeds with their settings, as one object or one TOML file.

The keys of the file are the options of ``nco-bench run``::

    solvers = ["lkh3", "pens-a"]
    data = ["tsp100:count=100", "tsp1000:count=16"]
    decoding = ["greedy", "beam:16"]
    seed = [1, 2, 3]
    time-limit = 10
    param = { runs = 5 }

Its text is kept with the records of every run that it makes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nco_bench.arguments import as_text, listed, plain, refused
from nco_bench.errors import BadInputError, UnknownNameError

if TYPE_CHECKING:
    from nco_bench.datasets.places import Places
    from nco_bench.runs.request import RunRequest

DEFAULT_RESULTS = Path("results/runs")
A_FILE, A_FOLDER = "a file, as text or a path", "a folder, as text or a path"


@dataclass(frozen=True)
class Study:
    """What is to be run; every combination of solver, dataset, decoding and seed is a cell.

    Attributes
    ----------
    solvers
        Names, with options like ``lkh3:runs=10``, or a ``.py`` or ``.toml`` file.
    data
        Names or files of datasets.
    decoding
        Such as ``greedy`` or ``beam:16``; none means every network's default.
    weights, logit_scale, coordinate_scale
        Of networks.
    device
        ``auto``, ``cpu``, ``cuda`` or ``cuda:N``; ``cuda:0,1`` or ``all`` for a process per GPU.
    seed
        One, or several.
    repeats
        Solve everything this many times.
    batch_size
        ``auto`` or a number.
    limit
        First K instances of each dataset (``100``), or A to B counted from 1 (``"11-20"``).
    time_limit
        Seconds per instance.
    param
        Settings of the solvers.
    jobs, executor
        Processes at once, and ``local`` or ``slurm``.
    cluster, slurm, detach
        Of ``slurm``: a profile's name or file, settings over it, and whether to return once the jobs are submitted.
    fresh
        Compute again what is stored.
    update_references
        Keep solutions that beat the reference.
    in_process
        Run solvers of files and of installed packages in this process, not in one of their own.
    results, instances
        Folders of runs and of datasets; None means the environment's (``NCO_BENCH_RESULTS``, ``NCO_BENCH_INSTANCES``) or
        ``results/runs`` and ``instances``.
    source
        Name and text of the file that it was read from; empty without.
    """

    solvers: Sequence[str]
    data: Sequence[str]
    decoding: Sequence[str] = ()
    weights: str | None = None
    logit_scale: str | None = None
    coordinate_scale: str | float | None = None
    device: str = "auto"
    seed: int | Sequence[int] = 1234
    repeats: int = 1
    batch_size: str | int = "auto"
    limit: str | int | None = None
    time_limit: float | None = None
    param: Mapping[str, Any] = field(default_factory=dict)
    jobs: int = 1
    executor: str = "local"
    cluster: str | None = None
    slurm: Mapping[str, Any] = field(default_factory=dict)
    detach: bool = False
    fresh: bool = False
    update_references: bool = False
    in_process: bool = False
    results: str | Path | None = None
    instances: str | Path | None = None
    source: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Take NumPy's numbers and arrays, and paths, for what they mean; refuse what is of the wrong kind."""
        for one in fields(self):
            given = getattr(self, one.name)
            if one.name == "source" or (given is None and one.default is None):
                continue
            value = _checked(one.name, one.name, given)
            only_seed = one.name == "seed" and isinstance(plain(given), int)
            object.__setattr__(self, one.name, value[0] if only_seed else value)

    @staticmethod
    def read(path: str | Path) -> Study:
        """Read a study from its file, see `read_study`; one without solvers or datasets is refused when it is run."""
        return Study(**{"solvers": (), "data": (), **read_study(Path(as_text("path", path, A_FILE)))})

    def call(self) -> str:
        """Return the call that makes it, with what differs from the defaults."""
        given = [
            f"{one.name}={getattr(self, one.name)!r}"
            for one in fields(self)
            if one.name != "source" and getattr(self, one.name) not in (one.default, {}, [])
        ]
        return f"nco_bench.run({', '.join(given)})"

    def requests(self, command: str = "") -> list[RunRequest]:
        """Return what is to be run, a request per seed; `command` stands in the records, by default `call`.

        Raises
        ------
        BadInputError
            For a setting that makes no sense.
        """
        from nco_bench.runs.request import RunRequest, parse_batch_size, parse_limit

        _refuse_nonsense(self)
        request = RunRequest(
            solvers=tuple(dict.fromkeys(self.solvers)),
            datasets=tuple(dict.fromkeys(self.data)),
            results=results_folder(self.results),
            places=places_of(self.instances),
            decodings=tuple(dict.fromkeys(self.decoding)),
            weights=self.weights,
            logit_scale=self.logit_scale,
            coordinate_scale=None if self.coordinate_scale is None else str(self.coordinate_scale),
            device=self.device,
            repeats=self.repeats,
            batch_size=parse_batch_size(str(self.batch_size)),
            limit=parse_limit(None if self.limit is None else str(self.limit)),
            time_limit=self.time_limit,
            params={key.replace("-", "_"): _text(value) for key, value in self.param.items()},
            jobs=self.jobs,
            executor=self.executor,
            cluster=self.cluster,
            slurm={key.replace("-", "_"): _text(value) for key, value in self.slurm.items()},
            detach=self.detach,
            fresh=self.fresh,
            update_references=self.update_references,
            in_process=self.in_process,
            command=command or self.call(),
            study=dict(self.source) or None,
        )
        seeds = (self.seed,) if isinstance(self.seed, int) else self.seed
        return [replace(request, seed=seed) for seed in dict.fromkeys(seeds)]


def results_folder(folder: str | Path | None) -> Path:
    """Return the folder of all runs: the given one, the environment's, or ``results/runs``."""
    import os

    if folder is not None:
        folder = as_text("results", folder, A_FOLDER)
    return Path(folder or os.environ.get("NCO_BENCH_RESULTS") or DEFAULT_RESULTS)


def places_of(instances: str | Path | None) -> Places:
    """Return where datasets are looked for: in the given folder, or the environment's."""
    from nco_bench.datasets.places import Places

    return Places.from_environment(
        None if instances is None else Path(as_text("instances", instances, A_FOLDER))
    )


def read_study(path: Path) -> dict[str, Any]:
    """Read a study's file.

    Returns
    -------
    dict
        Fields of `Study` that the file sets, and `source`; those that may be several are lists.

    Raises
    ------
    BadInputError
        For a file that is no TOML or beyond the bounds of `nco_bench.toml_file`, or a value of the wrong kind.
    UnknownNameError
        For a key that is no option.
    """
    from nco_bench.toml_file import read_toml_text

    text, document = read_toml_text(path)
    known = [one.name for one in fields(Study) if one.name != "source"]
    found: dict[str, Any] = {}
    for key, value in document.items():
        name = key.replace("-", "_")
        if name not in known:
            raise UnknownNameError(
                f"key of {path}", key, known, "The keys are the options of 'nco-bench run'."
            )
        if name in found:
            raise BadInputError(f"{path}: {key} is given twice; keep one.")
        found[name] = _checked(f"{path}: {key}", name, value)
        if found[name] == []:
            raise refused(f"{path}: {key}", value, _KINDS[name][1])
    return {**found, "source": {"file": path.name, "text": text}}


_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "solvers": ((str,), "a name or a list of names"),
    "data": ((str,), "a name or a list of names"),
    "decoding": ((str,), "a name or a list of names"),
    "seed": ((int,), "a whole number or a list of them"),
    "coordinate_scale": ((str, int, float), "auto or a number"),
    "batch_size": ((str, int), "auto or a whole number"),
    "limit": ((str, int), "a whole number or 'A-B'"),
    "time_limit": ((int, float), "a number of seconds"),
    "repeats": ((int,), "a whole number"),
    "jobs": ((int,), "a whole number"),
    "fresh": ((bool,), "true or false"),
    "update_references": ((bool,), "true or false"),
    "in_process": ((bool,), "true or false"),
    "param": ((Mapping,), "a table of settings"),
    "slurm": ((Mapping,), "a table of settings"),
    "detach": ((bool,), "true or false"),
    "results": ((str,), A_FOLDER),
    "instances": ((str,), A_FOLDER),
}
"""What the values of keys may be, and in words; a name where nothing is said."""
_LISTS = ("solvers", "data", "decoding", "seed")


def _checked(place: str, name: str, value: Any) -> Any:
    """Return a field's value in Python's own kinds, what may be several as a list."""
    kinds, words = _KINDS.get(name, ((str,), "text"))
    values = listed(value) if name in _LISTS else [plain(value)]
    if any(not isinstance(v, kinds) or (isinstance(v, bool) and bool not in kinds) for v in values):
        raise refused(place, value, words)
    if Mapping in kinds:
        if not all(isinstance(key, str) for key in value):
            raise refused(place, value, words)
        return {key: plain(setting) for key, setting in value.items()}
    return values if name in _LISTS else values[0]


def _refuse_nonsense(study: Study) -> None:
    """Refuse what the command line refuses by its option types."""
    for name, least in (("repeats", 1), ("jobs", 1)):
        if getattr(study, name) < least:
            raise BadInputError(f"{name} is {getattr(study, name)}; expected at least {least}.")
    if study.executor != "slurm" and (study.cluster or study.slurm or study.detach):
        raise BadInputError("cluster, slurm and detach are of --executor slurm; add it, or leave them out.")
    if study.executor == "slurm" and (study.device == "all" or "," in study.device):
        raise BadInputError(
            f"device is {study.device}; SLURM gives every job GPUs of its own: use cuda, and gpus of --slurm."
        )
    if study.time_limit is not None and not 0 < study.time_limit < float("inf"):
        raise BadInputError(f"time-limit is {study.time_limit:g}; expected a positive number of seconds.")
    seeds = (study.seed,) if isinstance(study.seed, int) else tuple(study.seed)
    wrong = [seed for seed in seeds if not 0 <= seed < 2**32]
    if wrong:
        raise BadInputError(f"seed is {wrong[0]}; expected a whole number from 0 to {2**32 - 1}.")
    for name, given in (("solvers", study.solvers), ("data", study.data), ("seed", seeds)):
        if not given:
            raise BadInputError(f"{name}: name at least one.")


def _text(value: Any) -> str:
    """Return a setting as the command line would give it."""
    return str(value).lower() if isinstance(value, bool) else str(value)

"""Datasets of Long Range Arena: ``lra-listops``, ``lra-listops64:count=100``, ``lra-pathfinder``, ``lra-text:count=100``.

ListOps and Pathfinder are generated. A number behind ``lra-listops`` is the
setting of shorter expressions (`nco_bench.problems.lra.listops`). Text, Retrieval, Image and ``lra-pathfinder-released`` are
read from public files in the folder ``lra`` of the instances folder or of the mirror; a name may choose a split, and
``count`` takes the first ones.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError

from nco_bench.datasets.dataset import Dataset, Origin
from nco_bench.datasets.generators import Generator
from nco_bench.datasets.lra_files import PATHFINDER_FOLDER, RETRIEVAL_FILES, SPLITS, read_task
from nco_bench.downloads import TooMuchError, asked, cause
from nco_bench.errors import BadInputError, NcoBenchError, UnknownNameError
from nco_bench.files import replacing
from nco_bench.problems.lra import LRAInstance, pathfinder
from nco_bench.problems.lra.listops import LONGEST, SMALLEST_LONGEST, distinct
from nco_bench.progress import BYTES, opened, tracked

if TYPE_CHECKING:
    from nco_bench.datasets.names import GenerationSpec
    from nco_bench.problems import Instance

FOLDER = "lra"
COUNT = 2000
"""Test expressions of the published split; Pathfinder's is taken as large."""

PIXELS = pathfinder.SIDE**2
SMALLEST_LISTOPS, LONGEST_LISTOPS = SMALLEST_LONGEST, LONGEST
EXAMPLES = ("lra-listops", "lra-listops64", "lra-pathfinder", *SPLITS)
PIECE = 2**20
MOST_BYTES = 512 << 20
"""Of a download; the largest has 170 MB."""


class UnreachableError(BadInputError):
    """The source does not answer; trying its next file would only wait longer."""


ARCHIVES = {
    "lra-text": (
        "aclImdb_v1.tar.gz",
        "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
        "7c2ac02c03563afcf9b574c7e56c153a",
    ),
    "lra-image": (
        "cifar-10-binary.tar.gz",
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        "c32a1d4ab5d03f1284b67883e8d87530",
    ),
}
"""File, address and MD5, the hash that the authors publish (CIFAR-10) and that others check by (IMDb)."""

FOLDERS = {"lra-pathfinder-released": PATHFINDER_FOLDER}
"""Tasks whose files are many."""


def build_listops(spec: GenerationSpec) -> list[Instance]:
    """Make a set of expressions."""
    made = distinct(spec.n, spec.seed, spec.count)
    return [
        LRAInstance(f"lra-listops-{i:05d}", "lra-listops", tokens, value)
        for i, (tokens, value) in enumerate(made)
    ]


def build_pathfinder(spec: GenerationSpec) -> list[Instance]:
    """Make a set of images."""
    if spec.n != PIXELS:
        raise BadInputError(f"lra-pathfinder: n={spec.n} is not supported; images have {PIXELS} pixels.")
    return [
        LRAInstance(
            f"lra-pathfinder-{i:05d}", "lra-pathfinder", pathfinder.tokens(pathfinder.render(d)), d.label
        )
        for i, d in enumerate(islice(pathfinder.drawings(spec.seed), spec.count))
    ]


def no_distribution(text: str) -> str:
    """Return the only distribution; raises `UnknownNameError` for another."""
    if text != "uniform":
        raise UnknownNameError("distribution of Long Range Arena", text, ["uniform"])
    return text


LISTOPS = Generator(
    build=build_listops,
    smallest_n=SMALLEST_LISTOPS,
    bytes_per_node=2,
    canonical_distribution=no_distribution,
    distribution_parameters=lambda name: (),
    default_count=lambda n: COUNT,
    default_n=LONGEST_LISTOPS,
)

PATHFINDER = Generator(
    build=build_pathfinder,
    smallest_n=PIXELS,
    bytes_per_node=2,
    canonical_distribution=no_distribution,
    distribution_parameters=lambda name: (),
    default_count=lambda n: COUNT,
    default_n=PIXELS,
)


def resolve(name: str, instances_dir: Path, mirror: Path | None = None) -> Dataset | None:
    """Load Text, Retrieval, Image or the released Pathfinder by name; None for other names.

    Raises
    ------
    UnknownNameError
        For an unknown split or part.
    BadInputError
        When the file is missing (the message says which, and where to put it) or damaged.
    """
    task, *parts = name.split(":")
    if task not in SPLITS:
        return None
    split, count = SPLITS[task][0], None
    for part in parts:
        if match := re.fullmatch(r"count=(\d{1,9})", part):
            count = int(match[1])
        elif part in SPLITS[task]:
            split = part
        else:
            raise UnknownNameError(f"part of dataset name {name!r}:", part, [*SPLITS[task], "count=100"])
    if count is not None and count < 1:
        raise BadInputError(f"{name}: count is {count}; a dataset needs at least 1 instance.")
    path = locate(task, split, instances_dir, mirror)
    instances = read_task(task, split, path, count)
    chosen = [task]
    chosen += [split] if split != SPLITS[task][0] else []
    chosen += [f"count={count}"] if count is not None else []
    origin = Origin("public data", distribution=split, params={"file": path.name})
    return Dataset(":".join(chosen), "lra", tuple(instances), (None,) * len(instances), origin)


def locate(task: str, split: str, instances_dir: Path, mirror: Path | None = None) -> Path:
    """Return the file that holds a split; raises `BadInputError` where it is missing or not the published one."""
    file = file_of(task, split)
    folders = [instances_dir] if mirror is None else [instances_dir, mirror / "instances"]
    for folder in folders:
        path = folder / FOLDER / file
        if path.is_dir() if task in FOLDERS else path.is_file():
            if task in ARCHIVES:
                _refuse_other(path, ARCHIVES[task][2])
            return path
    raise BadInputError(f"{task}: needs {instances_dir / FOLDER / file}; {_remedy(task)}.")


def _remedy(task: str) -> str:
    if task not in ARCHIVES:
        folder = "pathfinder32" if task in FOLDERS else "tsv_data"
        return (
            "take it out of lra_release.gz (7.7 GB, storage.googleapis.com/long-range-arena/lra_release.gz, "
            f"folder {folder}) and put it there"
        )
    return f"run 'nco-bench instances pull {task}', or put the file there from {ARCHIVES[task][1]}"


def _refuse_other(path: Path, md5: str) -> None:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as stream:
        while piece := stream.read(PIECE):
            digest.update(piece)
    if digest.hexdigest() != md5:
        raise BadInputError(
            f"{path}: not the published file (MD5 {digest.hexdigest()}, expected {md5}); delete it and pull it again."
        )


def pull_lra(
    name: str,
    instances_dir: Path,
    mirror: Path | None,
    archive: Path | None,
    timeout_s: float | None,
    progress: Callable[[int, int, str], None] | None,
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Fetch the public files of ``lra``, or of one of its tasks.

    Returns
    -------
    tuple
        Files fetched, files that were there, and pairs of a file and why it failed. Retrieval and Pathfinder are not
        fetched, because their release is one archive of 7.7 GB without a published checksum: the reason says what to do.

    Raises
    ------
    UnknownNameError
        For another name.
    BadInputError
        When a site cannot be reached, or with an archive.
    """
    if name not in (FOLDER, *SPLITS):
        raise UnknownNameError("part of Long Range Arena to pull", name, [FOLDER, *SPLITS])
    if archive is not None:
        raise BadInputError(f"--archive {archive}: put the file into {instances_dir / FOLDER} as it is.")
    fetched: list[str] = []
    present: list[str] = []
    failed: list[tuple[str, str]] = []
    wanted = list(SPLITS) if name == FOLDER else [name]
    for done, task in enumerate(tracked(wanted, "task")):
        if progress:
            progress(done, len(wanted), task)
        try:
            locate(task, SPLITS[task][0], instances_dir, mirror)
            present.append(task)
            continue
        except NcoBenchError as error:
            if task not in ARCHIVES:
                failed.append((task, str(error)))
                continue
        try:
            _fetch(task, instances_dir, timeout_s)
            fetched.append(task)
        except UnreachableError:
            raise
        except NcoBenchError as error:
            failed.append((task, str(error)))
    return tuple(fetched), tuple(present), tuple(failed)


def verify_lra(name: str, instances_dir: Path) -> dict[str, str]:
    """Check the public files of ``lra``, or of one of its tasks, in the instances folder.

    Returns
    -------
    dict
        Task and split to ``ok``, ``missing`` or what is wrong; ListOps and ``lra-pathfinder`` are made here, without files.

    Raises
    ------
    UnknownNameError
        For another name.
    """
    if name not in (FOLDER, *SPLITS):
        raise UnknownNameError("part of Long Range Arena with files", name, [FOLDER, *SPLITS])
    states = {}
    for task in SPLITS if name == FOLDER else [name]:
        for split in SPLITS[task] if task == "lra-retrieval" else SPLITS[task][:1]:
            label = f"{task}:{split}" if task == "lra-retrieval" else task
            states[label] = _state(task, split, instances_dir)
    return states


def _state(task: str, split: str, instances_dir: Path) -> str:
    if not (instances_dir / FOLDER / file_of(task, split)).exists():
        return "missing"
    try:
        path = locate(task, split, instances_dir)
        if task not in ARCHIVES:  # no published checksum: its first line must be well-formed
            read_task(task, split, path, 1)
    except NcoBenchError as error:
        return str(error)
    return "ok"


def file_of(task: str, split: str) -> str:
    """Return the name of the file, or folder, that holds a split."""
    if task in FOLDERS:
        return FOLDERS[task]
    return RETRIEVAL_FILES[split] if task == "lra-retrieval" else ARCHIVES[task][0]


def _fetch(task: str, instances_dir: Path, timeout_s: float | None) -> None:
    """Download one archive beside its place, check it, and move it there."""
    file, url, md5 = ARCHIVES[task]
    target = instances_dir / FOLDER / file
    try:
        with replacing(target, None, sync=False) as part:
            with (
                asked(url, MOST_BYTES, timeout_s=timeout_s) as answer,
                part.open("wb") as out,
                opened(BYTES, answer.size) as level,
            ):
                for piece in answer.pieces():
                    out.write(piece)
                    level.reach(out.tell())
            _refuse_other(part, md5)
    except HTTPError as error:
        raise BadInputError(
            f"{url}: the site answered {error.code} {cause(error)}; {_by_hand(target)}."
        ) from None
    except TooMuchError as error:
        raise BadInputError(f"{url}: refused, the site {cause(error)}; {_by_hand(target)}.") from None
    except OSError as error:  # timeouts, resets, a full disk
        raise UnreachableError(
            f"cannot fetch {url} ({cause(error)}); when offline, {_by_hand(target)}."
        ) from None


def _by_hand(target: Path) -> str:
    return f"put the file into {target.parent} yourself, or set NCO_BENCH_MIRROR"

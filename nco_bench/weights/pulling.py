"""Official weights from the authors' repositories: which there are, and how they get here.

The cards name each file at a fixed commit with its git blob hash. A download is checked against that
hash, resumed where it broke off, imported through `nco_bench.weights.importing` (which executes nothing), and kept
in the user's cache. A folder named by ``NCO_BENCH_MIRROR`` stands in for the network. Not by pooch: it begins broken
downloads anew, reads whatever a server sends to the end, and knows no git blob hashes.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError

from nco_bench.cards import OfficialFile, cards, official_weights
from nco_bench.downloads import TooMuchError, asked, cause
from nco_bench.errors import BadWeightsError, UnknownNameError
from nco_bench.files import alone, is_in_a_file
from nco_bench.progress import BYTES, opened, tracked
from nco_bench.weights.manifest import manifest_path
from nco_bench.weights.store import WeightsFile, cache_folder, files_called, verify

REMEDY = (
    "Others are made by 'nco-bench train MODEL', or downloaded from their authors and read by "
    "'nco-bench weights import MODEL FILE' (glop, h-tsp, difusco)."
)
BLOCK = 1 << 20
MAX_BYTES = 500 << 20
PARTIAL, NOTHING_BEYOND = 206, 416
"""Statuses of HTTP for an answer to a request that names a range."""


def pull(name: str, say: Callable[[str], None]) -> list[WeightsFile]:
    """Fetch official weights into the user's cache.

    Parameters
    ----------
    name
        A name of `official_weights`, or a model, which means all its files.
    say
        Called with one line per file.

    Raises
    ------
    UnknownNameError
        When there are no official weights of that name.
    BadWeightsError
        When a file cannot be fetched or is not the one at its commit; when the mirror that is named is not there; for
        weights that ship or are kept here, and are nobody's official ones.
    """
    mirror = os.environ.get("NCO_BENCH_MIRROR")
    if mirror and not Path(mirror).is_dir():
        raise BadWeightsError(f"{mirror}: no such folder; correct NCO_BENCH_MIRROR.")
    table = official_weights()
    named = cards().get(name)
    model = named.model if named else name
    wanted = [entry for entry in table.values() if name == entry.name or model == entry.model]
    if not wanted and files_called(name):
        raise BadWeightsError(
            f"{name}: these weights are here already, as 'weights list' tells; nothing is to be pulled."
        )
    if not wanted:
        known = [*table, *{entry.model for entry in table.values()}]
        raise UnknownNameError("official weights", name, known, REMEDY)
    return [_pull_one(entry, say) for entry in tracked(wanted, "file")]


def _pull_one(entry: OfficialFile, say: Callable[[str], None]) -> WeightsFile:
    target = cache_folder() / f"{entry.name}.safetensors"
    if target.is_file() and manifest_path(target).is_file():  # which an import that was killed did not reach
        say(f"{entry.name}: already here")
        return verify(target)
    local = in_mirror(entry)
    if local is None:
        local = _download(entry, say)
    elif local.suffix != ".safetensors":
        _check(local, entry)
    say(f"{entry.name}: importing {local}")
    size = int(re.sub(r"\D", "", entry.name.rpartition("-")[2]))
    from nco_bench.weights.importing import import_checkpoint

    return import_checkpoint(
        entry.model,
        local,
        entry.problem,
        entry.name,
        note=_source(entry),
        trained_on=("uniform", size),
        official=True,
    )


def _source(entry: OfficialFile) -> str:
    """Say in a line where a file comes from, for its manifest."""
    place = f"{entry.repository} at {entry.commit[:12]}, {entry.path}"
    return f"Official weights: {place}; {entry.note or 'training was not ours'}."


def in_mirror(entry: OfficialFile) -> Path | None:
    """Return the file in the folder ``NCO_BENCH_MIRROR``, or None.

    Looked for: ``checkpoints/MODEL-TASK-official.safetensors`` (as in ``am-tsp100-official``), and the original file
    under ``checkpoints/OWNER/REPOSITORY/PATH``.
    """
    mirror = os.environ.get("NCO_BENCH_MIRROR")
    if not mirror:
        return None
    task = entry.name.removeprefix(f"{entry.model}-official-")
    folder = Path(mirror) / "checkpoints"
    places = (folder / f"{entry.model}-{task}-official.safetensors", folder / entry.repository / entry.path)
    return next((place for place in places if place.is_file()), None)


def git_blob_sha1(path: Path) -> str:
    """Return the hash under which git stores a file's content."""
    digest = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _check(path: Path, entry: OfficialFile) -> None:
    found = git_blob_sha1(path)
    if found != entry.git_blob_sha1:
        raise BadWeightsError(f"{path}: {_another(found, entry)}; delete it and pull again.")


def _another(found: str, entry: OfficialFile) -> str:
    return (
        f"is not {entry.path} of {entry.repository} at {entry.commit[:12]} "
        f"(git blob {found[:12]}, expected {entry.git_blob_sha1[:12]})"
    )


def _download(entry: OfficialFile, say: Callable[[str], None]) -> Path:
    """Download beside the cache, continuing a part that an earlier try left; return the checked file.

    What is not the file at its commit is not kept: a part to go on from is then tried once more from its beginning.
    """
    folder = cache_folder() / "downloads"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        cause = is_in_a_file(folder) or error.strerror
        raise BadWeightsError(
            f"{folder}: cannot be made ({cause}); name a folder with NCO_BENCH_CACHE."
        ) from error
    target = folder / f"{entry.git_blob_sha1}{Path(entry.path).suffix}"
    with alone(folder / f".{target.stem}.lock"):  # who waits here finds what the other has fetched
        return _downloaded(entry, target, say)


def _downloaded(entry: OfficialFile, target: Path, say: Callable[[str], None]) -> Path:
    if target.is_file() and git_blob_sha1(target) == entry.git_blob_sha1:
        return target
    target.unlink(missing_ok=True)
    part = target.with_suffix(".part")
    say(f"{entry.name}: downloading {entry.url}")
    went_on = part.exists()
    _fetch(entry, part)
    if went_on and git_blob_sha1(part) != entry.git_blob_sha1:
        part.unlink()
        _fetch(entry, part)
    found = git_blob_sha1(part)
    if found != entry.git_blob_sha1:
        part.unlink()
        raise BadWeightsError(f"{entry.url}: what the server sent {_another(found, entry)}; it was not kept.")
    part.replace(target)
    return target


def _fetch(entry: OfficialFile, part: Path) -> None:
    try:
        _receive(entry.url, part)
    except TooMuchError as error:
        part.unlink(missing_ok=True)
        raise BadWeightsError(f"{entry.url}: refused, the server {cause(error)}; nothing was kept.") from None
    except OSError as error:  # HTTPError and timeouts are OSErrors
        kept = "the part that came is kept" if part.exists() and part.stat().st_size else "nothing came"
        raise BadWeightsError(
            f"{entry.url}: cannot be fetched ({cause(error)}); {kept}. Try again, or put the file into "
            f"a folder as checkpoints/{entry.repository}/{entry.path} and name that folder in NCO_BENCH_MIRROR."
        ) from error


def _receive(url: str, part: Path) -> None:
    """Append what a server has beyond the part, or write the whole; raises OSError where it sends less than it says."""
    have = part.stat().st_size if part.exists() else 0
    try:
        with asked(url, MAX_BYTES - have, headers={"Range": f"bytes={have}-"} if have else {}) as answer:
            mode = "ab" if have and answer.status == PARTIAL else "wb"
            with part.open(mode) as file, opened(BYTES, answer.size) as level:
                came = 0
                for piece in answer.pieces():
                    file.write(piece)
                    level.reach(came := came + len(piece))
    except HTTPError as error:
        if have and error.code == NOTHING_BEYOND:
            return  # all of it came before; the hash says whether it is the file
        raise

"""Fetch library instances and test sets: from a mirror folder, an archive at hand, or their public addresses.

Every instance is checked before it is kept: by the SHA-256 of its uncompressed file, or, where a site serves other white
space, by the hash of the parsed instance. Solutions must be feasible; their cost is recomputed wherever they are used. Files
appear whole or not at all, are written only below the instances folder, and those already there are not fetched again.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from nco_bench.datasets import catalog, lra, testsets
from nco_bench.datasets.archive import archive_members
from nco_bench.datasets.catalog import Entry, TestSet
from nco_bench.datasets.formats import read_solution
from nco_bench.datasets.formats.reading import MAX_BINARY_BYTES, MAX_TEXT_BYTES, read_bytes, write_bytes
from nco_bench.datasets.libraries import find_file, read_checked, select
from nco_bench.datasets.names import parse_generated
from nco_bench.datasets.sites import LIBRARIES, SITES, Fetch, SourceUnreachableError, site_files
from nco_bench.errors import BadInputError, NcoBenchError, UnknownNameError
from nco_bench.problems import problem
from nco_bench.progress import tracked


@dataclass(frozen=True)
class PullReport:
    """What a pull did: names of instances, and a reason for each that failed."""

    fetched: tuple[str, ...]
    present: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]


def pull(
    name: str,
    instances_dir: Path,
    *,
    mirror: Path | None = None,
    archive: Path | None = None,
    sites: dict[str, str] | None = None,
    timeout_s: float | None = None,
    pause_s: float = 1.0,
    progress: Callable[[int, int, str], None] | None = None,
) -> PullReport:
    """Fetch the files of a library, a part of it, or test sets; what is there and whole stays.

    Parameters
    ----------
    name
        ``tsplib``, ``cvrplib:X``, ``tsplib:pens-100``, ``testsets`` or the name of one test set.
    instances_dir
        Where they go.
    mirror
        Folder laid out like ``NCO_BENCH_MIRROR``; used in place of the network.
    archive
        A .zip, .tar, .tar.gz at hand, such as TSPLIB's ALL_tsp.tar.gz, or a folder with unpacked files, such as those
        of CVRPLIB's .7z archives; used in place of both.
    sites
        Addresses to use in place of `SITES`.
    timeout_s
        How long a site may be silent; None: `nco_bench.downloads.TIMEOUT_SECONDS`.
    pause_s
        Between attempts at a download that broke off.
    progress
        Called with done, total and the name of the instance.

    Raises
    ------
    UnknownNameError
        For an unknown name.
    BadInputError
        When the source cannot be reached or read at all, or the place cannot be written.
    """
    if re.split("[:-]", name, maxsplit=1)[0] == lra.FOLDER:
        return PullReport(*lra.pull_lra(name, instances_dir, mirror, archive, timeout_s, progress))
    wanted = _wanted(name)
    fetched: list[str] = []
    present: list[str] = []
    failed: list[tuple[str, str]] = []
    with _source(mirror, archive, sites or SITES, timeout_s, pause_s) as fetch:
        for done, entry in enumerate(tracked(wanted, "file")):
            if progress:
                progress(done, len(wanted), entry.name)
            try:
                kept = testsets.keep(entry, instances_dir, fetch) if isinstance(entry, TestSet) else None
                kept = _keep_entry(entry, instances_dir, fetch) if isinstance(entry, Entry) else kept
                (fetched if kept else present).append(entry.name)
            except SourceUnreachableError:
                raise
            except NcoBenchError as error:
                failed.append((entry.name, str(error)))
    return PullReport(tuple(fetched), tuple(present), tuple(failed))


def _wanted(name: str) -> Sequence[Entry | TestSet]:
    sets = {entry.name: entry for entry in catalog.testsets()}
    if name == "testsets":
        return list(sets.values())
    if name in sets:
        return [sets[name]]
    if re.split("[:/]", name, maxsplit=1)[0] not in LIBRARIES:
        if parse_generated(name) is not None:
            raise BadInputError(f"{name}: is generated, not pulled; name it with --data.")
        libraries = (*LIBRARIES, "lra", testsets.FOLDER)
        hint = (
            f"There are {', '.join(libraries)}, and each of the test sets that 'nco-bench list datasets' has."
        )
        raise UnknownNameError("library", name, [*libraries, *sets], hint)
    return select(name)


def verify(name: str, instances_dir: Path) -> dict[str, str]:
    """Check the files of a library in the instances folder.

    Returns
    -------
    dict
        Name to ``ok``, ``missing`` or what is wrong.
    """
    out = {}
    for entry in tracked(_wanted(name), "file"):
        try:
            if isinstance(entry, TestSet):
                path = find_file([instances_dir], testsets.FOLDER, f"{entry.name}.npz")
                whole = path is not None
                if path:
                    testsets.load(entry, path)
            else:
                path = find_file([instances_dir], entry.folder, entry.file)
                whole = path is not None
                if path:
                    read_checked(path, entry)
                    _check_solution(
                        entry, path, find_file([instances_dir], entry.folder, entry.solution_file or "-")
                    )
            out[entry.name] = "ok" if whole else "missing"
        except NcoBenchError as error:
            out[entry.name] = str(error)
    return out


def _keep_entry(entry: Entry, instances_dir: Path, fetch: Fetch) -> bool:
    """Make sure that an instance and its solution are there; True if anything was fetched."""
    fetched = False
    path = find_file([instances_dir], entry.folder, entry.file)
    if path is None or not _is_whole(path, entry):
        content = fetch(entry.folder, entry.file)
        if content is None:
            raise BadInputError(f"{entry.library}/{entry.name}: the source has no {entry.file}.")
        target = instances_dir / entry.folder / f"{entry.file}.gz"
        _check_then_write(content, target, lambda temporary: read_checked(temporary, entry))
        if path is not None and path != target:
            path.unlink(missing_ok=True)  # the damaged one would be found first; others may pull it, too
        path, fetched = target, True
    if entry.solution_file and find_file([instances_dir], entry.folder, entry.solution_file) is None:
        content = fetch(entry.folder, entry.solution_file)
        if content is not None:
            target = instances_dir / entry.folder / f"{entry.solution_file}.gz"
            instance_path = path
            _check_then_write(
                content, target, lambda temporary: _check_solution(entry, instance_path, temporary)
            )
            fetched = True
    return fetched


def _check_then_write(content: bytes, target: Path, check: Callable[[Path], object]) -> None:
    """Run `check` on the content in a temporary file; write it to `target` if that raises nothing."""
    with tempfile.TemporaryDirectory() as folder:
        temporary = Path(folder) / target.name.removesuffix(".gz")
        temporary.write_bytes(content)
        try:
            check(temporary)
        except NcoBenchError as error:
            reason = str(error).replace(str(temporary), temporary.name)
            raise BadInputError(f"what the source sent is not usable: {reason}") from None
    write_bytes(target, content)


def _is_whole(path: Path, entry: Entry) -> bool:
    try:
        read_checked(path, entry)
    except NcoBenchError:
        return False
    return True


def _check_solution(entry: Entry, instance_path: Path, solution_path: Path | None) -> None:
    if solution_path is None:
        return
    instance = read_checked(instance_path, entry)
    solution = read_solution(solution_path, instance)
    faults = problem(instance.problem).violations(instance, solution)
    if faults:
        raise BadInputError(f"{solution_path}: infeasible: {faults[0]}")


@contextmanager
def _source(
    mirror: Path | None, archive: Path | None, sites: dict[str, str], timeout_s: float | None, pause_s: float
) -> Iterator[Fetch]:
    if archive is not None and archive.is_dir():
        index = {path.name: path for path in sorted(archive.rglob("*")) if path.is_file()}
        yield lambda folder, file: _unpacked(index, file)
    elif archive is not None:
        with archive_members(archive) as read:
            yield lambda folder, file: read(file)
    elif mirror is not None:
        if not (mirror / "instances").is_dir():
            raise SourceUnreachableError(
                f"{mirror}: no folder 'instances' in this mirror; correct NCO_BENCH_MIRROR."
            )
        yield lambda folder, file: _from_folder(mirror / "instances", folder, file)
    else:
        yield site_files(sites, timeout_s, pause_s)


def _unpacked(index: dict[str, Path], file: str) -> bytes | None:
    file = PurePosixPath(file).name
    path = index.get(file) or index.get(f"{file}.gz")
    return None if path is None else read_bytes(path, MAX_TEXT_BYTES)


def _from_folder(root: Path, folder: str, file: str) -> bytes | None:
    path = find_file([root], folder, file)
    return None if path is None else read_bytes(path, MAX_BINARY_BYTES)

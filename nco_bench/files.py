"""Writing files that must never be found half-written: beside their place, to disk, and then renamed."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from nco_bench.errors import NcoBenchError, ResultsError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

T = TypeVar("T")

READABLE = 0o644
"""Permissions of what others are to read, whatever the umask."""

OPEN_FILES = (Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd"))
"""Folders of what a process has open, such as ``/dev/stdout``."""

STALE_SECONDS = 600.0
"""After which a file that nobody has locked was left by a killed writer; until then it may not have got to its lock."""


@contextmanager
def replacing(
    path: Path,
    failing: type[NcoBenchError] | None = ResultsError,
    *,
    sync: bool = True,
    mode: int | None = None,
    note: str = "",
) -> Iterator[Path]:
    """Give an empty file beside `path` that takes its place at the end of the block, and is removed after an exception.

    What writers of the same file that were killed have left beside it is removed. A link stays, and what it leads to is
    replaced; into a device or a pipe (``/dev/stdout``) the content is poured.

    Parameters
    ----------
    path
        The file to be written; its folder is made.
    failing
        What an `OSError` becomes, here or in the block; None leaves it as it is.
    sync
        Whether the content is on the disk before it has the name.
    mode
        Permissions; None: those of the umask.
    note
        What the message says of a full disk beside the cause.

    Raises
    ------
    NcoBenchError
        `failing`, when the place cannot be written (no space, no permission); what stood there before stays.
    """
    asked = path
    try:
        if _takes_a_stream(path):
            with TemporaryDirectory() as folder:
                yield (made := Path(folder) / path.name)
                with made.open("rb") as source, path.open("wb") as target:
                    shutil.copyfileobj(source, target)
            return
        if path.is_symlink():
            path = Path(os.path.realpath(path))
        if path.is_dir():  # also one without a name, as the one here
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(path)
        with _held(temporary):
            try:
                yield temporary
                if sync:
                    _to_disk(temporary)
                if mode is not None:
                    temporary.chmod(mode)
                temporary.replace(path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
    except OSError as error:
        if failing is None:
            raise
        raise failing(
            f"{asked}: cannot be written ({_cause(path, error)}{note if _is_full(error) else ''}). {_remedy(error)}; "
            "what stood there before is untouched."
        ) from error


def _cause(path: Path, error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return "no space left on the disk"
    return is_in_a_file(path) or error.strerror or str(error)


def _remedy(error: OSError) -> str:
    return "Free some space or choose another place" if _is_full(error) else "Choose another place"


def _is_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_in_a_file(path: Path) -> str:
    """Say which of the folders above a path is a file, or return an empty string."""
    with suppress(OSError):  # one that may not be looked into
        for above in path.parents:
            if above.is_file():
                return f"{above} is a file"
    return ""


def leads_nowhere(path: Path) -> str:
    """Say which part of a path is a link to what is not there, or return an empty string."""
    with suppress(OSError):  # one that may not be looked into
        for one in (path, *path.parents):
            if one.is_symlink() and not one.exists():
                return f"{one} is a link to {os.readlink(one)}, which is not there or leads back to it"
    return ""


def _takes_a_stream(path: Path) -> bool:
    """Whether a path is that of a device or a pipe, or of what the process has open, and no file to be replaced."""
    if path.parent in OPEN_FILES:
        return True
    with suppress(OSError):
        mode = path.stat().st_mode
        return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
    return False


def write(
    path: Path,
    content: bytes | str,
    failing: type[NcoBenchError] = ResultsError,
    *,
    sync: bool = True,
    mode: int | None = None,
) -> None:
    """Replace a file by `content` in one step, text as UTF-8; the rest is that of `replacing`."""
    data = content.encode() if isinstance(content, str) else content
    with replacing(path, failing, sync=sync, mode=mode, note=f", {len(data) / 2**20:.1f} MiB") as temporary:
        temporary.write_bytes(data)


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Make a file and hold its lock, by which others tell that its writer lives; raises `OSError`."""
    opened = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    if fcntl is None:  # Windows, which renames no file that is open
        os.close(opened)
        yield
        return
    try:
        _lock(opened)
        yield
    finally:
        os.close(opened)


def _lock(file: int) -> bool:
    """Take the lock that a writer holds on its file until the process ends; whether it was to be had."""
    if fcntl is None:
        return False
    with suppress(OSError):  # another has it, or this file system knows none
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Wait until no other process is in a block of the same file, and let none in; where nothing can lock, all come in.

    Parameters
    ----------
    lock
        An empty file that is made and stays, its folder must be there; or a folder, in which nothing is left.

    Raises
    ------
    OSError
        When the file cannot be made.
    """
    is_folder = lock.is_dir()
    if is_folder and fcntl is None:  # Windows opens none
        yield
        return
    opened = os.open(lock, os.O_RDONLY if is_folder else os.O_CREAT | os.O_WRONLY, 0o666)
    try:
        if fcntl is not None:
            with suppress(OSError):  # this file system knows none
                fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


@contextmanager
def writing_together(folder: Path) -> Iterator[None]:
    """Let one process at a time write files that belong together into a folder, which is made; those of two would mix."""
    with suppress(OSError):  # who writes the file says why it cannot be written
        folder.mkdir(parents=True, exist_ok=True)
    with _alone_in(folder):
        yield


def read_together(folder: Path, read: Callable[[], T], refused: type[NcoBenchError]) -> T:
    """Read files that belong together; where they are `refused`, once more when nobody is writing into their folder."""
    with suppress(refused):
        return read()
    with _alone_in(folder):
        return read()


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    with ExitStack() as held:
        with suppress(OSError):  # a folder that is not there, or may not be looked into
            if folder.is_dir():
                held.enter_context(alone(folder))
        yield


def _remove_stale(path: Path) -> None:
    """Remove what killed writers of a file have left beside it: what is old, and locked by no process."""
    left = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.part")
    with suppress(OSError):  # a folder that cannot be listed, a file that another writer has just removed
        for name in filter(left.fullmatch, os.listdir(path.parent)):
            _remove_unowned(path.with_name(name))


def _remove_unowned(file: Path) -> None:
    if time.time() - file.stat().st_mtime < STALE_SECONDS:
        return
    opened = os.open(file, os.O_RDWR)
    try:
        if _lock(opened):
            file.unlink()
    finally:
        os.close(opened)


def _to_disk(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())

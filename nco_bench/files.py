"""Writing files that must never be found half-written: beside their place, to disk, and then renamed."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nco_bench.errors import NcoBenchError, ResultsError

READABLE = 0o644
"""Permissions of what others are to read, whatever the umask."""


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
        What the message says beside the cause.

    Raises
    ------
    NcoBenchError
        `failing`, when the place cannot be written (no space, no permission); what stood there before stays.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
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
        cause = "no space left on the disk" if error.errno == errno.ENOSPC else error.strerror or error
        raise failing(
            f"{path}: cannot be written ({cause}{note}). Free some space or choose another place; "
            "what stood there before is untouched."
        ) from error


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


def _to_disk(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())

"""Writing files that must never be found half-written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from nco_bench.errors import ResultsError


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file by `content` in one step: write beside it, flush to disk, rename.

    Raises
    ------
    ResultsError
        When the place cannot be written (no space, no permission); what stood there before stays.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        cause = "no space left on the disk" if error.errno == errno.ENOSPC else error.strerror
        raise ResultsError(
            f"{path}: cannot write {len(content) / 2**20:.1f} MiB ({cause}). "
            "Free some space or choose another place; the last complete file is untouched."
        ) from error

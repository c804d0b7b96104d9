"""Bytes in and out, with bounds: gzip seen through, sizes limited, damage reported as one line, writes atomic.

Limits apply to the uncompressed size, so a small .gz cannot fill the memory.
"""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from nco_bench.errors import BadInputError
from nco_bench.files import write

MIB = 1 << 20
MAX_TEXT_BYTES = 512 * MIB
"""Limit for formats that are read whole as text (.tsp, .vrp, .tour, .sol); pla85900 is 2 MiB."""
MAX_BINARY_BYTES = 4096 * MIB
"""Limit for pickles, .npz and .pt files."""
MAX_LINE_BYTES = 64 * MIB
"""Limit for one line of a line-by-line format; a tour of 1,000,000 nodes is about 45 MiB."""
HEAD_BYTES = 64 * 1024
SMALL_BYTES, MAX_SWELLING = 256 * MIB, 200
"""What is larger than this may not be more than so many times the file that it came from; coordinates shrink to a half."""

GZIP_MAGIC = b"\x1f\x8b"
BOM = b"\xef\xbb\xbf"


@contextmanager
def open_plain(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading, decompressed if it is gzip data.

    Raises
    ------
    BadInputError
        When the file cannot be opened, or turns out damaged or cut off while it is read.
    """
    try:
        with path.open("rb") as raw:
            magic = raw.read(2)
            raw.seek(0)
            if magic == GZIP_MAGIC:
                with gzip.GzipFile(fileobj=raw, mode="rb") as unpacked:
                    yield unpacked  # type: ignore[misc]
                return
            if path.suffix == ".gz" and magic:
                raise BadInputError(f"{path}: ends in .gz but is not gzip data; rename it or fetch it again.")
            yield raw
    except FileNotFoundError:
        raise BadInputError(f"{path}: no such file.") from None
    except EOFError:
        raise BadInputError(f"{path}: the gzip data is cut off; fetch the file again.") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise BadInputError(f"{path}: the gzip data is damaged ({error}); fetch the file again.") from None
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read ({error.strerror or error}).") from None


def read_bytes(path: Path, limit: int = MAX_TEXT_BYTES) -> bytes:
    """Read a whole file, decompressed; refuse more than `limit` bytes without reading further."""
    collected = io.BytesIO()  # grows in place; joining pieces would hold everything twice
    with open_plain(path) as stream:
        packed = path.stat().st_size
        while piece := stream.read(MIB):
            collected.write(piece)
            refuse_swollen(str(path), packed, collected.tell(), limit)
    return collected.getvalue()


def refuse_swollen(source: str, packed: int, plain: int, limit: int) -> None:
    """Raise `BadInputError` where `packed` bytes make more than `limit`, or so many that they were made to fill memory."""
    if plain > limit:
        raise BadInputError(
            f"{source}: more than {limit // MIB} MiB when uncompressed, the limit for this format."
        )
    if plain > max(SMALL_BYTES, packed * MAX_SWELLING):
        raise BadInputError(
            f"{source}: {packed:,} bytes swell to more than {plain // MIB} MiB when uncompressed; refused."
        )


def read_head(path: Path, size: int = HEAD_BYTES) -> bytes:
    """Read the first `size` bytes, decompressed."""
    with open_plain(path) as stream:
        return stream.read(size)


def iter_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield ``(line number, stripped line)`` for the non-blank lines; one line is in memory at a time.

    They end with LF, CRLF or CR; a byte-order mark before the first is no part of it.
    """
    with open_plain(path) as stream:
        number = 0
        while read := stream.readline(MAX_LINE_BYTES + 1):
            if len(read) > MAX_LINE_BYTES:
                raise BadInputError(
                    f"{path}:{number + 1}: the line is longer than {MAX_LINE_BYTES // MIB} MiB."
                )
            for line in read.splitlines():
                number += 1
                text = line.removeprefix(BOM if number == 1 else b"").decode("latin-1").strip()
                if text:
                    yield number, text


def read_npz(path: Path, only: Collection[str] | None = None, remedy: str = "") -> dict[str, NDArray[Any]]:
    """Read the arrays of a NumPy .npz file; object arrays (pickles) are refused.

    Parameters
    ----------
    path
        The file; it may be compressed once more by gzip.
    only
        Names of the arrays to read; None for all.
    remedy
        What to do about a damaged file, for the message's end.

    Raises
    ------
    BadInputError
        When the file is not an .npz archive, is damaged, or needs pickle.
    """
    try:
        with zipfile.ZipFile(_seekable(path)) as archive:
            refuse_swollen_members(archive, str(path))
            members = {
                name.removesuffix(".npy"): name for name in archive.namelist() if name.endswith(".npy")
            }
            return {
                key: _read_npy(archive, name) for key, name in members.items() if only is None or key in only
            }
    # zipfile and numpy raise many kinds on damaged bytes; each is the file's fault.
    except BadInputError:
        raise
    except Exception as error:
        raise BadInputError(f"{path}: not a readable .npz file ({_one_line(error)}){remedy}.") from None


def _seekable(path: Path) -> Path | io.BytesIO:
    with open_plain(path) as stream:
        if not isinstance(stream, gzip.GzipFile):
            return path
    return io.BytesIO(read_bytes(path, MAX_BINARY_BYTES))


def refuse_swollen_members(archive: zipfile.ZipFile, source: str) -> None:
    """Raise `BadInputError` where the members of an archive are larger than it can hold; members may share their bytes."""
    assert archive.fp is not None
    packed = archive.fp.seek(0, io.SEEK_END)
    plain = sum(member.file_size for member in archive.infolist())
    refuse_swollen(source, packed, plain, max(MAX_BINARY_BYTES, packed))


def _read_npy(archive: zipfile.ZipFile, member: str) -> NDArray[Any]:
    with archive.open(member) as stream:
        array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
        if stream.read(1):  # at its end the checksum is compared
            raise ValueError(f"{member} is longer than its header says")
        return array


def _one_line(error: BaseException) -> str:
    return shown(error, 160) or type(error).__name__


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, raising `BadInputError`; .gz names are compressed."""
    write(path, gzip.compress(data, mtime=0) if path.suffix == ".gz" else data, BadInputError)


def write_npz(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """Write arrays as .npz, with fixed dates so that equal arrays give equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            member.compress_type = zipfile.ZIP_DEFLATED
            content = io.BytesIO()
            np.lib.format.write_array(content, np.asanyarray(array), allow_pickle=False)
            archive.writestr(member, content.getvalue())
    write_bytes(path, buffer.getvalue())


def shown(value: object, limit: int = 60) -> str:
    """Text from a file as it may stand in a message: one line, no control characters, not too long."""
    return ascii(str(value))[1:-1][:limit]


def plain_name(path: Path) -> str:
    """File name without .gz."""
    return path.name.removesuffix(".gz")


def stem(path: Path) -> str:
    """File name without .gz and without its last suffix."""
    return Path(plain_name(path)).stem

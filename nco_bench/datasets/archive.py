"""Reading files out of an archive at hand, a .zip or .tar, whoever made it.

Nothing is ever extracted to a path that the archive names, and what it swells to is bounded: members are looked up by their
file names and read into memory.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from nco_bench.datasets.formats.reading import refuse_swollen
from nco_bench.datasets.sites import MAX_FILE_BYTES, SourceUnreachableError, plain
from nco_bench.errors import BadInputError, NcoBenchError, shown

MAX_ARCHIVE_BYTES = 2 << 30
"""Limit for the whole, uncompressed; TSPLIB's has 20 MiB."""
MAX_MEMBERS = 100_000
UNPACKING: dict[bytes, Callable[[IO[bytes]], Any]] = {
    b"\x1f\x8b": lambda raw: gzip.GzipFile(fileobj=raw),
    b"BZ": bz2.BZ2File,
    b"\xfd7": lzma.LZMAFile,
}
"""First bytes of a file to what reads it."""

Read = Callable[[str], bytes | None]
"""File name to uncompressed content, None where the archive has no such file."""


@contextmanager
def archive_members(archive: Path) -> Iterator[Read]:
    """Yield a function from file name to content, gzip seen through, which raises `BadInputError` for a damaged member.

    Raises
    ------
    SourceUnreachableError
        When the file is missing, no archive, or refused: too large, with links or devices, or with names that lead out.
    """
    with ExitStack() as stack:
        try:
            read, sizes = _opened(archive, stack)
            index = _index(archive, sizes)
        except NcoBenchError:
            raise
        except FileNotFoundError:
            raise SourceUnreachableError(f"{archive}: no such file.") from None
        except Exception as error:  # zipfile and tarfile raise many kinds on damaged bytes
            cause = shown(
                str(error).partition("\n")[0].rstrip(":")
            )  # tarfile lists what it tried, a line each
            raise SourceUnreachableError(
                f"{archive}: not a readable .zip or .tar archive ({cause or type(error).__name__}); "
                "unpack a .7z and pass the folder."
            ) from None
        yield lambda file: _member(archive, index, sizes, file, read)


def _opened(archive: Path, stack: ExitStack) -> tuple[Callable[[str], bytes], dict[str, int]]:
    """Return what reads a member, and the sizes of all."""
    if zipfile.is_zipfile(archive):
        zipped = stack.enter_context(zipfile.ZipFile(archive))
        return zipped.read, {info.filename: info.file_size for info in zipped.infolist() if not info.is_dir()}
    tar = stack.enter_context(_opened_tar(archive, stack))
    sizes, total = {}, 0
    for number, member in enumerate(tar):  # as they come: what a member claims is known before it is unpacked
        if not (member.isfile() or member.isdir()):
            raise SourceUnreachableError(
                f"{archive}: refused, the member {shown(member.name)!r} is a link or device."
            )
        total += member.size
        refuse_swollen(str(archive), archive.stat().st_size, total, MAX_ARCHIVE_BYTES)
        if number == MAX_MEMBERS:
            raise SourceUnreachableError(f"{archive}: refused, more than {MAX_MEMBERS:,} members.")
        if member.isfile():
            sizes[member.name] = member.size

    def read(name: str) -> bytes:
        stream = tar.extractfile(name)
        return b"" if stream is None else stream.read()

    return read, sizes


def _opened_tar(archive: Path, stack: ExitStack) -> tarfile.TarFile:
    """Open a .tar, .tar.gz, .tar.bz2 or .tar.xz; tarfile by itself reads long names whole, however long."""
    raw = stack.enter_context(archive.open("rb"))
    magic = raw.read(2)
    raw.seek(0)
    unpacked: IO[bytes] = stack.enter_context(UNPACKING[magic](raw)) if magic in UNPACKING else raw
    return tarfile.open(fileobj=cast(IO[bytes], _InPieces(unpacked)), mode="r:")


class _InPieces:
    """A file of which no piece beyond `MAX_FILE_BYTES` is read at once."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int) -> bytes:
        if size > MAX_FILE_BYTES:
            raise ValueError(f"a piece of {size:,} bytes")
        return self._file.read(size)


def _index(archive: Path, sizes: dict[str, int]) -> dict[str, str]:
    """Base name to member; refuse an archive that names places outside its own folder."""
    index = {}
    for name in sizes:
        path = PurePosixPath(name.replace("\\", "/"))
        if not path.parts or path.is_absolute() or ".." in path.parts or ":" in path.parts[0]:
            raise SourceUnreachableError(
                f"{archive}: refused, the member {shown(name)!r} points outside the archive; get it from the official site."
            )
        index[path.name] = name
    return index


def _member(
    archive: Path, index: dict[str, str], sizes: dict[str, int], file: str, read: Callable[[str], bytes]
) -> bytes | None:
    name = PurePosixPath(file).name
    for base in (name, f"{name}.gz"):
        if base in index:
            if sizes[index[base]] > MAX_FILE_BYTES:
                raise BadInputError(f"{archive}: member {base} is larger than {MAX_FILE_BYTES >> 20} MiB.")
            try:
                content = read(index[base])
            except Exception as error:
                cause = shown(str(error), 160) or type(error).__name__
                raise BadInputError(f"{archive}: member {base} cannot be read ({cause}).") from None
            return plain(content, f"{archive}: {base}")
    return None

"""A file is found whole, new or as it was before."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nco_bench import files
from nco_bench.errors import BadInputError, ResultsError
from nco_bench.files import READABLE, replacing, write


@pytest.fixture
def private() -> Iterator[None]:
    """Files of this process are for their owner alone."""
    before = os.umask(0o077)
    yield
    os.umask(before)


def test_folders_are_made_and_nothing_else_is_left(tmp_path: Path) -> None:
    write(tmp_path / "a" / "b" / "file", "é\r\n")
    assert (tmp_path / "a" / "b" / "file").read_bytes() == b"\xc3\xa9\r\n"
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["file"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(ResultsError, match=r"file: cannot be written \(no space left on the disk, 1.0 MiB\)"):
        write(path, bytes(1 << 20))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_interrupts_the_block_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write(path, b"old")

    def interrupted() -> None:
        with replacing(path) as temporary:
            temporary.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_caller_says_what_a_place_that_cannot_be_written_raises(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BadInputError, match="inside: cannot be written"):
        write(tmp_path / "file" / "inside", b"", BadInputError)
    with pytest.raises(FileExistsError), replacing(tmp_path / "file" / "inside", None):
        pass


@pytest.mark.usefixtures("private")
@pytest.mark.parametrize(("mode", "expected"), [(None, 0o600), (READABLE, 0o644)])
def test_permissions_are_those_of_the_umask_or_those_asked_for(
    tmp_path: Path, mode: int | None, expected: int
) -> None:
    write(tmp_path / "file", b"", mode=mode)
    assert (tmp_path / "file").stat().st_mode & 0o777 == expected


def test_content_is_on_the_disk_before_it_has_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[bytes, bool]] = []
    path = tmp_path / "file"

    def look(descriptor: int) -> None:
        seen.append((os.pread(descriptor, 10, 0), path.exists()))

    monkeypatch.setattr(files.os, "fsync", look)
    write(path, b"content")
    assert seen == [(b"content", False)]

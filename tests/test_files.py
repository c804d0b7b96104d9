"""A file is found whole, new or as it was before."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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


def test_the_size_is_said_of_a_full_disk_alone(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ResultsError, match=r"cannot be written \(\S*file is a file\)"):
        write(tmp_path / "file" / "below", b"new")


def test_a_folder_is_no_place_for_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (".", "..", "/", str(tmp_path)):
        with pytest.raises(ResultsError, match=r"cannot be written .*Is a directory"):
            write(Path(name), "text")
    assert not list(tmp_path.iterdir())


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


def test_what_a_killed_writer_left_is_removed_by_the_next_and_what_a_living_one_writes_is_not(
    tmp_path: Path,
) -> None:
    long_ago = time.time() - 2 * files.STALE_SECONDS
    others = [tmp_path / name for name in (".file.part", ".file.0123abcd.part.json", ".files.0123abcd.part")]
    dead, young = tmp_path / ".file.0123abcd.part", tmp_path / ".file.89abcdef.part"
    for left in (*others, dead, young):
        left.write_text("half")
        if left != young:
            os.utime(left, (long_ago, long_ago))
    with replacing(tmp_path / "file") as living:
        os.utime(living, (long_ago, long_ago))  # its writer computes for long
        write(tmp_path / "file", "first")
        assert {*tmp_path.iterdir()} == {*others, young, living, tmp_path / "file"}
        living.write_text("second")
    assert (tmp_path / "file").read_text() == "second"
    assert {*tmp_path.iterdir()} == {*others, young, tmp_path / "file"}


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


@pytest.mark.parametrize("name", ["lock", ""])
def test_one_at_a_time_is_alone(name: str, tmp_path: Path) -> None:
    order = []

    def second() -> None:
        with files.alone(tmp_path / name):
            order.append("second")

    with ThreadPoolExecutor(1) as threads:
        with files.alone(tmp_path / name):
            waits = threads.submit(second)
            time.sleep(0.2)
            order.append("first")
        waits.result(timeout=10)
    assert order == ["first", "second"]
    assert [file.name for file in tmp_path.iterdir()] == [name] * bool(name)


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    """``--out link.csv`` made a file of the link and left the old content where it led to."""
    real, link, dangling = tmp_path / "real.csv", tmp_path / "link.csv", tmp_path / "later.csv"
    real.write_text("old")
    link.symlink_to(real)
    dangling.symlink_to(tmp_path / "made.csv")
    write(link, "new")
    write(dangling, "new")
    assert link.is_symlink()
    assert dangling.is_symlink()
    assert real.read_text() == (tmp_path / "made.csv").read_text() == "new"
    assert {path.name for path in tmp_path.iterdir()} == {"real.csv", "link.csv", "later.csv", "made.csv"}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_gets_the_content_and_stays_one(tmp_path: Path) -> None:
    """``--out >(gzip > FILE)``, ``--out /dev/stdout``: the pipe became a file that nobody read."""
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(pipe.read_text)
        write(pipe, "content")
        assert read.result(timeout=60) == "content"
    assert pipe.is_fifo()
    script = (
        "from pathlib import Path; from nco_bench.files import write; write(Path('/dev/fd/1'), 'content')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "content"

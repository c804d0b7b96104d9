"""Datasets of Long Range Arena: names, files of the published layouts (made here, tiny), and what is said of bad ones."""

from __future__ import annotations

import hashlib
import io
import struct
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from nco_bench.datasets import lra
from nco_bench.datasets.load import Places, load_dataset
from nco_bench.datasets.lra_files import read_task
from nco_bench.datasets.pull import pull
from nco_bench.datasets.storage import load_saved, save_dataset
from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.problems import problem
from nco_bench.problems.lra import pathfinder


def archive(path: Path, files: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def reviews(path: Path) -> Path:
    return archive(
        path,
        {
            "aclImdb/test/neg/0_2.txt": b"bad",
            "aclImdb/test/neg/1_1.txt": b"x" * 5000,
            "aclImdb/test/pos/0_9.txt": "caf\u00e9".encode(),
            "aclImdb/train/unsup/0_0.txt": b"unlabelled",
            "aclImdb/train/pos/0_8.txt": b"fine",
            "aclImdb/test/urls_neg.txt": b"http://",
        },
    )


def test_reviews_are_read_as_bytes_cut_at_4000(tmp_path: Path) -> None:
    found = read_task("lra-text", "test", reviews(tmp_path / "a.tar.gz"))
    assert [(i.label, i.n) for i in found] == [(0, 3), (1, 5), (0, 4000)]
    assert bytes((found[1].tokens - 1).astype(np.uint8)).decode() == "caf\u00e9"


def test_images_become_grey_by_the_weights_of_luma(tmp_path: Path) -> None:
    red, green, blue = (np.full(1024, v, dtype=np.uint8) for v in (200, 100, 50))
    record = bytes([7]) + red.tobytes() + green.tobytes() + blue.tobytes()
    path = archive(tmp_path / "c.tar.gz", {"cifar-10-batches-bin/test_batch.bin": record * 2})
    found = read_task("lra-image", "test", path, limit=1)
    assert len(found) == 1
    assert found[0].label == 7
    # 0.2989 * 200 + 0.587 * 100 + 0.114 * 50 = 124.18
    np.testing.assert_array_equal(found[0].tokens, 125)


def test_pairs_are_two_texts(tmp_path: Path) -> None:
    path = tmp_path / "new_aan_pairs.test.tsv"
    path.write_bytes(b"1.0\tP1\tP2\tfirst text\tother\n0\tP3\tP4\ta\tbc\n")
    found = read_task("lra-retrieval", "test", path)
    assert [i.label for i in found] == [1, 0]
    assert [bytes((t - 1).astype(np.uint8)) for t in found[0].texts] == [b"first text", b"other"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"1\tP1\tP2\tonly one\n", "1: 4 columns"),
        (b"1\ta\tb\tc\td\nyes\ta\tb\tc\td\n", "2: the label is b'yes'"),
        (b"1\ta\tb\tc\t\n", "1: a text is empty"),
        (b"", "holds no instance"),
    ],
)
def test_damaged_pairs_name_the_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "new_aan_pairs.test.tsv"
    path.write_bytes(content)
    with pytest.raises(BadInputError, match=message):
        read_task("lra-retrieval", "test", path)


def test_damaged_archives_are_named(tmp_path: Path) -> None:
    path = reviews(tmp_path / "a.tar.gz")
    path.write_bytes(path.read_bytes()[:150])
    with pytest.raises(BadInputError, match="cannot be read"):
        read_task("lra-text", "test", path)
    cut = archive(tmp_path / "c.tar.gz", {"cifar-10-batches-bin/test_batch.bin": bytes(3000)})
    with pytest.raises(BadInputError, match="no multiple of 3073"):
        read_task("lra-image", "test", cut)
    with pytest.raises(BadInputError, match=r"has no data_batch_1\.bin"):
        read_task("lra-image", "train", cut)


def test_a_missing_file_is_named_with_its_place_and_remedy(tmp_path: Path) -> None:
    with pytest.raises(
        BadInputError, match=r"lra/aclImdb_v1\.tar\.gz; run 'nco-bench instances pull lra-text'"
    ):
        load_dataset("lra-text", Places(tmp_path))
    with pytest.raises(BadInputError, match=r"lra/new_aan_pairs\.eval\.tsv; take it out of lra_release"):
        load_dataset("lra-retrieval:valid", Places(tmp_path))


def test_another_file_of_the_name_is_refused(tmp_path: Path) -> None:
    reviews(tmp_path / "lra" / "aclImdb_v1.tar.gz")
    with pytest.raises(BadInputError, match="not the published file"):
        load_dataset("lra-text", Places(tmp_path))


def test_names_choose_split_and_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = reviews(tmp_path / "lra" / "aclImdb_v1.tar.gz")
    md5 = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    monkeypatch.setitem(lra.ARCHIVES, "lra-text", (path.name, "http://127.0.0.1:9/x", md5))
    assert len(load_dataset("lra-text:count=2", Places(tmp_path))) == 2
    assert load_dataset("lra-text:train", Places(tmp_path)).instances[0].name == "lra-text-train-pos-0_8"
    with pytest.raises(UnknownNameError, match="count=100"):
        load_dataset("lra-text:half", Places(tmp_path))
    assert pull("lra-text", tmp_path).present == ("lra-text",)


def test_verify_tells_whole_from_missing_and_foreign_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = reviews(tmp_path / "lra" / "aclImdb_v1.tar.gz")
    archive(tmp_path / "lra" / "cifar-10-binary.tar.gz", {"x": b"another file"})
    (tmp_path / "lra" / "new_aan_pairs.test.tsv").write_bytes(b"1\tP1\tP2\tfirst\tother\n")
    (tmp_path / "lra" / "new_aan_pairs.eval.tsv").write_bytes(b"1\tP1\tP2\tfirst\n")
    md5 = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    monkeypatch.setitem(lra.ARCHIVES, "lra-text", (path.name, "http://127.0.0.1:9/x", md5))
    states = lra.verify_lra("lra", tmp_path)
    assert states["lra-text"] == states["lra-retrieval:test"] == "ok"
    assert states["lra-retrieval:train"] == "missing"
    assert "4 columns" in states["lra-retrieval:valid"]
    assert "not the published file" in states["lra-image"]
    with pytest.raises(UnknownNameError, match="lra-text"):
        lra.verify_lra("lra-txt", tmp_path)


def test_pull_offline_is_one_line_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, _, md5 = lra.ARCHIVES["lra-image"]
    monkeypatch.setitem(lra.ARCHIVES, "lra-image", (file, "http://127.0.0.1:9/x.tar.gz", md5))
    with pytest.raises(BadInputError, match="when offline, put the file into") as caught:
        pull("lra-image", tmp_path)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "lra").iterdir())
    ((name, reason),) = pull("lra-retrieval", tmp_path).failed
    assert name == "lra-retrieval"
    assert "new_aan_pairs.test.tsv" in reason
    with pytest.raises(UnknownNameError, match="lra-text"):
        pull("lra-txt", tmp_path)


def test_generated_sets_are_stored_scored_and_prefix_stable(tmp_path: Path) -> None:
    longer = load_dataset("lra-listops48:count=30:seed=5", Places(tmp_path))
    shorter = load_dataset("lra-listops48:count=10:seed=5", Places(tmp_path))
    for a, b in zip(shorter.instances, longer.instances, strict=False):
        np.testing.assert_array_equal(a.arrays()["tokens"], b.arrays()["tokens"])
    path = save_dataset(longer, tmp_path / "x.npz")
    assert load_saved(path).sha256 == longer.sha256
    referee, instance = problem("lra"), longer.instances[0]
    label = int(instance.arrays()["label"])
    assert referee.score(instance, np.array([label])) == 1
    assert referee.score(instance, np.array([(label + 1) % 10])) == 0
    assert "outside 0..9" in referee.violations(instance, np.array([10]))[0]
    assert "one integer" in referee.violations(instance, np.array([1.0]))[0]


@pytest.mark.parametrize("name", ["lra-pathfinder64", "lra-listops5000:count=1", "lra-listops:hard"])
def test_unsupported_sizes_and_settings_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises((BadInputError, UnknownNameError)):
        load_dataset(name, Places(tmp_path))


def png(pixels: np.ndarray, colour: int = 0) -> bytes:
    """Write a PNG by the standard's own words: signature, IHDR, one IDAT of rows with filter 0, IEND."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)

    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    head = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, colour, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def release(instances: Path, count: int = 20) -> Path:
    """Lay out drawings as the release does: two files of lines, an empty image among them."""
    folder = instances / "lra" / "pathfinder32" / "curv_contour_length_14"
    (folder / "metadata").mkdir(parents=True)
    for part in (0, 10):  # 10 comes after 2 by number only
        (folder / "imgs" / str(part)).mkdir(parents=True)
        lines = []
        for k in range(count // 2):
            grey = np.arange(1024, dtype=np.uint8).reshape(32, 32) + np.uint8(part + k)
            empty = (part, k) == (0, 3)
            (folder / "imgs" / str(part) / f"sample_{k}.png").write_bytes(b"" if empty else png(grey))
            lines.append(f"imgs/{part} sample_{k}.png {k} {k % 2} 1.5 2.0 7")
        (folder / "metadata" / f"{part}.npy").write_text("\n".join(lines) + "\n")
    return folder


def test_released_pathfinder_images_are_read_from_lines_of_text_and_png(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    release(tmp_path)
    test = load_dataset("lra-pathfinder-released", Places(tmp_path))
    train = load_dataset("lra-pathfinder-released:train", Places(tmp_path))
    valid = load_dataset("lra-pathfinder-released:valid", Places(tmp_path))
    assert [len(d) for d in (train, valid, test)] == [15, 2, 2]  # 16, 2, 2 of 20 lines; one image is empty
    assert [i.name for i in test.instances] == [
        "lra-pathfinder-test-10-sample_8",
        "lra-pathfinder-test-10-sample_9",
    ]
    assert [int(i.arrays()["label"]) for i in test.instances] == [0, 1]
    tokens = test.instances[1].arrays()["tokens"]
    np.testing.assert_array_equal(tokens, (np.arange(1024) + 19) % 256 + 1)
    assert test.instances[0].problem == "lra"
    assert len(load_dataset("lra-pathfinder-released:train:count=3", Places(tmp_path))) == 3
    assert lra.verify_lra("lra-pathfinder-released", tmp_path) == {"lra-pathfinder-released": "ok"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (png(np.zeros((16, 16), np.uint8)), "16 x 16 pixels of mode L; expected 32 x 32 grey"),
        (png(np.zeros((32, 96), np.uint8).reshape(32, 96), 2)[:-30], "sample_8.png"),
        (b"GIF89a", "cannot be read as a PNG"),
        (None, r"metadata/10.npy:9: names .*sample_8.png, which is not there"),
    ],
)
def test_damaged_pathfinder_images_are_named(content: bytes | None, message: str, tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    image = release(tmp_path) / "imgs" / "10" / "sample_8.png"
    image.unlink() if content is None else image.write_bytes(content)
    with pytest.raises(BadInputError, match=message):
        load_dataset("lra-pathfinder-released", Places(tmp_path))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("imgs/10 sample_0.png 0", "10.npy:1: expected a folder, a file, a number and the label"),
        ("imgs/10 sample_0.png 0 2", "label 0 or 1"),
        ("../../.. passwd 0 1", "leads out of the folder"),
        ("imgs/10 ../../passwd 0 1", "leads out of the folder"),
    ],
)
def test_lines_of_the_release_that_mean_nothing_or_lead_outside_are_refused(
    line: str, message: str, tmp_path: Path
) -> None:
    (release(tmp_path) / "metadata" / "10.npy").write_text(line + "\n")
    with pytest.raises(BadInputError, match=message):
        load_dataset("lra-pathfinder-released", Places(tmp_path))


def test_the_missing_release_is_named_with_its_archive(tmp_path: Path) -> None:
    with pytest.raises(
        BadInputError, match=r"lra/pathfinder32/curv_contour_length_14; take it out of lra_release"
    ):
        load_dataset("lra-pathfinder-released", Places(tmp_path))


def test_our_drawings_say_how_they_differ_from_the_release() -> None:
    """contour_length 14, distractor_length 14 // 3, num_distractor_snakes 20 // 4: the benchmark's Pathfinder32 builder."""
    text = pathfinder.__doc__ or ""
    assert f"2, 14                        2, {pathfinder.CONTOUR}" in text
    assert f"5 (20 // 4), 4 (14 // 3)     {pathfinder.DISTRACTORS}, {pathfinder.DISTRACTOR}" in text

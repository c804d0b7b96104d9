"""The public data behind Text, Retrieval, Image and Pathfinder of Long Range Arena: which files, and how they are read.

- Text: ``aclImdb_v1.tar.gz`` (Maas et al., 2011), 25,000 labelled reviews per split; bytes of a review, cut at 4,000.
- Retrieval: ``new_aan_pairs.{train,eval,test}.tsv`` of the benchmark's release (``lra_release.gz``, 7.7 GB): label, two ids,
  two texts, separated by tabs; bytes of each text, cut at 4,000.
- Image: ``cifar-10-binary.tar.gz`` (Krizhevsky, 2009): records of a label byte and 3,072 colour bytes; grey by the weights
  0.2989, 0.5870, 0.1140 and truncation, as ``tf.image.rgb_to_grayscale`` with the benchmark's cast to whole numbers.
- Pathfinder (``lra-pathfinder-released``; plain ``lra-pathfinder`` is drawn here, see `nco_bench.problems.lra.pathfinder`):
  the folder ``pathfinder32/curv_contour_length_14`` of the same release, which the benchmark calls hard. ``metadata/N.npy``
  are text files, whatever their suffix: on each line a folder, the name of a PNG in it, a number and the label. Empty images
  are left out, as in the benchmark. Its splits are 80, 10 and 10 % in an order that TensorFlow Datasets shuffles by
  hashes of names; here they follow the order of the files, so the same image may be in another split.

Splits: ``test`` and ``train``; of Image, ``train`` is the first 45,000 of 50,000 and ``valid`` the rest, as in the
benchmark.
"""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from nco_bench.errors import BadInputError
from nco_bench.problems.lra import LRAInstance, lra_task

SPLITS = {
    "lra-text": ("test", "train"),
    "lra-retrieval": ("test", "train", "valid"),
    "lra-image": ("test", "train", "valid"),
    "lra-pathfinder-released": ("test", "train", "valid"),
}
"""Splits of each task with public data; the first is what a bare name means."""

RETRIEVAL_FILES = {split: f"new_aan_pairs.{word}.tsv" for split, word in
                   (("test", "test"), ("train", "train"), ("valid", "eval"))}  # fmt: skip
PATHFINDER_FOLDER = "pathfinder32/curv_contour_length_14"
IMAGE_SIDE, IMAGE_RECORD = 32, 3073
IMAGE_TRAIN, IMAGE_FILE = 45_000, 10_000
GREY = np.array([0.2989, 0.5870, 0.1140])
MAX_LINE = 2**26


def read_task(name: str, split: str, path: Path, limit: int | None = None) -> list[LRAInstance]:
    """Read the instances of a split in their order in the file.

    Parameters
    ----------
    name, split
        Task and split, see `SPLITS`.
    path
        The file, laid out like the published one.
    limit
        Read no more than so many; None for all.

    Raises
    ------
    BadInputError
        For a damaged file or one of another layout.
    """
    readers = {
        "lra-text": _reviews, "lra-retrieval": _pairs, "lra-image": _images, "lra-pathfinder-released": _drawings,
    }  # fmt: skip
    found: list[LRAInstance] = []
    try:
        for instance in readers[name](path, split):
            found.append(instance)
            if limit is not None and len(found) == limit:
                break
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        reason = str(error) or type(error).__name__
        raise BadInputError(f"{path}: cannot be read ({reason}); pull or copy the file again.") from None
    if not found:
        raise BadInputError(f"{path}: holds no instance of the split {split!r} of {name}.")
    return found


def task_of(name: str) -> str:
    """Return the task that a dataset of public data is of."""
    return name.removesuffix("-released")


def byte_tokens(text: bytes, length: int) -> NDArray[np.int16]:
    """Return the first bytes of a text as tokens: the byte's value plus 1."""
    return np.frombuffer(text[:length], dtype=np.uint8).astype(np.int16) + 1


def grey(colour: NDArray[np.uint8]) -> NDArray[np.int16]:
    """Return grey values ``(1024,)`` of the colour planes ``(3, 1024)``."""
    # float32 in the order of the benchmark's program
    return (colour.T.astype(np.float32) @ GREY.astype(np.float32)).astype(np.int16)


def _reviews(path: Path, split: str) -> Iterator[LRAInstance]:
    """Read the reviews; a split is in the order of labels in the archive, so positives and negatives alternate here."""
    length = lra_task("lra-text").length
    texts: dict[str, list[tuple[str, bytes]]] = {"neg": [], "pos": []}
    with tarfile.open(path) as tar:
        for member in tar:
            parts = member.name.removeprefix("./").split("/")
            inside = len(parts) == 4 and parts[1] == split and parts[2] in texts
            stream = tar.extractfile(member) if inside and member.isfile() else None
            if stream is not None:
                texts[parts[2]].append((parts[3], stream.read(length)))
    pairs = [(sorted(texts[kind]), label) for label, kind in enumerate(("neg", "pos"))]
    for index in range(max(len(found) for found, _ in pairs)):
        for found, label in pairs:
            if index < len(found) and found[index][1]:
                name = f"lra-text-{split}-{'pos' if label else 'neg'}-{found[index][0].removesuffix('.txt')}"
                yield LRAInstance(name, "lra-text", byte_tokens(found[index][1], length), label)


def _pairs(path: Path, split: str) -> Iterator[LRAInstance]:
    length = lra_task("lra-retrieval").length
    with path.open("rb") as stream:
        number = 0
        while line := stream.readline(MAX_LINE):
            number += 1
            parts = line.rstrip(b"\r\n").split(b"\t")
            if len(parts) != 5:
                raise BadInputError(
                    f"{path}:{number}: {len(parts)} columns; expected label, two ids and two texts, with tabs between."
                )
            if parts[0] not in (b"0", b"1", b"0.0", b"1.0"):
                raise BadInputError(f"{path}:{number}: the label is {parts[0][:20]!r}; expected 0 or 1.")
            if not (parts[3] and parts[4]):
                raise BadInputError(f"{path}:{number}: a text is empty.")
            first, second = (byte_tokens(part, length) for part in parts[3:])
            yield LRAInstance(
                f"lra-retrieval-{split}-{number:06d}",
                "lra-retrieval",
                np.concatenate([first, second]),
                int(parts[0][:1]),
                len(first),
            )


def _images(path: Path, split: str) -> Iterator[LRAInstance]:
    files = ["test_batch.bin"] if split == "test" else [f"data_batch_{k}.bin" for k in range(1, 6)]
    start, stop = {"test": (0, IMAGE_FILE), "train": (0, IMAGE_TRAIN), "valid": (IMAGE_TRAIN, 10**9)}[split]
    index = 0
    with tarfile.open(path) as tar:
        members = {m.name.rsplit("/", 1)[-1]: m for m in tar if m.isfile()}
        for file in files:
            stream = tar.extractfile(members[file]) if file in members else None
            if stream is None:
                raise BadInputError(f"{path}: has no {file}; expected the binary version of CIFAR-10.")
            for label, colour in _records(path, file, stream):
                if start <= index < stop:
                    name = f"lra-image-{split}-{index - start:05d}"
                    yield LRAInstance(name, "lra-image", grey(colour) + np.int16(1), label)
                index += 1


def _records(path: Path, file: str, stream: IO[bytes]) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    content = np.frombuffer(stream.read(IMAGE_FILE * IMAGE_RECORD + 1), dtype=np.uint8)
    if not len(content) or len(content) % IMAGE_RECORD:
        raise BadInputError(
            f"{path}: {file} has {len(content)} bytes, no multiple of {IMAGE_RECORD}, a label and 3 x 1,024 values."
        )
    for record in content.reshape(-1, IMAGE_RECORD):
        if record[0] > 9:
            raise BadInputError(f"{path}: {file} has the label {record[0]}; expected 0 to 9.")
        yield int(record[0]), record[1:].reshape(3, -1)


def _drawings(path: Path, split: str) -> Iterator[LRAInstance]:
    lines = list(_metadata(path))
    first, last = {"train": (0, 8), "valid": (8, 9), "test": (9, 10)}[split]
    for place, image, label in lines[len(lines) * first // 10 : len(lines) * last // 10]:
        if not image.is_file():
            raise BadInputError(f"{place}: names {image}, which is not there; unpack the whole folder.")
        if image.stat().st_size:
            name = f"lra-pathfinder-{split}-{image.parent.name}-{image.stem}"
            yield LRAInstance(name, "lra-pathfinder", _pixels(image), label)


def _metadata(path: Path) -> Iterator[tuple[str, Path, int]]:
    """Yield where each line is, its image and its label, files in the order of their numbers."""
    files = [file for file in (path / "metadata").glob("*.npy") if file.stem.isdecimal()]
    for file in sorted(files, key=lambda file: int(file.stem)):
        for number, line in enumerate(
            file.read_text(encoding="ascii", errors="replace").splitlines(), start=1
        ):
            parts, place = line.split(), f"{file}:{number}"
            if len(parts) < 4 or parts[3] not in ("0", "1"):
                raise BadInputError(f"{place}: expected a folder, a file, a number and the label 0 or 1.")
            if (
                ".." in Path(parts[0]).parts
                or Path(parts[0]).is_absolute()
                or Path(parts[1]).name != parts[1]
            ):
                raise BadInputError(f"{place}: {parts[0]}/{parts[1]} leads out of the folder.")
            yield place, path / parts[0] / parts[1], int(parts[3])


def _pixels(image: Path) -> NDArray[np.int16]:
    """Return the grey values of a PNG plus 1, row by row."""
    try:
        from PIL import Image
    except ImportError:
        raise BadInputError(f"{image}: PNG files are read by Pillow; pip install 'nco-bench[lra]'.") from None
    try:
        with Image.open(image, formats=["PNG"]) as opened:
            if (opened.mode, opened.size) != ("L", (IMAGE_SIDE, IMAGE_SIDE)):
                found = f"{opened.size[0]} x {opened.size[1]} pixels of mode {opened.mode}"
                raise BadInputError(f"{image}: {found}; expected 32 x 32 grey ones (L).")
            return np.asarray(opened).reshape(-1).astype(np.int16) + np.int16(1)
    except (OSError, SyntaxError) as error:  # SyntaxError: what Pillow calls a broken PNG
        raise BadInputError(f"{image}: cannot be read as a PNG ({error}); unpack it again.") from None

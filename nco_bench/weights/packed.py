"""Weights files packed without loss: exponents, which repeat, apart from signs and mantissas, which do not.

A packed file is itself a safetensors file of three byte tensors: ``header``, the header of the plain file; ``exponents``,
zlib's, of every floating-point value; ``rest``, all other bytes. It unpacks to the plain file to the byte, so the SHA-256 of
weights is that of the plain file, packed or not. bf16 shrinks to 65 %, fp16 and fp32 to 83 %.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MARK = {"nco-bench.packed": "1"}
"""Metadata of a packed file."""
WORDS = {"BF16": "<u2", "F16": "<u2", "F32": "<u4"}
"""Types whose values are taken apart."""
MAX_HEADER_BYTES = 16 << 20


def pack(plain: bytes) -> bytes:
    """Return a safetensors file packed; one that would not be smaller stays as it is."""
    from safetensors.numpy import save

    header = _header(plain)
    body = plain[8 + len(header) :]
    exponents, rest = [], []
    for dtype, first, last in _spans(header, len(body)):
        if dtype in WORDS:
            words = np.frombuffer(body[first:last], WORDS[dtype])
            # The sign goes from the top of each word to its end, so that the top byte begins with the exponent.
            turned = (words << 1) | (words >> (8 * words.itemsize - 1))
            columns = turned.astype(words.dtype).view(np.uint8).reshape(len(words), words.itemsize)
            exponents.append(columns[:, -1])
            rest.append(columns[:, :-1].reshape(-1))
        else:
            rest.append(np.frombuffer(body[first:last], np.uint8))
    parts = {
        "header": _deflated(header),
        "exponents": _deflated(b"".join(part.tobytes() for part in exponents)),
        "rest": np.frombuffer(b"".join(part.tobytes() for part in rest), np.uint8),
    }
    packed: bytes = save(parts, metadata=MARK)
    if unpack(packed) != plain:
        raise ValueError("does not unpack to what it was")
    return packed if len(packed) < len(plain) else plain


def unpack(data: bytes) -> bytes:
    """Return the plain safetensors file that a packed one was made of; a plain one comes back as it is.

    Raises
    ------
    ValueError
        For a file that is no safetensors at all, or is marked as packed and damaged.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        if json.loads(_header(data)).get("__metadata__") != MARK:
            return data
        return _unpacked(load(data))
    except (
        SafetensorError,
        AttributeError,
        KeyError,
        TypeError,
        OverflowError,
        RecursionError,
        zlib.error,
    ) as error:
        raise ValueError(str(error)) from error


def read_plain(path: Path) -> bytes:
    """Return the bytes of a weights file, unpacked; they are kept until `forget` for who checks first and then loads.

    Raises
    ------
    OSError
        When it cannot be read.
    ValueError
        As `unpack` does.
    """
    state = path.stat()
    return _read(path, (state.st_ino, state.st_size, state.st_mtime_ns))


@lru_cache(maxsize=1)
def _read(path: Path, _state: tuple[int, ...]) -> bytes:
    return unpack(path.read_bytes())


forget = _read.cache_clear


def _unpacked(parts: Mapping[str, NDArray[np.uint8]]) -> bytes:
    rest, header = parts["rest"], _inflated(parts["header"], MAX_HEADER_BYTES)
    exponents = np.frombuffer(_inflated(parts["exponents"], rest.nbytes), np.uint8)
    size = rest.nbytes + exponents.nbytes
    plain = np.empty(8 + len(header) + size, np.uint8)
    plain[:8] = np.frombuffer(len(header).to_bytes(8, "little"), np.uint8)
    plain[8 : 8 + len(header)] = np.frombuffer(header, np.uint8)
    body, top = plain[8 + len(header) :], 0
    for dtype, first, last in _spans(header, size):
        at = first - top  # in `rest`, which lacks the exponents so far
        if dtype in WORDS:
            kind = np.dtype(WORDS[dtype])
            count = (last - first) // kind.itemsize
            columns = body[first:last].reshape(count, kind.itemsize)
            columns[:, :-1] = rest[at : at + last - first - count].reshape(count, kind.itemsize - 1)
            columns[:, -1] = exponents[top : top + count]
            turned = np.frombuffer(body[first:last], kind)
            body[first:last] = ((turned >> 1) | (turned << (8 * kind.itemsize - 1))).view(np.uint8)
            top += count
        else:
            body[first:last] = rest[at : at + last - first]
    return plain.tobytes()


def _header(data: bytes) -> bytes:
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        raise ValueError("no safetensors file")
    return data[8 : 8 + length]


def _spans(header: bytes, size: int) -> Iterator[tuple[str, int, int]]:
    """Yield type and place of the tensors in the order in which they lie, which must be without gaps."""
    tensors: list[dict[str, Any]] = [v for k, v in json.loads(header).items() if k != "__metadata__"]
    end = 0
    for tensor in sorted(tensors, key=lambda tensor: tuple(tensor["data_offsets"])):
        first, last = tensor["data_offsets"]
        if first != end or last < first:
            raise ValueError("tensors overlap or have gaps between them")
        yield tensor["dtype"], first, last
        end = last
    if end != size:
        raise ValueError("has more or less content than its header says")


def _deflated(data: bytes) -> NDArray[np.uint8]:
    # Huffman codes alone: matches between exponents are accidental and cost more than they save.
    coder = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS, 9, zlib.Z_HUFFMAN_ONLY)
    return np.frombuffer(coder.compress(data) + coder.flush(), np.uint8)


def _inflated(data: NDArray[np.uint8], limit: int) -> bytes:
    coder = zlib.decompressobj()
    content = coder.decompress(data.tobytes(), limit + 1)
    if len(content) > limit or not coder.eof:
        raise ValueError("its packed part does not end where it should")
    return content

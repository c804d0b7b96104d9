"""Seals: checksums that lines and documents of JSON carry, so that no changed byte goes unnoticed.

Files of before have none and are read as they are. A seal that was itself damaged is told from one that never was: in a
document by its first field, ``"sealed": true``; in a line by the unknown field that its damaged name leaves behind.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Sequence
from typing import Any

LINE_MARK = b',"crc":"'
_DIGITS = len(b'00000000"}\n')
_LINE_END = len(LINE_MARK) + _DIGITS
_BARE_END, _BARE_DIGITS = _LINE_END - 1, _DIGITS - 1
"""Without the newline."""
BLANK = b"0" * 16
_DOCUMENT_END = re.compile(rb'"seal": "([0-9a-f]{16})"\s*\}\s*\Z')


class BrokenSealError(ValueError):
    """Something was changed after it was written."""


def seal_line(line: bytes) -> bytes:
    """Add the CRC-32 of a line, a JSON object with its newline, as its last field."""
    return seal_body(line[:-2])


def seal_body(body: bytes) -> bytes:
    """Return the sealed line of a JSON object that lacks its closing brace."""
    return b'%b,"crc":"%08x"}\n' % (body, zlib.crc32(body))


def unseal_line(line: bytes, *, sealed: bool = False) -> bytes:
    """Return a line without its checksum; one that has none is returned as it is, unless it must be `sealed`.

    Raises
    ------
    BrokenSealError
        When the line does not have the checksum that it carries, or must have.
    """
    if line[-_LINE_END:-_DIGITS] != LINE_MARK:
        if sealed:
            raise BrokenSealError("its checksum is gone")
        return line
    body = line[:-_LINE_END]
    if b'%08x"}\n' % zlib.crc32(body) != line[-_DIGITS:]:
        raise BrokenSealError("it does not have its checksum")
    return body + b"}\n"


def first_broken(lines: Sequence[bytes], *, sealed: bool = False) -> int | None:
    """Return the index of the first line, without its newline, that does not have its checksum; None where all are sound.

    A file is written by one version: where the first or the last line has a checksum, or all must be `sealed`, so must all
    between.
    """
    ends = (lines[0][-_BARE_END:-_BARE_DIGITS], lines[-1][-_BARE_END:-_BARE_DIGITS]) if lines else ()
    if not lines or not (sealed or LINE_MARK in ends):
        return None
    crc32 = zlib.crc32
    for number, line in enumerate(lines):
        if line[-_BARE_END:] != b',"crc":"%08x"}' % crc32(line[:-_BARE_END]):
            return number
    return None


def is_sealed(line: bytes) -> bool:
    """Whether a line, without its newline, is whole and has its checksum."""
    line += b"\n"
    try:
        return unseal_line(line) != line
    except BrokenSealError:
        return False


def seal_document(values: dict[str, Any], indent: int) -> bytes:
    """Return values as JSON whose first field says that it is sealed, and whose last is the hash of all its bytes."""
    text = json.dumps({"sealed": True, **values, "seal": BLANK.decode()}, indent=indent, ensure_ascii=False)
    raw = text.encode() + b"\n"
    found = _DOCUMENT_END.search(raw)
    assert found is not None
    return raw[: found.start(1)] + _hash(raw) + raw[found.end(1) :]


def unseal_document(raw: bytes) -> Any:
    """Return what JSON says, without the fields of the seal; a document that has none is returned as it is.

    Raises
    ------
    BrokenSealError
        When its bytes are not those that were sealed.
    ValueError
        When it is no JSON.
    """
    found = _DOCUMENT_END.search(raw)
    if found and _hash(raw[: found.start(1)] + BLANK + raw[found.end(1) :]) != found[1]:
        raise BrokenSealError('it was changed after it was written (its "seal" does not fit)')
    values = json.loads(raw)
    if isinstance(values, dict):
        if not found and "sealed" in values:
            raise BrokenSealError('it was changed after it was written (its "seal" is gone)')
        values.pop("sealed", None)
        values.pop("seal", None)
    return values


def is_sealed_document(raw: bytes) -> bool:
    """Whether a document carries a seal."""
    return _DOCUMENT_END.search(raw) is not None


def seal_of(*values: object) -> str:
    """Return the hash of a row of plain values, 16 hex digits."""
    plain = [v.hex() if isinstance(v, bytes) else repr(v) for v in values]
    return hashlib.sha256("\x1f".join(plain).encode(errors="backslashreplace")).hexdigest()[:16]


def _hash(raw: bytes) -> bytes:
    return hashlib.sha256(raw).hexdigest()[:16].encode()

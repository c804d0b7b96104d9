"""Where a pickle ends, found by its opcodes alone: nothing of it is loaded."""

from __future__ import annotations

import pickletools
import re


class RefusedError(Exception):
    """A pickle asks for something that is not allowed; turned into `BadInputError` at the edge."""


_REFUSED_OPCODES = {
    "EXT1": "an extension code",
    "EXT2": "an extension code",
    "EXT4": "an extension code",
    "EMPTY_SET": "a set",
    "FROZENSET": "a set",
    "NEXT_BUFFER": "data outside the file",
    "READONLY_BUFFER": "data outside the file",
}


def _opcode_tables() -> tuple[re.Pattern[bytes], dict[int, pickletools.OpcodeInfo]]:
    """A pattern that swallows opcodes of fixed length at C speed, and the table of the others."""
    by_size: dict[int, bytes] = {}
    other = {}
    for op in pickletools.opcodes:
        code = op.code.encode("latin-1")
        size = 0 if op.arg is None else op.arg.n
        if op.name in ("STOP", "LONG_BINPUT", *_REFUSED_OPCODES) or size < 0:
            other[code[0]] = op
        else:
            by_size[size] = by_size.get(size, b"") + re.escape(code)
    # One class per length, the frequent ones first: a list of pairs is mostly floats (8) and marks (0).
    order = sorted(by_size, key=lambda size: (size != 8, size))
    fixed = [b"[" + by_size[size] + b"]" + (b".{%d}" % size if size else b"++") for size in order]
    small_index = rb"r..[\x00-\x0f]\x00"  # LONG_BINPUT below 2**20 is harmless whatever the size of the file
    return re.compile(b"(?:" + b"|".join([*fixed, small_index]) + b")*+", re.DOTALL), other


_FIXED, _OTHER = _opcode_tables()
_LENGTH_BYTES = {-2: 1, -3: 4, -4: 4, -5: 8}


def opcodes_end(data: bytes, start: int = 0) -> int:
    """Walk the opcodes of one pickle; return the position after its STOP.

    Raises
    ------
    RefusedError
        For a stream that is cut off or broken, or asks for more memory than the file can justify.
    """
    position = start
    while True:
        match = _FIXED.match(data, position)
        assert match is not None
        position = match.end()
        if position >= len(data) or data[position] not in _OTHER:
            raise RefusedError("bytes that are no pickle, or one that is cut off")
        op = _OTHER[data[position]]
        position += 1
        if op.name == "STOP":
            return position
        if op.name in _REFUSED_OPCODES:
            raise RefusedError(_REFUSED_OPCODES[op.name])
        if op.name == "LONG_BINPUT":
            if int.from_bytes(data[position : position + 4], "little") > len(data):
                raise RefusedError("a memo index beyond the size of the file")
            position += 4
            continue
        position = _skip_argument(data, position, op)


def _skip_argument(data: bytes, position: int, op: pickletools.OpcodeInfo) -> int:
    """Position after an argument of variable length."""
    assert op.arg is not None
    if op.arg.n == -1:  # one line, or two for GLOBAL and INST
        for _ in range(2 if op.arg.name == "stringnl_noescape_pair" else 1):
            end = data.find(b"\n", position)
            if end < 0:
                raise RefusedError("bytes that are no pickle, or one that is cut off")
            if op.name == "PUT" and int(data[position:end]) > len(data):
                raise RefusedError("a memo index beyond the size of the file")
            position = end + 1
        return position
    width = _LENGTH_BYTES[op.arg.n]
    length = int.from_bytes(data[position : position + width], "little")
    position += width + length
    if position > len(data):
        raise RefusedError("a length beyond the size of the file")
    return position

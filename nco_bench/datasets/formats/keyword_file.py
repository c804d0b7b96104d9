"""The keyword files of TSPLIB and CVRPLIB: a header of ``KEY : value`` lines, then sections of numbers.

Numbers are parsed in bulk, piece by piece, so a file of any size is read in memory proportional to what it holds,
and 100,000 coordinates take some tens of milliseconds. Every error names file and line.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nco_bench.errors import BadInputError, counted

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

PIECE_BYTES = 4 << 20
HEADER_KEYS = frozenset(
    [
        "NAME",
        "TYPE",
        "COMMENT",
        "DIMENSION",
        "CAPACITY",
        "DISTANCE",
        "SERVICE_TIME",
        "VEHICLES",
        "EDGE_WEIGHT_TYPE",
        "EDGE_WEIGHT_FORMAT",
        "EDGE_DATA_FORMAT",
        "NODE_COORD_TYPE",
        "DISPLAY_DATA_TYPE",
        "BEST_KNOWN",
    ]
)
SECTION_KEYS = frozenset(
    [
        "NODE_COORD_SECTION",
        "DEPOT_SECTION",
        "DEMAND_SECTION",
        "EDGE_DATA_SECTION",
        "FIXED_EDGES_SECTION",
        "FIXED_EDGES",
        "DISPLAY_DATA_SECTION",
        "TOUR_SECTION",
        "EDGE_WEIGHT_SECTION",
        "SERVICE_TIME_SECTION",
        "TIME_WINDOW_SECTION",
        "PICKUP_AND_DELIVERY_SECTION",
        "STANDTIME_SECTION",
        "BACKHAUL_SECTION",
    ]
)
_KEYWORD_LINE = re.compile(rb"^[ \t]*([A-Za-z_][A-Za-z_0-9.\-]*)[ \t]*(:?)([^\r\n]*)", re.MULTILINE)
_NOT_BLANK = re.compile(rb"\S")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True)
class Section:
    """One section: ``text[start:stop]`` is its body and begins on `line` (1-based), that of the keyword."""

    key: str
    line: int
    text: bytes
    start: int
    stop: int


@dataclass(frozen=True)
class KeywordFile:
    """Header values with their line numbers, and sections, in the order of the file."""

    source: str
    header: dict[str, tuple[str, int]]
    sections: dict[str, Section]
    last_line: int

    def text(self, key: str, default: str = "") -> str:
        """Header value, stripped; `default` where the key is absent."""
        return self.header[key][0] if key in self.header else default

    def where(self, key: str) -> str:
        """``file:line`` of a header or section key; the file alone where the key is absent."""
        if key in self.header:
            return f"{self.source}:{self.header[key][1]}"
        if key in self.sections:
            return f"{self.source}:{self.sections[key].line}"
        return self.source

    def number(self, key: str) -> float | None:
        """Numeric header value, None where absent; raises `BadInputError` for anything but a finite number."""
        if key not in self.header:
            return None
        value = self.text(key)
        if not _NUMBER.fullmatch(value) or not np.isfinite(float(value)):
            raise BadInputError(f"{self.where(key)}: {key} is {value[:40]!r}; expected a number.")
        return float(value)

    def dimension(self) -> int:
        """DIMENSION; raises `BadInputError` where it is missing or not a whole number >= 1."""
        value = self.number("DIMENSION")
        if value is None:
            raise BadInputError(
                f"{self.source}: DIMENSION is missing; add a line 'DIMENSION : <number of nodes>'."
            )
        if value != int(value) or value < 1:
            raise BadInputError(
                f"{self.where('DIMENSION')}: DIMENSION is {value:g}; expected a whole number >= 1."
            )
        return int(value)

    def section(self, key: str) -> Section:
        """Return a section; raises `BadInputError` where it is missing."""
        if key not in self.sections:
            raise BadInputError(
                f"{self.source}:{self.last_line}: {key} is missing (the file ends here); is it cut off?"
            )
        return self.sections[key]


def parse(text: bytes, source: str) -> KeywordFile:
    """Split a keyword file into header and sections; reading stops at EOF, which may be missing.

    Raises
    ------
    BadInputError
        For words that are no keyword, numbers outside a section, and a section given twice.
    """
    text = text.removeprefix(b"\xef\xbb\xbf")
    if b"\r" in text and b"\n" not in text:
        text = text.replace(b"\r", b"\n")
    header: dict[str, tuple[str, int]] = {}
    sections: dict[str, Section] = {}
    current, current_line, body_start = "", 0, 0
    line, counted = 1, 0
    ended = False

    def close(stop: int) -> None:
        if current:
            sections[current] = Section(current, current_line, text, body_start, stop)
        elif _NOT_BLANK.search(text, body_start, stop):
            raise BadInputError(
                f"{source}:{line}: numbers before any section keyword such as NODE_COORD_SECTION."
            )

    for match in _KEYWORD_LINE.finditer(text):
        line += text.count(b"\n", counted, match.start())
        counted = match.start()
        key = match[1].decode("latin-1").upper()
        close(match.start())
        current, body_start = "", match.end()
        if key == "EOF":
            ended = True
            break
        if key in SECTION_KEYS:
            if key in sections:
                raise BadInputError(f"{source}:{line}: {key} appears a second time; keep one.")
            current, current_line, body_start = key, line, match.end(2)
        elif match[2] or key in HEADER_KEYS:
            _add_header(header, key, match[3].decode("latin-1").strip(), line, source)
        else:
            raise BadInputError(f"{source}:{line}: {key[:40]!r} is neither a keyword nor a number.")
    if not ended:
        close(len(text))
        line += text.count(b"\n", counted)
    return KeywordFile(source, header, sections, line)


def _add_header(header: dict[str, tuple[str, int]], key: str, value: str, line: int, source: str) -> None:
    if key in ("DIMENSION", "CAPACITY", "EDGE_WEIGHT_TYPE") and key in header and header[key][0] != value:
        raise BadInputError(
            f"{source}:{line}: {key} is {value[:40]!r} here and {header[key][0]!r} above; keep one."
        )
    header.setdefault(key, (value, line))


def table(source: str, section: Section, columns: int) -> tuple[FloatArray, IntArray]:
    """Parse a section of rows with a fixed number of columns, one row per line.

    Returns
    -------
    tuple
        ``(R, columns)`` finite float64, and the ``(R,)`` line number of each row.

    Raises
    ------
    BadInputError
        Naming the line with another number of columns, a word, NaN or infinity.
    """
    # One row per line at most, so the number of lines bounds what is needed.
    room = section.text.count(b"\n", section.start, section.stop) + 1
    rows, lines, filled = np.empty((room, columns)), np.empty(room, dtype=np.int64), 0
    for values, value_lines in _pieces(source, section):
        per_line = np.bincount(value_lines - value_lines[0])
        wrong = np.flatnonzero((per_line != 0) & (per_line != columns))
        if wrong.size:
            raise BadInputError(
                f"{source}:{int(wrong[0]) + int(value_lines[0])}: {section.key} has {int(per_line[wrong[0]])} "
                f"columns in this row; expected {columns}."
            )
        more = len(values) // columns
        rows[filled : filled + more] = values.reshape(-1, columns)
        lines[filled : filled + more] = value_lines[::columns]
        filled += more
    return rows[:filled], lines[:filled]


def stream(source: str, section: Section) -> tuple[FloatArray, IntArray]:
    """Parse a section as one run of numbers, line ends without meaning; values and their line numbers."""
    pieces = list(_pieces(source, section))
    if not pieces:
        return np.empty(0), np.empty(0, dtype=np.int64)
    return np.concatenate([p[0] for p in pieces]), np.concatenate([p[1] for p in pieces])


def _pieces(source: str, section: Section) -> Iterator[tuple[FloatArray, IntArray]]:
    """Numbers and their lines, some megabytes of text at a time."""
    start, line, text = section.start, section.line, section.text
    while start < section.stop:
        stop = section.stop
        if stop - start > PIECE_BYTES:
            window = (start, start + PIECE_BYTES)
            # At a line end; a line longer than the piece (a matrix) is cut between two numbers.
            stop = max(text.rfind(b"\n", *window), 0) or max(
                text.rfind(b" ", *window), text.rfind(b"\t", *window)
            )
            if stop < start:
                raise BadInputError(
                    f"{source}:{line}: {section.key} holds a word of {PIECE_BYTES >> 20} MiB and more."
                )
            stop += 1
        piece = text[start:stop]
        parsed = _piece(source, section.key, piece, line)
        if parsed[0].size:
            yield parsed
        line += piece.count(b"\n")
        start = stop


def _piece(source: str, key: str, piece: bytes, first_line: int) -> tuple[FloatArray, IntArray]:
    raw = np.frombuffer(piece, dtype=np.uint8)
    blank = raw <= 32
    begins = ~blank
    begins[1:] &= blank[:-1]
    tokens = np.flatnonzero(begins)
    lines = np.searchsorted(np.flatnonzero(raw == 10), tokens) + first_line
    values = _bulk_numbers(piece)
    if values is None or values.size != tokens.size:
        raise _not_a_number(source, key, piece, first_line)
    finite = np.isfinite(values)
    if not finite.all():
        row = int(np.flatnonzero(~finite)[0])
        raise BadInputError(
            f"{source}:{int(lines[row])}: {key} holds {values[row]}; expected finite numbers."
        )
    return values, lines.astype(np.int64)


def _bulk_numbers(piece: bytes) -> FloatArray | None:
    """Parse all numbers of a text, None if something in it is not a number."""
    text = piece.decode("latin-1")
    if not text.strip():
        return np.empty(0)
    with warnings.catch_warnings():
        # NumPy < 2.3 warns about trailing text and returns what came before it; later versions raise.
        warnings.simplefilter("error", DeprecationWarning)
        try:
            return np.fromstring(text, sep=" ")
        except (ValueError, DeprecationWarning):
            return None


def _not_a_number(source: str, key: str, piece: bytes, first_line: int) -> BadInputError:
    for offset, line in enumerate(piece.split(b"\n")):
        for token in line.decode("latin-1").split():
            if not _NUMBER.fullmatch(token):
                shown = token if len(token) <= 40 else token[:40] + "..."
                return BadInputError(
                    f"{source}:{first_line + offset}: {shown!r} in {key} is not a number; correct this line."
                )
    return BadInputError(f"{source}:{first_line}: {key} holds something that is not a number.")


def node_positions(file: KeywordFile, section: Section, ids: FloatArray, lines: IntArray) -> IntArray:
    """Check the node numbers of a section: each of 1..n (or 0..n-1) once, in any order.

    Returns
    -------
    NDArray
        ``(n,)`` 0-based position of each row.

    Raises
    ------
    BadInputError
        When rows and DIMENSION disagree, or a node is there twice, missing, or not a whole number.
    """
    n = file.dimension()
    if len(ids) != n:
        raise BadInputError(
            f"{file.source}:{section.line}: {section.key} has {counted(len(ids), 'row')}, DIMENSION says {n}; "
            "correct one of them."
        )
    base = 0 if (ids == 0).any() else 1
    wrong = np.flatnonzero((ids != np.floor(ids)) | (ids < base) | (ids >= n + base))
    if wrong.size:
        row = int(wrong[0])
        raise BadInputError(
            f"{file.source}:{int(lines[row])}: node {ids[row]:g} in {section.key}; "
            f"expected whole numbers {base}..{n - 1 + base}."
        )
    positions = ids.astype(np.int64) - base
    counts = np.bincount(positions, minlength=n)
    if (counts > 1).any():
        node = int(np.flatnonzero(counts > 1)[0])
        second = int(np.flatnonzero(positions == node)[1])
        raise BadInputError(
            f"{file.source}:{int(lines[second])}: node {node + base} appears twice in {section.key}; remove one row."
        )
    return positions

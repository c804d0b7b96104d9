"""Tell the format of a file by its content; suffixes lie (.txt is four formats, .npz four, .pkl two)."""

from __future__ import annotations

import io
import pickletools
import re
import shlex
import zipfile
from pathlib import Path

from nco_bench.datasets.formats.reading import MAX_BINARY_BYTES, plain_name, read_bytes, read_head
from nco_bench.datasets.formats.torch_archive import load_pickle_with_tensors
from nco_bench.errors import BadInputError, UnknownNameError

_NUMBER = (
    r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"  # one way to match: else long digits take squared time
)


def detect(path: Path) -> str:
    """Return the name of a file's format.

    Raises
    ------
    UnknownNameError
        When no format fits.
    BadInputError
        When the file cannot be read, or is empty.
    """
    head = read_head(path)
    if not head.strip():
        raise BadInputError(f"{path}: the file is empty.")
    if head.startswith(b"PK\x03\x04"):
        found = _in_archive(path)
    elif len(head) > 1 and head[0] == 0x80 and head[1] in range(2, 6):
        found = _in_pickle(path, head)
    else:
        found = _in_text(head) or _in_old_pickle(path, head)
    if found is None:
        hint = (
            f"Its content fits none of docs/formats.md; if it is one, name it: {reading_as(path, 'FORMAT')}"
        )
        raise UnknownNameError("format of", plain_name(path), [], hint)
    return found


def reading_as(path: Path, fmt: str) -> str:
    """Return the command that reads a file as being of a format; others, such as run, recognise formats only."""
    return f"nco-bench convert {shlex.quote(str(path))} OUT.npz --from {fmt}"


def _in_archive(path: Path) -> str | None:
    try:
        with zipfile.ZipFile(io.BytesIO(read_bytes(path, MAX_BINARY_BYTES))) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError):
        raise BadInputError(f"{path}: a damaged or cut off archive; fetch the file again.") from None
    arrays = {name.removesuffix(".npy") for name in names}
    if any(name.endswith("/data.pkl") for name in names):
        return "pomo"
    if {"convention", "name"} <= arrays and any(name.startswith("x_") for name in arrays):
        return "nco-bench"
    if "locs" in arrays:
        return "rl4co"
    if "node_xy" in arrays:
        return "pomo"
    if "coords" in arrays and arrays & {"tour_lens", "reorder", "capacities"}:
        return "bq"
    return "testset" if "coords" in arrays else None


def _in_pickle(path: Path, head: bytes) -> str | None:
    """Look at the first opcodes: what the outermost object is, and the first thing in it."""
    seen = []
    try:
        for op, argument, _ in pickletools.genops(head):
            if op.name in ("PROTO", "FRAME", "MARK", "MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT"):
                continue
            seen.append((op.name, argument))
            if len(seen) == 3:
                break
    except ValueError:
        pass  # the head ends within an opcode; what was seen counts
    if not seen:
        return None
    if seen[0][0] in ("LONG1", "LONG4"):  # the magic number of torch's older container
        return "pomo"
    names = [name for name, _ in seen]
    if names[0] in ("EMPTY_LIST", "LIST"):
        first = names[1] if len(names) > 1 else ""
        if first in (
            "EMPTY_LIST",
            "LIST",
            "EMPTY_TUPLE",
            "EMPTY_DICT",
            "FLOAT",
            "BINFLOAT",
            "BININT1",
            "TUPLE",
        ):
            return "gumbeldore" if first == "EMPTY_DICT" else "kool"
        return _list_of_arrays(path)
    return "elg"


def _list_of_arrays(path: Path) -> str:
    """Tell ELG's ``[coordinates, optimum]`` from Kool's list of instances; both may begin with an array."""
    content = load_pickle_with_tensors(read_bytes(path, MAX_BINARY_BYTES), str(path))
    is_pair = isinstance(content, list) and len(content) == 2 and isinstance(content[1], (int, float))
    return "elg" if is_pair else "kool"


def _in_old_pickle(path: Path, head: bytes) -> str | None:
    """Protocols 0 and 1 have no magic number: trust the suffix, then look at the opcodes."""
    suffix = Path(plain_name(path)).suffix.lower()
    if suffix not in (".pkl", ".pickle") or head[:1] not in b"(]}":
        return None
    return "gumbeldore" if suffix == ".pickle" else _in_pickle(path, head)


def _in_text(head: bytes) -> str | None:
    text = head.decode("latin-1").lstrip("\ufeff\xef\xbb\xbf \t\r\n")
    if re.search(r"^\s*TOUR_SECTION|^\s*TYPE\s*:\s*TOUR", text, re.MULTILINE | re.IGNORECASE):
        return "tour"
    keywords = (
        r"^\s*(NAME|TYPE|COMMENT|DIMENSION|CAPACITY|EDGE_WEIGHT_\w+|NODE_COORD_SECTION|\w+_SECTION)\s*(:|$)"
    )
    if re.search(keywords, text, re.MULTILINE | re.IGNORECASE):
        is_cvrp = re.search(
            r"^\s*(TYPE\s*:\s*D?CVRP|CAPACITY\s*:)|DEMAND_SECTION", text, re.MULTILINE | re.IGNORECASE
        )
        return "cvrplib" if is_cvrp else "tsplib"
    if re.match(r"route\s*#?\s*\d+\s*:", text, re.IGNORECASE):
        return "sol"
    line = re.split(r"[\r\n]", text, maxsplit=1)[0]
    if re.match(r"\[\s*['\"]", line):
        return "lehd-lib"
    if re.match(r"depot\s*,", line):
        return "lehd-cvrp"
    if re.match(rf"{_NUMBER},{_NUMBER}(\s+(\.\|\.|{_NUMBER},)|$)", line):
        return "invit"
    if re.match(rf"{_NUMBER}\s+{_NUMBER}\s+({_NUMBER}|output)", line):
        return "concorde-line"
    return None

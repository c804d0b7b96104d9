"""A pickle reader that cannot run code.

A pickle is a program. This reader allows numbers, strings, bytes, lists, tuples, dicts, and NumPy arrays and
scalars of plain types, and refuses every other name before anything of it is imported or called. Even the allowed
names are bound to functions of this file, so NumPy's own unpickling code never sees what the file says.

Before it is run, the opcode stream is walked: lengths and memo indices that do not fit the file are refused, since
Python's unpickler would allocate gigabytes for them.
"""

from __future__ import annotations

import gc
import io
import pickle
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.formats.pickle_opcodes import RefusedError, opcodes_end
from nco_bench.datasets.formats.reading import MAX_BINARY_BYTES, read_bytes, shown
from nco_bench.errors import BadInputError

PLAIN_KINDS = frozenset("biufcSU")
"""Kinds of NumPy types that hold no pointers."""

REMEDY = (
    "ask its author for a file without pickled objects (.npz, .txt), or convert it on a machine you can lose"
)


class BoundName:
    """A function that a pickle may call; it has no attributes that the pickle could overwrite."""

    __slots__ = ("_function",)
    _function: Callable[..., Any]

    def __init__(self, function: Callable[..., Any]) -> None:
        object.__setattr__(self, "_function", function)

    def __call__(self, *args: Any) -> Any:
        return self._function(*args)

    def __setattr__(self, name: str, value: Any) -> None:
        raise RefusedError("it tries to change a function")

    def __setstate__(self, state: Any) -> None:
        raise RefusedError("it tries to change a function")


class PlainType:
    """What a pickled ``numpy.dtype`` becomes: a name of a plain type, and its byte order."""

    __slots__ = ("_name", "_order")

    def __init__(self, name: Any, *_: Any) -> None:
        if not isinstance(name, str) or not re.fullmatch(r"[<>=|]?[biufcSU]\d{1,9}|bool|[a-z]+\d{0,3}", name):
            raise RefusedError("a NumPy type that is not a plain number or string")
        self._name = name
        self._order: Literal["<", ">", "=", "|"] = "="

    def __setstate__(self, state: Any) -> None:
        # (version, byte order, subarray, names, fields, size, alignment, flags[, metadata])
        if not isinstance(state, tuple) or len(state) < 5 or any(part is not None for part in state[2:5]):
            raise RefusedError("a structured NumPy type")
        if state[1] not in ("<", ">", "=", "|"):
            raise RefusedError("a NumPy type with an unknown byte order")
        self._order = state[1]

    def dtype(self) -> np.dtype[Any]:
        """Return the NumPy type; raises `RefusedError` for types that hold pointers."""
        try:
            dtype = np.dtype(self._name)
        except TypeError:
            raise RefusedError("an unknown NumPy type") from None
        if dtype.kind not in PLAIN_KINDS or dtype.fields is not None or dtype.subdtype is not None:
            raise RefusedError(
                f"a NumPy array of type {dtype.kind!r}; only plain numbers and strings are allowed"
            )
        return dtype if self._order in ("=", "|") else dtype.newbyteorder(self._order)


class PlainArray:
    """What a pickled array is while it is built; `finish` replaces it by a real array."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: NDArray[Any] | list[Any] = np.empty(0)

    def __setstate__(self, state: Any) -> None:
        # (version, shape, type, Fortran order, bytes, or a list for object arrays); the version may be left out
        if not isinstance(state, tuple) or len(state) not in (4, 5):
            raise RefusedError("a NumPy array in an unknown form")
        shape, dtype, fortran, content = state[-4:]
        if not isinstance(dtype, PlainType):
            raise RefusedError("a NumPy array of an unknown type")
        self.value = build_array(content, dtype.dtype(), shape, "F" if fortran else "C")


def build_array(content: Any, dtype: np.dtype[Any], shape: Any, order: Any) -> NDArray[Any]:
    """Build an array from raw bytes after checking that they fit; raises `RefusedError`."""
    if isinstance(content, str):  # Python 2 wrote bytes as strings
        content = content.encode("latin-1")
    if not isinstance(content, (bytes, bytearray)):
        raise RefusedError("a NumPy array of Python objects")
    if (
        not isinstance(shape, tuple)
        or len(shape) > 32
        or not all(type(s) is int and 0 <= s < 2**48 for s in shape)
    ):
        raise RefusedError("a NumPy array of an impossible shape")
    count = 1
    for size in shape:
        count *= size
    if dtype.itemsize == 0 or count * dtype.itemsize != len(content):
        raise RefusedError(f"a NumPy array of shape {shape} with {len(content)} bytes")
    return (
        np.frombuffer(bytes(content), dtype=dtype).reshape(shape, order="F" if order == "F" else "C").copy()
    )


def _reconstruct(*_: Any) -> PlainArray:
    return PlainArray()


def _from_buffer(content: Any, dtype: Any, shape: Any, order: Any = "C") -> NDArray[Any]:
    if not isinstance(dtype, PlainType):
        raise RefusedError("a NumPy array of an unknown type")
    return build_array(content, dtype.dtype(), shape, order)


def _scalar(dtype: Any, content: Any = b"") -> Any:
    if not isinstance(dtype, PlainType):
        raise RefusedError("a NumPy scalar of an unknown type")
    return build_array(content, dtype.dtype(), (), "C").item()


def _latin1(text: Any, encoding: Any = "latin1") -> bytes:
    """How Python 3 writes bytes in protocols 0 to 2."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise RefusedError("an encoded text")
    return text.encode("latin-1")


def _byte_array(content: Any = b"", encoding: Any = "latin-1") -> bytearray:
    return bytearray(content if isinstance(content, bytes) else _latin1(content, encoding))


def _no_array_subclass(*_: Any) -> Any:
    raise RefusedError("a call of numpy.ndarray")


ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("_codecs", "encode"): _latin1,
    ("builtins", "bytearray"): _byte_array,
    ("builtins", "bytes"): lambda content=b"": bytes(_byte_array(content)),
    ("numpy", "dtype"): PlainType,
    ("numpy", "ndarray"): _no_array_subclass,
}
for _home in ("numpy.core", "numpy._core"):
    ALLOWED[f"{_home}.multiarray", "_reconstruct"] = _reconstruct
    ALLOWED[f"{_home}.multiarray", "scalar"] = _scalar
    ALLOWED[f"{_home}.numeric", "_frombuffer"] = _from_buffer
"""Names a pickle may use, each bound to a harmless function of ours."""


class RestrictedUnpickler(pickle.Unpickler):
    """An unpickler that knows the names of a table and nothing else."""

    def __init__(
        self,
        stream: io.BytesIO,
        allowed: Mapping[tuple[str, str], Callable[..., Any]],
        persistent: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(stream, encoding="latin-1")
        self._allowed = allowed
        self._persistent = persistent
        self.made_objects = False

    def find_class(self, module: str, name: str) -> Any:
        """Return our stand-in for an allowed name; refuse all others without importing anything."""
        module = {"__builtin__": "builtins"}.get(module, module)  # Python 2's name, in protocols 0 to 2
        if (module, name) not in self._allowed:
            raise RefusedError(f"the name {shown(f'{module}.{name}', 120)}")
        self.made_objects = True
        return BoundName(self._allowed[module, name])

    def persistent_load(self, pid: Any) -> Any:
        """Resolve a reference to data outside the pickle, where the caller has any."""
        if self._persistent is None:
            raise RefusedError("data outside the file")
        self.made_objects = True
        return self._persistent(pid)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Millions of small lists trigger the garbage collector again and again; without it loading is thrice as fast."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def load_one(
    data: bytes,
    source: str,
    allowed: Mapping[tuple[str, str], Callable[..., Any]] = ALLOWED,
    persistent: Callable[[Any], Any] | None = None,
    start: int = 0,
) -> tuple[Any, int]:
    """Load one pickle from `data` at `start`; return the object and the position after it.

    Raises
    ------
    BadInputError
        When the pickle is damaged, or asks for anything that is not allowed.
    """
    try:
        end = opcodes_end(data, start)
        unpickler = RestrictedUnpickler(io.BytesIO(data[start:end]), allowed, persistent)
        with _collector_paused():
            raw = unpickler.load()
        return (finish(raw) if unpickler.made_objects else raw), end
    except RefusedError as error:
        raise BadInputError(f"{source}: refused, the pickle holds {error}; {REMEDY}.") from None
    except BadInputError:
        raise
    # A damaged pickle can fail in any way that Python has; whatever it is, it is the file's fault.
    except Exception as error:
        reason = shown(error, 100)
        raise BadInputError(f"{source}: not a readable pickle ({type(error).__name__}: {reason}).") from None


def finish(value: Any, convert: Callable[[Any], Any] | None = None) -> Any:
    """Replace the stand-ins in nested containers by arrays; shared containers stay shared.

    Parameters
    ----------
    value
        What the unpickler returned.
    convert
        Turns further stand-ins into their final values; returns other values unchanged.
    """
    seen: dict[int, Any] = {}

    def walk(item: Any, depth: int) -> Any:
        if type(item) in (float, int, str, bytes, bool, type(None)):
            return item
        if id(item) in seen:
            return seen[id(item)]
        if depth > 200:
            raise RefusedError("containers nested more than 200 deep")
        if isinstance(item, PlainArray):
            seen[id(item)] = item.value
        elif isinstance(item, (BoundName, PlainType)):
            raise RefusedError("a function or type where data should be")
        elif type(item) is list:
            seen[id(item)] = item
            # Lists of numbers are the bulk of most files and need no walk.
            if not all(type(part) in (float, int) for part in item):
                item[:] = [walk(part, depth + 1) for part in item]
        elif isinstance(item, dict):
            seen[id(item)] = item
            for key in list(item):
                item[key] = walk(item[key], depth + 1)
        elif type(item) is tuple:
            seen[id(item)] = tuple(walk(part, depth + 1) for part in item)
        else:
            seen[id(item)] = convert(item) if convert else item
        return seen[id(item)]

    return walk(value, 0)


def read_pickle(path: Path) -> Any:
    """Read a pickle file of plain data, plain or .gz.

    Returns
    -------
    Any
        Numbers, strings, bytes, lists, tuples, dicts, NumPy arrays; NumPy scalars become Python numbers.

    Raises
    ------
    BadInputError
        When the file is damaged or asks for anything that is not allowed.
    """
    data = read_bytes(path, MAX_BINARY_BYTES)
    return load_one(data, str(path))[0]

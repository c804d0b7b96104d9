"""Files of ``torch.save``, read without torch and without running anything they say.

Both containers are read: the zip archive (torch >= 1.6) and the older stream of pickles. Tensors become NumPy
arrays, bfloat16 becomes float32 (exact). The pickle inside goes through `safe_pickle`; the few names of torch that
build tensors are bound to stand-ins of ours, every other name is refused.
Not by ``torch.load(weights_only=True)``: datasets are read where torch is not installed, and before torch 2.6 it could be
made to run code (CVE-2025-32434).
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.formats.reading import MAX_BINARY_BYTES, read_bytes, refuse_swollen_members, shown
from nco_bench.datasets.formats.safe_pickle import ALLOWED, RefusedError, finish, load_one
from nco_bench.errors import BadInputError

STORAGES = {
    "DoubleStorage": "f8",
    "FloatStorage": "f4",
    "HalfStorage": "f2",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "i8",
    "IntStorage": "i4",
    "ShortStorage": "i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "?",
    "UntypedStorage": "u1",
}
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
LEGACY_PROTOCOL = 1001
MAX_LEGACY_STORAGES = 100_000


class _Kind:
    """A storage class: the type of its numbers."""

    __slots__ = ("code",)

    def __init__(self, code: str) -> None:
        self.code = code


class _Storage:
    """Raw numbers, bfloat16 as uint16."""

    __slots__ = ("bfloat16", "numbers")

    def __init__(self, code: str, numbers: NDArray[Any] | None = None) -> None:
        self.bfloat16 = code == "bfloat16"
        self.numbers = numbers


class _Tensor:
    """A view of a storage, turned into an array once the storage is read."""

    __slots__ = ("offset", "shape", "storage", "strides")

    def __init__(self, storage: Any, offset: Any, shape: Any, strides: Any) -> None:
        whole = (
            [offset, *shape, *strides] if isinstance(shape, tuple) and isinstance(strides, tuple) else [None]
        )
        if not isinstance(storage, _Storage) or not all(type(x) is int and 0 <= x < 2**48 for x in whole):
            raise RefusedError("a tensor in an unknown form")
        if len(shape) != len(strides) or len(shape) > 32:
            raise RefusedError("a tensor whose shape and strides do not fit")
        self.storage, self.offset, self.shape, self.strides = storage, offset, shape, strides

    def array(self) -> NDArray[Any]:
        """Copy the numbers out; raises `RefusedError` where the view leaves its storage."""
        numbers = self.storage.numbers
        if numbers is None:
            raise RefusedError("a tensor without its data")
        count = 1
        for size in self.shape:
            count *= size
        last = self.offset + sum(
            (size - 1) * step for size, step in zip(self.shape, self.strides, strict=True)
        )
        if count and (last >= numbers.size or count > max(numbers.size, 1 << 24)):
            raise RefusedError("a tensor larger than its data")
        if count == 0:
            view = np.empty(self.shape, numbers.dtype)
        else:
            steps = [step * numbers.itemsize for step in self.strides]
            view = np.lib.stride_tricks.as_strided(numbers[self.offset :], self.shape, steps, writeable=False)
        if self.storage.bfloat16:
            return (view.astype(np.uint32) << 16).view(np.float32)
        return np.array(view)


def _rebuild_tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> _Tensor:
    return _Tensor(storage, offset, shape, strides)


def _rebuild_parameter(data: Any, *_: Any) -> Any:
    return data


def _ordered(items: Any = ()) -> dict[Any, Any]:
    return dict(items)


class _DictWithAttributes(dict):  # type: ignore[type-arg]
    """A dict that swallows the ``_metadata`` a state dict carries."""

    def __setstate__(self, state: Any) -> None:
        return


def _ordered_dict(items: Any = ()) -> dict[Any, Any]:
    return _DictWithAttributes(_ordered(items))


def _default_dict(_factory: Any = None, items: Any = ()) -> dict[Any, Any]:
    return _DictWithAttributes(_ordered(items))


def _members(items: Any = ()) -> list[Any]:
    """A set, as a list: POMO's trainers, and those made of them, keep the names of their logs in one."""
    return list(items)


def _factory(*_: Any) -> Any:
    raise RefusedError("a call of a Python type")


def _names(storage_from_bytes: Callable[[Any], Any]) -> dict[tuple[str, str], Callable[..., Any]]:
    table = dict(ALLOWED)
    table |= {
        ("collections", "OrderedDict"): _ordered_dict,
        ("collections", "Counter"): _ordered_dict,
        ("collections", "defaultdict"): _default_dict,
        ("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
        ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
        ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
        ("torch", "Size"): lambda sizes=(): tuple(sizes),
        ("torch", "device"): lambda kind="cpu", *_: str(kind),
        ("torch.storage", "_load_from_bytes"): storage_from_bytes,
    }
    for name in ("list", "dict", "int", "float"):
        table["builtins", name] = _factory
    table["builtins", "set"] = table["builtins", "frozenset"] = _members
    return table


def _storage_code(kind: Any) -> str:
    # Storage classes arrive as the function their name is bound to; calling it tells the type.
    made = kind() if callable(kind) else kind
    if not isinstance(made, _Kind):
        raise RefusedError("a storage of an unknown type")
    return made.code


def _with_storages(
    table: dict[tuple[str, str], Callable[..., Any]],
) -> dict[tuple[str, str], Callable[..., Any]]:
    for name, code in STORAGES.items():
        for module in ("torch", "torch.cuda", "torch.storage"):
            table[module, name] = lambda *_, code=code: _Kind(code)
    return table


def _tensor_to_array(item: Any) -> Any:
    if isinstance(item, _Tensor):
        return item.array()
    if isinstance(item, _Storage):
        return _Tensor(item, 0, (0 if item.numbers is None else item.numbers.size,), (1,)).array()
    return item


def numbers_from(raw: bytes, code: str, source: str) -> NDArray[Any]:
    """Interpret raw little-endian bytes; raises `BadInputError` when they do not divide evenly."""
    dtype = np.dtype("<u2" if code == "bfloat16" else code).newbyteorder("<")
    if len(raw) % dtype.itemsize:
        raise BadInputError(
            f"{source}: a storage of {len(raw)} bytes holds no whole number of {code}; is it cut off?"
        )
    return np.frombuffer(raw, dtype=dtype)


def read_torch_archive(path: Path) -> Any:
    """Read a file written by ``torch.save``.

    Returns
    -------
    Any
        Nested dicts, lists, tuples, numbers and strings; every tensor and parameter as a NumPy array.

    Raises
    ------
    BadInputError
        When the file is damaged, or holds anything but data: a pickled model, a function, a foreign class.
    """
    return load_torch_bytes(read_bytes(path, MAX_BINARY_BYTES), str(path))


def load_torch_bytes(data: bytes, source: str, depth: int = 0) -> Any:
    """Read the bytes of a file written by ``torch.save``; see `read_torch_archive`."""
    if depth > 3:
        raise BadInputError(f"{source}: refused, storages nested in storages.")
    try:
        raw = _load_zip(data, source, depth) if data[:2] == b"PK" else _load_legacy(data, source, depth)
        return finish(raw, _tensor_to_array)
    except RefusedError as error:
        raise BadInputError(f"{source}: refused, the file holds {error}.") from None
    except BadInputError:
        raise
    # zipfile raises many kinds on damaged bytes; each is the file's fault.
    except Exception as error:
        reason = shown(error, 100)
        raise BadInputError(
            f"{source}: not a readable torch file ({type(error).__name__}: {reason})."
        ) from None


def _nested(source: str, depth: int) -> Callable[[Any], _Storage]:
    """How tensors inside a plain pickle carry their data: the bytes of another torch file."""

    def load(content: Any) -> _Storage:
        if not isinstance(content, (bytes, bytearray)):
            raise RefusedError("a storage in an unknown form")
        numbers = load_torch_bytes(bytes(content), source, depth + 1)
        if not isinstance(numbers, np.ndarray):
            raise RefusedError("a storage in an unknown form")
        return _Storage("", numbers.reshape(-1))

    return load


def _load_zip(data: bytes, source: str, depth: int) -> Any:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        refuse_swollen_members(archive, source)
        names = set(archive.namelist())
        program = next((name for name in names if name.count("/") == 1 and name.endswith("/data.pkl")), None)
        if program is None:
            raise BadInputError(f"{source}: a zip archive without data.pkl; torch.save did not write it.")
        root = program.removesuffix("data.pkl")
        if f"{root}byteorder" in names and archive.read(f"{root}byteorder").strip() != b"little":
            raise BadInputError(f"{source}: written on a big-endian machine; save it again on another one.")
        storages: dict[str, _Storage] = {}

        def storage(reference: Any) -> _Storage:
            code, key = _reference(reference)
            if key not in storages:
                storages[key] = _Storage(code, numbers_from(archive.read(f"{root}data/{key}"), code, source))
            return storages[key]

        names_allowed = _with_storages(_names(_nested(source, depth)))
        return load_one(archive.read(program), source, names_allowed, storage)[0]


def _reference(reference: Any) -> tuple[str, str]:
    # ("storage", class, key, location, count[, view])
    if not isinstance(reference, tuple) or len(reference) < 5 or reference[0] != "storage":
        raise RefusedError("a reference to something that is not a storage")
    return _storage_code(reference[1]), str(reference[2])


def _load_legacy(data: bytes, source: str, depth: int) -> Any:
    """Magic number, protocol, system facts, object, storage keys (five pickles), then the storages."""
    names = _with_storages(_names(_nested(source, depth)))
    storages: dict[str, _Storage] = {}
    codes: dict[str, str] = {}

    def storage(reference: Any) -> _Storage:
        code, key = _reference(reference)
        if len(reference) > 5 and reference[5] is not None:
            raise RefusedError("a view of a storage, as torch before 0.4 wrote them")
        codes[key] = code
        return storages.setdefault(key, _Storage(code))

    magic, position = load_one(data, source)
    if magic != LEGACY_MAGIC:
        raise BadInputError(
            f"{source}: a pickle, but not of torch.save; torch before 0.1.10 is not supported."
        )
    protocol, position = load_one(data, source, start=position)
    if protocol != LEGACY_PROTOCOL:
        raise BadInputError(
            f"{source}: torch.save protocol {shown(protocol, 20)}; expected {LEGACY_PROTOCOL}."
        )
    _, position = load_one(data, source, start=position)
    content, position = load_one(data, source, names, storage, start=position)
    keys, position = load_one(data, source, start=position)
    if not isinstance(keys, list) or len(keys) > MAX_LEGACY_STORAGES:
        raise RefusedError("a list of storages in an unknown form")
    for key in map(str, keys):
        if key not in codes:
            raise RefusedError("a storage that nothing refers to")
        count = int.from_bytes(data[position : position + 8], "little")
        width = 2 if codes[key] == "bfloat16" else np.dtype(codes[key]).itemsize
        stop = position + 8 + count * width
        if stop > len(data):
            raise BadInputError(
                f"{source}: the data of storage {shown(key, 20)} is cut off; fetch the file again."
            )
        storages[key].numbers = numbers_from(data[position + 8 : stop], codes[key], source)
        position = stop
    return content


def load_pickle_with_tensors(data: bytes, source: str) -> Any:
    """Load a plain pickle in which tensors may stand beside plain data, as ``pickle.dump`` writes them."""
    try:
        raw, _ = load_one(data, source, _with_storages(_names(_nested(source, 0))))
        return finish(raw, _tensor_to_array)
    except RefusedError as error:
        raise BadInputError(f"{source}: refused, the file holds {error}.") from None

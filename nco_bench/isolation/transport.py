"""What travels between a run and its child process: batches as columns, since pickling instances one by one is slow.

A chunk of instances becomes one block per array field and one list for each of the other fields; outcomes become one
block of int32 and their lengths. A thousand instances of 100 nodes then cost microseconds each. What does not fit the
pattern (instances of several classes, failures, traces) is pickled as it is. Values arrive bit for bit as they were sent.
"""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.isolation.outcomes import Outcome, Solved
from nco_bench.problems import Instance

LENGTH = struct.Struct("<Q")


def framed(message: Any) -> bytes:
    """Return what travels for a message: its length, and its pickle."""
    data = pickle.dumps(message, protocol=5)
    return LENGTH.pack(len(data)) + data


def send(connection: Connection, message: Any) -> None:
    """Send a message; raises OSError when the other end is gone."""
    send_rest(connection, memoryview(framed(message)))


def send_rest(connection: Connection, rest: memoryview) -> None:
    """Send what is left of a framed message; raises OSError when the other end is gone."""
    while rest:
        rest = rest[os.write(connection.fileno(), rest) :]


def send_what_fits(connection: Connection, rest: memoryview) -> memoryview:
    """Send as much as the other end's buffer takes without waiting; return what is left."""
    handle = connection.fileno()
    os.set_blocking(handle, False)  # of this end only
    try:
        while rest:
            rest = rest[os.write(handle, rest) :]
    except BlockingIOError:
        pass
    finally:
        os.set_blocking(handle, True)
    return rest


def receive(connection: Connection) -> Any:
    """Receive a message.

    Raises
    ------
    EOFError, OSError
        When the other end is gone.
    """
    return pickle.loads(
        read_bytes(connection.fileno(), LENGTH.unpack(read_bytes(connection.fileno(), LENGTH.size))[0])
    )


def read_bytes(handle: int, count: int) -> bytearray:
    """Read so many bytes; raises EOFError when the other end is gone."""
    data = bytearray(count)
    left = memoryview(data)
    while left:
        size = os.readv(handle, [left])
        if size == 0:
            raise EOFError
        left = left[size:]
    return data


def pack_instances(instances: Sequence[Instance]) -> Any:
    """Return a picklable form of instances, by columns where all are of one plain class with the same fields."""
    first = instances[0]
    kind, fields = type(first), tuple(getattr(first, "__dict__", ()))
    if not fields or {type(i) for i in instances} != {kind}:
        return list(instances)
    states = [i.__dict__ for i in instances]
    if any(tuple(state) != fields for state in states):
        return list(instances)
    columns = zip(*(state.values() for state in states), strict=True)
    return kind, {field: _pack_column(column) for field, column in zip(fields, columns, strict=True)}


def unpack_instances(packed: Any) -> list[Any]:
    """Undo `pack_instances`; as with pickle, checks that were made when an instance was made are not made again."""
    if isinstance(packed, list):
        return packed
    kind, columns = packed
    out = []
    for values in zip(*columns.values(), strict=True):
        instance = object.__new__(kind)
        instance.__dict__.update(zip(columns, values, strict=True))
        out.append(instance)
    return out


def _pack_column(values: tuple[Any, ...]) -> Any:
    first = values[0]
    if (
        not isinstance(first, np.ndarray)
        or first.dtype.hasobject
        or {type(v) for v in values} != {np.ndarray}
    ):
        return values
    if any(v.dtype != first.dtype or v.shape != first.shape for v in values):
        return values
    return np.stack(values)  # iterating over it yields the arrays again


def pack_outcomes(outcomes: Sequence[Outcome]) -> Any:
    """Return a picklable form of outcomes, in one block where all are plain solutions."""
    plain = all(
        type(o) is Solved and not o.trace and o.solution.dtype == np.int32 and o.solution.ndim == 1
        for o in outcomes
    )
    if not plain:
        return list(outcomes)
    solved: list[Any] = list(outcomes)
    block = np.concatenate([o.solution for o in solved])
    return block, [(len(o.solution), o.optimal, o.seconds) for o in solved]


def unpack_outcomes(packed: Any) -> list[Outcome]:
    """Undo `pack_outcomes`."""
    if isinstance(packed, list):
        return packed
    block: NDArray[np.int32] = packed[0]
    bounds = pairwise(accumulate((length for length, _, _ in packed[1]), initial=0))
    out: list[Outcome] = []
    for (start, stop), (_, optimal, seconds) in zip(bounds, packed[1], strict=True):
        out.append(new_solved(block[start:stop], optimal, seconds, ()))
    return out


def new_solved(
    solution: NDArray[np.int32], optimal: bool, seconds: float | None, trace: tuple[tuple[float, float], ...]
) -> Solved:
    """Make a `Solved`: a frozen dataclass's own ``__init__`` takes three times as long, and many are made."""
    solved = object.__new__(Solved)
    solved.__dict__.update(solution=solution, optimal=optimal, seconds=seconds, trace=trace)
    return solved

"""From ``--device`` to devices that are there: one, or several that each have a worker process."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nco_bench.errors import BadInputError
from nco_bench.nn.device import CPU, CUDA, accelerators, count, is_name, kind, on_cpu

ALL, AUTO = "all", "auto"
SEVERAL = re.compile(r"([a-z]+):([0-9]{1,3}(?:,[0-9]{1,3})+)")


def is_several(name: str) -> bool:
    """Whether a text asks for several devices, ``all`` or ``cuda:0,1``; it may turn out to be one."""
    return name == ALL or "," in name


def check_device(name: str) -> None:
    """Raise `BadInputError` for a text that names no device; it need not be there."""
    match = SEVERAL.fullmatch(name)
    one = name if match is None else match[1]
    if (name not in (ALL, AUTO) and not is_name(one)) or (one != name and one == CPU):
        raise BadInputError(f"--device {name!r}: expected auto, cpu, cuda, cuda:N, cuda:0,1 or all.")


def resolve_device(name: str) -> str:
    """Turn ``auto`` into ``cuda`` where there is a GPU, else ``cpu``; torch is asked only for cuda and auto.

    Raises
    ------
    BadInputError
        For an unknown device, several, or a GPU that is not there.
    """
    check_device(name)
    if is_several(name):
        raise BadInputError(f"--device {name}: one device is needed here, such as cuda:0.")
    return resolve_devices(name)[0]


def resolve_devices(name: str) -> tuple[str, ...]:
    """Return the devices that are asked for: all GPUs for ``all``, one as often as it is named, see `resolve_device`.

    Raises
    ------
    BadInputError
        For an unknown device, or a GPU that is not there.
    """
    check_device(name)
    if name == CPU:
        return (CPU,)
    try:
        if name == ALL:
            return _all()
        found = count(CUDA if name == AUTO else kind(name))
    except ImportError:
        if name == AUTO:
            return (CPU,)
        raise BadInputError(f"--device {name}: torch is not installed; see 'nco-bench doctor'.") from None
    if name == AUTO:
        return (CUDA if found else CPU,)
    indices = name.partition(":")[2].split(",")
    if max(int(index or 0) for index in indices) >= found:
        what = "CUDA" if kind(name) == CUDA else kind(name)
        raise BadInputError(
            f"--device {name}: this machine has {found} {what} device{'' if found == 1 else 's'};"
            f" use --device {'all, or one of them' if found else 'cpu'}."
        )
    return tuple(f"{kind(name)}:{index}" for index in indices) if indices != [""] else (name,)


def _all() -> tuple[str, ...]:
    import torch  # noqa: F401  # devices that torch was extended by are known from here on

    for name in accelerators():
        if found := count(name):
            return tuple(f"{name}:{index}" for index in range(found))
    raise BadInputError("--device all: this machine has no GPU; use --device cpu.")


def processes(asked: str, devices: Sequence[str], jobs: int) -> tuple[str, ...]:
    """Return the device of each worker process.

    Parameters
    ----------
    asked
        ``--device``, for messages.
    devices
        What it stands for.
    jobs
        ``--jobs``: processes on the CPU; 1 where nobody named a number.

    Raises
    ------
    BadInputError
        Where several processes would share a GPU that is not named as often.
    """
    if on_cpu(devices[0]):
        return (CPU,) * jobs
    if jobs not in (1, len(devices)):
        few = f"{devices[0]}" if len(devices) == 1 else f"{len(devices)} GPUs"
        raise BadInputError(
            f"--jobs {jobs} --device {asked}: {jobs} processes would share {few}; leave --jobs out for one process"
            f" per GPU, name a GPU as often as it is to be shared ({kind(devices[0])}:0,0), or use --device cpu."
        )
    return tuple(devices)

"""What a device is and does: the only module that knows the CPU from a GPU.

There are two kinds: the CPU, and accelerators, which are CUDA devices and whatever device torch was extended by. Nothing
here imports torch before a device other than the CPU is asked for.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from nco_bench.errors import BadInputError

if TYPE_CHECKING:
    import torch

CPU, CUDA = "cpu", "cuda"
PRECISIONS = ("fp32", "tf32", "bf16")
Value = TypeVar("Value")


@dataclass(frozen=True)
class PerDevice:
    """How much suits a device at once, in units of whoever asks.

    Attributes
    ----------
    cpu
        As much as the processor's cache holds, about.
    gpu
        As much as keeps an accelerator busy and fits its memory.
    """

    cpu: int
    gpu: int

    def on(self, device: torch.device | str) -> int:
        """Return the number for a device."""
        return self.cpu if on_cpu(device) else self.gpu


def kind(device: torch.device | str) -> str:
    """Return a device without its index, such as ``cuda``."""
    return device.partition(":")[0] if isinstance(device, str) else device.type


def on_cpu(device: torch.device | str) -> bool:
    """Whether a device is the CPU, whose own threads, caches and compiled loops count."""
    return kind(device) == CPU


def accelerators() -> tuple[str, ...]:
    """Return the kinds of device that ``--device`` knows beside the CPU: ``cuda``, and one that torch was extended by."""
    torch = sys.modules.get("torch")
    current = getattr(getattr(torch, "accelerator", None), "current_accelerator", lambda: None)()
    return (CUDA,) if current is None or current.type == CUDA else (CUDA, current.type)


def count(name: str) -> int:
    """Return how many devices of a kind there are; raises ImportError without torch."""
    import torch

    if name == CPU:
        return 1
    module = torch.get_device_module(name)
    return int(module.device_count()) if module.is_available() else 0


def installed() -> bool:
    """Whether torch is installed, without importing it."""
    return "torch" in sys.modules or importlib.util.find_spec("torch") is not None


def is_name(name: str) -> bool:
    """Whether a text names a device, ``cpu``, ``cuda`` or ``cuda:N``; it need not be there.

    Torch is imported only for another name, which may be that of a device that torch was extended by.
    """
    match = re.fullmatch(r"([a-z]+)(:[0-9]{1,3})?", name)
    if match is None or match[1] == CUDA:
        return match is not None
    if name == CPU:
        return True
    if installed():
        import torch  # noqa: F401
    return match[1] in accelerators()


def _module(device: torch.device | str) -> Any:
    """Return torch's module of an accelerator; None for the CPU, or as long as nobody imported torch."""
    torch = None if on_cpu(device) else sys.modules.get("torch")
    return None if torch is None else torch.get_device_module(kind(device))


def synchronise(device: torch.device | str) -> None:
    """Wait until the device has done all that was asked of it (an accelerator's work is asynchronous)."""
    module = _module(device)
    if module is not None:
        module.synchronize(device)


def generator_state(device: torch.device | str) -> torch.Tensor | None:
    """Return the state of an accelerator's own generator, bytes of the CPU; None for the CPU, and where it has none."""
    read = getattr(_module(device), "get_rng_state", None)
    return None if read is None else read(device)


def restore_generator(device: torch.device | str, state: torch.Tensor) -> None:
    """Let an accelerator draw on from where `generator_state` was asked."""
    _module(device).set_rng_state(state, device)


class Later:
    """Numbers of a device, ``(K,)``, that are asked for later: an accelerator goes on working meanwhile, nobody waits."""

    def __init__(self, values: torch.Tensor) -> None:
        self._copy = values.to(CPU, non_blocking=True)
        self._there: Any = None
        if not on_cpu(values.device):
            self._there = _module(values.device).Event()
            self._there.record()

    def read(self) -> list[float]:
        """Return them; waits for what the device had to do until then."""
        if self._there is not None:
            self._there.synchronize()
        return [float(value) for value in self._copy.tolist()]


def reset_peak_memory(device: torch.device | str) -> None:
    """Count the device's memory from here on; CUDA refuses it before anything was done there."""
    module = _module(device)
    if module is not None and module.is_initialized():
        module.reset_peak_memory_stats(device)


def peak_memory_mb(device: torch.device | str) -> float | None:
    """Return the most device memory that was held since `reset_peak_memory`, in MiB; None on the CPU."""
    module = _module(device)
    return None if module is None else round(module.max_memory_allocated(device) / 2**20, 1)


def device_name(device: torch.device | str) -> str | None:
    """Return what an accelerator calls itself; None on the CPU."""
    module = _module(device)
    return None if module is None else str(module.get_device_name(device))


def take_own(device: str, index: int | None = None) -> str:
    """Make an accelerator this process's own, of the index if one is given; returns its name. The CPU is everybody's."""
    if on_cpu(device):
        return device
    import torch  # noqa: F401  # so that its module is there

    own = device if index is None else f"{kind(device)}:{index}"
    _module(own).set_device(own)
    return own


def group_backend(device: str) -> str:
    """Return torch.distributed's backend for a device."""
    return "nccl" if kind(device) == CUDA else "gloo"


def fused_attention(device: torch.device | str) -> bool:
    """Whether attention of few queries is fastest in one kernel, without a look at the values before."""
    return not on_cpu(device)


def compiled_attention(device: torch.device | str) -> bool:
    """Whether `flex_attention` is compiled; elsewhere it runs operation by operation."""
    return kind(device) == CUDA


def bf16_products(device: torch.device | str) -> bool:
    """Whether products that tolerate it (Muon's) are faster in bfloat16; of CPUs, those with instructions for it."""
    if not on_cpu(device):
        return True
    known = _capabilities()
    return bool(known.get("avx512_bf16") or known.get("amx_bf16"))


def bf16_is_slow(device: torch.device | str) -> bool:
    """Whether a device is an x86 CPU without instructions for bfloat16, where products in it take several times as long.

    False where that is not known: of other processors, and without a torch that tells.
    """
    return on_cpu(device) and _capabilities().get("architecture") == "x86_64" and not bf16_products(device)


def _capabilities() -> Mapping[str, Any]:
    """Return what torch knows of the CPU; nothing where it is too old to tell."""
    import torch

    return torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}


class SlowPrecisionWarning(UserWarning):
    """A precision that was asked for and that the device computes more slowly than float32."""


def warn_of_slow(name: str, device: torch.device | str, option: str) -> None:
    """Warn where a precision is slower than float32 on a device; `option` is how it was asked for, such as ``--config``."""
    if name == "bf16" and bf16_is_slow(device):
        warnings.warn(
            f"{option} precision=bf16: this CPU has no instructions for bf16 (avx512_bf16, amx_bf16) and takes many times "
            f"as long as in fp32: give {option} precision=fp32.",
            SlowPrecisionWarning,
            stacklevel=3,
        )


@contextmanager
def flushing_denormals() -> Iterator[None]:
    """Let the CPU take numbers below 1.2e-38 for zero, as long as the context lasts; accelerators are left as they are.

    The momentum of a unit that never fires halves until it is that small and stays there, and a product of such numbers
    takes the CPU a hundred times as long. Threads that start inside inherit it; where the CPU cannot do it, nothing changes.
    """
    import torch

    before = float(torch.full((1,), 1e-40).mul_(1.0)) == 0.0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


@contextmanager
def precision(name: str, device: torch.device | str) -> Iterator[None]:
    """Compute matrix products in a named precision, on the device's tensors, as long as the context lasts.

    Parameters
    ----------
    name
        ``fp32``; ``tf32``, products of float32 with 10 bits of mantissa, on accelerators; ``bf16``, autocast to bfloat16.
    device
        Where.
    """
    if name == "fp32":
        yield
        return
    import torch

    if name == "bf16":
        with torch.autocast(kind(device), torch.bfloat16), _attention_without_plans(device):
            yield
        return
    with _float32_products("high"):
        yield


def of_derivatives(name: str) -> str:
    """Return the `precision` to compute derivatives in: autocast's follow what was computed, tf32 is a switch."""
    return "fp32" if name == "bf16" else name


@contextmanager
def _float32_products(how: str) -> Iterator[None]:
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(how)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def _attention_without_plans(device: torch.device | str) -> Iterator[None]:
    """Leave cuDNN's attention out: it makes a plan for every shape, and a construction has as many as steps.

    On an H100 the first 100 steps of a network took 5.7 seconds, all later ones of the same shapes 0.3.
    """
    if on_cpu(device):
        yield
        return
    import torch

    backend = torch.backends.cuda
    before = backend.cudnn_sdp_enabled()
    backend.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        backend.enable_cudnn_sdp(before)


@contextmanager
def full_convolutions(device: torch.device | str) -> Iterator[None]:
    """Compute convolutions in float32, as products are: CUDA's default for them alone is tf32."""
    if on_cpu(device):
        yield
        return
    import torch

    backend = torch.backends.cudnn
    before, backend.allow_tf32 = backend.allow_tf32, False
    try:
        yield
    finally:
        backend.allow_tf32 = before


@contextmanager
def exact(device: torch.device | str) -> Iterator[None]:
    """Leave a `precision` for a while, for what it spoils: coordinates, which bfloat16 puts on a grid of 1/256."""
    import torch

    with torch.autocast(kind(device), enabled=False), _float32_products("highest"):
        yield


def check_precision(name: str, device: torch.device | str, option: str = "--param") -> None:
    """Raise `BadInputError` for an unknown precision, or one that a device does not have."""
    if name not in PRECISIONS:
        raise BadInputError(f"{option} precision={name}: expected one of {', '.join(PRECISIONS)}.")
    if name == "tf32" and on_cpu(device):
        raise BadInputError(f"{option} precision=tf32: the CPU has none; use --device cuda, or fp32.")


def check_graphs(wanted: str, device: torch.device | str) -> bool:
    """Return whether graphs are to be recorded, ``on`` or ``off``; raises `BadInputError` where a device has none."""
    if wanted not in ("on", "off"):
        raise BadInputError(f"--param graphs={wanted}: expected on or off.")
    if wanted == "on" and not hasattr(_module(device), "CUDAGraph"):
        raise BadInputError(
            f"--param graphs=on: {kind(device)} records no graphs; use --device cuda, or leave it out."
        )
    return wanted == "on"


def memory_of_graphs(device: torch.device) -> Any:
    """Return a name for memory that recordings share, as long as they are replayed one after the other."""
    return _module(device).graph_pool_handle()


def record(device: torch.device, memory: Any, call: Callable[[], Value]) -> tuple[Any, Value]:
    """Record a call that was made before with other tensors of the same shapes.

    Returns
    -------
    graph, value
        ``graph.replay()`` does it again, on the same memory; what `call` returned appears there, and not before.
    """
    module = _module(device)
    graph = module.CUDAGraph()
    with module.device(device), module.graph(graph, pool=memory):
        value = call()
    return graph, value

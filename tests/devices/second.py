"""A device of torch that is not the CPU and is everywhere: memory and arithmetic are the CPU's, the manners are a GPU's.

torch lets a Python program register one device (PrivateUse1). Each tensor of it wraps a tensor of the CPU, on which every
operation is done. As on a GPU, an operation refuses tensors of two devices, ``numpy()`` refuses, and reading a value back
makes the host wait; the last is counted (`Watch`).

As with CUDA, three things are allowed between devices: copies, numbers (tensors without dimensions) of the CPU beside
tensors of the device, and indices of the CPU into tensors of the device; the last copies behind the scenes, and is counted
as a wrong device all the same.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import tape
import torch
from torch.utils import backend_registration
from torch.utils._pytree import tree_map_only
from watch import place, watches, watching

__all__ = ["COUNT", "NAME", "register", "watching"]

NAME = "second"
COUNT = 2
"""Devices that are announced; tensors of all lie on the first: a Python backend has one ready queue of autograd."""

aten = torch.ops.aten
COPIES = frozenset({"aten::copy_", "aten::_copy_from", "aten::_to_copy"})
INDEXED = frozenset({"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"})
READS = frozenset({"aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal"})
SHAPES = frozenset(
    {"aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::unique_dim", "aten::repeat_interleave"}
)
"""Operations whose result has a shape that the host must wait for."""

FACTORIES = (
    *(
        "empty",
        "empty_strided",
        "zeros",
        "ones",
        "full",
        "scalar_tensor",
        "eye",
        "arange",
        "range",
        "linspace",
        "logspace",
    ),
    *("rand", "randn", "randint", "randperm", "normal", "tril_indices", "triu_indices", "hann_window"),
)
"""Operations that make tensors from none, and so find their device in an argument."""

LOWERED = (
    "mm",
    "bmm",
    "addmm",
    "baddbmm",
    "addbmm",
    "matmul",
    "linear",
    "conv1d",
    "conv2d",
    "scaled_dot_product_attention",
)
"""Operations that autocast rounds the arguments of, as on CUDA."""


@functools.cache
def _device() -> torch.device:
    return torch.device(NAME, 0)


class SecondTensor(torch.Tensor):
    """A tensor of the device around one of the CPU."""

    held: torch.Tensor
    __slots__ = ("held",)

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> SecondTensor:
        out = torch.Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=_device(),
            requires_grad=False,
        )
        out.held = held
        return out

    def __repr__(self) -> str:  # type: ignore[override]
        return f"SecondTensor({self.held!r})"

    def __reduce_ex__(self, protocol: int) -> Any:
        return _from_cpu, (self.detach().held,)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            copy: torch.Tensor = SecondTensor(self.detach().held.clone())
            if isinstance(self, torch.nn.Parameter):
                copy = torch.nn.Parameter(copy, requires_grad=self.requires_grad)
            else:
                copy.requires_grad_(self.requires_grad)
            memo[id(self)] = copy
        return memo[id(self)]

    def tolist(self) -> Any:
        """Wait, and return numbers."""
        for watch in watches:
            watch.wait("tolist")
        return self.detach().held.tolist()

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse, as for CUDA."""
        raise TypeError(f"can't convert {NAME}:0 device type tensor to numpy. Use Tensor.cpu() first.")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return self.numpy()

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(op, args, kwargs or {})


def _from_cpu(held: torch.Tensor) -> torch.Tensor:
    return SecondTensor(held)


def _is_ours(device: Any) -> bool:
    return device is not None and torch.device(device).type == NAME


@dataclass(frozen=True)
class _Facts:
    """What `run` asks of an operation."""

    name: str
    composite: bool
    view: bool
    writes: bool


@functools.cache
def _facts(op: Any) -> _Facts:
    schema = op._schema
    aliases = [r.alias_info for r in schema.returns if r.alias_info is not None]
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")
    return _Facts(schema.name, composite, any(not a.is_write for a in aliases), schema.is_mutable)


def _plain(value: Any, found: list[torch.Tensor]) -> Any:
    """Replace the device's tensors by what they hold, and collect all tensors."""
    if isinstance(value, torch.Tensor):
        found.append(value)
        return value.held if isinstance(value, SecondTensor) else value
    if isinstance(value, (list, tuple)):
        return [_plain(v, found) for v in value]
    return value


def _wrapped(value: Any, given: dict[int, SecondTensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return given.get(id(value)) if id(value) in given else SecondTensor(value)
    return type(value)(_wrapped(v, given) for v in value) if isinstance(value, (list, tuple)) else value


def run(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Do an operation on the CPU, as the device would; raises RuntimeError where devices are mixed."""
    facts = _facts(op)
    if facts.composite:  # in inference mode torch leaves it to us to take it apart
        return op.decompose(*args, **kwargs)
    tensors: list[torch.Tensor] = []
    plain = _plain(args, tensors)
    named = {key: _plain(value, tensors) for key, value in kwargs.items()}
    ours = [isinstance(t, SecondTensor) for t in tensors]
    device = kwargs.get("device")
    _refuse_mixed(facts.name, args, tensors, ours)
    if tape.recorded:
        _refuse_recording(facts.name, args, ours, device)
        if facts.writes:
            tape.recorded[-1].keep(plain[0])
    if watches:
        _count(facts.name, args, tensors, ours, device)
    if device is not None:
        named["device"] = "cpu"
    named.pop("pin_memory", None)
    out = op(*plain, **named)
    if tape.recorded:
        tape.recorded[-1].note(op, plain, named, out, facts.view)
    if facts.name == "aten::_local_scalar_dense":
        return out
    if facts.name in COPIES and not (ours[0] if device is None else _is_ours(device)):
        return args[0] if facts.writes else out
    given = {id(t.held): t for t in tensors if isinstance(t, SecondTensor)} if facts.writes else {}
    # A view of an ordinary tensor (a parameter) is an ordinary tensor, in inference mode too.
    if facts.view and torch.is_inference_mode_enabled() and not tensors[0].is_inference():
        with torch.inference_mode(False):
            return _wrapped(out, given)
    return _wrapped(out, given)


def _refuse_mixed(name: str, args: Any, tensors: list[torch.Tensor], ours: list[bool]) -> None:
    if all(ours) or not any(ours) or name in COPIES:
        return
    strangers = [t for t, own in zip(tensors, ours, strict=True) if not own and t.dim() > 0]
    if name in INDEXED and ours[0]:
        indices = {id(t) for t in args[1] if t is not None}
        if any(id(t) in indices for t in strangers):
            for watch in watches:
                watch.hidden[place()] += 1
        strangers = [t for t in strangers if id(t) not in indices]
    elif name in INDEXED:  # a tensor of the CPU by indices of the device
        strangers = tensors
    if strangers:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, {NAME}:0 and cpu! ({name})"
        )


def _count(name: str, args: Any, tensors: list[torch.Tensor], ours: list[bool], device: Any) -> None:
    masks = _by_mask(name, args)
    leaves = any(ours) and (
        (name == "aten::_to_copy" and device is not None and not _is_ours(device))
        or (name == "aten::copy_" and not ours[0])
    )
    comes = name in COPIES and not all(ours) and (ours[0] if device is None else _is_ours(device))
    for watch in watches:
        watch.operations += 1
        if comes:
            watch.uploads[place()] += 1
        if name in READS or name in SHAPES or masks:
            watch.wait(name + (" by mask" if masks else ""))
        elif leaves:
            watch.wait("cpu")


def _refuse_recording(name: str, args: Any, ours: list[bool], device: Any) -> None:
    """Raise where the host would wait for the device, or the device for the host, while a graph is recorded."""
    crosses = name in COPIES and (not all(ours) or (device is not None and not _is_ours(device)))
    if name in READS or name in SHAPES or _by_mask(name, args) or crosses:
        raise RuntimeError(f"operation not permitted when stream is capturing ({name})")


def _by_mask(name: str, args: Any) -> bool:
    return name in INDEXED and any(t.dtype in (torch.bool, torch.uint8) for t in args[1] if t is not None)


def _factory(op: Any) -> Any:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        return run(op, args, kwargs)

    return kernel


def _factories() -> Iterator[tuple[str, Any]]:
    for name in FACTORIES:
        packet = getattr(aten, name)
        for overload in packet.overloads():
            op = getattr(packet, overload)
            if all("Tensor" not in str(a.type) for a in op._schema.arguments):
                yield name + ("" if overload == "default" else f".{overload}"), op


def _copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    return run(aten.copy_.default, (target, source, non_blocking), {})  # type: ignore[no-any-return]


class Event:
    """A moment in the device's work, which is always done."""

    def record(self) -> None:
        """Mark it."""

    def synchronize(self) -> None:
        """Wait for it."""


def _module() -> types.ModuleType:
    """Return what ``torch.second`` is."""
    module = types.ModuleType(f"torch.{NAME}")
    calls: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "_is_in_bad_fork": lambda: False,
        "device_count": lambda: COUNT,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "synchronize": lambda device=None: None,
        "manual_seed_all": lambda seed: None,
        "manual_seed": lambda seed: None,
        "get_amp_supported_dtype": lambda: [torch.bfloat16, torch.float16],
        "get_device_name": lambda device=None: "second device (CPU memory)",
        "reset_peak_memory_stats": lambda device=None: None,
        "max_memory_allocated": lambda device=None: 0,
        "device": lambda device: nullcontext(),
        "Event": Event,
        "CUDAGraph": tape.Tape,
        "graph": tape.graph,
        "graph_pool_handle": lambda: None,
    }
    module.__dict__.update(calls)
    return module


def _in_lower_precision(op: Any) -> Any:
    """Return an operation's kernel under autocast: float32 tensors of the device are rounded before."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(
            torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)
        ):
            target = torch.get_autocast_dtype(NAME)

            def rounded(t: torch.Tensor) -> torch.Tensor:
                return t.to(target) if t.device.type == NAME and t.dtype == torch.float32 else t

            return op(
                *tree_map_only(torch.Tensor, rounded, args), **tree_map_only(torch.Tensor, rounded, kwargs)
            )

    return kernel


class _Generator(torch.Generator):
    """A generator; the device's is one of the CPU, as its arithmetic is: a Python backend cannot have its own."""

    ours: bool

    def __new__(cls, device: Any = "cpu") -> _Generator:
        made = super().__new__(cls, "cpu" if _is_ours(device) else device)
        made.ours = _is_ours(device)
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return _device() if self.ours else super().device


_libraries: list[torch.library.Library] = []


def register() -> None:
    """Make the device known to this process; before its first backward pass, which counts devices."""
    if _libraries:
        return
    backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=_module())
    torch.Generator = _Generator  # type: ignore[misc]
    library = torch.library.Library("aten", "IMPL")
    for name, op in _factories():
        library.impl(name, _factory(op), "PrivateUse1")
    library.impl("_copy_from", _copy_from, "PrivateUse1")
    autocast = torch.library.Library("_", "IMPL")
    autocast.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    for name in LOWERED:
        library.impl(name, _in_lower_precision(getattr(aten, name).default), "AutocastPrivateUse1")
    _libraries.extend((library, autocast))

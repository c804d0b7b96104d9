"""Two sides in turns: the authors' code and ours, with the same weights and instances, and the floor of ours.

Each side has memory as its users have it, so ours are timed in a process of their own (`Apart`).

The floor is the time of our matrix products alone: every product that our side hands to the library is written down once
(which, of which shapes and strides) and called again on operands of these shapes, in the same run. What lies between it
and our time is all that is not a product; a product that could be left out is in the floor too. Fused attention counts
as a product, with the softmax in it; where ours is a compiled loop, the library's stands for it in the floor.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import pickle
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from nco_bench.nn import layers
from nco_bench.nn.memory import keep_freed_memory
from nco_bench.nn.products import STEPS

Side = Callable[[], Any]

ROUNDS = 5
"""Of theirs, ours, floor, ours, theirs."""
SECONDS = 6.0
"""That the rounds of one case may take, about; there is at least one."""

aten = torch.ops.aten
PRODUCTS = {
    aten.linear, aten.matmul, aten.mm, aten.addmm, aten.addmm_, aten.bmm, aten.baddbmm, aten.baddbmm_,
    aten._addmm_activation, aten._native_multi_head_attention, aten._transformer_encoder_layer_fwd,
    aten.mv, aten.addmv, aten.scaled_dot_product_attention, aten._scaled_dot_product_flash_attention_for_cpu,
    aten._scaled_dot_product_flash_attention_for_cpu_backward, aten.mkldnn_linear, aten.convolution,
    aten.convolution_backward, torch.ops.mkldnn._linear_pointwise,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One row of the table.

    Attributes
    ----------
    model, problem, size, decoding
        As nco-bench calls them; ``update`` in place of a decoding is one step of training.
    batch
        Instances that one call is given.
    points
        Whole constructions if 0; else steps at so many evenly spread lengths of the partial solution, and the time of all
        steps follows from their mean. Long constructions would take the official code hours.
    """

    model: str
    problem: str
    size: int
    decoding: str
    batch: int
    points: int = 0

    @property
    def key(self) -> str:
        return f"{self.model}-{self.problem}{self.size}-{self.decoding}"


@dataclass(frozen=True)
class Pair:
    """What is timed.

    Attributes
    ----------
    theirs
        The official code; of several ways to call it (sizes of batches) the fastest counts.
    ours
        Our code.
    same
        The share of choices that agree, given what both returned; None where both draw at random.
    scale
        What times are multiplied by, see `Case.points`.
    """

    theirs: Sequence[Side]
    ours: Side
    same: Callable[[Any, Any], float] | None
    scale: float = 1.0


class Products(TorchDispatchMode):
    """Writes down matrix products, and replays them."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any]] = []
        self.operations = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.overloadpacket not in PRODUCTS:
            with self:
                made = func.decompose(*args, **kwargs)
            return func(*args, **kwargs) if made is NotImplemented else made
        made = func(*args, **kwargs)
        self.calls.append(
            (func, tree_map_only(Tensor, _shape_of, args), tree_map_only(Tensor, _shape_of, kwargs))
        )
        self.operations += _operations(func.overloadpacket, args, made)
        return made

    def replay(self) -> Side:
        """Return what calls the products again, one after the other, on operands that are always in place."""
        known: dict[Any, Any] = {}
        buffers: dict[tuple[int, torch.dtype], Tensor] = {}
        for extent, dtype, index in _extents(self.calls):
            if buffers.get((index, dtype), torch.empty(0)).numel() < extent:
                buffers[index, dtype] = torch.rand(extent).to(dtype)
        ready = []
        for func, args, kwargs in self.calls:
            key = (func, repr(args), repr(kwargs))
            if key not in known:
                place = count()

                def operand(shape: _Shape, place: count[int] = place) -> Tensor:
                    whole = buffers[next(place), shape.dtype]  # operands of one product never share memory
                    made = whole.as_strided(shape.size, shape.stride)
                    return torch.ops.mkldnn._reorder_linear_weight(made, STEPS) if shape.packed else made

                known[key] = (
                    func,
                    tree_map_only(_Shape, operand, args),
                    tree_map_only(_Shape, operand, kwargs),
                )
            ready.append(known[key])

        def run() -> None:
            with torch.inference_mode():
                for func, args, kwargs in ready:
                    func(*args, **kwargs)

        return run


@dataclass(frozen=True)
class _Shape:
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    packed: bool

    @property
    def extent(self) -> int:
        return (
            1 + sum((n - 1) * s for n, s in zip(self.size, self.stride, strict=True))
            if 0 not in self.size
            else 1
        )


def _shape_of(tensor: Tensor) -> _Shape:
    packed = tensor.is_mkldnn  # weights of `nco_bench.nn.packed.Packed`
    stride = torch.empty(tensor.shape, device="meta").stride() if packed else tensor.stride()
    return _Shape(tuple(tensor.shape), stride, tensor.dtype, packed)


def _extents(calls: Sequence[tuple[Any, Any, Any]]) -> list[tuple[int, torch.dtype, int]]:
    """Return how long the operand at each place must be."""
    found: list[tuple[int, torch.dtype, int]] = []
    for _, args, kwargs in calls:
        shapes: list[_Shape] = []
        tree_map_only(_Shape, shapes.append, (args, kwargs))
        found += [(one.extent, one.dtype, index) for index, one in enumerate(shapes)]
    return found


def _operations(packet: Any, args: tuple[Any, ...], made: Any) -> int:
    """Return the floating-point operations of a product; backward passes of fused attention count 2.5 times."""
    tensors = [one for one in args if isinstance(one, Tensor)]
    if "native_multi_head" in str(packet) or "encoder_layer_fwd" in str(packet):
        # What `nn.MultiheadAttention` and `nn.TransformerEncoderLayer` call without gradients: all maps, and attention.
        batch, tokens, width = tensors[0].shape
        maps = sum(one.numel() for one in tensors if one.dim() == 2)
        return 2 * batch * tokens * (maps + 2 * tokens * width)
    if "attention" in str(packet):
        backward = "backward" in str(packet)
        query, key = tensors[1:3] if backward else tensors[:2]
        return int(4 * query.numel() * key.shape[-2] * (2.5 if backward else 1))
    if "convolution" in str(packet):
        weight = tensors[2] if "backward" in str(packet) else tensors[1]
        out = tensors[0] if "backward" in str(packet) else made
        return 2 * out.numel() * weight[0].numel() * (2 if "backward" in str(packet) else 1)
    left = tensors[1] if "add" in str(packet) else tensors[0]
    return 2 * made.numel() * left.shape[-1]


def recorded(side: Side) -> tuple[Any, Side, int]:
    """Call a side, which warms it up; return its result, what replays its products, and their operations."""
    with Products() as products, library_attention() as left_out:
        found = side()
    return side() if left_out else found, products.replay(), products.operations


@contextmanager
def library_attention() -> Iterator[list[int]]:
    """Let the library attend where a compiled loop would; yields the tokens of each time, as they come."""
    if not layers.KERNELS:
        yield []
        return
    from nco_bench.nn import compiled_attention

    left_out: list[int] = []
    pays = compiled_attention.pays

    def never(tokens: int, fewest: int, head_width: int) -> bool:
        if pays(tokens, fewest, head_width):
            left_out.append(tokens)
        return False

    with patch.object(compiled_attention, "pays", never):
        yield left_out


def timed(side: Side) -> tuple[float, float]:
    """Return processor and wall seconds of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    side()
    return time.process_time() - cpu, time.perf_counter() - wall


def peak() -> float:
    """Operations per processor second of a product of two 1024 x 1024 matrices; the best of five."""
    left, right = torch.rand(1024, 1024), torch.rand(1024, 1024)
    return 2 * 1024**3 / min(timed(lambda: torch.mm(left, right))[0] for _ in range(5))


class Apart:
    """Our side, and its floor, in a process of its own, which keeps freed memory as `nco-bench run` does.

    The allocator's settings are a process's, and cannot be taken back: theirs stay as Python has them.

    Attributes
    ----------
    found
        What our side returned, called once.
    operations
        Of its products.
    """

    def __init__(self, prepare: Callable[[], Pair]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._child = context.Process(target=_answer, args=(theirs, prepare), daemon=True)
        self._child.start()
        theirs.close()
        self.found, self.operations = pickle.loads(self._pipe.recv_bytes())

    def timed(self, name: str) -> tuple[float, float]:
        """Time ``ours`` or ``floor``."""
        self._pipe.send(name)
        found: tuple[float, float] = self._pipe.recv()
        return found

    def close(self) -> None:
        """End the process."""
        self._pipe.send("")
        self._child.join()


def _answer(pipe: Any, prepare: Callable[[], Pair]) -> None:
    keep_freed_memory()
    ours = prepare().ours
    found, floor, operations = recorded(ours)
    sides = {"ours": ours, "floor": floor}
    pipe.send_bytes(pickle.dumps((found, operations)))
    for name in iter(pipe.recv, ""):
        pipe.send(timed(sides[name]))


class Here:
    """The same in this process, for updates: `nco-bench train` keeps freed memory, and theirs gain by it too."""

    def __init__(self, prepare: Callable[[], Pair]) -> None:
        keep_freed_memory()
        ours = prepare().ours
        self.found, floor, self.operations = recorded(ours)
        self._sides = {"ours": ours, "floor": floor}

    def timed(self, name: str) -> tuple[float, float]:
        """Time ``ours`` or ``floor``."""
        return timed(self._sides[name])

    def close(self) -> None:
        """Do nothing."""


def prepared(family: str, case: Case, checkout: Path | None) -> Pair:
    """Prepare both sides of a case, with one thread; the same pair in every process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    pair: Pair = importlib.import_module(f"official.{family}").pair(case, checkout)
    return pair


def measure(case: Case, prepare: Callable[[], Pair], seconds: float = SECONDS) -> dict[str, Any]:
    """Check that both sides choose the same, then time them in turns; medians, in seconds of one call of `Case.batch`."""
    ours = (Here if case.decoding == "update" else Apart)(prepare)
    pair = prepare()
    warm = [(*recorded(side), side) for side in pair.theirs]
    turns = [timed(side)[0] for *_, side in warm] if len(warm) > 1 else [0.0]
    found, _, theirs_counted, theirs = warm[turns.index(min(turns))]
    same = None if pair.same is None else round(float(pair.same(found, ours.found)), 4)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ("theirs", "ours", "floor")}
    best, begun = peak(), time.perf_counter()
    while len(taken["floor"]) < ROUNDS:
        for name in ("theirs", "ours", "floor", "ours", "theirs"):
            taken[name].append(timed(theirs) if name == "theirs" else ours.timed(name))
        best = max(best, peak())
        if (time.perf_counter() - begun) * (1 + 1 / len(taken["floor"])) > seconds:
            break
    ours.close()
    counts = {"ours": ours.operations, "theirs": theirs_counted}
    row: dict[str, Any] = {**asdict(case), "same": same}
    for name, times in taken.items():
        for place, clock in enumerate(("cpu", "wall")):
            values = [one[place] * pair.scale for one in times]
            row[f"{name}_{clock}"] = round(statistics.median(values), 6)
            row[f"{name}_{clock}_spread"] = [round(min(values), 6), round(max(values), 6)]
    row |= {f"{name}_gflop": round(found * pair.scale / 1e9, 4) for name, found in counts.items()}
    return row | {"peak_gflops": round(best / 1e9, 1), "turns": len(taken["ours"]), "machine": machine()}


def machine() -> dict[str, Any]:
    """Return what the figures depend on."""
    processor = platform.processor()
    try:
        with open("/proc/cpuinfo") as file:
            processor = next((line.split(":")[1].strip() for line in file if "model name" in line), processor)
    except OSError:
        pass
    return {
        "processor": processor, "cores": os.cpu_count(), "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 1), "torch": torch.__version__, "day": time.strftime("%Y-%m-%d"),
    }  # fmt: skip


def same_rows(theirs: Sequence[Any], ours: Sequence[Any]) -> float:
    """Return the share of instances whose solutions are equal."""
    pairs = list(zip(theirs, ours, strict=True))
    return sum([int(x) for x in a] == [int(x) for x in b] for a, b in pairs) / len(pairs)


def separated(model: torch.nn.Module, scale: float, seed: int = 0, bias: float = 0.2) -> torch.nn.Module:
    """Enlarge the maps of a fresh network and draw its biases, so that its choices are no near-ties; ReZero scalars too."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("alpha"):
                parameter.fill_(0.5)
            elif parameter.dim() > 1:
                parameter.mul_(scale)
            elif name.endswith("bias"):
                parameter.uniform_(-bias, bias, generator=generator)
    return model.eval()

"""What a lower precision of matrix products does to the tours of shipped weights.

    python benchmarks/precision_gap.py [MODEL[@WEIGHTS] ...] [--data tsp100:count=64] [--decoding greedy] [--device cpu]
                                       [--of tf32 bf16 padded]

bf16 is what `--param precision=bf16` does, on any device. tf32 is what `--param precision=tf32` does on a GPU; a CPU has
none, so there it is emulated: the inputs of every matrix product and of attention are rounded to 10 bits of mantissa, sums
are float32's. (The weights of attention, inside the fused kernel, are not rounded.) The figure is the change of the mean
length in percent, about the points that the gap moves by, with its standard error over instances, which see both.

``padded`` is float32 on the padded candidates of `--param graphs=on`, without recordings, for path policies.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from nco_bench.api import load
from nco_bench.cards import network_card
from nco_bench.nn.device import on_cpu
from nco_bench.problems import problem
from nco_bench.solvers.path.replayed import Padded
from nco_bench.solvers.protocol import SolverOptions
from nco_bench.solvers.registry import choose, create

MODELS = ("decoder-6x128", "decoder-24x64", "lehd", "pens-a", "pens-r", "sit", "am@am-eie-tsp100")
ADDING = frozenset(f"aten::{name}" for name in ("addmm", "addmm_", "baddbmm", "baddbmm_"))
"""Products whose first argument is what they are added to."""
PRODUCTS = ADDING | {
    *(f"aten::{name}" for name in ("mm", "bmm", "mv", "dot")),
    *("aten::_scaled_dot_product_flash_attention_for_cpu", "aten::_scaled_dot_product_attention_math"),
    "mkldnn::_linear_pointwise",  # `nco_bench.nn.products`
}
DROPPED = 13
"""Bits that tf32 lacks of float32's mantissa."""


def rounded(x: Tensor) -> Tensor:
    """Round float32 to 10 bits of mantissa, halves away from zero as the hardware's conversion does."""
    if x.dtype != torch.float32:
        return x
    if x.is_mkldnn:  # a weight that `nco_bench.nn.packed` keeps
        x = x.to_dense()
    bits = x.contiguous().view(torch.int32)
    return ((bits + (1 << (DROPPED - 1))) & -(1 << DROPPED)).view(torch.float32).view(x.shape)


class Rounding(TorchDispatchMode):
    """Rounds what goes into matrix products; `products` counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.products = 0

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, op._schema.name
        if name not in PRODUCTS:
            if torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd"):
                with self:  # in inference mode, what products hide in comes whole
                    return op.decompose(*args, **kwargs)
            return op(*args, **kwargs)
        self.products += 1
        kept = 1 if name in ADDING else 0  # what is added is no factor
        factors = [rounded(a) if isinstance(a, Tensor) else a for a in args[kept:]]
        return op(*args[:kept], *factors, **kwargs)


@contextmanager
def tf32_emulated() -> Iterator[None]:
    """Compute products as a GPU does in tf32."""
    with Rounding() as mode:
        yield
    assert mode.products, "no matrix product was seen"


def lengths(model: str, data: str, decoding: str, precision: str, device: str) -> NDArray[np.float64]:
    """Costs of all instances."""
    emulated = precision == "tf32" and on_cpu(device)
    params = {} if precision in ("fp32", "padded") or emulated else {"precision": precision}
    name, _, weights = model.partition("@")
    options = SolverOptions(decoding=decoding, weights=weights or None, device=device, params=params)
    solver = create(choose(name, options))
    dataset = load(data)
    solver.prepare(dataset)
    if precision == "padded":
        solver.policy = Padded(solver.policy)  # type: ignore[attr-defined]
    costs = []
    with tf32_emulated() if emulated else nullcontext():
        for first in range(0, len(dataset), 16):
            batch = dataset.instances[first : first + 16]
            found = solver.solve(batch, seed=1234 + first, time_limit=None, progress=lambda done: None)
            costs += list(problem(dataset.problem).score_batch(batch, list(found)))
    return np.array(costs, dtype=np.float64)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--data", default="tsp100:count=64")
    parser.add_argument("--decoding", default="greedy")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--of", nargs="+", default=["tf32", "bf16"], choices=["tf32", "bf16", "padded"])
    given = parser.parse_args()
    torch.set_num_threads(1)
    for model in given.models:
        exact = lengths(model, given.data, given.decoding, "fp32", given.device)
        print(f"{model} {given.decoding} on {given.data}: fp32 {exact.mean():.4f}", flush=True)
        for precision in given.of:
            if precision == "padded" and network_card(model.partition("@")[0]).family != "path":
                continue
            if model.startswith("sit") and precision == "bf16":
                print("    bf16: updates its tokens in place in float32, refused", flush=True)
                continue
            change = 100 * (lengths(model, given.data, given.decoding, precision, given.device) / exact - 1)
            error = change.std(ddof=1) / len(change) ** 0.5
            moved = np.count_nonzero(change)
            print(
                f"    {precision}: {change.mean():+.3f} ± {error:.3f} points, {moved} of {len(change)} tours differ",
                flush=True,
            )


if __name__ == "__main__":
    main()

"""Products of float32 by PyTorch's two libraries, MKL and oneDNN, in turns: which `nco_bench.nn.products` should ask.

    python benchmarks/library_products.py [--rounds 200]

One thread; GFLOP/s by the least time of all rounds. ``forward`` is ``x W^T``, ``by x`` and ``by W`` are its derivatives, as
networks of this project make them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from nco_bench.nn import products

SHAPES = (
    (100, 128, 128),
    (1024, 128, 128),
    (1024, 128, 512),
    (1024, 512, 128),
    (1024, 192, 768),
    (16384, 128, 512),
)
"""Rows, and the two sides of a weight."""


def sides(rows: int, inner: int, outer: int) -> dict[str, tuple[Callable[[], Tensor], Callable[[], Tensor]]]:
    """Return each product by either library."""
    x, weight, change = torch.randn(rows, inner), torch.randn(outer, inner), torch.randn(rows, outer)
    return {
        "forward": (lambda: F.linear(x, weight), lambda: products.filled_up(x, weight, None)),
        "by x": (lambda: change @ weight, lambda: products.filled_up(change, weight.T, None)),
        "by W": (lambda: change.T @ x, lambda: products._summed(change, x)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    print(
        f"capability {torch.backends.cpu.get_cpu_capability()}; "
        f"oneDNN is asked on this machine: {'yes' if products.faster() else 'no'}"
    )
    with torch.inference_mode():
        for shape in SHAPES:
            for name, (mkl, onednn) in sides(*shape).items():
                best = [float("inf")] * 2
                for _ in range(rounds):
                    for place, work in enumerate((mkl, onednn)):
                        began = time.perf_counter()
                        work()
                        best[place] = min(best[place], time.perf_counter() - began)
                speed = [2 * shape[0] * shape[1] * shape[2] / one / 1e9 for one in best]
                print(
                    f"{shape[0]:6d} x {shape[1]:3d} x {shape[2]:3d} {name:8s} MKL {speed[0]:5.0f} GFLOP/s, "
                    f"oneDNN {speed[1]:5.0f}, {speed[1] / speed[0]:.2f}"
                )


if __name__ == "__main__":
    main()

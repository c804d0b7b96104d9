"""
Self-attention with its derivative on the CPU, in training: compiled passes against PyTorch's kernel.

Both take the same queries, keys and values side by side, as an update does: PyTorch's has them widened to float32, cut by
heads and joined again. In turns, on one thread. Reported are medians of processor seconds, in nanoseconds per pair of
tokens and head, forwards and backwards together, with distances (PENS-A, 12 heads) and without (decoder-6x128, 8 heads).

    python benchmarks/attention_training.py [--tokens 12 27 52 80 102] [--batch 64] [--rounds 9]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from nco_bench.nn import attention_training
from nco_bench.nn.layers import dot_products, side_by_side, split_parts
from nco_bench.solvers.path.pens_geometry import biases, distances

SCALE = 0.4


def ways(joined: Tensor, heads: int, slopes: Tensor | None) -> dict[str, Callable[[], Tensor]]:
    """Return both; coordinates are uniform where there are slopes."""
    coords = torch.rand(*joined.shape[:2], 2)
    bias = None if slopes is None else biases(distances(coords, coords), slopes)  # kept for all layers

    def torch_kernel() -> Tensor:
        return side_by_side(dot_products(*split_parts(joined, 3, heads), bias, SCALE))

    return {
        "compiled": lambda: attention_training.attend((joined,), heads, SCALE, slopes, coords),
        "PyTorch": torch_kernel,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, nargs="+", default=[12, 27, 52, 80, 102])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for tokens in options.tokens:
        for heads, far in ((12, True), (8, False)):
            slopes = 10 * 2.0 ** (-torch.arange(heads) / 2) if far else None
            joined = torch.randn(options.batch, tokens, 3 * heads * 16).bfloat16().requires_grad_()
            outer = torch.randn(options.batch, tokens, heads * 16).bfloat16()
            known = ways(joined, heads, slopes)
            found = {name: torch.autograd.grad(way(), joined, outer)[0] for name, way in known.items()}
            torch.testing.assert_close(*found.values(), rtol=2**-6, atol=2**-7)
            seconds: dict[str, list[float]] = {name: [] for name in known}
            for _ in range(options.rounds):
                for name, way in known.items():
                    begun = time.process_time()
                    torch.autograd.grad(way(), joined, outer)
                    seconds[name].append(time.process_time() - begun)
            pairs = options.batch * heads * tokens**2
            said = (f"{name} {statistics.median(all_) / pairs * 1e9:.2f}" for name, all_ in seconds.items())
            print(
                f"{tokens:,} tokens, {'with' if far else 'without'} distances: {', '.join(said)}", flush=True
            )


if __name__ == "__main__":
    main()

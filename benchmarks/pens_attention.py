"""
PENS-A's attention with distances, without gradients on the CPU: compiled, heads one by one, and in blocks of all heads.

All compute the same from the same queries, keys and values, in turns, on one thread; beside them stands PyTorch's attention
without any distances. Reported are medians of processor seconds, in nanoseconds per pair of tokens and head.

    python benchmarks/pens_attention.py [--sizes 1000 2000 4000 8000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from nco_bench.nn import compiled_attention
from nco_bench.solvers.path.pens import PensConfig
from nco_bench.solvers.path.pens_geometry import Geometry, attend_with_distances


def ways(tokens: int) -> dict[str, Callable[[], Tensor]]:
    """Return the four, on random tokens of one instance in the unit square."""
    config = PensConfig()
    query, key, value = torch.randn(3, 1, config.heads, tokens, config.head_dim)
    slopes = config.max_slope * 2.0 ** (-torch.arange(config.heads) / 2)
    geometry = Geometry(torch.rand(1, tokens, 2))

    def attended(gradients: bool) -> Tensor:
        with torch.set_grad_enabled(gradients):
            return attend_with_distances(query, key, value, slopes, geometry, 0.25)

    def compiled() -> Tensor:
        with torch.no_grad():
            return compiled_attention.attend(query, key, value, 0.25, slopes, geometry.coords)

    return {
        "compiled": compiled,
        "all heads": lambda: attended(True),
        "head by head": lambda: attended(False),
        "without distances": lambda: F.scaled_dot_product_attention(query, key, value, scale=0.25),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 2000, 4000, 8000])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for tokens in options.sizes:
        known = ways(tokens)
        for name in ("head by head", "compiled"):
            torch.testing.assert_close(known[name](), known["all heads"](), rtol=1e-4, atol=1e-5)
        seconds: dict[str, list[float]] = {name: [] for name in known}
        for _ in range(options.rounds):
            for name, way in known.items():
                begun = time.process_time()
                way()
                seconds[name].append(time.process_time() - begun)
        pairs = tokens**2 * PensConfig().heads
        found = (f"{name} {statistics.median(times) / pairs * 1e9:.2f}" for name, times in seconds.items())
        print(f"{tokens:,} tokens, ns per pair and head: {', '.join(found)}", flush=True)


if __name__ == "__main__":
    main()

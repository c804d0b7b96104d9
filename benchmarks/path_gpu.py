"""
Path policies on a CUDA device: the GPU targets, which no CPU can check.

    python benchmarks/path_gpu.py [--precision fp32|tf32|bf16] [--only pens sit bf16] [--graphs] [--flex]

- PENS-A greedy on one TSP-10K, biases kept from layer to layer or FlexAttention (``--flex``): under 120 s on an H200 (the
  paper: 414 s on an RTX 5090).
- SIT greedy on 16 x TSP-10K: under 10 s (the paper: 20 s).
- decoder-6x128, shipped weights, greedy on 1,000 x TSP-100: gap in bf16 within 0.02 points of fp32.

Random weights do for the first two; kernels are compiled before the clock starts. The floor is the operations in matrix
products divided by the rate of one large product in the same precision. ``--graphs`` is ``--param graphs=on``; recordings
are made before the clock starts, by whole constructions. ``--device cpu --nodes 60`` tries the script out.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import Tensor, nn

from nco_bench.errors import NcoBenchError
from nco_bench.nn.build import build_path_policy
from nco_bench.nn.device import (
    PRECISIONS,
    PerDevice,
    check_graphs,
    compiled_attention,
    precision,
    synchronise,
)
from nco_bench.runs.devices import resolve_device
from nco_bench.solvers.path.construct import greedy
from nco_bench.solvers.path.precision import at_precision
from nco_bench.solvers.path.problem import tour_lengths, tsp_problem
from nco_bench.solvers.path.replayed import Replayed
from nco_bench.weights.store import load_into, resolve

PRODUCT = PerDevice(cpu=512, gpu=8192)
"""Rows and columns of the product that the peak is measured with."""


def tours(policy: nn.Module, coords: Tensor) -> Tensor:
    """Greedy tours ``(B, N)`` from node 0."""
    order = greedy(policy, tsp_problem(coords)).order  # type: ignore[arg-type]
    return torch.cat([torch.zeros_like(order[:, :1]), order], dim=1)


def seconds_of(policy: nn.Module, coords: Tensor) -> float:
    """Wall seconds of greedy construction; a short one first compiles what is to be compiled, whole ones record."""
    tours(policy, coords[:, : max(3, coords.shape[1] // 50)])
    for _ in range(2 if isinstance(policy, Replayed) else 0):
        tours(policy, coords)
    synchronise(coords.device)
    begun = time.perf_counter()
    tours(policy, coords)
    synchronise(coords.device)
    return time.perf_counter() - begun


def operations(policy: nn.Module, batch: int, nodes: int) -> float:
    """Operations in the matrix products of a whole construction: linear maps and attention of every step."""
    config = policy.config
    linear = 4 * config.width**2 + 2 * config.width * config.ffn  # type: ignore[union-attr]
    repeats = getattr(config, "repeats", None)
    total = 0.0
    for left in range(1, nodes):
        if repeats is None:
            tokens = left + 2
            total += tokens * linear + 2 * tokens**2 * config.width  # type: ignore[union-attr]
        else:
            few = repeats + 1
            total += (left + 2 * few) * linear + 4 * few * (left + few) * config.width  # type: ignore[union-attr]
    return 2.0 * batch * config.layers * total  # type: ignore[union-attr]


def product_rate(device: torch.device, name: str, size: int) -> float:
    """Operations per second of one large matrix product in a named precision."""
    dtype = torch.bfloat16 if name == "bf16" else torch.float32
    left = torch.randn(size, size, device=device, dtype=dtype)
    with precision(name, device):
        torch.mm(left, left)
        synchronise(device)
        begun = time.perf_counter()
        for _ in range(10):
            torch.mm(left, left)
        synchronise(device)
    return 10 * 2 * size**3 / (time.perf_counter() - begun)


def speed(
    name: str,
    batch: int,
    nodes: int,
    wanted: str,
    device: torch.device,
    target: float,
    *,
    graphs: bool,
    flex: bool = False,
) -> None:
    """Print the seconds of greedy construction against the target, and the share of the floor."""
    torch.manual_seed(0)
    policy = build_path_policy(name).eval().to(device)
    if hasattr(policy, "flex"):
        policy.flex = flex and compiled_attention(device)
    work = operations(policy, batch, nodes)
    used = "fp32" if name == "sit" and wanted == "bf16" else wanted  # SIT works in place in fp32
    ready = at_precision(policy, name, used)
    ready = Replayed(ready) if graphs else ready
    seconds = seconds_of(ready, torch.rand(batch, nodes, 2, device=device))
    recorded = f", {len(ready.recorded.met)} recordings" if isinstance(ready, Replayed) else ""
    floor = work / product_rate(device, used, min(PRODUCT.on(device), nodes))
    print(
        f"{name} greedy, {batch} x TSP-{nodes}, {used}{recorded}: {seconds:.1f} s (target {target:.0f} s at TSP-10000);"
        f" floor {floor:.2f} s, {floor / seconds:.1%} of the peak reached",
        flush=True,
    )


def precision_gap(nodes: int, count: int, device: torch.device) -> None:
    """Print how far the mean greedy length of decoder-6x128 moves from fp32 to bf16."""
    name = "decoder-6x128"
    policy = build_path_policy(name).eval()
    load_into(policy, resolve(name, name, "tsp"))
    policy.to(device)
    torch.manual_seed(0)
    coords = torch.rand(count, nodes, 2).to(device)
    lengths = [
        tour_lengths(coords, tours(at_precision(policy, name, wanted), coords)).mean().item()
        for wanted in ("fp32", "bf16")
    ]
    points = 100 * (lengths[1] / lengths[0] - 1)
    print(
        f"{name} greedy, {count} x TSP-{nodes}: length {lengths[0]:.4f} in fp32, {lengths[1]:.4f} in bf16,"
        f" {points:+.3f} points (allowed 0.02)",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--precision", choices=PRECISIONS, default="bf16")
    parser.add_argument("--only", nargs="*", choices=("pens", "sit", "bf16"), default=["pens", "sit", "bf16"])
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--graphs", action="store_true")
    parser.add_argument("--flex", action="store_true")
    arguments = parser.parse_args()
    try:
        device = torch.device(resolve_device(arguments.device))
        graphs = arguments.graphs and check_graphs("on", device)
    except NcoBenchError as error:
        raise SystemExit(f"path_gpu.py: {error}") from None
    with torch.inference_mode():
        if "pens" in arguments.only:
            speed(
                "pens-a",
                1,
                arguments.nodes,
                arguments.precision,
                device,
                120,
                graphs=graphs,
                flex=arguments.flex,
            )
        if "sit" in arguments.only:
            speed("sit", 16, arguments.nodes, arguments.precision, device, 10, graphs=graphs)
        if "bf16" in arguments.only:
            small = arguments.nodes < 100
            precision_gap(20 if small else 100, 8 if small else 1000, device)


if __name__ == "__main__":
    main()

"""Samples per second of supervised training on a device, against its own matrix-multiplication speed.

    python benchmarks/train_throughput.py [MODEL] [--batch 32] [--threads 1] [--seconds 5] [--device cpu] [--data FILE ...]
        [--recipe small] [--precision fp32 bf16] [--side 8192] [--compile] [--beside] [--kernels 12]

With labelled data it also says which share of the time an update waits for data. With ``--beside`` it says which share of an
update is no pass through the network, forward and backward: drawing and turning pieces, losses (the auxiliary one counts
here), clipping, optimiser, moving average. With ``--kernels K`` it names the K dearest operations of an update: on a GPU,
kernels, and whether they or the host that starts them take the time.

The floor is the time that the multiplications of forward and backward pass alone would take at the speed that one
large multiplication reaches here, in the precision: 6 floating point operations per weight and token. Attention is not in
the floor. Precisions are timed in turns, each length in one after the other.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.profiler import profile, supported_activities

from nco_bench.errors import NcoBenchError
from nco_bench.nn.build import build_path_policy, count_parameters
from nco_bench.nn.device import PRECISIONS, PerDevice, exact, of_derivatives, synchronise
from nco_bench.nn.device import precision as named_precision
from nco_bench.nn.memory import keep_freed_memory
from nco_bench.nn.products import linear
from nco_bench.runs.devices import resolve_device
from nco_bench.solvers.path.policy import PathNodes, PathState
from nco_bench.training.data import Batch, LabelStream
from nco_bench.training.learners.pieces import draw_sub_paths
from nco_bench.training.learners.supervised import Supervised
from nco_bench.training.recipes import Recipe, recipe_for
from nco_bench.training.trainer import Trainer

ROWS, SIDE = PerDevice(cpu=4096, gpu=8192), PerDevice(cpu=512, gpu=8192)
"""Of the large multiplication."""


class Uniform:
    """A stream of random instances; their order is no tour, which does not change the time."""

    problem = "tsp"

    def __init__(self, nodes: int) -> None:
        self.points = np.random.default_rng(0).random((4096, nodes, 2), dtype=np.float32)

    def take(self, count: int) -> Batch:
        return Batch(self.points[:count], tours=True)


def multiplication_speed(seconds: float, device: torch.device, precision: str, side: int | None) -> float:
    """Return operations per second of a large matrix multiplication."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    rows, side = (side, side) if side else (ROWS.on(device), SIDE.on(device))
    a, b = (torch.randn(count, side, device=device, dtype=dtype) for count in (rows, side))
    weight = b.T.contiguous()

    def multiply() -> Tensor:
        return linear(a, weight) if dtype == torch.float32 else a @ b

    with named_precision(precision, device), torch.no_grad():
        multiply()
        synchronise(device)
        began, count = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            multiply()
            synchronise(device)
            count += 1
    return 2 * rows * side * side * count / (time.perf_counter() - began)


def warm_trainer(model: str, recipe: Recipe, device: torch.device) -> Trainer:
    """Return a run that has compiled what it compiles."""
    policy = build_path_policy(model).to(device).train()
    learner = Supervised(policy, Uniform(100), recipe, 0, device)  # type: ignore[arg-type]
    trainer = Trainer(policy, learner, recipe, Path("unused"), {})
    for layer in policy.layers if recipe.compile else ():
        layer.compile(dynamic=True)
    for _ in range(3):
        trainer.update(0.0)
    synchronise(device)
    return trainer


def dearest(model: str, recipe: Recipe, device: torch.device, count: int, updates: int = 4) -> list[str]:
    """Return lines of what an update is made of: its wall time, the device's own, and the dearest operations."""
    trainer = warm_trainer(model, recipe, device)
    with profile(activities=supported_activities()) as profiled:
        began = time.perf_counter()
        for _ in range(updates):
            trainer.update(0.0, wait=False)
        synchronise(device)
        wall = (time.perf_counter() - began) / updates
    found = profiled.key_averages()
    own = [one for one in found if one.device_type.name != "CPU"]
    events = own or list(found)

    def milliseconds(event: Any) -> float:
        spent = event.self_device_time_total if own else event.self_cpu_time_total
        return float(spent) / 1000 / updates

    events.sort(key=milliseconds, reverse=True)
    total, calls = sum(map(milliseconds, events)), sum(one.count for one in events) // updates
    lines = [f"  an update: {wall * 1000:.1f} ms, {calls} operations of {total:.1f} ms together"]
    return lines + [
        f"  {milliseconds(one):8.2f} ms {one.count // updates:5d} x {one.key[:90]}" for one in events[:count]
    ]


def samples_per_second(model: str, recipe: Recipe, seconds: float, device: torch.device) -> float:
    """Return the speed of whole updates (data, forward, backward, AdamW) at one sub-path length."""
    trainer = warm_trainer(model, recipe, device)
    began, samples = time.perf_counter(), trainer.progress.samples
    while time.perf_counter() - began < seconds:
        trainer.update(0.0, wait=False)
    synchronise(device)
    return (trainer.progress.samples - samples) / (time.perf_counter() - began)


def beside_the_network(model: str, recipe: Recipe, seconds: float, device: torch.device) -> float:
    """Return the share of an update that is no pass through the network; both are timed in turns, the least of each."""
    policy = build_path_policy(model).to(device).train()
    learner = Supervised(policy, Uniform(100), recipe, 0, device)  # type: ignore[arg-type]
    trainer = Trainer(policy, learner, recipe, Path("unused"), {})
    pieces = draw_sub_paths(
        torch.from_numpy(Uniform(100).take(recipe.batch).ordered).to(device),
        recipe.longest, np.random.default_rng(0), recipe.symmetries,
    )  # fmt: skip
    outer = torch.randn(recipe.batch, recipe.longest - 2, device=device)

    def network() -> None:
        with named_precision(recipe.precision, device):
            with exact(device):
                features = policy.embed(PathNodes(pieces, None, 100))
            scores = policy.scores(PathState(features, pieces, None, None, False, 100))
        with named_precision(of_derivatives(recipe.precision), device):
            scores.backward(outer.to(scores.dtype))
        trainer.optimizer.zero_grad(set_to_none=True)

    taken: dict[str, list[float]] = {"network": [], "update": []}
    began = time.perf_counter()
    while time.perf_counter() - began < seconds or len(taken["update"]) < 3:
        for name, work in (("network", network), ("update", lambda: trainer.update(0.0))):
            start = time.perf_counter()
            work()
            synchronise(device)
            taken[name].append(time.perf_counter() - start)
    return 1 - min(taken["network"]) / min(taken["update"])


class Timed:
    """A stream of labels that counts the seconds that reading takes."""

    def __init__(self, files: list[str]) -> None:
        self.stream, self.problem, self.seconds = LabelStream(files, 0), "tsp", 0.0

    def take(self, count: int) -> Batch:
        began = time.perf_counter()
        batch = self.stream.take(count)
        self.seconds += time.perf_counter() - began
        return batch


def waiting(model: str, recipe: Recipe, files: list[str], seconds: float, device: torch.device) -> float:
    """Return the share of training time that goes into taking data."""
    stream = Timed(files)
    stream.take(1)  # the first shard is read at the start of a run
    stream.seconds = 0.0
    policy = build_path_policy(model).to(device).train()
    learner = Supervised(policy, stream, recipe, 0, device)  # type: ignore[arg-type]
    trainer = Trainer(policy, learner, recipe, Path("unused"), {})
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        trainer.update(0.0)
        synchronise(device)
    return stream.seconds / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="decoder-6x128")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--data", nargs="*", default=[], help="labelled TSP files, at least two")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--recipe", default="small")
    parser.add_argument("--precision", nargs="+", default=["fp32"], choices=PRECISIONS)
    parser.add_argument(
        "--side", type=int, help="of the large multiplication (default: one that fills the device)"
    )
    parser.add_argument("--compile", action="store_true", help="compile the layers, as compile=true does")
    parser.add_argument(
        "--beside", action="store_true", help="also the share that is no pass through the network"
    )
    parser.add_argument("--kernels", type=int, default=0, help="name so many of the dearest operations")
    options = parser.parse_args()
    try:
        device = torch.device(resolve_device(options.device))
    except NcoBenchError as error:
        raise SystemExit(f"train_throughput.py: {error}") from None
    torch.set_num_threads(options.threads)
    keep_freed_memory()  # as `train` does
    peaks = {
        p: multiplication_speed(min(2.0, options.seconds), device, p, options.side) for p in options.precision
    }
    weights = count_parameters(build_path_policy(options.model))
    best = ", ".join(f"{peak / 1e9:.0f} GFLOP/s at best in {name}" for name, peak in peaks.items())
    print(f"{options.model}: {weights:,} parameters, {options.threads} threads, {device}, {best}")
    own = {"batch": str(options.batch), "recipe": options.recipe, "compile": str(options.compile).lower()}
    for length in (10, 25, 50, 100):
        config = {key: str(length) for key in ("shortest", "longest", "longest_start")}
        for precision, peak in peaks.items():
            recipe = recipe_for(options.model, config | own | {"precision": precision})
            speed = samples_per_second(options.model, recipe, options.seconds, device)
            share = speed * length * weights * 6 / peak
            told = f"sub-paths of {length:3d} rows, {precision}: {speed:7.0f} samples/s, {share:.0%} of the floor's speed"
            if options.beside:
                rest = beside_the_network(options.model, recipe, options.seconds, device)
                told += f", {rest:.0%} beside the network"
            print(told, flush=True)
            for line in dearest(options.model, recipe, device, options.kernels) if options.kernels else ():
                print(line, flush=True)
    if options.data:
        recipe = recipe_for(options.model, own)
        share = waiting(options.model, recipe, options.data, 4 * options.seconds, device)
        print(f"waiting for data: {share:.2%} of the time")


if __name__ == "__main__":
    main()

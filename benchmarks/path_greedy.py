"""
Greedy construction: ours against the official code, on the same weights and instances, in one run.

    python benchmarks/path_greedy.py --lehd CHECKOUT/NCO_code --bq CHECKOUT/bq-nco --sit CHECKOUT/SIL

Each argument names a checkout of the official repository; a model without one is skipped. Complete runs of the largest
sizes take the official code hours on a CPU, so steps are timed at evenly spread points of the construction (the same
partial tours on both sides, in turns) and summed up with the trapezoidal rule; ``--points`` chooses how many. CPU seconds
(medians of ``--repeats`` turns) are compared, which other work on the machine disturbs less than wall seconds; both are
printed. So is the floor of each side: the operations in its matrix products, divided by the rate of a product of two
1024 x 1024 matrices measured just before. ``--out FILE`` writes all of it as JSON.

Ours is a step as `construct` takes it, with its threads: one for each part of the batch (`decoding.parts`) or, for SIT's
long problems, of the tokens (`models.threads`). Both sides have ``--threads``. torch.compile is not used: on the CPU LEHD
gained 0 to 5 % from it (TSP-100, torch 2.13, dynamic shapes), for 9 s of compiling and a C++ compiler at the user's.

Multiply-adds per token and layer: LEHD 196,608 in linear maps and 256 T in the attention to T tokens, on both sides; ours
leaves the last layer's second feed-forward map out (`FeedForward.scored`), 5 % of the whole. SIT 196,608, and 8,192 in
the attention through 16 representatives, of which ours leaves 13 % out (`sit_streaming`), less below 128 tokens. Two
thirds are the feed-forward maps, which nobody can avoid: what is left to gain is the time outside of matrix products.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from nco_bench.nn.build import build_path_policy, load_official
from nco_bench.solvers.decoding.search import greedy_choice
from nco_bench.solvers.path.construct import construct_from
from nco_bench.solvers.path.policy import PathPolicy
from nco_bench.solvers.path.problem import PathProblem, tsp_problem
from nco_bench.solvers.path.sit import STREAMED_FROM

Step = Callable[[Tensor], Tensor]
"""Takes partial tours ``(B, t)``, returns the chosen nodes ``(B,)``; what lies before the first step is not timed."""

CASES = {
    "lehd": ((100, 128), (1000, 8)),
    "bq": ((100, 128), (1000, 8)),
    "sit": ((100, 128), (1000, 8), (10_000, 1)),
}
LEHD_SIZES = {
    "embedding_dim": 128,
    "qkv_dim": 16,
    "head_num": 8,
    "ff_hidden_dim": 512,
    "sqrt_embedding_dim": 128**0.5,
}


def module_at(path: Path, name: str) -> types.ModuleType:
    """Import one file of a checkout."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path}: cannot be imported.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def official_lehd(checkout: Path, coords: Tensor) -> tuple[nn.Module, Step]:
    module = module_at(checkout / "single_objective/LEHD/TSP/TSPModel.py", "official_lehd")
    model = module.TSPModel(mode="test", decoder_layer_num=6, **LEHD_SIZES).eval()
    encoded: list[Tensor] = []

    def step(tours: Tensor) -> Tensor:
        if not encoded:
            encoded.append(model.encoder(coords))
        return model.decoder(encoded[0], tours).argmax(dim=1)

    return model, step


def official_sit(checkout: Path, coords: Tensor) -> tuple[nn.Module, Step]:
    module = module_at(checkout / "TSP/Test_All/TSPModel.py", "official_sit")
    sizes = {**LEHD_SIZES, "logit_clipping": 10, "use_k_nearest": False, "k_nearest_num": 1000}
    model = module.TSPModel(mode="test", encoder_layer_num=6, **sizes).eval()
    encoded: list[Tensor] = []
    batch, count, _ = coords.shape

    def step(tours: Tensor) -> Tensor:
        if not encoded:
            encoded.append(model.encoder(coords))
        first, last = tours[:, 0], tours[:, -1]
        probabilities = model.decoder(
            encoded[0], coords, first, last, tours, tours.shape[1], batch, count, mode="test"
        )
        return probabilities.argmax(dim=1)

    return model, step


def official_bq(checkout: Path, coords: Tensor) -> tuple[nn.Module, Step]:
    sys.path.insert(0, str(checkout))
    # Imported there, used only by a variant of its attention. (`find_spec` would raise on our empty module.)
    if "entmax" not in sys.modules and importlib.util.find_spec("entmax") is None:
        sys.modules["entmax"] = types.ModuleType("entmax")
    from learning.tsp.decoding import DecodingSubPb, greedy_decoding_step  # type: ignore[import-not-found]
    from model.model import BQModel  # type: ignore[import-not-found]

    model = BQModel(2, 192, 512, "relu", 9, 12, "softmax", 0.0, False, "tsp").eval()
    closed = torch.cat([coords, coords[:, :1]], dim=1)
    prepared: dict[int, object] = {}

    def step(tours: Tensor) -> Tensor:
        size = tours.shape[1]
        if size not in prepared:  # a state of the construction, not part of the step
            rows = np.stack([rest_of(tour, coords.shape[1]) for tour in tours.numpy()])
            rows = torch.from_numpy(
                np.concatenate([tours[:, -1:], rows, np.full((len(rows), 1), coords.shape[1])], 1)
            )
            points = closed.gather(1, rows[..., None].expand(-1, -1, 2))
            prepared[size] = DecodingSubPb(points, rows, torch.cdist(points, points))
        return greedy_decoding_step(prepared[size], model, -1)[0]

    return model, step


def rest_of(tour: np.ndarray, count: int) -> np.ndarray:
    """Nodes that are not in the tour, ascending."""
    return np.setdiff1d(np.arange(count), tour)


def ours(name: str, official: nn.Module, coords: Tensor) -> Step:
    """Our policy with the official weights."""
    network = build_path_policy(name)
    load_official(network, name, official.state_dict())
    policy = cast("PathPolicy", network)
    nodes = tsp_problem(coords).nodes
    features: list[Tensor] = []
    problems: dict[int, PathProblem] = {}

    def step(tours: Tensor) -> Tensor:
        if not features:
            features.append(policy.embed(nodes))
        size = tours.shape[1]
        if size not in problems:
            rows = np.stack([rest_of(tour, coords.shape[1]) for tour in tours.numpy()])
            rows = torch.from_numpy(np.concatenate([tours[:, -1:], rows, tours[:, :1]], axis=1))
            problems[size] = PathProblem(nodes, rows, closed=size == 1)
        # Threads are started for this one step, which a whole construction does once.
        return construct_from(policy, problems[size], features[0], lambda part: greedy_choice, steps=1).order[
            :, 0
        ]

    return step


OFFICIAL = {"lehd": official_lehd, "bq": official_bq, "sit": official_sit}


def randomise(model: nn.Module) -> None:
    """ReZero scalars start at 0, which would leave attention out of the result."""
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if key.endswith("alpha"):
                parameter.fill_(0.5)


def multiply_adds(name: str, left: int, *, official: bool) -> int:
    """Multiply-adds in the matrix products of one step of one instance with `left` unvisited nodes."""
    if name in ("lehd", "bq"):
        width, hidden, layers = (128, 512, 6) if name == "lehd" else (192, 512, 9)
        tokens = left + 2
        total = layers * tokens * (4 * width**2 + 2 * width * hidden + 2 * tokens * width)
        return total if official else total - tokens * width * hidden
    few, square, block = 16, 128**2, 2 * 128 * 512
    tokens = left + few
    direct = official or tokens < STREAMED_FROM
    attention = few * 4 * square + tokens * (4 * square + 4 * few * 128)
    if not direct:  # linear maps go to the representatives, twice as many
        attention = few * 8 * square + tokens * 4 * square
    total = 6 * (attention + (few + tokens) * block)
    if official:
        return total
    saved = few * (2 * square + block) + left * block // 2  # in the last layer
    return total - saved - (0 if direct else 3 * left * 128 * (128 - 3))  # in the first


def gemm_rate() -> float:
    """Operations per CPU second in a product of two 1024 x 1024 matrices; the best of ten."""
    left, right, best = torch.rand(1024, 1024), torch.rand(1024, 1024), np.inf
    for _ in range(10):
        begun = time.process_time()
        torch.mm(left, right)
        best = min(best, time.process_time() - begun)
    return 2 * 1024**3 / best


def compare(name: str, checkout: Path, count: int, batch: int, points: int, repeats: int) -> dict[str, Any]:
    """Time both sides at `points` lengths of partial tours; print and return throughput, floors and the ratio."""
    torch.manual_seed(0)
    coords = torch.rand(batch, count, 2)
    official, official_step = OFFICIAL[name](checkout, coords)
    randomise(official)
    steps = {"official": official_step, "ours": ours(name, official, coords)}
    orders = torch.stack(
        [torch.cat([torch.zeros(1, dtype=torch.int64), 1 + torch.randperm(count - 1)]) for _ in range(batch)]
    )
    lengths = np.unique(np.linspace(1, count - 2, points).astype(int))
    rate, agree = gemm_rate(), True
    totals = {side: np.zeros((3, len(lengths))) for side in steps}  # CPU, wall, floor
    for i, length in enumerate(lengths):
        tours = orders[:, :length]
        chosen = [step(tours) for step in steps.values()]  # which warms both up
        agree &= bool((chosen[0] == chosen[1]).float().mean() > 0.99)
        taken: dict[str, list[tuple[float, float]]] = {side: [] for side in steps}
        for _ in range(repeats):
            for side, step in steps.items():
                wall, cpu = time.perf_counter(), time.process_time()
                step(tours)
                taken[side].append((time.process_time() - cpu, time.perf_counter() - wall))
        for side, times in taken.items():
            operations = 2 * batch * multiply_adds(name, count - int(length), official=side == "official")
            totals[side][:, i] = (*np.median(times, axis=0), operations / rate)
    result: dict[str, Any] = {"model": name, "nodes": count, "batch": batch, "gflops": rate / 1e9}
    for side, values in totals.items():
        summed = [round(float(value), 3) for value in np.trapezoid(values, lengths, axis=1)]
        result[side] = dict(zip(("cpu_seconds", "wall_seconds", "floor_seconds"), summed, strict=True))
    for clock in ("cpu", "wall"):
        result[f"{clock}_ratio"] = result["official"][f"{clock}_seconds"] / result["ours"][f"{clock}_seconds"]
    result["same_choices"] = agree
    shares = {side: result[side]["floor_seconds"] / result[side]["cpu_seconds"] for side in totals}
    print(
        f"{name:5} TSP{count} batch {batch}: official {result['official']['cpu_seconds']:8.1f} s, ours"
        f" {result['ours']['cpu_seconds']:8.1f} s CPU, {result['cpu_ratio']:.2f}x (wall {result['wall_ratio']:.2f}x);"
        f" floors {result['official']['floor_seconds']:.1f} s and {result['ours']['floor_seconds']:.1f} s"
        f" at {rate / 1e9:.0f} GFLOP/s per core, reached {shares['official']:.0%} and {shares['ours']:.0%};"
        f" same choices: {agree}",
        flush=True,
    )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in OFFICIAL:
        parser.add_argument(f"--{name}", type=Path, help=f"checkout of the official repository of {name}")
    parser.add_argument("--points", type=int, default=9)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, help="instances at a time, instead of the targets' 128 and 8")
    parser.add_argument("--sizes", type=int, nargs="*", help="only these numbers of nodes")
    parser.add_argument("--out", type=Path, help="write the results to this JSON file as they come")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    results = []
    with torch.inference_mode():
        for name, cases in CASES.items():
            checkout = getattr(arguments, name)
            if checkout is None:
                print(f"{name}: skipped, no checkout given (--{name} FOLDER).")
                continue
            for count, batch in cases:
                if arguments.sizes and count not in arguments.sizes:
                    continue
                size = arguments.batch or batch
                results.append(compare(name, checkout, count, size, arguments.points, arguments.repeats))
                if arguments.out is not None:
                    document = {"threads": arguments.threads, "torch": torch.__version__, "cases": results}
                    arguments.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()

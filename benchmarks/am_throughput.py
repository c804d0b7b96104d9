"""
AM greedy and POMO "aug x8" against RL4CO: the same architectures and sizes, instances and cores, both sides in one run.

RL4CO lives in an environment of its own, named by its interpreter:

    python -m venv /some/where && /some/where/bin/pip install rl4co==0.7.0
    python benchmarks/am_throughput.py --rl4co-python /some/where/bin/python [--n 100] [--count 64] [--rounds 3]

The two sides take turns, each in a fresh process with one thread and random weights, which change no amount of work. Both
may choose their batch: the fastest of several sizes counts. Processor seconds are printed beside wall seconds, since a
machine with other work on it moves only the latter. Claim: at least twice RL4CO's throughput.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

CASES = {"am": "AM greedy", "pomo": "POMO aug x8"}
BATCHES = {"am": (64, 256), "pomo": (1, 4)}


def ours(case: str, coords: np.ndarray, batch: int) -> Callable[[], list[np.ndarray]]:
    """Prepare our side; the call solves everything."""
    import torch

    from nco_bench.decoding.multistart import decode_encode_once
    from nco_bench.decoding.spec import parse_decoding
    from nco_bench.models.encode_once_table import build_encode_once_policy

    torch.set_num_threads(1)
    policy = build_encode_once_policy(case)
    decoding = parse_decoding("greedy" if case == "am" else "multistart+x8")
    points = torch.from_numpy(coords)

    def solve() -> list[np.ndarray]:
        parts = [
            decode_encode_once(policy, points[i : i + batch], decoding=decoding)
            for i in range(0, len(points), batch)
        ]
        return [tour for part in parts for tour in part]

    return solve


def theirs(case: str, coords: np.ndarray, batch: int) -> Callable[[], list[np.ndarray]]:
    """Prepare RL4CO's side, through its public interface; the call solves everything."""
    import torch
    from rl4co.data.transforms import StateAugmentation
    from rl4co.envs import TSPEnv
    from rl4co.models import AttentionModelPolicy
    from rl4co.utils.ops import gather_by_index, unbatchify
    from tensordict import TensorDict

    torch.set_num_threads(1)
    count = coords.shape[1]
    env = TSPEnv(generator_params={"num_loc": count})
    if case == "am":
        policy = AttentionModelPolicy(env_name="tsp").eval()
    else:
        policy = AttentionModelPolicy(
            env_name="tsp", num_encoder_layers=6, normalization="instance", use_graph_context=False
        ).eval()
    augment = StateAugmentation(num_augment=8, augment_fn="dihedral8", first_aug_identity=True)

    def part(points: torch.Tensor) -> list[np.ndarray]:
        td = env.reset(TensorDict({"locs": points}, batch_size=[len(points)]))
        if case == "am":
            return list(policy(td, env, phase="test", decode_type="greedy")["actions"].numpy())
        td = augment(td)
        out = policy(td, env, phase="test", decode_type="multistart_greedy", num_starts=count)
        reward = unbatchify(out["reward"], (8, count)).flatten(1)
        actions = unbatchify(out["actions"], (8, count)).flatten(1, 2)
        return list(gather_by_index(actions, reward.argmax(dim=1), dim=1).numpy())

    def solve() -> list[np.ndarray]:
        with torch.inference_mode():
            points = torch.from_numpy(coords)
            return [tour for i in range(0, len(points), batch) for tour in part(points[i : i + batch])]

    return solve


def measure(side: str, case: str, file: Path, batch: int) -> dict[str, Any]:
    """Solve one instance to warm up and all of them under both clocks; check that what came out are tours."""
    coords = np.load(file)
    solve = (ours if side == "ours" else theirs)(case, coords, batch)
    (ours if side == "ours" else theirs)(case, coords[:1], 1)()
    wall, cpu = time.perf_counter(), time.process_time()
    tours = solve()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    tours_ok = all(np.array_equal(np.sort(t), np.arange(coords.shape[1])) for t in tours)
    return {
        "wall": wall / len(coords),
        "cpu": cpu / len(coords),
        "ok": tours_ok and len(tours) == len(coords),
    }


def child(python: str, side: str, case: str, file: Path, batch: int) -> dict[str, Any]:
    """Measure in a fresh process."""
    command = [python, __file__, "--measure", side, case, str(file), str(batch)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"{side} failed: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout.splitlines()[-1])


def compare(case: str, python: str, file: Path, rounds: int) -> None:
    """Print milliseconds per instance of both sides and the ratio of their throughputs."""
    best: dict[str, dict[str, float]] = {}
    for _ in range(rounds):
        for batch in BATCHES[case]:
            for side, interpreter in (("ours", sys.executable), ("rl4co", python)):
                found = child(interpreter, side, case, file, batch)
                if not found["ok"]:
                    sys.exit(f"{side}: {case} returned something that is no tour.")
                kept = best.setdefault(side, {"wall": np.inf, "cpu": np.inf})
                best[side] = {clock: min(kept[clock], found[clock]) for clock in kept}
    for clock in ("wall", "cpu"):
        mine, other = best["ours"][clock] * 1e3, best["rl4co"][clock] * 1e3
        print(
            f"{CASES[case]:12} {clock:4} ms/instance: ours {mine:8.2f}, RL4CO {other:8.2f}, ratio {other / mine:.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--rl4co-python", help="interpreter of an environment that has rl4co 0.7.0")
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--count", type=int, default=256, help="instances for AM; POMO gets a 32nd of them")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        side, case, file, batch = options.measure
        print(json.dumps(measure(side, case, Path(file), int(batch))))
        return
    if not options.rl4co_python or not Path(options.rl4co_python).is_file():
        print("skipped: --rl4co-python names no interpreter with rl4co; see the first lines of this file.")
        return
    coords = np.random.default_rng(1234).random((options.count, options.n, 2), dtype=np.float32)
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            file = Path(folder) / f"{case}.npy"
            np.save(file, coords if case == "am" else coords[: max(4, options.count // 32)])
            compare(case, options.rl4co_python, file, options.rounds)


if __name__ == "__main__":
    main()

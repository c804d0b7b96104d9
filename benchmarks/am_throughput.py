"""
AM greedy and POMO "aug x8" against RL4CO and the official code: same architectures, sizes, instances, cores, in one run.

RL4CO lives in an environment of its own, named by its interpreter; the official code in checkouts of
github.com/wouterkool/attention-learn-to-route and github.com/yd-kwon/POMO. Whatever is named is measured:

    python -m venv /some/where && /some/where/bin/pip install rl4co==0.7.0
    python benchmarks/am_throughput.py --rl4co-python /some/where/bin/python --am-code DIR --pomo-code DIR
        [--n 100] [--count 64] [--rounds 3] [--cases pomo]

The sides take turns, each in a fresh process with one thread and random weights, which change no amount of work. All
may choose their batch: the fastest of several sizes counts. Processor seconds are printed beside wall seconds, since a
machine with other work on it moves only the latter. Claim: at least twice the throughput of either.
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

    from nco_bench.nn.build import build_path_policy
    from nco_bench.solvers.decoding.spec import parse_decoding
    from nco_bench.solvers.stepwise.decode import decode_encode_once

    torch.set_num_threads(1)
    policy = build_path_policy(case)
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


def official(case: str, coords: np.ndarray, batch: int, folder: str) -> Callable[[], list[np.ndarray]]:
    """Prepare the authors' code from a checkout; the call solves everything as their evaluation does."""
    return (_official_am if case == "am" else _official_pomo)(coords, batch, Path(folder))


def _official_am(coords: np.ndarray, batch: int, folder: Path) -> Callable[[], list[np.ndarray]]:
    import torch

    sys.path.insert(0, str(folder))
    from nets.attention_model import AttentionModel
    from problems import TSP
    from problems.tsp.state_tsp import StateTSP

    torch.set_num_threads(1)
    # Their byte masks index like booleans in the PyTorch of 2019; today's refuses, so the state hands out booleans.
    get_mask = StateTSP.get_mask
    StateTSP.get_mask = lambda self: get_mask(self).bool()
    model = AttentionModel(128, 128, TSP, n_encode_layers=3).eval()
    model.set_decode_type("greedy")
    points = torch.from_numpy(coords)

    def solve() -> list[np.ndarray]:
        with torch.no_grad():
            parts = [
                model(points[i : i + batch], return_pi=True)[2].numpy() for i in range(0, len(points), batch)
            ]
        return [tour for part in parts for tour in part]

    return solve


def _official_pomo(coords: np.ndarray, batch: int, folder: Path) -> Callable[[], list[np.ndarray]]:
    import torch

    sys.path[:0] = [str(folder / "NEW_py_ver" / "TSP" / "POMO"), str(folder / "NEW_py_ver" / "TSP")]
    import TSPEnv as environment
    from TSPModel import TSPModel

    torch.set_num_threads(1)
    count = coords.shape[1]
    model = TSPModel(
        embedding_dim=128, sqrt_embedding_dim=128**0.5, encoder_layer_num=6, qkv_dim=16, head_num=8,
        logit_clipping=10, ff_hidden_dim=512, eval_type="argmax",
    ).eval()  # fmt: skip
    points = torch.from_numpy(coords)

    def part(some: torch.Tensor) -> list[np.ndarray]:
        environment.get_random_problems = lambda *_: some
        env = environment.TSPEnv(problem_size=count, pomo_size=count)
        env.load_problems(len(some), 8)
        model.pre_forward(env.reset()[0])
        state, reward, done = env.pre_step()
        while not done:
            selected, _ = model(state)
            state, reward, done = env.step(selected)
        best = reward.reshape(8, len(some), count).permute(1, 0, 2).flatten(1).argmax(1)
        tours = env.selected_node_list.reshape(8, len(some), count, count).permute(1, 0, 2, 3).flatten(1, 2)
        return list(tours[torch.arange(len(some)), best].numpy())

    def solve() -> list[np.ndarray]:
        with torch.no_grad():
            return [tour for i in range(0, len(points), batch) for tour in part(points[i : i + batch])]

    return solve


def prepare(
    side: str, case: str, coords: np.ndarray, batch: int, folder: str
) -> Callable[[], list[np.ndarray]]:
    if side == "official":
        return official(case, coords, batch, folder)
    return (ours if side == "ours" else theirs)(case, coords, batch)


def measure(side: str, case: str, file: Path, batch: int, folder: str) -> dict[str, Any]:
    """Solve one instance to warm up and all of them under both clocks; check that what came out are tours."""
    coords = np.load(file)
    solve = prepare(side, case, coords, batch, folder)
    prepare(side, case, coords[:1], 1, folder)()
    wall, cpu = time.perf_counter(), time.process_time()
    tours = solve()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    tours_ok = all(np.array_equal(np.sort(t), np.arange(coords.shape[1])) for t in tours)
    return {
        "wall": wall / len(coords),
        "cpu": cpu / len(coords),
        "ok": tours_ok and len(tours) == len(coords),
    }


def child(python: str, side: str, case: str, file: Path, batch: int, folder: str) -> dict[str, Any]:
    """Measure in a fresh process."""
    command = [python, __file__, "--measure", side, case, str(file), str(batch), folder]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"{side} failed: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout.splitlines()[-1])


def compare(case: str, sides: dict[str, tuple[str, str]], file: Path, rounds: int) -> None:
    """Print milliseconds per instance of all sides, and the ratio of our throughput to each of the others."""
    best: dict[str, dict[str, float]] = {}
    for _ in range(rounds):
        for batch in BATCHES[case]:
            for side, (interpreter, folder) in sides.items():
                found = child(interpreter, side, case, file, batch, folder)
                if not found["ok"]:
                    sys.exit(f"{side}: {case} returned something that is no tour.")
                kept = best.setdefault(side, {"wall": np.inf, "cpu": np.inf})
                best[side] = {clock: min(kept[clock], found[clock]) for clock in kept}
    for clock in ("wall", "cpu"):
        mine = best["ours"][clock] * 1e3
        others = ", ".join(
            f"{side} {best[side][clock] * 1e3:.2f} ({best[side][clock] * 1e3 / mine:.2f}x)"
            for side in sides
            if side != "ours"
        )
        print(f"{CASES[case]:12} {clock:4} ms/instance: ours {mine:.2f}, {others}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--rl4co-python", help="interpreter of an environment that has rl4co 0.7.0")
    parser.add_argument("--am-code", help="checkout of wouterkool/attention-learn-to-route")
    parser.add_argument("--pomo-code", help="checkout of yd-kwon/POMO")
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--count", type=int, default=256, help="instances for AM; POMO gets a 32nd of them")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--measure", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        side, case, file, batch, folder = options.measure
        print(json.dumps(measure(side, case, Path(file), int(batch), folder)))
        return
    coords = np.random.default_rng(1234).random((options.count, options.n, 2), dtype=np.float32)
    with tempfile.TemporaryDirectory() as folder:
        checkouts = {"am": options.am_code, "pomo": options.pomo_code}
        for case in options.cases:
            code = checkouts[case]
            sides = {"ours": (sys.executable, "-")}
            if options.rl4co_python and Path(options.rl4co_python).is_file():
                sides["rl4co"] = (options.rl4co_python, "-")
            if code and Path(code).is_dir():
                sides["official"] = (sys.executable, code)
            if len(sides) == 1:
                print(f"{case}: skipped, nothing to compare with; see the first lines of this file.")
                continue
            file = Path(folder) / f"{case}.npy"
            np.save(file, coords if case == "am" else coords[: max(4, options.count // 32)])
            compare(case, sides, file, options.rounds)


if __name__ == "__main__":
    main()

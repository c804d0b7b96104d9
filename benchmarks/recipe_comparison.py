"""Recipes against each other at equal processor time: greedy gaps of small networks after the same seconds of one core.

    nco-bench generate tsp --n 50 --count 8000 --seed 41000 --reference fast-tsp --time-limit 0.005 --out train50.npz
    nco-bench generate tsp --n 50 --count 256 --seed 98001 --reference fast-tsp --time-limit 0.05 --out judge50.npz
    python benchmarks/recipe_comparison.py train50.npz judge50.npz "lengths=uniform" "optimizer=adamw lr=1e-3" "batch=64"

The clock is the processor's, not the wall's, so that waiting for a core costs nothing; shared caches still make a tenth.
Each variant is the recipe `flagship` but for what it names (``learner=on-policy`` is one, see `ALIKE`); its learning rate
falls over the last fifth of its time. Networks are decoders of 4 layers of width 64. Prints a Markdown table; one thread.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nco_bench.nn.build import build_path_policy
from nco_bench.nn.memory import keep_freed_memory
from nco_bench.training.data import LabelStream
from nco_bench.training.learner import Measure
from nco_bench.training.learners.on_policy import OnPolicy
from nco_bench.training.learners.on_policy_course import COURSE
from nco_bench.training.learners.supervised import Supervised
from nco_bench.training.learners.supervised_course import greedy_gap
from nco_bench.training.recipes import recipe_for
from nco_bench.training.shards import read_shard
from nco_bench.training.trainer import Trainer

MODEL = "decoder-6x128"
ALIKE = {"batch": "32", "lr": "3e-3", "lengths": "seconds", "rollouts": "32", "every": "100"}
"""What on-policy learning takes of the supervised flagship, and how often it fills its pool at this size."""
SMALL = {"depth": 4, "width": 64, "heads": 4, "ffn": 256}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("judge", type=Path)
    parser.add_argument("variants", nargs="+", help="KEY=VALUE pairs with blanks between them")
    parser.add_argument("--seconds", type=float, default=25.0)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    judges = read_shard(options.judge).ordered
    print("| recipe | gap, % | by seed | samples | updates |\n|---|---|---|---|---|", flush=True)
    for variant in options.variants:
        runs = [trained(variant, options.train, judges, options.seconds, s) for s in range(options.seeds)]
        gaps = [measure.value for measure, _, _ in runs]
        # Seeds share the instances that judge them: their intervals do not shrink with the number of seeds.
        width = np.mean([measure.ci95 for measure, _, _ in runs])
        samples, steps = (int(np.mean([run[k] for run in runs])) for k in (1, 2))
        each = ", ".join(f"{gap:.2f}" for gap in gaps)
        print(
            f"| `{variant}` | {np.mean(gaps):.2f} ± {width:.2f} | {each} | {samples:,} | {steps:,} |",
            flush=True,
        )


def trained(
    variant: str, labels: Path, judges: np.ndarray, seconds: float, seed: int
) -> tuple[Measure, int, int]:
    """Train one network for so many seconds of a processor; returns its gap, samples and updates."""
    config = {"recipe": "flagship", "schedule": "trapezoid"} | dict(p.split("=", 1) for p in variant.split())
    longest = judges.shape[1] + 1
    on_policy = config.pop("learner", "supervised") == "on-policy"
    made = COURSE.recipe(MODEL, ALIKE | config) if on_policy else recipe_for(MODEL, config)
    recipe: Any = dataclasses.replace(made, longest=longest, longest_start=longest)
    torch.manual_seed(seed)
    policy = build_path_policy(MODEL, "tsp", **SMALL, training_size=judges.shape[1])
    stream = LabelStream([labels], seed)
    learner = (OnPolicy if on_policy else Supervised)(policy, stream, recipe, seed, torch.device("cpu"))
    policy.train()
    stream.take(1)  # the labels are read before the clock starts
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(policy, learner, recipe, Path(folder), {})
        began = time.process_time()
        while (fraction := (time.process_time() - began) / seconds) < 1:
            trainer.update(fraction)
    policy.eval()
    with trainer.shipping() as shipped:
        return greedy_gap(shipped, judges), trainer.progress.samples, trainer.progress.step


if __name__ == "__main__":
    main()

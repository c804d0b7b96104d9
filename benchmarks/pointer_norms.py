"""Largest singular values of the two matrices by which PENS scores candidates: whether training lets them run away.

    python benchmarks/pointer_norms.py WEIGHTS.safetensors|CHECKPOINT.safetensors|pens-a ...

Of a checkpoint, the weights that are being trained, not their moving average.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from safetensors.torch import load_file

from nco_bench.weights.exporting import find
from nco_bench.weights.store import load_state

POINTER = ("query.weight", "key.weight")


def pointer(source: str) -> dict[str, float]:
    """Return the largest singular value of each of the two matrices."""
    path = Path(source)
    in_training = path.is_file() and not path.with_suffix(".json").is_file()
    state = load_file(path) if in_training else load_state(find(source))
    prefix = "model/" if in_training else ""
    return {name: float(torch.linalg.matrix_norm(state[prefix + name].float(), 2)) for name in POINTER}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weights", nargs="+")
    for source in parser.parse_args().weights:
        found = ", ".join(
            f"{name.removesuffix('.weight')} {value:.1f}" for name, value in pointer(source).items()
        )
        print(f"{source}: {found}")


if __name__ == "__main__":
    main()

"""What the makers of parity fixtures share: the authors' code from a checkout, weights that separate choices, two files.

A maker imports the authors' code from a checkout of its repository (nothing of it is copied), gives its network random
weights, and writes what went in and what came out: numbers only. `nco-bench parity` then replays them through ours.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

MARGIN = 1e-3
"""Between the best and the second best log-probability of every decision: rounding must not turn one."""
TRIES = 200


def arguments(about: str) -> argparse.Namespace:
    """Parse ``--official CHECKOUT --out FOLDER``."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument(
        "--official", type=Path, required=True, metavar="CHECKOUT", help="the authors' repository"
    )
    parser.add_argument("--out", type=Path, default=Path("parity"), help="folder for the fixtures")
    parser.add_argument("--any-commit", action="store_true", help="take another commit than the pinned one")
    return parser.parse_args()


def import_from(folder: Path, checkout: Path, commit: str, *, any_commit: bool = False) -> None:
    """Let the authors' modules be imported from their folder, once it is at the pinned commit.

    Raises
    ------
    SystemExit
        With one line, where the folder is missing or stands at another commit.
    """
    if not folder.is_dir():
        sys.exit(f"{folder}: no such folder; --official names a checkout of the authors' repository.")
    asked = subprocess.run(
        ["git", "-C", str(checkout), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    found = asked.stdout.strip() if asked.returncode == 0 else "unknown"
    if found != commit and not any_commit:
        sys.exit(
            f"{checkout}: stands at commit {found}, expected {commit}; check that out, or add --any-commit."
        )
    sys.path.insert(0, str(folder.resolve()))


def absent(*names: str) -> None:
    """Stand in for packages that the authors import at the top and that what is asked of their code never uses."""
    for name in names:
        top = name.partition(".")[0]
        stood_in = isinstance(sys.modules.get(top), MagicMock)
        if stood_in or (top not in sys.modules and importlib.util.find_spec(top) is None):
            sys.modules[name] = MagicMock(name=name)


def forget(folder: Path) -> None:
    """Forget the modules of a folder, so that those of another may have their names."""
    place = str(folder.resolve())
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(place):
            del sys.modules[name]
    sys.path.remove(place)


def module_of(file: Path) -> ModuleType:
    """Import one file of the authors' under a name of its own, where several files have one name."""
    spec = importlib.util.spec_from_file_location("_".join(file.parts[-3:]).removesuffix(".py"), file)
    if spec is None or spec.loader is None:
        sys.exit(f"{file}: no such file in the checkout.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def scatter(network: nn.Module, seed: int, scales: Mapping[str, float] | None = None) -> None:
    """Redraw biases and everything of batch norms, and scale what `scales` names, so that no weight is neutral."""
    generator = torch.Generator().manual_seed(seed)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm1d | nn.InstanceNorm1d) and module.affine:
            module.weight.data = torch.empty_like(module.weight).uniform_(0.6, 1.4, generator=generator)
            if module.track_running_stats and module.running_mean is not None:
                module.running_mean.normal_(0.0, 0.2, generator=generator)
                module.running_var.uniform_(0.6, 1.4, generator=generator)
    for name, parameter in network.named_parameters():
        if name.endswith("bias"):
            parameter.data.uniform_(-0.2, 0.2, generator=generator)
        parameter.data.mul_((scales or {}).get(name, 1.0))


def separated(make: Callable[[int], tuple[Any, float]], first: int) -> tuple[Any, int]:
    """Call `make` with rising seeds until the smallest margin of its decisions is above `MARGIN`."""
    for seed in range(first, first + TRIES):
        made, margin = make(seed)
        if margin > MARGIN:
            return made, seed
    sys.exit(f"no seed from {first} to {first + TRIES - 1} separates all decisions by {MARGIN:g}.")


@contextmanager
def in_double() -> Iterator[None]:
    """Let what the authors' code makes anew be float64: choices that stay the same do not hang on rounding."""
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def watched(name: str) -> Iterator[list[Tensor]]:
    """Note what a function of torch is first asked about, such as ``argmin``."""
    original, seen = getattr(torch, name), []

    def noting(given: Tensor, *rest: Any, **options: Any) -> Any:
        seen.append(given.detach().clone())
        return original(given, *rest, **options)

    setattr(torch, name, noting)
    try:
        yield seen
    finally:
        setattr(torch, name, original)


def margin(log_p: Tensor) -> float:
    """Return the smallest difference of the best and the second best of ``(..., N)`` log-probabilities.

    Decisions with one choice left have none.
    """
    best = log_p.flatten(0, -2).topk(2, dim=-1).values
    gaps = (best[:, 0] - best[:, 1])[best[:, 1].isfinite() & (best[:, 1] > -1e8)]
    return float(gaps.min()) if len(gaps) else float("inf")


def write_fixture(
    out: Path, name: str, weights: Mapping[str, Tensor], inputs: Mapping[str, Tensor], expected: Mapping[str, Tensor],
    facts: Mapping[str, Any],
) -> None:  # fmt: skip
    """Write ``NAME.safetensors`` and ``NAME.json``, see `nco_bench.parity.fixture`."""
    groups = {"state_dict": weights, "input": inputs, "expected": expected}
    tensors = {
        f"{group}.{key}": value.detach().clone().contiguous()
        for group, values in groups.items()
        for key, value in values.items()
    }
    out.mkdir(parents=True, exist_ok=True)
    save_file(tensors, out / f"{name}.safetensors")
    (out / f"{name}.json").write_text(json.dumps(dict(facts), indent=1) + "\n")
    print(f"{out / name}.safetensors: {sum(t.nbytes for t in tensors.values()):,} bytes")

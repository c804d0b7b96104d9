"""What the manifest of trained weights says: the one builder of all ways to learn, and the facts of machine and code."""

from __future__ import annotations

import dataclasses
import os
import platform
import subprocess
from pathlib import Path
from typing import Any, Protocol

import torch

from nco_bench import __version__
from nco_bench.nn.build import count_parameters
from nco_bench.nn.device import device_name
from nco_bench.training.trainer import Progress
from nco_bench.weights.manifest import Manifest, TrainingData, Validation


class Trained(Protocol):
    """A run whose weights are written; a `Trainer` is one."""

    policy: Any
    recipe: Any
    progress: Progress
    configuration: dict[str, Any]
    """``model``, ``problem``, ``seed`` and all numbers of the recipe."""


def manifest_of(
    run: Trained,
    name: str,
    data: TrainingData,
    paper_samples: int | None = None,
    *,
    config: dict[str, Any] | None = None,
    validation: tuple[Validation, ...] = (),
    notes: str = "",
    digits: int = 3,
) -> Manifest:
    """Say what the weights of a run are; the hash is filled in when they are written.

    Parameters
    ----------
    run
        The run.
    name
        Of the weights.
    data
        What was learned from.
    paper_samples
        Samples of the paper's own training, None where they are not known.
    config
        Of the policy; its ``config`` by default.
    validation, notes
        What was measured, and what a reader should know.
    digits
        Of the hours; trainings of seconds need more.
    """
    progress, facts = run.progress, run.configuration
    return Manifest(
        name=name,
        model=facts["model"],
        config=dataclasses.asdict(run.policy.config) if config is None else config,
        problem=facts["problem"],
        parameters=count_parameters(run.policy),
        sha256="",
        steps=progress.step,
        samples=progress.samples,
        data=data,
        recipe=dataclasses.asdict(run.recipe),
        seed=facts["seed"],
        hours=round(progress.seconds / 3600, digits),
        machine=machine(next(run.policy.parameters()).device),
        code_version=code_version(),
        validation=validation,
        paper_samples=paper_samples,
        share_of_paper=None if paper_samples is None else round(progress.samples / paper_samples, 5),
        recipe_changes=tuple(line for line in progress.history if "changed" in line),
        notes=notes,
    )


def last_validation(progress: Progress, instances: int, on: str) -> tuple[Validation, ...]:
    """Return the last validation of a run, which saw the weights that are written; nothing where there was none."""
    if progress.gap is None:
        return ()
    return (Validation(round(progress.gap, 4), round(progress.gap_ci95, 4), instances, on),)


def machine(device: torch.device) -> dict[str, str]:
    """Return processor, cores and threads used, GPU and torch version."""
    facts = {
        "cpu": _cpu_model(),
        "cores": str(os.cpu_count()),
        "threads": str(torch.get_num_threads()),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "device": device.type,
    }
    gpu = device_name(device)
    return facts if gpu is None else {**facts, "gpu": gpu}


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def code_version() -> str:
    """Return the package's version, with the commit where it runs from a checkout."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return __version__
    command = ["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"]
    try:
        commit = subprocess.run(
            command, capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return __version__
    return f"{__version__}+{commit}"

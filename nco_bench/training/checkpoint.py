"""Checkpoints: one safetensors file with every tensor, and everything else as JSON in its header.

One file means one rename: a checkpoint is there in full or not at all. The previous one is kept beside it.
No pickle is involved, so a checkpoint from elsewhere can be opened without running its code.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from nco_bench.errors import ResultsError
from nco_bench.files import replacing, write

LAST = "checkpoint.safetensors"
PREVIOUS = "checkpoint.previous.safetensors"
FORMAT = 1
WITHOUT_LINKS = {errno.EPERM, errno.EMLINK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
"""What file systems without second names (exFAT, some shared folders) answer."""


@dataclass(frozen=True)
class Checkpoint:
    """Everything that a run needs to go on as if it had never stopped.

    Attributes
    ----------
    tensors
        Weights, moving average, optimiser state and generator state, by name.
    state
        JSON values: step, samples, seconds, data position, configuration, history.
    """

    tensors: dict[str, Tensor]
    state: dict[str, Any]


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint into `folder`, keeping the one before as `PREVIOUS`; raises `ResultsError`."""
    path = folder / LAST
    metadata = {"nco_bench_checkpoint": str(FORMAT), "state": json.dumps(checkpoint.state)}
    content = to_bytes({k: v.detach().cpu().contiguous() for k, v in checkpoint.tensors.items()}, metadata)
    if path.exists():
        _keep(path, folder / PREVIOUS)
    write(path, content)
    return path


def _keep(path: Path, previous: Path) -> None:
    """Give the file a second name, so that it survives the rename that replaces it; a copy where there are no such names."""
    try:
        previous.unlink(missing_ok=True)
        try:
            os.link(path, previous)
        except OSError as error:
            if error.errno not in WITHOUT_LINKS:
                raise
            with replacing(previous) as temporary:
                shutil.copyfile(path, temporary)
    except OSError as error:
        raise ResultsError(f"{previous}: cannot keep the previous checkpoint ({error.strerror}).") from error


def load_state(path: Path) -> dict[str, Any]:
    """Read the state of a checkpoint alone, without its tensors; raises `ResultsError` as `load_checkpoint` does."""
    return _read(path, tensors=False).state


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises
    ------
    ResultsError
        When the file is missing, damaged, or no checkpoint of this program.
    """
    return _read(path, tensors=True)


def _read(path: Path, *, tensors: bool) -> Checkpoint:
    if not path.exists():
        raise ResultsError(f"{path}: there is no checkpoint to resume from; train without --resume first.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            names = file.keys() if tensors else ()
            content = {name: file.get_tensor(name) for name in names}
        if metadata.get("nco_bench_checkpoint") != str(FORMAT):
            raise ResultsError(f"{path}: not a training checkpoint of this version of nco-bench.")
        return Checkpoint(content, json.loads(metadata["state"]))
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise ResultsError(f"{path}: damaged checkpoint ({error}); {_way_out(path)}.") from error


def _way_out(path: Path) -> str:
    """Say what is left where a checkpoint is damaged: the one before, if that can be read."""
    anew = f"move {path.parent} away and start anew without --resume"
    previous = path.with_name(PREVIOUS)
    if path == previous or not previous.exists():
        return anew
    try:
        _read(previous, tensors=True)
    except ResultsError:
        return f"{PREVIOUS} beside it is damaged too: {anew}"
    return f"copy {PREVIOUS} beside it over it, or {anew}"


def pack_optimizer(optimizer: torch.optim.Optimizer, names: dict[int, str]) -> dict[str, Tensor]:
    """Flatten the state of an optimiser.

    Parameters
    ----------
    optimizer
        Its state per parameter must consist of tensors (AdamW, Muon and SGD do).
    names
        ``id(parameter)`` to its name in the model.
    """
    packed = {}
    for parameter, values in optimizer.state.items():
        for key, value in values.items():
            packed[f"optimizer/{names[id(parameter)]}/{key}"] = torch.as_tensor(value)
    return packed


def unpack_optimizer(
    optimizer: torch.optim.Optimizer, parameters: dict[str, nn.Parameter], tensors: dict[str, Tensor]
) -> None:
    """Put back what `pack_optimizer` took, for the parameters that this optimiser holds."""
    mine = {id(p) for group in optimizer.param_groups for p in group["params"]}
    for name, tensor in tensors.items():
        if not name.startswith("optimizer/"):
            continue
        _, parameter_name, key = name.split("/")
        parameter = parameters[parameter_name]
        if id(parameter) in mine:
            # AdamW keeps its step count on the host.
            optimizer.state[parameter][key] = tensor if key == "step" else tensor.to(parameter.device)

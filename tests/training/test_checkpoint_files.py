"""Checkpoints on a disk that is full: one clear line, and the checkpoint before is still whole."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from nco_bench.errors import ResultsError
from nco_bench.training.checkpoint import LAST, PREVIOUS, Checkpoint, load_checkpoint, save_checkpoint

FILL = """
import resource, signal, sys, torch
from pathlib import Path
from nco_bench.errors import ResultsError
from nco_bench.training.checkpoint import Checkpoint, save_checkpoint
folder = Path(sys.argv[1])
save_checkpoint(folder, Checkpoint({"a": torch.zeros(1000)}, {"step": 1}))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))  # the disk takes no larger file from here on
try:
    save_checkpoint(folder, Checkpoint({"a": torch.ones(100_000)}, {"step": 2}))
except ResultsError as error:
    print(error)
"""


def test_tensors_and_values_come_back_as_they_were(tmp_path: Path) -> None:
    tensors = {"a": torch.arange(6).view(2, 3), "b": torch.tensor(0.1, dtype=torch.float64)}
    state = {"step": 3, "history": [{"loss": 0.1}], "position": {"shards": "x"}}
    save_checkpoint(tmp_path, Checkpoint(tensors, state))
    read = load_checkpoint(tmp_path / LAST)
    assert read.state == state
    assert all(
        torch.equal(read.tensors[k], v) and read.tensors[k].dtype == v.dtype for k, v in tensors.items()
    )


def test_the_checkpoint_before_is_kept(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, Checkpoint({"a": torch.tensor([step])}, {"step": step}))
    assert load_checkpoint(tmp_path / LAST).state == {"step": 3}
    assert load_checkpoint(tmp_path / PREVIOUS).state == {"step": 2}


def test_the_checkpoint_before_is_kept_where_files_have_one_name_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On exFAT and some shared folders the first checkpoint was the last: the second ended the run."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, Checkpoint({"a": torch.tensor([step])}, {"step": step}))
    assert load_checkpoint(tmp_path / LAST).state == {"step": 3}
    assert load_checkpoint(tmp_path / PREVIOUS).state == {"step": 2}
    assert {path.name for path in tmp_path.iterdir()} == {LAST, PREVIOUS}


def test_without_space_the_last_complete_checkpoint_stays(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FILL, str(tmp_path)], capture_output=True, text=True, check=True, timeout=120
    )
    assert "cannot be written" in done.stdout
    assert "0.4 MiB" in done.stdout
    assert len(done.stdout.splitlines()) == 1
    assert load_checkpoint(tmp_path / LAST).state == {"step": 1}
    assert {path.name for path in tmp_path.iterdir()} <= {LAST, PREVIOUS}


def test_a_damaged_checkpoint_is_told_what_can_still_be_read(tmp_path: Path) -> None:
    for step in (1, 2):
        save_checkpoint(tmp_path, Checkpoint({"a": torch.zeros(100)}, {"step": step}))
    last, previous = tmp_path / LAST, tmp_path / PREVIOUS
    last.write_bytes(
        last.read_bytes().replace(b'{\\"step', b'\\"\\"step')
    )  # the state alone is no JSON any more
    with pytest.raises(
        ResultsError, match=rf"damaged checkpoint .*; copy {PREVIOUS} beside it over it, or move"
    ):
        load_checkpoint(last)
    previous.write_bytes(previous.read_bytes()[:-10])
    with pytest.raises(
        ResultsError, match=rf"{PREVIOUS} beside it is damaged too: move .* away and start anew"
    ):
        load_checkpoint(last)
    previous.unlink()
    with pytest.raises(
        ResultsError, match=r"damaged checkpoint .*; move .* away and start anew without --resume"
    ):
        load_checkpoint(last)


def test_a_weights_file_is_no_checkpoint(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(2)}, tmp_path / LAST)
    with pytest.raises(ResultsError, match="not a training checkpoint"):
        load_checkpoint(tmp_path / LAST)

"""Make the second device known when tests are collected: autograd counts devices at its first backward pass."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
import second

second.register()


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)

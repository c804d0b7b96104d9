"""Only `nco_bench.nn.device` knows the CPU from a GPU; everybody else asks it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
KNOWS = re.compile(
    r"""torch\.cuda\b | \.is_cuda\b | \.type\s(?:==|!=|in)\s | startswith\("cuda | [=!]=\s"(?:cuda|cpu)" | "cuda":\s""",
    re.VERBOSE,
)
NAMES_ONLY = {"nco_bench/datasets/formats/torch_archive.py": 1}
"""A reader of checkpoints lists the modules that a pickle may name."""


def test_no_other_module_asks_what_a_device_is() -> None:
    found = {}
    for folder in ("nco_bench", "benchmarks"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            if count := len(KNOWS.findall(file.read_text())):
                found[file.relative_to(ROOT).as_posix()] = count
    found.pop("nco_bench/nn/device.py", None)
    assert found == NAMES_ONLY


def test_what_would_be_found() -> None:
    for line in (
        'if x.device.type == "cuda":',
        "torch.cuda.synchronize()",
        "x.is_cuda",
        '{"cpu": 1, "cuda": 2}',
    ):
        assert KNOWS.search(line)

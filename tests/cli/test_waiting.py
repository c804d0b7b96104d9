"""How PyTorch's threads wait for each other is said before PyTorch is loaded, and the user's word on it holds."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from nco_bench.__main__ import POLICY, SPIN, SPINS

ASKED = f"""
import os, sys
from nco_bench.__main__ import main
sys.argv = ["nco-bench", "--version"]
try:
    main()
except SystemExit:
    print(os.environ.get({SPIN!r}), "torch" in sys.modules)
"""


@pytest.mark.parametrize(
    ("given", "said"), [({}, str(SPINS)), ({SPIN: "7"}, "7"), ({POLICY: "active"}, "None")]
)
def test_threads_wait_as_the_user_says_else_shortly(given: dict[str, str], said: str) -> None:
    plain = {name: value for name, value in os.environ.items() if name not in (SPIN, POLICY)}
    asked = subprocess.run(
        [sys.executable, "-c", ASKED], env={**plain, **given}, capture_output=True, text=True, check=True
    )
    assert asked.stdout.splitlines()[-1] == f"{said} False"

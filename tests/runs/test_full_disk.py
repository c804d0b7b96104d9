"""A disk that is full or read-only: one clear line, what was written stays, the next start goes on."""

from __future__ import annotations

import errno
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nco_bench.datasets.generate import generate
from nco_bench.datasets.load import Places
from nco_bench.datasets.storage import save_dataset
from nco_bench.errors import ResultsError
from nco_bench.runs.display import QuietDisplay
from nco_bench.runs.finding import find_runs
from nco_bench.runs.request import RunRequest
from nco_bench.runs.runner import run
from nco_bench.runs.verify import verify

INSTANCES = 60
FULL_DISK = """
import resource, signal, sys
from nco_bench.cli.app import run
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (9_000, 9_000))  # no file may grow beyond this
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="needs a limit on file sizes")
def test_a_run_on_a_full_disk_ends_with_one_line_and_resumes(tmp_path: Path) -> None:
    data = save_dataset(generate("tsp", 10, INSTANCES, "uniform", 7), tmp_path / "set.npz")
    solver = tmp_path / "plain.py"
    solver.write_text(
        "import numpy as np\n"
        "from nco_bench.solvers import register\n"
        "@register('plain', problems=('tsp',))\n"
        "class Plain:\n"
        "    def __init__(self, options): pass\n"
        "    def unsupported(self, dataset): return None\n"
        "    def prepare(self, dataset): pass\n"
        "    def batch_size(self, dataset): return 7\n"
        "    def solve(self, batch, *, seed, time_limit, progress): return [np.arange(i.n) for i in batch]\n"
    )
    results = tmp_path / "runs"
    command = ["run", str(solver), "--data", str(data), "--results", str(results)]
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "cannot be written" in done.stderr
    before = [record.instance for one in find_runs(results) for record in one.records()]
    assert 0 < len(before) < INSTANCES

    run(RunRequest((str(solver),), (str(data),), results, Places(tmp_path)), QuietDisplay())

    after = [record.instance for one in find_runs(results) for record in one.records()]
    assert sorted(after) == list(range(INSTANCES))
    assert verify(results, (), Places(tmp_path)).findings == ()


def test_what_is_stored_answers_from_a_folder_that_is_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A colleague's results on a shared disk were refused, even where nothing was left to solve."""
    asked = RunRequest(("random-insertion",), ("tsp10:count=3",), tmp_path / "runs", Places(tmp_path / "i"))
    run(asked, QuietDisplay())
    before = sorted(tmp_path.rglob("*"))
    made = Path.mkdir

    def mkdir(path: Path, *given: Any, **named: Any) -> None:
        if path.is_relative_to(tmp_path / "runs"):
            raise PermissionError(errno.EROFS, "Read-only file system", str(path))
        made(path, *given, **named)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    run(asked, QuietDisplay())
    with pytest.raises(ResultsError, match=r"runs: cannot be written \(Read-only file system\)"):
        run(replace(asked, datasets=("tsp10:count=4",)), QuietDisplay())
    assert sorted(tmp_path.rglob("*")) == before

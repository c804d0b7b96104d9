"""Records that lie in folders and archives are found again, however the code is arranged.

A key here changes only together with a version: of a solver, a problem or a generator.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from nco_bench.datasets.load import Places
from nco_bench.runs.display import QuietDisplay
from nco_bench.runs.finding import find_runs
from nco_bench.runs.request import RunRequest
from nco_bench.runs.runner import run

STORED = {
    ("nearest-neighbor", "tsp20:count=2", None): [
        "c785cf9829a7e3dedc2d75bc40d0b681",
        "da0e9deb088491ea0016a162785b5b36",
    ],
    ("nearest-neighbor", "cvrp20:capacity=30:count=2", None): [
        "10081ff62346013fd5e56a2b0747b8eb",
        "4e0356a54d7c2feb0e14d2244a25cca6",
    ],
    ("majority", "quickselect:n=8:count=2", None): [
        "2c9dc96befeb1d1b151279869e3f5b45",
        "e1c698e47bead3857cf8345289ab381c",
    ],
    ("am:weights=random", "cvrp20:count=1", "sample:4+x8"): ["92e68434a8aeb92246936717858fc842"],
    ("lehd:weights=random", "tsp20:count=2", "rrc:3"): [
        "aecfa1f57d6c54264f35b81ae0a8b3e8",
        "d30fb1ab8eb061ef714e5c76b739654b",
    ],
}


@pytest.mark.parametrize(("solver", "data", "decoding"), STORED)
def test_a_record_has_the_key_that_it_has_always_had(
    tmp_path: Path, solver: str, data: str, decoding: str | None
) -> None:
    decodings = () if decoding is None else (decoding,)
    request = RunRequest((solver,), (data,), tmp_path, Places(tmp_path), decodings=decodings, device="cpu")
    run(request, QuietDisplay())
    keys = [record.key for one in find_runs(tmp_path) for record in one.records()]
    assert sorted(keys) == STORED[solver, data, decoding]


def test_two_spellings_of_a_decoding_are_one_record(tmp_path: Path) -> None:
    for solver, decodings in (
        ("am:weights=random", ("x8", "greedy+x8")),
        ("am:weights=random:decoding=greedy+x8", ()),
    ):
        request = RunRequest((solver,), ("tsp9:count=1",), tmp_path, Places(tmp_path), decodings=decodings)
        run(request, QuietDisplay())
    (one,) = find_runs(tmp_path)
    assert [cell.decoding for cell in one.cells()] == ["x8"]
    assert one.count() == 1

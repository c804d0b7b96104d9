"""Requests that cannot run are answered each with its own reason."""

from __future__ import annotations

from pathlib import Path

from nco_bench.datasets.places import Places
from nco_bench.errors import BadInputError
from nco_bench.runs.cluster.profile import Profile
from nco_bench.runs.cluster.sizing import cut
from nco_bench.runs.request import RunRequest


def test_a_request_is_not_answered_with_the_reasons_of_another(tmp_path: Path) -> None:
    def request(solver: str, data: str) -> RunRequest:
        return RunRequest((solver,), (data,), tmp_path / "runs", Places(tmp_path / "instances"))

    both = (request("nearest-neighbor", "bpp3d9:count=1"), request("savings", "tsp9:count=1"))
    sized = cut(both, Profile(), 1, {}, lambda line: None, lenient=True)
    first, second = sized.answers
    assert isinstance(first, BadInputError)
    assert isinstance(second, BadInputError)
    assert (str(first), str(second)) == tuple(f"{line}." for line in sized.skipped)
    assert str(second).startswith("savings on tsp9:count=1: solves cvrp")

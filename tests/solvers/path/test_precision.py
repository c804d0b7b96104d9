"""bfloat16: off by default, close to float32 where it is asked for."""

from __future__ import annotations

import pytest
import torch

from nco_bench.errors import BadInputError
from nco_bench.nn.build import build_path_policy
from nco_bench.solvers.decoding.spec import parse_decoding
from nco_bench.solvers.path.decode import decode_path
from nco_bench.solvers.path.precision import at_precision
from nco_bench.weights.choice import find
from nco_bench.weights.store import load_into


def test_shipped_weights_find_tours_about_as_short_in_bfloat16() -> None:
    weights = find("decoder-6x128", "decoder-6x128", "tsp")
    policy = build_path_policy("decoder-6x128", "tsp", **weights.manifest.config)
    load_into(policy, weights)
    coords = torch.rand(8, 20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def mean_length(precision: str) -> float:
        ready = at_precision(policy, "decoder-6x128", precision).eval()
        tours = decode_path(ready, coords, decoding=parse_decoding("greedy"))
        assert all(sorted(tour) == list(range(20)) for tour in tours)
        lengths = [(c[t] - c[t].roll(-1, 0)).norm(dim=1).sum() for c, t in zip(coords, tours, strict=True)]
        return float(torch.stack(lengths).mean())

    assert mean_length("bf16") == pytest.approx(mean_length("fp32"), rel=0.005)


def test_what_a_policy_declares_stays_visible() -> None:
    policy = at_precision(build_path_policy("lehd", "cvrp", decoder_layers=1), "lehd", "bf16")
    assert policy.problem == "cvrp"
    assert policy.repairs


@pytest.mark.parametrize(
    ("name", "precision", "message"),
    [("lehd", "fp8", "fp32, tf32, bf16"), ("sit", "bf16", "in place"), ("lehd", "tf32", "CPU has none")],
)
def test_a_precision_that_cannot_be_had_is_named(name: str, precision: str, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        at_precision(build_path_policy(name, "tsp"), name, precision)

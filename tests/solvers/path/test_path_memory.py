"""Nothing quadratic is stored at thousands of nodes: the largest tensors that one step allocates."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from nco_bench.nn.build import build_path_policy
from nco_bench.nn.device import PerDevice
from nco_bench.solvers.path import pens_geometry
from nco_bench.solvers.path.problem import tsp_problem
from nco_bench.solvers.path.step import action_scores, start

NODES = 4000


class LargestOutput(TorchDispatchMode):
    """Notes the largest tensor that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.bytes = max(self.bytes, leaf.untyped_storage().nbytes())
        return out


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("lehd", {"decoder_layers": 1, "width": 16, "heads": 2, "head_dim": 8, "ffn": 32}),
        ("bq", {"layers": 1, "width": 16, "heads": 2, "ffn": 32}),
        ("sit", {"layers": 1, "width": 16, "heads": 2, "head_dim": 8, "ffn": 32}),
        ("decoder-6x128", {"depth": 1, "width": 16, "heads": 2, "head_dim": 8, "ffn": 32}),
        ("pens-a", {"layers": 1, "width": 16, "heads": 2, "ffn": 32}),
        ("pens-ar", {"layers": 1, "width": 16, "heads": 2, "ffn": 32}),
    ],
)
def test_one_step_stores_nothing_quadratic(
    name: str, options: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pens_geometry, "BIAS_BLOCK_BYTES", PerDevice(2**22, 2**22))
    monkeypatch.setattr(pens_geometry, "HEAD_BLOCK_BYTES", 2**20)
    policy = build_path_policy(name, **options).eval()
    problem = tsp_problem(torch.rand(1, NODES, 2))
    with torch.inference_mode(), LargestOutput() as largest:
        action_scores(policy, problem, policy.embed(problem.nodes), start(problem), None)
    assert largest.bytes < 4 * NODES**2 / 8

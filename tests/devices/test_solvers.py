"""Every family of networks on a device that is not the CPU: the solutions are the CPU's, nothing is mixed, nobody waits."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import second
import torch
from sweep import plain, solved

from nco_bench.cards import networks
from nco_bench.nn.device import reset_peak_memory

PATH = ("bq", "lehd", "sigd", "sigd-lehd", "sit", "decoder-6x128", "pens-a", "pens-r", "coordns")
STEPWISE = ("am", "pomo", "elg", "dgl", "invit-2v")
BOTH = ("bq", "lehd", "sigd", "sit", *STEPWISE)
CASES = (
    *((name, "tsp5:count=2", "greedy") for name in (*PATH, *STEPWISE)),
    *((name, "cvrp4:count=2", "greedy") for name in BOTH),
    *(
        ("lehd", f"{data}:count=2", decoding)
        for data in ("tsp5", "cvrp4")
        for decoding in ("beam:2", "rrc:2", "prc:2")
    ),
    *(
        ("am", f"{data}:count=2", decoding)
        for data in ("tsp5", "cvrp4")
        for decoding in ("beam:2", "sample:2+x8")
    ),
    *(("pomo", f"{data}:count=2", "multistart+x8") for data in ("tsp5", "cvrp4")),
    ("elg", "tsp5:count=2", "beam:2"),
    ("lehd", "tsp5:count=2", "sample:2"),
    ("attend2pack", "bpp3d4:120x100:count=2", None),
    ("attend2pack", "bpp3d4:120x100:count=2", "sample:2"),
    *((name, "quickselect:count=2", None) for name in ("tropical", "tropical-qkv", "vanilla", "ut-adaptive")),
    *((name, "lra-listops16:count=2", None) for name in ("lra-tropical", "lra-vanilla", "lra-adaptive")),
    ("glop", "cvrp12:count=2", None),
    ("h-tsp", "tsp30:count=2", None),
    ("difusco", "tsp8:count=1", None),
    ("sit", "cvrp4:count=2", "prc:2"),
    ("dgl", "cvrp4:count=2", "beam:2"),
    ("invit-2v", "tsp5:count=2", "beam:2"),
)


def test_every_network_of_the_cards_is_here() -> None:
    """Each of them by one of its names; sizes and variants of a network are the same code."""
    known = networks()
    here = {known[name].network for name, _, _ in CASES if name in known}
    assert here == {card.network for card in known.values()}


@pytest.mark.parametrize(("name", "data", "decoding"), CASES)
def test_solutions_are_those_of_the_cpu(name: str, data: str, decoding: str | None) -> None:
    here = solved(name, data, "cpu", decoding)
    with second.watching() as watch:
        there = solved(name, data, second.NAME, decoding)
    assert watch.operations > 20
    assert not watch.hidden, "indices on the CPU into tensors of the device"
    for ours, theirs in zip(here, there, strict=True):
        np.testing.assert_array_equal(plain(ours), plain(theirs))


@pytest.mark.parametrize("params", [{"precision": "bf16"}, {"precision": "tf32"}])
def test_named_precisions_run(params: Mapping[str, str]) -> None:
    for tour in solved("lehd", "tsp5:count=2", second.NAME, "greedy", params):
        assert sorted(plain(tour)) == [0, 1, 2, 3, 4]


def test_the_device_refuses_what_cuda_refuses() -> None:
    ours, cpu = torch.ones(3, device=second.NAME), torch.ones(3)
    for mixed in (
        lambda: ours + cpu,
        lambda: cpu + ours,
        lambda: torch.cat([ours, cpu]),
        lambda: cpu[ours.long()],
    ):
        with pytest.raises(RuntimeError, match="same device"):
            mixed()
    with pytest.raises(TypeError, match="numpy"):
        ours.numpy()
    assert (ours + torch.tensor(1.0)).device.type == second.NAME
    assert torch.equal((ours * 2).cpu(), cpu * 2)


def test_waits_are_counted() -> None:
    ours = torch.arange(3, device=second.NAME)
    with second.watching() as watch:
        ours[1].item(), ours.tolist(), ours.nonzero(), ours[ours > 1], ours.cpu(), bool((ours > 0).any())
    assert sum(watch.waits.values()) >= 6


def test_convolutions_are_not_tf32_while_a_network_solves(monkeypatch: pytest.MonkeyPatch) -> None:
    """As CUDA's are unless they are asked not to be; products are float32 by themselves."""
    seen = []
    forward = torch.nn.Conv2d.forward

    def noted(self: torch.nn.Conv2d, x: torch.Tensor) -> torch.Tensor:
        seen.append(torch.backends.cudnn.allow_tf32)
        return forward(self, x)

    monkeypatch.setattr(torch.nn.Conv2d, "forward", noted)
    before = torch.backends.cudnn.allow_tf32
    solved("attend2pack", "bpp3d4:120x100:count=1", second.NAME)
    assert set(seen) == {False}
    assert torch.backends.cudnn.allow_tf32 == before


def test_memory_of_a_device_that_was_not_used_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA refuses to reset what it has not begun to count."""

    def refused(device: str) -> None:
        raise RuntimeError("Invalid device argument 0: did you call init?")

    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", refused)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    reset_peak_memory("cuda")

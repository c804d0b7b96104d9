"""Attention maps of the task networks: what is drawn is what the network takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.papers.tropical.attention import draw
from nco_bench.reports.figures.attention import LengthCurve, MapRow, length_maps, length_sweep, shrink
from nco_bench.solvers.sequences.task_networks import build_task_network
from nco_bench.solvers.sequences.tropical import aggregate, hilbert_scores


def test_shrinking_keeps_spikes() -> None:
    values = np.zeros((1000, 1000))
    values[707, 3] = 0.9
    small = shrink(values)
    assert small.shape == (63, 63)
    assert small[707 // 16, 0] == 0.9
    assert small.sum() == pytest.approx(0.9)


@pytest.mark.parametrize("name", ["tropical", "vanilla", "adaptive"])
def test_rows_of_maps_are_shares(name: str) -> None:
    torch.manual_seed(0)
    network = build_task_network(name, 2, pooled=False)
    maps, norms = network.attention_maps(torch.rand(2, 9, 2))
    assert maps.shape == (2, 2, 9, 9)
    assert norms.shape == (2, 2, 9)
    torch.testing.assert_close(maps.sum(-1), torch.ones(2, 2, 9))


def test_tropical_shares_count_the_keys_that_win_channels() -> None:
    torch.manual_seed(0)
    network = build_task_network("tropical", 2, pooled=False)
    tokens = network.embed(torch.rand(1, 6, 2))
    attention = network.layers[0].attention
    q, k, v = attention.project(tokens)  # type: ignore[operator,union-attr]
    scores = hilbert_scores(q, k)
    context, shares = aggregate(scores, v), attention.shares(tokens)[0]  # type: ignore[operator,union-attr]
    for head, query in np.ndindex(2, 6):
        wins = [int((scores[head, query, j] + v[head, j] == context[head, query]).sum()) for j in range(6)]
        np.testing.assert_allclose(shares[head, query].detach(), np.array(wins) / 32)


def test_pictures_are_written_and_mistakes_named(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    row = MapRow("tropical", {8: rng.random((8, 8)), 16: rng.random((16, 16))})
    for suffix, start in ((".png", b"\x89PNG"), (".pdf", b"%PDF")):
        assert length_maps("t", [row], "key", "query", tmp_path / f"a{suffix}").read_bytes().startswith(start)
    curves = [LengthCurve("tropical", {8: 90.0, 64: 70.0}), LengthCurve("all", {8: 35.0, 64: 20.0}, True)]
    assert length_sweep("t", curves, 8, "F1", tmp_path / "b.png").stat().st_size > 1000
    numbers = (tmp_path / "b.csv").read_text().splitlines()
    assert numbers == ["method,n,F1", "tropical,8,90", "tropical,64,70", "all,8,35", "all,64,20"]
    options = {"data": None, "instance": 0, "scales": [], "places": None}
    with pytest.raises(BadInputError, match="png"):
        draw("tropical", **options, out=tmp_path / "a.jpg")  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="view"):
        draw("tropical:view=heads", **options, out=tmp_path / "a.png")  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="quickselect"):
        draw("tropical", **{**options, "data": "quickselct"}, out=tmp_path / "a.png")  # type: ignore[arg-type]

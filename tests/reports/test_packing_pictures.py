"""Pictures of packings: what hides what, and what cannot be drawn."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from nco_bench.datasets.generate import generate
from nco_bench.errors import BadInputError
from nco_bench.problems import bpp3d
from nco_bench.problems.bpp3d import BPP3DInstance
from nco_bench.reports.figures.packings import back_to_front, draw_packing, project
from nco_bench.solvers.packing.height_map import pack_deepest_bottom_left


def packed(boxes=12):
    instance = generate("bpp3d", boxes, 1).instances[0]
    order = np.argsort(-instance.boxes.prod(1), kind="stable")
    return instance, pack_deepest_bottom_left(instance.boxes, instance.base, order).ravel()


def nearest_box(low, high, ray):
    """Follow the ray from the viewer, (1, 1, 1) times t plus an offset, to the first box it enters."""
    best, nearest = -np.inf, None
    for box in range(len(low)):
        enters, leaves = (high[box] - ray).min(), (low[box] - ray).max()
        if enters > leaves and enters > best:
            best, nearest = enters, box
    return nearest


def test_the_last_box_drawn_over_a_point_is_the_one_a_ray_meets_first():
    instance, solution = packed(20)
    low, high = bpp3d.corners(instance, solution)
    order = back_to_front(low, high)
    assert sorted(order) == list(range(20))
    rng = np.random.default_rng(0)
    seen = 0
    for _ in range(500):
        ray = rng.uniform(0, 120, 3)
        hit = [k for k in order if (high[k] - ray).min() > (low[k] - ray).max()]
        if hit:
            seen += 1
            assert hit[-1] == nearest_box(low, high, ray)
    assert seen > 100


def test_the_projection_is_isometric():
    origin, *axes = project(np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]))
    assert origin.tolist() == [0, 0]
    assert np.hypot(*np.array(axes).T) == pytest.approx([1, 1, 1])


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_a_picture_is_written_with_a_caption(tmp_path, suffix):
    instance, solution = packed()
    path = draw_packing(instance, tmp_path / f"packing{suffix}", solution)
    content = path.read_bytes()
    if suffix == ".png":
        assert content.startswith(b"\x89PNG")
    else:
        assert f"load rate {bpp3d.score(instance, solution):.1f} %".encode() in content


def test_what_cannot_be_drawn_is_refused(tmp_path):
    instance, solution = packed()
    overlapping = np.zeros_like(solution)
    for arguments, message in (
        ((instance, tmp_path / "a.png"), "name a solver"),
        ((instance, tmp_path / "a.png", overlapping), "overlap"),
        ((instance, tmp_path / "a.txt", solution), ".png"),
        ((generate("tsp", 5, 1).instances[0], tmp_path / "a.png", solution), "not a packing"),
    ):
        with pytest.raises(BadInputError, match=message):
            draw_packing(*arguments)
    assert list(tmp_path.iterdir()) == []


def test_one_box_is_drawn(tmp_path):
    one = BPP3DInstance("one", np.array([[3, 2, 1]]), np.array([4, 4]))
    assert draw_packing(one, tmp_path / "one.png", np.zeros(4, dtype=np.int32)).stat().st_size > 1000

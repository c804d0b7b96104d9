"""attend2pack: sizes and geometry as described, and the properties that any packing policy must have."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nco_bench.datasets.generate import generate
from nco_bench.nn.build import build_path_policy, count_parameters
from nco_bench.problems import bpp3d
from nco_bench.solvers.decoding.search import sampling
from nco_bench.solvers.packing.attend2pack import Attend2PackConfig, build, flattened_size
from nco_bench.solvers.packing.decode import best_choice, decode_packing, roll_out, to_solutions
from nco_bench.solvers.packing.quick_steps import QuickSteps
from nco_bench.solvers.packing.steps import PlainSteps, drop, drop_together, steps_of, window_max

SMALL = Attend2PackConfig(width=16, heads=2, ffn=32, layers=2, bin_length=12, bin_width=10, largest_side=5)


@pytest.fixture
def policy():
    torch.manual_seed(0)
    return build(SMALL).eval()


def sides(count, boxes, seed=0):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(np.sort(rng.integers(1, 6, (count, boxes, 3)), axis=2))


def test_flattened_sizes_are_the_published_ones():
    bases = [(120, 100), (140, 110), (160, 120), (100, 100)]
    found = [flattened_size(Attend2PackConfig(bin_length=a, bin_width=b)) for a, b in bases]
    assert found == [780, 1008, 1200, 676]


def test_parameters_are_those_of_the_layers_in_the_description():
    norm, square = 2 * 128, 128 * 128
    encoder = (3 + 1) * 128 + 3 * (4 * (square + 128) + 2 * norm + 2 * 128 * 512 + 512 + 128)
    convolutions = (2 * 4 * 9 + 4) + 2 * (4 * 4 * 9 + 4) + 3 * 2 * 4
    bin_encoder = convolutions + (780 + 1) * 128 + norm
    maps = square * (1 + 1 + 3 + 1 + 2)  # W_f; W_sl; keys, values, pointer keys; W_q; W_sel, W_pl
    head = 2 * (square + 128 + norm) + (128 + 1) * 600
    assert count_parameters(build(Attend2PackConfig())) == encoder + bin_encoder + maps + head == 937_956


def test_the_worked_example_comes_out():
    # attend2pack, W = H = 4: its (x, y, z) are z, y, x here; the map reaches 3, 1, 2 and 3 in the end.
    heights = torch.zeros(1, 4, 4)
    steps = [((2, 2, 3), 0, (0, 0)), ((2, 2, 1), 0, (2, 0)), ((4, 2, 2), 2, (0, 0)), ((2, 4, 1), 0, (2, 2))]
    for extents, y, expected in steps:
        x, z, heights = drop(heights, torch.tensor([extents]).float(), torch.tensor([y]))
        assert (int(x), int(z)) == expected
    assert heights[0].tolist() == [[3, 3, 2, 2], [3, 3, 2, 2], [3, 3, 3, 3], [3, 3, 3, 3]]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=20), st.data())
def test_window_maxima_are_those_of_every_window(values, data):
    window = data.draw(st.integers(1, len(values)))
    found = window_max(torch.tensor([values]).float(), torch.tensor([window]))[0].tolist()
    assert found == [max(values[i : i + window]) for i in range(len(values))]


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_the_compiled_loop_lowers_boxes_as_the_operations_on_all_lanes_do(data):
    lanes, length, width = (data.draw(st.integers(low, high)) for low, high in ((1, 3), (1, 9), (1, 8)))
    draw = torch.Generator().manual_seed(data.draw(st.integers(0, 2**32)))
    heights = torch.randint(0, 5, (lanes, length, width), generator=draw).float()
    extents = torch.stack(
        [torch.randint(1, most + 1, (lanes,), generator=draw) for most in (length, width, 6)], dim=1
    )
    y = (torch.rand(lanes, generator=draw) * (width - extents[:, 1] + 1)).long()
    before = heights.clone()
    for one, other in zip(
        drop(heights, extents.float(), y), drop_together(heights, extents.float(), y), strict=True
    ):
        assert torch.equal(one, other)
    assert torch.equal(heights, before)


def test_every_box_rests_on_the_floor_or_on_another(policy):
    boxes = sides(4, 12)
    packed = decode_packing(policy, boxes, torch.arange(4))
    for b in range(4):
        low = packed.rows[b, :, :3].numpy()
        turned = np.array(bpp3d.ORIENTATIONS)[packed.rows[b, :, 3].numpy()]
        high = low + np.take_along_axis(boxes[b].numpy(), turned, axis=1)
        for i in range(12):
            under = (
                (high[:, 2] == low[i, 2])
                & (low[:, :2] < high[i, :2]).all(1)
                & (low[i, :2] < high[:, :2]).all(1)
            )
            assert low[i, 2] == 0 or under.any()


def test_packings_are_feasible_and_heights_are_those_of_the_referee(policy):
    data = generate("bpp3d", 10, 6, "12x10", sides="1..5")
    given = np.stack([i.boxes for i in data])
    for samples in (None, 5):
        packed = decode_packing(policy, torch.from_numpy(np.sort(given, axis=2)), torch.arange(6), samples)
        for k, solution in enumerate(to_solutions(given, packed.rows.numpy())):
            assert bpp3d.violations(data.instances[k], solution) == ()
            assert bpp3d.height(data.instances[k], solution) == int(packed.height[k])


def test_permuting_the_boxes_permutes_the_sequence_logits(policy):
    boxes, order = sides(2, 7), torch.tensor([3, 0, 6, 2, 5, 1, 4])
    left = torch.ones(2, 7, dtype=torch.bool)
    left[:, 3] = False
    seen = policy.see(torch.zeros(2, 12, 10), torch.rand(2, 12, 10))
    plain = policy.sequence_logits(policy.encode(boxes), left, seen)
    permuted = policy.sequence_logits(policy.encode(boxes[:, order]), left[:, order], seen)
    torch.testing.assert_close(permuted, plain[:, order])
    assert plain[:, 3].isneginf().all()


def test_an_instance_is_packed_the_same_alone_and_in_a_batch(policy):
    boxes = sides(5, 9)
    together = decode_packing(policy, boxes, torch.arange(5), 3)
    for k in range(5):
        alone = decode_packing(policy, boxes[k : k + 1], torch.tensor([k]), 3)
        assert (alone.rows[0] == together.rows[k]).all()


def test_more_samples_are_never_worse_and_seeds_repeat(policy):
    boxes, seeds = sides(4, 9), torch.arange(4)
    few, more = (decode_packing(policy, boxes, seeds, k) for k in (2, 6))
    assert (more.height <= few.height).all()
    assert (decode_packing(policy, boxes, seeds, 6).rows == more.rows).all()
    assert (decode_packing(policy, boxes, seeds + 100, 6).rows != more.rows).any()


def test_log_probabilities_are_those_of_the_choices(policy):
    # One box: the sequence policy has no choice, the placement policy decides among 6 W places.
    boxes = sides(3, 1)
    encoded = policy.encode(boxes)
    packed = roll_out(policy, encoded, boxes, sampling(torch.arange(3), 0, 1), log_prob=True)
    seen = policy.see(torch.zeros(3, 12, 10), torch.zeros(3, 12, 10))
    turned = boxes.float()[:, 0][:, torch.tensor(bpp3d.ORIENTATIONS)]
    feasible = torch.arange(10) + turned[..., 1:2] <= 10
    logits = policy.placement_logits(
        encoded, torch.zeros(3, 1, dtype=torch.bool), torch.zeros(3, dtype=torch.int64), seen, feasible
    )
    action = packed.rows[:, 0, 3] * 10 + packed.rows[:, 0, 1]
    expected = logits.log_softmax(1)[torch.arange(3), action]
    torch.testing.assert_close(packed.log_prob, expected)
    assert logits.isneginf().sum() == (~feasible).sum() > 0


def test_a_logit_scale_changes_attention_and_none_does_not():
    boxes, built = sides(2, 9), {}
    for scale in (None, "none", "ln-n-over-d", "ssmax"):
        torch.manual_seed(0)
        config = {"width": 16, "heads": 2, "ffn": 32, "layers": 2, "bin_length": 12, "bin_width": 10}
        policy = build_path_policy("attend2pack", "bpp3d", logit_scale=scale, **config)
        left, seen = torch.ones(2, 9, dtype=torch.bool), policy.see(*torch.zeros(2, 2, 12, 10))
        built[scale] = policy.sequence_logits(policy.encode(boxes), left, seen)
    assert (built[None] == built["none"]).all()
    assert not torch.allclose(built["none"], built["ln-n-over-d"])
    assert not torch.allclose(built["none"], built["ssmax"])


def test_counting_heights_from_the_lowest_point_forgets_how_tall_the_packing_is():
    torch.manual_seed(0)
    config = Attend2PackConfig(
        width=16, heads=2, ffn=32, layers=1, bin_length=12, bin_width=10, from_lowest=True
    )
    policy = build(config).eval()
    maps = torch.randint(0, 9, (2, 1, 12, 10)).float()
    maps[1] += maps[0]  # boxes only add height
    torch.testing.assert_close(policy.see(*(maps + 1000)), policy.see(*maps))


@pytest.mark.parametrize("from_lowest", [False, True])
@pytest.mark.parametrize(("length", "width"), [(12, 10), (13, 11), (120, 100)])
@torch.no_grad()
def test_compiled_steps_score_and_drop_as_the_plain_ones_do(length, width, from_lowest):
    torch.manual_seed(0)
    config = Attend2PackConfig(
        width=16, heads=2, ffn=32, layers=1, bin_length=length, bin_width=width, largest_side=width // 2,
        from_lowest=from_lowest,
    )  # fmt: skip
    policy = build(config).eval()
    for norm in policy.bin_encoder.norms:
        norm.weight.uniform_(0.5, 2)
        norm.bias.uniform_(-1, 1)
    # Some are longer than the bin is wide: not all orientations fit.
    given = (
        torch.randint(1, length + 1, (3, 25, 3), generator=torch.Generator().manual_seed(1)).sort(2).values
    )
    given[..., :2] = given[..., :2].clamp(max=width // 2)
    quick = QuickSteps(policy, policy.encode(given), given)
    plain = PlainSteps(policy, policy.encode(given), given)
    for step in range(given.shape[1]):
        logits = plain.boxes()
        torch.testing.assert_close(quick.boxes(), logits, rtol=1e-4, atol=2e-5)
        box = logits.argmax(1)
        logits = plain.places(box)
        torch.testing.assert_close(quick.places(box), logits, rtol=1e-4, atol=2e-5)
        assert step or logits.isneginf().any()
        place = logits.argmax(1)
        quick.put(box, place)
        plain.put(box, place)
    for one, other in zip(quick.packed(), plain.packed(), strict=True):
        assert torch.equal(one, other)


def test_gradients_and_lower_precision_take_the_plain_steps(policy):
    boxes = sides(1, 3)
    assert isinstance(steps_of(policy, policy.encode(boxes), boxes), PlainSteps)
    with torch.no_grad():
        assert isinstance(steps_of(policy, policy.encode(boxes), boxes), QuickSteps)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert isinstance(steps_of(policy, policy.encode(boxes), boxes), PlainSteps)
        double = build(SMALL).double().eval()
        assert isinstance(steps_of(double, double.encode(boxes), boxes), PlainSteps)


def test_greedy_takes_the_best_scored_action():
    assert best_choice(torch.tensor([[[0.1, 0.7, 0.2]]]), 0).item() == 1

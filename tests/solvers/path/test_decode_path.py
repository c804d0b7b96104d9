"""The entry that solvers call: shapes of solutions, repeatability, augmentation, mistakes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from nco_bench.errors import BadInputError
from nco_bench.solvers.decoding.instances import symmetries
from nco_bench.solvers.decoding.spec import parse_decoding
from nco_bench.solvers.path.decode import Trace, decode_path
from nco_bench.solvers.path.problem import tour_lengths

Make = Callable[..., nn.Module]
MakeCvrp = Callable[..., tuple[Tensor, Tensor, Tensor]]
COORDS = torch.rand(3, 11, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize(
    "text",
    [
        "greedy",
        "beam:3",
        "sample:4",
        "sample:3+x8",
        "multistart:3",
        "rrc:3",
        "prc:3",
        "x8",
        "rrc:2+x8",
        "prc:2+x8",
    ],
)
def test_every_decoding_gives_tours_that_repeat_however_the_set_is_cut(text: str, make_policy: Make) -> None:
    policy, decoding = make_policy("lehd"), parse_decoding(text)
    together = decode_path(policy, COORDS, decoding=decoding, seed=7)
    parts = [decode_path(policy, COORDS[b : b + 1], decoding=decoding, seed=7 + b)[0] for b in range(3)]
    assert [tour.tolist() for tour in together] == [tour.tolist() for tour in parts]
    assert all(sorted(tour) == list(range(11)) for tour in together)


@pytest.mark.parametrize("name", ["lehd", "sit"])
@pytest.mark.parametrize(
    "text",
    [
        "rrc:8",
        "prc:8",
        "prc:8,init=greedy",
        "prc:8,init=nearest",
        "rrc:3+x8",
        "prc:4,length=6",
        "rrc:5,knn=4",
    ],
)
def test_reconstruction_of_tours_does_not_depend_on_the_batch(
    text: str, name: str, make_policy: Make
) -> None:
    policy, decoding = make_policy(name), parse_decoding(text)
    coords = torch.rand(3, 30, 2, generator=torch.Generator().manual_seed(8))
    together = decode_path(policy, coords, decoding=decoding, seed=41)
    alone = [decode_path(policy, coords[b : b + 1], decoding=decoding, seed=41 + b)[0] for b in range(3)]
    assert [tour.tolist() for tour in together] == [tour.tolist() for tour in alone]


@pytest.mark.parametrize("name", ["lehd", "sit"])
@pytest.mark.parametrize(
    "text",
    [
        "rrc:8",
        "prc:8",
        "prc:8,init=greedy",
        "prc:8,init=nearest",
        "rrc:3+x8",
        "prc:4,length=6",
        "rrc:5,knn=4",
    ],
)
def test_reconstruction_of_routes_does_not_depend_on_the_batch(
    text: str, name: str, make_policy: Make, make_cvrp: MakeCvrp
) -> None:
    policy, decoding = make_policy(name, "cvrp"), parse_decoding(text)
    batch = make_cvrp(3, 30, 25, seed=8)
    together = decode_path(policy, *batch, decoding=decoding, seed=41)
    alone = [
        decode_path(policy, *(t[b : b + 1] for t in batch), decoding=decoding, seed=41 + b)[0]
        for b in range(3)
    ]
    assert [routes.tolist() for routes in together] == [routes.tolist() for routes in alone]


@pytest.mark.parametrize("text", ["rrc:8", "prc:8"])
def test_equal_instances_of_a_batch_are_reconstructed_apart(
    text: str, make_policy: Make, make_cvrp: MakeCvrp
) -> None:
    same = COORDS[:1].expand(6, -1, -1)
    tours = decode_path(make_policy("lehd"), same, decoding=parse_decoding(text), seed=5)
    batch = (t.expand(6, *t.shape[1:]) for t in make_cvrp(1, 30, 25, seed=8))
    routes = decode_path(make_policy("lehd", "cvrp"), *batch, decoding=parse_decoding(text), seed=5)
    assert all(len({tuple(solution) for solution in solutions}) > 1 for solutions in (tours, routes))


@pytest.mark.parametrize("text", ["greedy", "beam:3", "sample:4", "rrc:3", "prc:3", "beam:2+x8"])
def test_every_decoding_gives_feasible_routes(text: str, make_policy: Make, make_cvrp: MakeCvrp) -> None:
    coords, demand, capacity = make_cvrp(3, 12, 15, seed=2)
    policy, decoding = make_policy("bq", "cvrp"), parse_decoding(text)
    solutions = decode_path(policy, coords, demand, capacity, decoding=decoding)
    without_depot = decode_path(policy, coords, demand[:, 1:], capacity, decoding=decoding)
    assert [s.tolist() for s in solutions] == [s.tolist() for s in without_depot]
    for solution, needs in zip(solutions, demand.tolist(), strict=True):
        assert sorted(solution[solution > 0]) == list(range(1, 13))
        assert solution[0] == solution[-1] == 0
        room = 0
        for node in solution:
            room = 15 if node == 0 else room - needs[node]
            assert room >= 0


def test_more_tries_are_never_worse_than_one_of_them(make_policy: Make) -> None:
    policy = make_policy("bq")

    def lengths(text: str) -> Tensor:
        tours = decode_path(policy, COORDS, decoding=parse_decoding(text))
        return tour_lengths(COORDS, torch.tensor([tour.tolist() for tour in tours]))

    one = lengths("greedy")
    assert bool((lengths("x8") <= one).all())
    assert bool((lengths("multistart") <= one).all())
    assert bool((lengths("rrc:5") <= one).all())


def test_symmetries_keep_all_distances_and_differ() -> None:
    versions = symmetries(COORDS)
    torch.testing.assert_close(
        torch.cdist(versions, versions), torch.cdist(COORDS, COORDS).repeat_interleave(8, 0)
    )
    assert len({tuple(v.flatten().tolist()) for v in versions[:8]}) == 8
    torch.testing.assert_close(versions[::8], COORDS)


def test_the_trace_holds_a_cost_per_iteration_and_the_last_is_the_solution(make_policy: Make) -> None:
    trace = Trace()
    tours = decode_path(make_policy("lehd"), COORDS, decoding=parse_decoding("rrc:4"), trace=trace)
    assert len(trace.costs) == 5
    assert trace.seconds == sorted(trace.seconds)
    final = tour_lengths(COORDS, torch.tensor([tour.tolist() for tour in tours]))
    assert trace.costs[-1].tolist() == pytest.approx(final.tolist())


def test_a_coordinate_scale_changes_what_the_policy_sees_and_not_the_lengths(make_policy: Make) -> None:
    policy, trace = make_policy("pens-a"), Trace()
    tours = decode_path(policy, COORDS, decoding=parse_decoding("greedy"), coordinate_scale=2.0, trace=trace)
    stretched = decode_path(policy, 2 * COORDS, decoding=parse_decoding("greedy"))
    assert [t.tolist() for t in tours] == [t.tolist() for t in stretched]
    assert trace.costs[0].tolist() == pytest.approx(
        tour_lengths(COORDS, torch.tensor([t.tolist() for t in tours])).tolist()
    )


@pytest.mark.parametrize(
    ("problem", "arguments", "message"),
    [
        ("tsp", (COORDS[0],), r"expected \(B, N, 2\)"),
        ("tsp", (COORDS, torch.ones(3, 10), torch.ones(3)), "solves the TSP"),
        ("tsp", (COORDS * torch.nan,), "not finite"),
        ("cvrp", (COORDS,), "demands and capacities are needed"),
        ("cvrp", (COORDS, torch.ones(3, 9), torch.ones(3)), "do not fit 10 customers"),
        ("cvrp", (COORDS, torch.full((3, 10), 0.5), torch.ones(3)), "fraction"),
        ("cvrp", (COORDS, torch.full((3, 10), 5), torch.full((3,), 4)), "exceeds the vehicle's capacity"),
    ],
)
def test_a_mistake_is_named(
    problem: str, arguments: tuple[Tensor, ...], message: str, make_policy: Make
) -> None:
    with pytest.raises(BadInputError, match=message):
        decode_path(make_policy("lehd", problem), *arguments, decoding=parse_decoding("greedy"))


@pytest.mark.parametrize("noise", ["step", "solve"])
def test_the_noise_of_pens_follows_the_seed_of_the_instance(noise: str, make_policy: Make) -> None:
    policy = make_policy("pens-a")
    policy.config = replace(policy.config, noise=noise)
    policy.eval()
    together = decode_path(policy, COORDS, decoding=parse_decoding("greedy"), seed=5)
    parts = [
        decode_path(policy, COORDS[b : b + 1], decoding=parse_decoding("greedy"), seed=5 + b)[0]
        for b in range(3)
    ]
    assert [tour.tolist() for tour in together] == [tour.tolist() for tour in parts]
    same = COORDS[:1].expand(3, -1, -1)
    assert len({tuple(t) for t in decode_path(policy, same, decoding=parse_decoding("greedy"), seed=5)}) > 1


def test_prc_from_the_nearest_neighbour_begins_with_that_solution(
    make_policy: Make, make_cvrp: MakeCvrp
) -> None:
    """Written out from Kool et al. (2019): from a random node, or the depot, always to the nearest node that may follow."""
    decoding = parse_decoding("prc:1,init=nearest")
    coords = torch.rand(2, 40, 2, generator=torch.Generator().manual_seed(3))
    trace = Trace()
    decode_path(make_policy("sit"), coords, decoding=decoding, seed=5, trace=trace)
    for points, cost in zip(coords.double(), trace.costs[0], strict=True):
        distance = torch.cdist(points, points)
        lengths = []
        for start in range(40):
            tour, left = [start], set(range(40)) - {start}
            while left:
                tour.append(min(left, key=lambda node: float(distance[tour[-1], node])))
                left.remove(tour[-1])
            lengths.append(float(distance[tour, tour[1:] + tour[:1]].sum()))
        assert min(abs(length - cost) for length in lengths) < 1e-6

    coords, demand, capacity = make_cvrp(2, 40, 25, seed=3)
    decode_path(
        make_policy("sit", "cvrp"), coords, demand, capacity, decoding=decoding, seed=5, trace=(at := Trace())
    )
    for points, load, room, cost in zip(
        coords.double(), demand.tolist(), capacity.tolist(), at.costs[0], strict=True
    ):
        distance, left = torch.cdist(points, points), set(range(1, 41))
        here, free, length = 0, room, 0.0
        while left:
            fits = [node for node in left if load[node] <= free]
            following = min(fits, key=lambda node: float(distance[here, node])) if fits else 0
            length += float(distance[here, following])
            free = free - load[following] if following else room
            here = following
            left.discard(here)
        assert length + float(distance[here, 0]) == pytest.approx(cost, abs=1e-6)

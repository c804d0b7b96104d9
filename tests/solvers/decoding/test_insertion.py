"""Cheapest insertion, against a plain implementation."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from nco_bench.solvers.decoding.insertion import insert_cvrp, insert_tsp


def plain_insertion(points: list[list[float]], order: list[int]) -> list[int]:
    tour = order[:2]
    for node in order[2:]:
        costs = [
            math.dist(points[a], points[node])
            + math.dist(points[node], points[b])
            - math.dist(points[a], points[b])
            for a, b in zip(tour, [*tour[1:], tour[0]], strict=True)
        ]
        tour.insert(costs.index(min(costs)) + 1, node)
    return tour


def test_each_node_goes_where_it_costs_least() -> None:
    generator = torch.Generator().manual_seed(0)
    coords, order = torch.rand(4, 25, 2, generator=generator), torch.randperm(25, generator=generator)
    expected = [plain_insertion(points, order.tolist()) for points in coords.tolist()]
    assert insert_tsp(coords, order).tolist() == expected


def test_every_instance_can_have_an_order_of_its_own() -> None:
    generator = torch.Generator().manual_seed(0)
    coords = torch.rand(3, 15, 2, generator=generator)
    orders = torch.stack([torch.randperm(15, generator=generator) for _ in range(3)])
    expected = [
        plain_insertion(points, order) for points, order in zip(coords.tolist(), orders.tolist(), strict=True)
    ]
    assert insert_tsp(coords, orders).tolist() == expected


def test_customers_are_inserted_within_the_capacity(make_cvrp: Callable[..., tuple[Tensor, ...]]) -> None:
    coords, demand, _ = make_cvrp(1, 40, 20, seed=1)
    order, via = insert_cvrp(coords[0].numpy(), demand[0].numpy(), 20)
    assert sorted(order) == list(range(1, 41))
    routes = torch.tensor(via).long().cumsum(0)
    assert all(int(demand[0][order[(routes == r).numpy()]].sum()) <= 20 for r in routes.unique())

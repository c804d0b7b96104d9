"""Initial solutions by insertion, as SIT's official code makes them for PRC (its C++ module comes from GLOP).

All arithmetic is in float32, as there, so that ties fall the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Float = NDArray[np.float32]


@torch.inference_mode()
def insert_tsp(coords: Tensor, order: Tensor) -> Tensor:
    """Cheapest insertion of the nodes in a given order.

    Parameters
    ----------
    coords
        ``(B, N, 2)``.
    order
        Permutation, ``(N,)`` for all instances or ``(B, N)``; a random one makes it random insertion. Among equally cheap
        places the first along the tour, from the first node on, is taken.

    Returns
    -------
    Tensor
        ``(B, N)`` tours that start with the first node of the order.
    """
    batch, count, _ = coords.shape
    device = coords.device
    order = order.to(device).expand(batch, -1)
    if count < 3:
        return order
    ordered = coords.gather(1, order[..., None].expand(-1, -1, 2)).float()
    tours = torch.arange(2, device=device).expand(batch, -1)  # positions in the order, until the end
    points = ordered[:, :2]
    edges = (points - points.flip(1)).norm(dim=2)  # from each node to the next
    for node in range(2, count):
        new = ordered[:, node, None]
        to_new = (points - new).norm(dim=2)
        place = (to_new + to_new.roll(-1, 1) - edges).argmin(1, keepdim=True)  # the node after which it goes
        length = tours.shape[1]
        index = torch.arange(length + 1, device=device)
        source = index - (index > place).long()
        here = index == place + 1
        after = to_new.gather(1, (place + 1) % length)
        edges = edges.gather(1, source)
        edges = torch.where(here, after, torch.where(index == place, to_new.gather(1, place), edges))
        tours = torch.where(here, node, tours.gather(1, source))
        points = torch.where(here[..., None], new, points.gather(1, source[..., None].expand(-1, -1, 2)))
    return order.gather(1, tours)


@dataclass
class _Route:
    """A route under construction: the depot's point, then its customers', and the edge from each to the next."""

    points: Float
    edges: Float
    nodes: list[int] = field(default_factory=list)
    load: int = 0


def insert_cvrp(
    coords: Float, demand: NDArray[np.int64], capacity: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Cheapest insertion of the customers of one instance by their angle around the depot.

    Follows the official code in a quirk that moves its results: on the edge that leaves the depot, half of the best cost so
    far stands in for the distance between depot and customer. As there, equal angles come as NumPy's default sort leaves
    them, which depends on the processor: CVRPLIB has many (116 among Li_21's 560 customers), drawn instances hardly any.

    Parameters
    ----------
    coords
        ``(V + 1, 2)``, row 0 the depot.
    demand
        ``(V + 1,)`` integers.
    capacity
        Capacity of a vehicle.

    Returns
    -------
    order, via
        ``(V,)`` customers, routes in reverse order of their creation, and whether each starts a route.
    """
    coords = coords.astype(np.float32)
    depot = coords[0]
    offset = coords[1:].astype(np.float64) - depot.astype(np.float64)
    routes: list[_Route] = []
    for customer in np.argsort(np.arctan2(offset[:, 1], offset[:, 0])) + 1:
        point, amount = coords[customer], int(demand[customer])
        to_depot = _distance(depot[None], point)[0]
        best, best_route, best_place = np.float32(2) * to_depot, None, 0
        for route in routes:
            if route.load + amount > capacity:
                continue
            here = _distance(route.points, point)
            onward = np.append(here[1:], here[:1])
            here[0] = best / np.float32(2)
            cost = here + onward - route.edges
            if cost[0] < best:
                best, best_route, best_place = cost[0], route, 0
            place = int(cost[1:].argmin()) + 1
            if cost[place] < best:
                best, best_route, best_place = cost[place], route, place
        if best_route is None:
            routes.append(
                _Route(np.stack([depot, point]), np.stack([to_depot, to_depot]), [int(customer)], amount)
            )
        else:
            _insert(best_route, int(customer), point, amount, best_place)
    order = [node for route in reversed(routes) for node in route.nodes]
    via = [i == 0 for route in reversed(routes) for i in range(len(route.nodes))]
    return np.array(order, dtype=np.int64), np.array(via, dtype=bool)


def _insert(route: _Route, customer: int, point: Float, amount: int, place: int) -> None:
    """Put a customer on the edge that leaves position `place` (0 is the depot)."""
    following = route.points[(place + 1) % len(route.points)]
    route.edges[place] = _distance(route.points[place][None], point)[0]
    route.edges = np.insert(route.edges, place + 1, _distance(following[None], point)[0])
    route.points = np.insert(route.points, place + 1, point, axis=0)
    route.nodes.insert(place, customer)
    route.load += amount


def _distance(points: Float, point: Float) -> Float:
    delta = points - point
    return np.sqrt(delta[:, 0] * delta[:, 0] + delta[:, 1] * delta[:, 1])

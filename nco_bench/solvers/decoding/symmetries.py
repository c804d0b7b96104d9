"""The eight symmetries of the unit square, and picking the best of several solutions per instance."""

from __future__ import annotations

import torch
from torch import Tensor

SYMMETRIES = 8


def symmetries(coords: Tensor) -> Tensor:
    """Apply all eight symmetries of the unit square (POMO, Table 1).

    Parameters
    ----------
    coords
        ``(B, N, 2)``.

    Returns
    -------
    Tensor
        ``(8 B, N, 2)``: eight versions of the first instance (the first unchanged), then of the second, ...
    """
    x, y = coords.unbind(-1)
    pairs = [(x, y), (y, x), (x, 1 - y), (y, 1 - x), (1 - x, y), (1 - y, x), (1 - x, 1 - y), (1 - y, 1 - x)]
    return torch.stack([torch.stack(pair, dim=-1) for pair in pairs], dim=1).flatten(0, 1)


def best_of(lengths: Tensor, solutions: Tensor, copies: int) -> Tensor:
    """Keep the shortest of `copies` solutions per instance (the first among equals).

    Parameters
    ----------
    lengths
        ``(B copies,)``, instance by instance.
    solutions
        ``(B copies, ...)``.

    Returns
    -------
    Tensor
        ``(B, ...)``.
    """
    best = lengths.view(-1, copies).argmin(1)
    return solutions[best + torch.arange(len(best), device=best.device) * copies]

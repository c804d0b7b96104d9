"""Several processes, one run: each learns from its share of every batch, gradients are averaged (data parallel).

``torchrun --nproc-per-node 2 -m -- nco_bench train ...`` starts them (without ``--`` torchrun takes ``--start`` for an
abbreviation of its ``--start-method``). Batch size and trajectory are those of one process: all
draw the same batch and keep every n-th row of it. The first process alone keeps time, validates, reports and writes files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, distributed

from nco_bench.errors import BadInputError, ResultsError
from nco_bench.nn.device import group_backend, take_own

LEFT_ALONE = ("Connection closed by peer", "Connection reset by peer", "Connection refused")
"""What gloo says where a process that it talks to is gone."""


@dataclass(frozen=True)
class Group:
    """One process among those that train together."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this one reports and writes."""
        return self.rank == 0

    def rows(self, count: int, device: torch.device | None = None) -> Tensor:
        """Return which rows of a batch are this process's; one row that counts nothing where there are too few."""
        if self.rank >= count:
            return torch.zeros(1, dtype=torch.int64, device=device)
        return torch.arange(self.rank, count, self.size, device=device)

    def share(self, count: int) -> float:
        """Return which share of a batch of `count` rows this process holds."""
        return len(range(self.rank, count, self.size)) / count


def group() -> Group:
    """Return the group that training runs in: this process alone, unless `joined`."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return Group()
    return Group(distributed.get_rank(), distributed.get_world_size())


def reports() -> bool:
    """Whether this process tells and locks: torchrun's first, or the only one, before and after `joined`."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def joined(device: str) -> Iterator[str]:
    """Join the processes that torchrun started; yields the device of this one. Does nothing without torchrun.

    Raises
    ------
    BadInputError
        When torchrun's environment is incomplete.
    ResultsError
        When another process has ended while this one waited for it: what happened there is said there.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size < 2 or distributed.is_initialized():
        yield device
        return
    missing = [
        name for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ
    ]
    if missing:
        raise BadInputError(
            f"WORLD_SIZE is {size}, but {missing[0]} is not set; start the command with torchrun."
        )
    device = take_own(device, int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group(group_backend(device))
    try:
        yield device
    except RuntimeError as error:
        if not any(words in str(error) for words in LEFT_ALONE):
            raise
        raise ResultsError(
            "Another process of this training has ended; its own message says why (--debug shows all of them)."
        ) from error
    finally:
        distributed.destroy_process_group()


def sum_gradients(parameters: Iterable[Tensor]) -> None:
    """Replace gradients by their sum over all processes."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([g.reshape(-1) for g in gradients])
    distributed.all_reduce(flat)
    begin = 0
    for gradient in gradients:
        gradient.copy_(flat[begin : begin + gradient.numel()].view_as(gradient))
        begin += gradient.numel()


def shared_rows(work: Callable[[Tensor], Tensor], stack: Tensor) -> Tensor:
    """Return ``work(stack)`` in the stack's type, each process doing its rows; `work` treats every row by itself."""
    together = group()
    if together.size == 1 or len(stack) == 1:
        return work(stack).to(stack.dtype)
    mine = torch.arange(together.rank, len(stack), together.size, device=stack.device)
    done = torch.zeros_like(stack)
    if len(mine):
        done[mine] = work(stack[mine]).to(stack.dtype)
    distributed.all_reduce(done)  # of the others' rows this process has zeros
    return done


def total(value: float, device: torch.device) -> float:
    """Return the sum of a number over all processes."""
    tensor = torch.tensor(value, dtype=torch.float64, device=device)
    distributed.all_reduce(tensor)
    return float(tensor)


def agreed(value: float, device: torch.device) -> float:
    """Return the first process's number in all of them."""
    tensor = torch.tensor(value, dtype=torch.float64, device=device)
    distributed.broadcast(tensor, 0)
    return float(tensor)

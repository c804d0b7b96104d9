"""Work in Python threads instead of torch's own, on the CPU.

Torch's threads meet after every operation, of which a step of a network has a hundred. Where work falls into parts that
need nothing of each other for many operations, one Python thread per part, in which torch uses one thread, keeps all cores
busy: torch lets go of Python's lock while an operation runs.

How a batch is cut into parts (`cut`) depends on the batch alone, and a part is computed by one thread however many there
are, so solutions are the same bit for bit with any number of threads up to the number of parts. Parts are also small
enough for what they compute to stay in the processor's cache. A single part keeps torch's own threads.
"""

from __future__ import annotations

import math
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from itertools import pairwise
from typing import TypeVar

import torch

from nco_bench.nn.device import on_cpu
from nco_bench.progress import opened, tracked

Part = TypeVar("Part")
Result = TypeVar("Result")

PART_TOKENS = 4096
"""Tokens of one part before the first step, about. With half as many SIT took 6 % longer: its representatives make small
products, which are slow.
"""
SHARES = 2
"""The number of parts is a multiple of this, so that two threads have equally much to do; more share what each part does."""
LONGEST = 4096
"""Longer problems stay together: their operations are long enough for torch's own threads, and memory stays that of one."""


def cut(batch: int, copies: int, tokens: int, device: torch.device) -> list[slice]:
    """Cut a batch into parts.

    Parameters
    ----------
    batch, copies, tokens
        Instances, partial solutions of each, and tokens that the network sees of each of these.
    device
        Where the work is done; only the CPU's is cut.

    Returns
    -------
    list of slices
        Consecutive instances, in order.
    """
    if batch < 2 or not on_cpu(device) or tokens > LONGEST:
        return [slice(0, batch)]
    parts = math.ceil(batch * copies * tokens / PART_TOKENS)
    parts = min(batch, parts if parts == 1 else math.ceil(parts / SHARES) * SHARES)
    return spans(batch, parts)


def spans(count: int, parts: int) -> list[slice]:
    """Cut `count` rows into so many consecutive parts of about one size; those without rows are left out."""
    bounds = [count * i // parts for i in range(parts + 1)]
    return [slice(*pair) for pair in pairwise(bounds) if pair[0] < pair[1]]


@contextmanager
def one_thread() -> Iterator[int]:
    """Let torch use a single thread for a while; yields how many it had.

    Between calls of `in_threads`: torch's own threads go on spinning for milliseconds after an operation, on the cores that
    the shared work needs.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield before
    finally:
        torch.set_num_threads(before)


def in_threads(
    work: Callable[[Part, threading.Event], Result], parts: Sequence[Part], threads: int | None = None
) -> list[Result]:
    """Do the work for each part, in one thread per part as far as there are threads; torch shares the rest equally.

    Parameters
    ----------
    work
        Called with a part and an event: when that is set the result is not wanted any more, because another part failed or
        the user stopped, and the work should return soon. With gradients or autocast all is done in the caller's thread.
    parts
        What is shared out.
    threads
        How many to use; None for as many as torch would.

    Returns
    -------
    list
        One result per part, in order.

    Raises
    ------
    BaseException
        What the first part that failed raised, and KeyboardInterrupt; no thread goes on behind it.
    """
    before = torch.get_num_threads()
    threads = threads or before
    workers = min(threads, len(parts))
    stopped = threading.Event()
    # Gradients and autocast are settings of this thread alone.
    if workers == 1 or torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
        return [work(part, stopped) for part in tracked(parts, "part")]
    without_gradients = torch.inference_mode if torch.is_inference_mode_enabled() else torch.no_grad
    results: dict[int, Result] = {}
    failures: list[BaseException] = []
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for index in range(len(parts)):
        waiting.put(index)

    @without_gradients()
    def run() -> None:
        torch.set_num_threads(max(1, threads // workers))  # of this thread
        try:
            while not stopped.is_set():
                index = waiting.get_nowait()
                results[index] = work(parts[index], stopped)
                level.reach(len(results))
        except queue.Empty:
            return
        except BaseException as error:  # raised again below
            failures.append(error)
            stopped.set()

    with opened("part", len(parts)) as level:
        others = [_pool().submit(copy_context().run, run) for _ in range(workers - 1)]
        try:
            run()  # the caller's thread works too; afterwards nothing is left for those that have not begun
            others = [other for other in others if not other.cancel()]
            wait(others)
        finally:
            stopped.set()
            wait([other for other in others if not other.cancel()])
            torch.set_num_threads(before)  # of the caller, and of threads that start later
    if failures:
        raise failures[0]
    return [results[index] for index in range(len(parts))]


def _pool() -> ThreadPoolExecutor:
    """Return the threads that wait for work: a new thread would have to get all its memory anew."""
    if not _pools:
        _pools.append(ThreadPoolExecutor(max(32, os.cpu_count() or 1), thread_name_prefix="part"))
    return _pools[0]


_pools: list[ThreadPoolExecutor] = []
if hasattr(os, "register_at_fork"):  # a forked process has none of the threads
    os.register_at_fork(after_in_child=_pools.clear)

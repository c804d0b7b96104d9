"""A run in several processes: shards of its datasets, workers that take them, one outcome of all."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from dataclasses import replace
from multiprocessing.process import BaseProcess
from typing import Any

from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import BadInputError, NcoBenchError, SolverFailedError
from nco_bench.interrupts import ignore_interrupts, insist, interrupts_held
from nco_bench.nn.device import on_cpu, take_own
from nco_bench.runs.display import Display, QuietDisplay
from nco_bench.runs.ready import is_scaled, refuse_unfit_sizes, refuse_without_weights
from nco_bench.runs.relay import Announced, Relay, WorkerDisplay
from nco_bench.runs.request import RunRequest, ended_early, load_datasets, plan_cells, wrong_problem
from nco_bench.runs.runner import RunOutcome, run
from nco_bench.solvers.registry import create

STOP_SECONDS = 10.0
"""How long workers have to close their files before they are killed."""
SHOW_SECONDS = 0.2
SHARES_PER_GPU = 4
"""How many shares of a dataset there are for each GPU, as far as its batches allow."""
_display: Display = QuietDisplay()
"""Of this process if it is a worker; a SLURM job's own log otherwise."""

_device: str | None = None
"""Of this process if it is a worker on a GPU."""
_sharing = 1
"""How many workers are on it."""

_ending = threading.Event()
"""Set in a worker that was told to end."""


def shards(request: RunRequest) -> list[RunRequest]:
    """Cut a request into one request per dataset and share of its instances.

    At most `jobs` shares each on the CPU. A GPU takes several, so that a fast one is given more; they are whole batches.
    """
    out = []
    for name, dataset in zip(request.datasets, load_datasets(request), strict=True):
        one = replace(request, datasets=(name,), jobs=1, executor="local")
        bounds = [dataset.first_index + bound for bound in _bounds(request, one, dataset)]
        beside = min(request.jobs, len(bounds) - 1)
        one = replace(one, beside=beside, asked=(bounds[0], bounds[-1]))
        out += [replace(one, limit=(start, stop)) for start, stop in itertools.pairwise(bounds)]
    return out


def _bounds(request: RunRequest, one: RunRequest, dataset: Dataset) -> list[int]:
    """Return where the shares of a dataset begin, and its end."""
    count, jobs = len(dataset), min(request.jobs, len(dataset))
    plans = [plan for plan in plan_cells(one, [dataset]) if not on_cpu(plan.choice.options.device)]
    plans = [plan for plan in plans if wrong_problem(plan) is None]
    if not plans:
        return [count * k // jobs for k in range(jobs + 1)]
    size = request.batch_size or max(
        getattr(create(plan.choice), "batch_size", lambda _: 1)(dataset) for plan in plans
    )
    share = -(-count // (jobs * SHARES_PER_GPU) // size) * size
    share = min(max(1, share), -(-count // jobs))
    return [*range(0, count, share), count]


def in_processes(request: RunRequest, devices: Sequence[str], display: Display) -> RunOutcome:
    _refuse_early(request)
    for line in ended_early(request, load_datasets(request)):
        display.message(line)
    parts = shards(request)
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    totals = _totals(request)
    relay = Relay(context, display, totals)
    own = None
    if not on_cpu(devices[0]):
        own = context.SimpleQueue()
        for device in devices:
            own.put(device)
    cells = f" in {len(totals)} cells" if len(totals) > 1 else ""
    where = "" if own is None else f" on {', '.join(devices)}"
    display.message(
        f"{request.jobs} jobs{where}: {sum(totals.values()):,} to solve{cells}, less what is stored"
    )
    with ProcessPoolExecutor(
        request.jobs, mp_context=context, initializer=_begin_worker, initargs=(relay.told, own, devices)
    ) as pool:
        try:
            with interrupts_held():  # until `_begin_worker`
                futures = [pool.submit(run_shard, part) for part in parts]
            return _merge(_as_completed(futures, relay))
        except BaseException as error:
            # Interrupted, or a user's mistake: leaving the pool would wait until all shards are solved.
            _stop(pool, [w for w in multiprocessing.active_children() if w not in others])
            if isinstance(error, BrokenProcessPool):
                raise SolverFailedError(
                    "A worker process was killed; what it stored is kept. Start the same command again to go on."
                ) from None
            raise


def _totals(request: RunRequest) -> dict[Announced, int]:
    """Return what all shards together have to find, by cell."""
    plans = [plan for plan in plan_cells(request, load_datasets(request)) if wrong_problem(plan) is None]
    return {
        Announced(p.choice.label, p.choice.options.decoding or "", p.dataset.name): request.repeats
        * len(p.dataset)
        for p in plans
    }


def _as_completed(futures: list[Future[Any]], relay: Relay) -> Iterator[Any]:
    """Yield results as they come, and show meanwhile what the workers tell."""
    pending = set(futures)
    while pending:
        relay.show(SHOW_SECONDS)
        done, pending = wait(pending, timeout=0, return_when=FIRST_COMPLETED)
        yield from (future.result() for future in done)
    relay.show(SHOW_SECONDS)


def _begin_worker(told: Any, own: Any, devices: Sequence[str]) -> None:
    """Let a worker end with its parent, even if that is killed, and when its parent tells it to; Ctrl-C is the parent's.

    Each takes a GPU of its own from a queue, where there are any.
    """
    from nco_bench.isolation.main import death_signal

    global _device, _display, _sharing
    _display = WorkerDisplay(told, os.getpid())
    death_signal()
    ignore_interrupts()
    signal.signal(signal.SIGTERM, _end_worker)
    insist(signal.SIGTERM, SystemExit)
    if own is not None:
        _device = own.get()
        _sharing = devices.count(_device)


def _end_worker(number: int, frame: object) -> None:
    """Leave the shard in hand, closing what is open, and refuse those that were handed over already."""
    _ending.set()
    raise SystemExit(128 + number)


def _stop(pool: ProcessPoolExecutor, workers: list[BaseProcess]) -> None:
    """End all workers: gently, and after some seconds by force."""
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.terminate()
    deadline = time.monotonic() + STOP_SECONDS
    for worker in workers:
        worker.join(max(0.0, deadline - time.monotonic()))
        if worker.is_alive():
            worker.kill()


def _refuse_early(request: RunRequest) -> None:
    """Find a user's mistake here: every worker would need seconds to start before it finds the same."""
    plans = plan_cells(request, load_datasets(request))
    reasons = [reason for plan in plans if (reason := wrong_problem(plan)) is not None]
    if len(reasons) == len(plans):
        raise BadInputError("; ".join(dict.fromkeys(reasons)) + ".")
    networks = [p for p in plans if p.choice.info.kind == "neural" and wrong_problem(p) is None]
    if len(request.datasets) > 1:  # workers would find what the last one lacks when the others are solved
        refuse_without_weights([(p, create(p.choice)) for p in networks])
    refuse_unfit_sizes([(p, create(p.choice)) for p in networks if is_scaled(p)])


def run_shard(request: RunRequest) -> RunOutcome | str:
    """Run one shard in a process of its own; a user's mistake comes back as its message."""
    if _ending.is_set():
        raise SystemExit
    if _device is not None:
        request = replace(request, device=take_own(_device), sharing=min(request.beside, _sharing))
    try:
        with _display.root if isinstance(_display, WorkerDisplay) else nullcontext():
            return run(request, _display)
    except NcoBenchError as error:
        return str(error)


def _merge(results: Iterator[Any]) -> RunOutcome:
    merged = RunOutcome()
    for result in results:
        if isinstance(result, str):
            raise BadInputError(result)
        merged.run_ids += result.run_ids
        merged.failed += result.failed
        merged.references |= result.references
        merged.skipped += [line for line in result.skipped if line not in merged.skipped]
        known = {(c.config_sha256, c.dataset_sha256) for c in merged.cells}
        merged.cells += [c for c in result.cells if (c.config_sha256, c.dataset_sha256) not in known]
    merged.run_ids.sort()
    return merged

"""Which cells can run, each with its solver; what stands in for a stranger's solver that cannot be made or prepared."""

from __future__ import annotations

from collections.abc import Sequence

from nco_bench.errors import BadWeightsError, NcoBenchError, SolverFailedError
from nco_bench.runs.request import CellPlan
from nco_bench.solvers.protocol import Begins, Failure, Solver
from nco_bench.solvers.registry import create, is_strange


def usable(plans: list[CellPlan]) -> tuple[list[tuple[CellPlan, Solver]], list[str]]:
    """Return the cells that can run, each with its solver, and a line for each that cannot.

    Raises
    ------
    NcoBenchError
        When weights of any network are missing or unfit, with what gets them all: nobody wants to learn of the last one
        after the hours that the solvers before it take.
    """
    ready, skipped = [], []
    for plan in plans:
        try:
            solver = create(plan.choice)
            reason = unsupported(plan, solver)
        except (SolverFailedError, MemoryError) as error:
            solver, reason = _in_its_place(plan, error), _other_problem(plan)
        if reason is None:
            ready.append((plan, solver))
        else:
            skipped.append(f"{plan.choice.label} on {plan.dataset.name}: {reason}")
    if len(ready) > 1:  # one alone finds its weights next
        refuse_without_weights(ready)
    return ready, skipped


def refuse_without_weights(ready: Sequence[tuple[CellPlan, Solver]]) -> None:
    """Raise for the networks whose weights are missing or unfit, for all of them in one line."""
    searches = [(getattr(solver, "weights_to_load", None), plan.dataset) for plan, solver in ready]
    if not any(search for search, _ in searches):
        return
    from nco_bench.weights.packed import forget

    errors: dict[str, NcoBenchError] = {}
    for search, dataset in searches:
        try:
            if search is not None:
                search(dataset)
        except NcoBenchError as error:
            errors.setdefault(str(error), error)
    forget()  # else a file's content would count as memory of whatever solves first
    if len(errors) == 1:
        raise next(iter(errors.values()))
    if errors:
        told = " ".join(f"({number}) {message}" for number, message in enumerate(errors, 1))
        raise BadWeightsError(
            f"Nothing was solved: weights are missing or unfit in {len(errors)} cases. {told}"
        )


def unsupported(plan: CellPlan, solver: Solver) -> str | None:
    """Return why the solver cannot run on the dataset, or None."""
    return _other_problem(plan) or solver.unsupported(plan.dataset)


def _other_problem(plan: CellPlan) -> str | None:
    problems = plan.choice.info.problems
    if problems and plan.dataset.problem not in problems:
        return f"solves {' and '.join(problems)}, not {plan.dataset.problem}"
    return None


def prepared(plan: CellPlan, solver: Solver) -> Solver:
    """Prepare a solver; return it, or what stands in for one that fails."""
    try:
        if isinstance(solver, Begins):
            solver.launch(plan.dataset)
        else:
            solver.prepare(plan.dataset)
    except (SolverFailedError, MemoryError) as error:
        instead = _in_its_place(plan, error)
        getattr(solver, "close", lambda: None)()
        return instead
    return solver


def _in_its_place(plan: CellPlan, error: SolverFailedError | MemoryError) -> Solver:
    """Return what fails on every instance with an error, so that others run on; where the failure is ours, it is raised."""
    from nco_bench.solvers.external.broken import Broken

    if isinstance(error, MemoryError):
        return Broken(Failure("oom", f"MemoryError: {str(error).removeprefix('MemoryError: ')}".rstrip(": ")))
    if not is_strange(plan.choice.info):
        raise error
    return Broken(Failure("failed", str(error).removesuffix(".")))

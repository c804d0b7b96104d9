"""Which cells can run, each with its solver; what stands in for a stranger's solver that cannot be made or prepared."""

from __future__ import annotations

from collections.abc import Sequence

from nco_bench.errors import BadWeightsError, NcoBenchError, SolverFailedError
from nco_bench.runs.request import CellPlan, other_problem
from nco_bench.solvers.protocol import Begins, Failure, Solver
from nco_bench.solvers.registry import create, is_strange


def usable(plans: list[CellPlan], *, whole: bool = True) -> tuple[list[tuple[CellPlan, Solver]], list[str]]:
    """Return the cells that can run, each with its solver, and a line for each that cannot.

    Parameters
    ----------
    plans
        The cells.
    whole
        Whether their datasets are all that was asked for, not the share of one job.

    Raises
    ------
    NcoBenchError
        When weights of any network are missing or unfit, with what gets them all: nobody wants to learn of the last one
        after the hours that the solvers before it take. So, too, when a scale does not take a whole dataset.
    """
    ready, skipped = [], []
    for plan in plans:
        try:
            solver = create(plan.choice)
            reason = unsupported(plan, solver)
        except (SolverFailedError, MemoryError) as error:
            solver, reason = _in_its_place(plan, error), other_problem(plan)
        if reason is None:
            ready.append((plan, solver))
        else:
            skipped.append(f"{plan.choice.label} on {plan.dataset.name}: {reason}")
    if len(ready) > 1:  # one alone finds its weights next
        refuse_without_weights(ready)
    if whole:
        refuse_unfit_sizes(ready)
    return ready, skipped


def refuse_without_weights(ready: Sequence[tuple[CellPlan, Solver]]) -> None:
    """Raise for the networks whose weights are missing or unfit, for all of them in one line."""
    _ask_all("weights_to_load", ready, "weights are missing or unfit")


def refuse_unfit_sizes(ready: Sequence[tuple[CellPlan, Solver]]) -> None:
    """Raise for the networks whose logit or coordinate scale does not take their dataset, for all of them in one line."""
    _ask_all("check_sizes", [one for one in ready if is_scaled(one[0])], "a scale does not take the sizes")


def is_scaled(plan: CellPlan) -> bool:
    """Tell whether a scale was asked for, which may not take every size."""
    options = plan.choice.options
    return options.logit_scale is not None or options.coordinate_scale is not None


def _ask_all(question: str, ready: Sequence[tuple[CellPlan, Solver]], wrong: str) -> None:
    """Call a method of all solvers that have it with their datasets; raise what they raise, in one line."""
    asked = [(getattr(solver, question, None), plan.dataset) for plan, solver in ready]
    if not any(ask for ask, _ in asked):
        return
    from nco_bench.weights.packed import forget

    errors: dict[str, NcoBenchError] = {}
    for ask, dataset in asked:
        try:
            if ask is not None:
                ask(dataset)
        except NcoBenchError as error:
            errors.setdefault(str(error), error)
    forget()  # else a file's content would count as memory of whatever solves first
    if len(errors) == 1:
        raise next(iter(errors.values()))
    if errors:
        told = " ".join(f"({number}) {message}" for number, message in enumerate(errors, 1))
        raise BadWeightsError(f"Nothing was solved: {wrong} in {len(errors)} cases. {told}")


def unsupported(plan: CellPlan, solver: Solver) -> str | None:
    """Return why the solver cannot run on the dataset, or None."""
    return other_problem(plan) or solver.unsupported(plan.dataset)


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

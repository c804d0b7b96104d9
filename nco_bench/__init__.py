"""nco-bench: generate, run and report for neural combinatorial optimisation.

In a notebook or a script::

    import nco_bench

    nco_bench.run(["lkh3", "two-opt"], "tsp100", limit=16)       # a table; what is stored is not computed again
    nco_bench.records(data="tsp*")                               # a DataFrame, a row per instance
    nco_bench.table("gaps", alias={"tsp100": "T100"})            # any table of `nco-bench report`
    nco_bench.score("berlin52.tsp", "mine.tour").cost            # recomputed in float64

What is offered is imported when it is first asked for: importing nco_bench costs nothing, and brings no torch.
"""

__version__ = "0.2.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nco_bench.api import (
        Solver,
        Study,
        compare,
        load,
        plan,
        records,
        register,
        run,
        run_study,
        score,
        table,
        verify,
    )

__all__ = [
    "Solver", "Study", "compare", "load", "plan", "records", "register", "run", "run_study", "score", "table", "verify",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'nco_bench' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module("nco_bench.api"), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

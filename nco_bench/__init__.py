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
    from nco_bench.api import Solver, Study, load, plan, register, run, run_study, score
    from nco_bench.stored import compare, records, table, verify

__all__ = [
    "Solver", "Study", "compare", "load", "plan", "records", "register", "run", "run_study", "score", "table", "verify",
]  # fmt: skip
_OF_WHAT_IS_STORED = ("compare", "records", "table", "verify")


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'nco_bench' has no attribute {name!r}")
    from importlib import import_module

    home = "nco_bench.stored" if name in _OF_WHAT_IS_STORED else "nco_bench.api"
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

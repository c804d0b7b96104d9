"""nco-bench: generate, run and report for neural combinatorial optimisation."""

__version__ = "0.2.0"

"""Weights for nco-bench, in the folder ``files``; `nco_bench.weights.store` looks for them here."""

__version__ = "0.2.0"

"""Reproducing published tables: presets say what to run for each printed number, and the runner runs what is missing.

A room per paper: ``presets/table-N.toml`` (`preset` says how they are written), ``published/table-N.csv`` with the printed
numbers, and code for figures and for numbers that are computed rather than run. Published numbers are never edited.
"""

"""Reproducing published tables: presets say what to run for each printed number, and the runner runs what is missing.

One preset per published table lies in ``presets/<paper>/table-N.toml``; `preset` says how they are written. Adding a table
means adding such a file, and for numbers that are computed rather than run a function that the file names.
"""

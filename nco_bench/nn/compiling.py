"""Numba's ``njit``, whose cache on disk outlives the version of this package that wrote it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return `numba.njit` with these options, for which a file of its cache that cannot be read counts as absent.

    An index names the classes of its signatures. It is unpickled before its age is looked at, so where an update has moved
    or removed such a class, loading raises ModuleNotFoundError or AttributeError, in every process until somebody deletes
    the file. Taken for absent, it is written anew.
    """
    decorate = numba.njit(**options)

    def compiled(function: Callable[..., Any]) -> Any:
        dispatcher = decorate(function)
        files = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
        if hasattr(files, "_load_index") and hasattr(files, "_load_data"):
            _forgive(files)
        return dispatcher

    return compiled


def _forgive(files: Any) -> None:
    load_index, load_data = files._load_index, files._load_data

    def index_or_none() -> Any:
        try:
            return load_index()
        except Exception:  # a pickle may raise anything
            return {}

    def data_or_absent(name: str) -> Any:
        try:
            return load_data(name)
        except Exception as error:
            raise OSError("cannot be read") from error  # which Numba takes for a file that is gone

    files._load_index, files._load_data = index_or_none, data_or_absent

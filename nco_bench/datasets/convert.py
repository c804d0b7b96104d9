"""Converting a dataset file from one format to another, for ``nco-bench convert``."""

from __future__ import annotations

from pathlib import Path

from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.formats import read_file, write_file
from nco_bench.datasets.load import load_path
from nco_bench.datasets.places import has_ledger
from nco_bench.datasets.storage import save_dataset
from nco_bench.errors import BadInputError

OWN_FORMAT = "nco-bench"


def convert_file(
    source: Path,
    target: Path,
    from_format: str | None,
    to_format: str | None,
    instance: int | None = None,
    instances: Path | None = None,
) -> Dataset:
    """Read a dataset in one format and write it in another.

    Parameters
    ----------
    source, target
        Files.
    from_format, to_format
        Format names of `nco_bench.datasets.formats`, ``nco-bench`` for our npz, or None to go by content and suffix.
    instance
        Only this one, counted from 1; None for all.
    instances
        Folder of the reference ledger, which gives the solutions that the file lacks; None leaves them out.

    Raises
    ------
    BadInputError
        For a missing or damaged source, or a target format that cannot hold the dataset.
    """
    if not source.is_file():
        raise BadInputError(f"{source}: no such file.")
    dataset = load_path(source) if from_format in (None, OWN_FORMAT) else read_file(source, from_format)
    if instances is not None and has_ledger(instances):
        dataset = _completed(dataset, instances)
    if instance is not None:
        dataset = _alone(dataset, instance)
    if to_format in (None, OWN_FORMAT) and target.suffix == ".npz":
        save_dataset(dataset, target)
    else:
        write_file(dataset, target, to_format)
    return dataset


def _completed(dataset: Dataset, instances: Path) -> Dataset:
    """Take from the ledger what the file has no solution of; what it has is converted, though a better one be known."""
    from nco_bench.datasets import ledger

    laid = ledger.load(dataset, instances)
    return dataset.with_references(
        [
            new if known is None or known.solution is None else known
            for known, new in zip(dataset.references, laid.references, strict=True)
        ]
    )


def _alone(dataset: Dataset, instance: int) -> Dataset:
    """Return a dataset of one instance, with its reference; a set of its own, not a slice with the hash of the whole."""
    index = instance - 1
    dataset.refuse_beyond(index)
    name = dataset.instances[index].name
    return Dataset(
        name, dataset.problem, (dataset.instances[index],), (dataset.references[index],), dataset.origin
    )

"""Models whose official weights are several files: which files of a folder they are, and what their keys begin with.

GLOP trains a reviser per path length, and nothing in a checkpoint says which; its folders and files are called
``reviser_100`` and so on. For the CVRP the one checkpoint that is no reviser is the partition network.
"""

from __future__ import annotations

import re
from pathlib import Path

from nco_bench.errors import BadWeightsError

BUNDLED = ("glop",)
SUFFIXES = (".pt", ".pth", ".safetensors")
REVISER = re.compile(r"reviser[_-]?(\d+)", re.IGNORECASE)


def checkpoint_files(model: str, place: Path, problem: str) -> dict[str, Path]:
    """Find the files of a model.

    Parameters
    ----------
    model
        Its name.
    place
        A checkpoint, or for GLOP also a folder of them.
    problem
        ``tsp`` or ``cvrp``.

    Returns
    -------
    dict
        What the keys of a file are to begin with (empty for models of one file) to the file.

    Raises
    ------
    BadWeightsError
        For a folder where a file is needed, for two files of one length, and for no or several partition networks.
    """
    if not place.is_dir():
        length = REVISER.search("/".join(place.parts[-2:])) if model in BUNDLED else None
        return {f"reviser{length[1]}." if length and place.suffix != ".safetensors" else "": place}
    if model not in BUNDLED:
        raise BadWeightsError(f"{place}: is a folder; give the checkpoint file of {model}.")
    return _bundle(place, problem)


def _bundle(folder: Path, problem: str) -> dict[str, Path]:
    found: dict[str, Path] = {}
    others = []
    for path in sorted(p for p in folder.rglob("*") if p.suffix in SUFFIXES and p.is_file()):
        length = REVISER.search(path.relative_to(folder.parent).as_posix())
        if length is None:
            others.append(path)
            continue
        prefix = f"reviser{length[1]}."
        if prefix in found:
            raise BadWeightsError(
                f"{folder}: {found[prefix].relative_to(folder)} and {path.relative_to(folder)} are both revisers of length "
                f"{length[1]}; give a folder with one file per length."
            )
        found[prefix] = path
    if not found:
        raise BadWeightsError(
            f"{folder}: holds no revisers; expected a file or folder per length, such as reviser_100/epoch-299.pt."
        )
    if problem == "cvrp":
        if len(others) != 1:
            names = ", ".join(str(p.relative_to(folder)) for p in others[:3]) or "none"
            raise BadWeightsError(
                f"{folder}: expected one checkpoint beside the revisers, the partition network; found {names}."
            )
        found[""] = others[0]
    return found

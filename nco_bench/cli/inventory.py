"""What `list`, `show` and `doctor` know, gathered from cards and catalogues; nothing heavy is imported."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nco_bench import __version__
from nco_bench.datasets.places import Places
from nco_bench.errors import UnknownNameError

if TYPE_CHECKING:
    from nco_bench.weights.manifest import Manifest

EXTRAS = (
    ("neural", "torch", "neural solvers and training", "pip install 'nco-bench[neural]'"),
    ("plots", "matplotlib", "plots and tour pictures", "pip install 'nco-bench[plots]'"),
    ("html", "bokeh", "HTML reports", "pip install 'nco-bench[html]'"),
    ("parquet", "pyarrow", "archives of runs, such as those in results/", "pip install 'nco-bench[parquet]'"),
    ("slurm", "submitit", "--executor slurm", "pip install 'nco-bench[slurm]'"),
    ("tensorboard", "tensorboard", "TensorBoard logs of training", "pip install 'nco-bench[tensorboard]'"),
)
EXAMPLE = "generated on demand (an example)"
Objects = list[dict[str, Any]]


def list_objects(what: str, places: Places) -> Objects:
    """List solvers, datasets, distributions, decodings, models, weights, tables or papers.

    Raises
    ------
    UnknownNameError
        For any other kind.
    """
    if what not in KINDS:
        raise UnknownNameError("kind of thing", what, KINDS)
    return KINDS[what](places)


def _solvers(places: Places) -> Objects:
    from nco_bench.solvers.readiness import readiness
    from nco_bench.solvers.registry import all_solvers

    out = []
    for info in all_solvers().values():
        found = readiness(info)
        out.append(
            {
                "name": info.name,
                "problems": list(info.problems),
                "kind": info.kind,
                "paper": f"{info.paper} ({info.venue})" if info.venue else info.paper,
                "decodings": list(info.decodings),
                "available": found.available,
                "missing": found.missing,
                "state": found.state,
                "states": found.states,
                "commands": found.commands,
                "before": found.before,
            }
        )
    return out


def _datasets(places: Places) -> Objects:
    from nco_bench.datasets import lra
    from nco_bench.datasets.libraries import library_entries
    from nco_bench.datasets.names import examples, generated_aliases

    stored = [
        {"name": path.stem.replace("_", ":"), "source": f"stored in {path}"}
        for path in sorted(places.instances.glob("*.npz"))
    ]
    return [
        *stored,
        *({"name": e["name"], "source": e.get("description") or "library"} for e in library_entries()),
        *({"name": name, "source": "published set, made from its seed"} for name in generated_aliases()),
        *({"name": name, "source": EXAMPLE} for name in examples() if name not in lra.SPLITS),
        *({"name": name, "source": "public data: nco-bench instances pull lra"} for name in lra.SPLITS),
    ]


def _distributions(places: Places) -> Objects:
    from nco_bench.problems.distributions import DISTRIBUTIONS

    return [
        {"name": name, "description": entry.description, "source": entry.source, "used_by": entry.used_by}
        for name, entry in DISTRIBUTIONS.items()
    ]


def _decodings(places: Places) -> Objects:
    from nco_bench.solvers.decoding.spec import DECODINGS, X8

    x8 = {"name": "x8", "description": f"{X8}; also greedy+x8, and as NAME+x8 with any other"}
    return [*({"name": name, "description": text} for name, text in DECODINGS.items()), x8]


def _models(places: Places) -> Objects:
    from nco_bench.cards import networks

    return [
        {
            "name": name,
            "problems": list(entry.problems),
            "parameters": dict(entry.parameters),
            "paper": entry.paper,
            "venue": entry.venue,
            "repository": entry.repository or None,
            "note": entry.note or None,
        }
        for name, entry in networks().items()
    ]


def _weights(places: Places) -> Objects:
    from nco_bench.cards import official_weights
    from nco_bench.weights.choice import before_pull
    from nco_bench.weights.shelf import list_weights, separate_weights

    here = [weights.summary() for weights in list_weights()]
    known = {weights["name"] for weights in here}
    official = [
        {**before_pull(w), "gap_on": "official, not pulled yet", "shipped": False, "found_in": "to pull"}
        for w in official_weights().values()
        if w.name not in known
    ]
    separate = [
        {**file.summary(), "path": None, "found_in": "nco-bench[weights]"} for file in separate_weights()
    ]
    return here + separate + official


def _tables(places: Places) -> Objects:
    from nco_bench.papers.preset import has_preset
    from nco_bench.papers.published import list_tables
    from nco_bench.reports.tables.presets import PRESETS

    made = [{"name": name, "description": preset.description} for name, preset in PRESETS.items()]
    published = [
        {
            "name": f"{table.paper} table {table.number}",
            "description": f"published: {table.title}",
            "reproduce": f"nco-bench reproduce {table.paper} --table {table.number}"
            if has_preset(table.paper, table.number)
            else None,
        }
        for table in list_tables()
    ]
    return made + published


def _papers(places: Places) -> Objects:
    from nco_bench.papers.published import list_tables

    out: dict[str, list[int | str]] = {}
    for table in list_tables():
        out.setdefault(table.paper, []).append(table.number)
    return [{"name": paper, "tables": numbers} for paper, numbers in out.items()]


KINDS: dict[str, Callable[[Places], Objects]] = {
    "solvers": _solvers,
    "datasets": _datasets,
    "distributions": _distributions,
    "decodings": _decodings,
    "models": _models,
    "weights": _weights,
    "tables": _tables,
    "papers": _papers,
}


def show_object(name: str, places: Places) -> dict[str, Any]:
    """Tell all that is known about a solver, weights file, distribution, decoding, table or dataset.

    Raises
    ------
    UnknownNameError
        When nothing is called so.
    """
    from nco_bench.solvers.registry import all_solvers

    solvers = all_solvers()
    if name in solvers:
        return _show_solver(solvers[name])
    if name.endswith(".safetensors") and Path(name).is_file():
        return _show_weights(name)
    for kind in ("weights", "distributions", "decodings", "tables", "models"):
        for known in list_objects(kind, places):
            if known["name"] == name:
                return {
                    "kind": kind.removesuffix("s"),
                    **known,
                    **(_ours_of(name) if kind == "weights" else {}),
                }
    try:
        return _show_dataset(name, places)
    except UnknownNameError:
        others = [
            o["name"]
            for kind in ("distributions", "decodings", "tables", "datasets")
            for o in list_objects(kind, places)
        ]
        raise UnknownNameError(
            "name", name, [*solvers, *others], "See 'nco-bench list solvers|datasets|...'."
        ) from None


def _show_solver(info: Any) -> dict[str, Any]:
    from nco_bench.solvers.availability import availability
    from nco_bench.solvers.readiness import readiness

    found, ready = availability(info), readiness(info)
    known = {
        "kind": "solver",
        "name": info.name,
        "problems": list(info.problems),
        "method": info.kind,
        "paper": info.paper,
        "venue": info.venue or None,
        "parameters": info.size,
        "note": info.note or None,
        "decodings": list(info.decodings),
        "settings": dict(info.params),
        "version": info.version,
        "deterministic": info.deterministic,
        "time_limit_counts": f"{info.clock} time",
        "licence": info.licence,
        "available": ready.available,
        "state": ready.state,
        "where": found.where,
        "first": ready.before,
        "command": "\n".join(dict.fromkeys(ready.commands.values())),
        "weights": [w for w in _weights(Places.from_environment()) if w.get("model") == info.name],
        "training": _trainings(info.name),
    }
    return {key: value for key, value in known.items() if value not in (None, [], {}, "")}


def _show_weights(path: str) -> dict[str, Any]:
    """Of a file, which need not be where weights are kept."""
    from nco_bench.weights.exporting import find

    file = find(path)
    return {"kind": "weight", **file.summary(), **_ours(file.manifest)}


def _ours_of(name: str) -> dict[str, Any]:
    from nco_bench.weights.shelf import list_weights

    manifest = next((w.manifest for w in list_weights() if w.manifest.name == name), None)
    return {} if manifest is None else _ours(manifest)


def _ours(manifest: Manifest) -> dict[str, Any]:
    """What in a training is not the paper's; nothing where that is not known."""
    from nco_bench.training.choices import departures, paper_of
    from nco_bench.training.courses import COURSES, load_course

    if manifest.ours:
        return {"ours": manifest.ours}
    learner = manifest.recipe.get("learner")
    if learner not in COURSES or importlib.util.find_spec("torch") is None:
        return {}
    paper = paper_of(load_course(COURSES[learner]).papers(manifest.model), "", manifest.problem)
    if paper is None:
        return {}
    # Weights of versions whose manifests did not say it yet: what their recipe lacks had the default.
    known = {f.name for f in dataclasses.fields(paper.recipe)} & set(manifest.recipe)
    trained = type(paper.recipe)(**{key: manifest.recipe[key] for key in known})
    return {"ours": departures(trained, paper, manifest.data.size)}


def _trainings(model: str) -> dict[str, dict[str, Any]]:
    """The papers' own recipes of a model by way to learn, with what in them is ours; none where torch is missing."""
    from nco_bench.training.courses import load_course, ways_to_learn

    if importlib.util.find_spec("torch") is None:
        return {}
    fitting = {name: load_course(entry) for name, entry in ways_to_learn(model).items()}
    found = {
        name: {recipe: paper.as_dict() for recipe, paper in course.papers(model).items()}
        for name, course in fitting.items()
        if not course.imitates
    }
    return {name: papers for name, papers in found.items() if papers}


def _show_dataset(name: str, places: Places) -> dict[str, Any]:
    from nco_bench.datasets.load import load_dataset
    from nco_bench.datasets.storage import reference_summary

    dataset = load_dataset(name, places)
    return {
        "kind": "dataset",
        "name": dataset.name,
        "problem": dataset.problem,
        "count": len(dataset),
        "sizes": list(dataset.sizes),
        "convention": dataset.convention,
        "sha256": dataset.sha256,
        "generator": dataset.origin.generator,
        "version": dataset.origin.version,
        "distribution": dataset.origin.distribution,
        "seed": dataset.origin.seed,
        "parameters": dict(dataset.origin.params),
        "references": reference_summary(dataset),
    }


def diagnose() -> dict[str, Any]:
    """Return the machine, every solver with where it comes from and its licence, and the optional extras."""
    from nco_bench.runs.environment import cpu_model, gpus
    from nco_bench.solvers.availability import availability
    from nco_bench.solvers.registry import all_solvers

    solvers = []
    for info in all_solvers().values():
        found = availability(info)
        solvers.append(
            {
                "name": info.name,
                "available": found.available,
                "where": found.where,
                "licence": info.licence,
                "install": info.install or None,
                "fix": found.missing or None,
            }
        )
    machine = {
        "nco-bench": __version__,
        "python": sys.version.split()[0],
        "processor": cpu_model(),
        "gpu": ", ".join(gpu["name"] for gpu in gpus()) or None,
        "mirror": str(Places.from_environment().mirror or "") or None,
    }
    return {"machine": machine, "solvers": solvers, "extras": [_extra(*extra) for extra in EXTRAS]}


def _extra(name: str, module: str, purpose: str, command: str) -> dict[str, Any]:
    found = importlib.util.find_spec(module) is not None
    try:
        version = metadata.version(module) if found else None
    except metadata.PackageNotFoundError:
        version = None
    return {
        "extra": name,
        "installed": found,
        "version": version,
        "for": purpose,
        "fix": None if found else command,
    }

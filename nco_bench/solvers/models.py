"""The models: a lazy table, name -> where its code is and what is known about it. Importing it imports no torch.

To add a path model, write one file with ``config_for(name, problem)``, ``build(config, logit_scale)`` and, where official
checkpoints exist, ``from_official(state)``; then add a line to `PATH_MODELS`.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nco_bench.errors import BadInputError, BadWeightsError, UnknownNameError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from nco_bench.nn.logit_scale import LogitScale


@dataclass(frozen=True)
class ModelEntry:
    """What is known about a model without loading it.

    Attributes
    ----------
    module
        The Python module that holds it.
    problems
        ``tsp``, ``cvrp``.
    paper, venue
        Where it was published.
    parameters
        Published number of parameters per problem, as exactly as the paper or its code gives it; of PENS, which prints two
        different ones, that of our network (see its note).
    repository
        Official code, or an empty string where none is public.
    note
        What a reader of a table should know about it.
    glimpse
        Whether a decoder attends to what the encoder made, so that a logit scale can act on the one or the other.
    """

    module: str
    problems: tuple[str, ...]
    paper: str
    venue: str
    parameters: Mapping[str, int] = field(default_factory=dict)
    repository: str = ""
    note: str = ""
    glimpse: bool = False


_LEHD = "Neural Combinatorial Optimization with Heavy Decoder: Toward Large Scale Generalization"
_BQ = "BQ-NCO: Bisimulation Quotienting for Efficient Neural Combinatorial Optimization"
_SIGD = "Self-Improvement for Neural Combinatorial Optimization: Sample Without Replacement, but Improvement"
_SIT = "Boosting Neural Combinatorial Optimization for Large-Scale Vehicle Routing Problems"
_PENS = "Solving the Traveling Salesman Problem with Positional Encoding"
_SCALING = "Efficient Decoder Scaling Strategy for Neural Routing Solvers"
_ESF = "Improving generalization of neural vehicle routing problem solvers through the lens of model architecture"
_PENS_NOTE = (
    "nine layers without an output projection W_O, the only reading of Sections 3.2, 4.3 and 5.1 with their 2.8M parameters "
    "(Table 4 prints 2.7M); with model.output_projection=true, as the shipped weights were trained, 3,174,336"
)

# Table 1 of the decoder scaling paper, in millions.
_TABLE_1 = {
    "6x128": 1.32, "12x128": 2.60, "24x128": 5.17, "42x128": 9.02,
    "6x256": 5.26, "12x256": 10.38, "24x256": 20.62, "42x256": 36.00,
    "6x512": 21.00, "12x512": 41.46, "24x512": 82.40, "42x512": 143.80,
}  # fmt: skip


def _decoder(parameters: Mapping[str, int]) -> ModelEntry:
    return ModelEntry("nco_bench.solvers.path.decoder_only", ("tsp",), _SCALING, "preprint 2026", parameters)


def _pens(parameters: int = 2_842_560) -> ModelEntry:
    return ModelEntry(
        "nco_bench.solvers.path.pens",
        ("tsp",),
        _PENS,
        "ICLR 2026 submission",
        {"tsp": parameters},
        note=_PENS_NOTE,
    )


PATH_MODELS: dict[str, ModelEntry] = {
    "lehd": ModelEntry(
        "nco_bench.solvers.path.lehd",
        ("tsp", "cvrp"),
        _LEHD,
        "NeurIPS 2023",
        {"tsp": 1_431_681, "cvrp": 1_415_682},
        "CIAM-Group/NCO_code",
        "the published TSP count includes 16,512 parameters that are never used and are left out here",
    ),
    "lehd-24x64": ModelEntry(
        "nco_bench.solvers.path.lehd", ("tsp", "cvrp"), _SCALING, "preprint 2026", {"tsp": 1_250_000}
    ),
    "bq": ModelEntry(
        "nco_bench.solvers.path.bq",
        ("tsp", "cvrp"),
        _BQ,
        "NeurIPS 2023",
        {"tsp": 3_107_539, "cvrp": 3_108_116},
        "naver/bq-nco",
    ),
    "bq-esf": ModelEntry(
        "nco_bench.solvers.path.bq",
        ("tsp", "cvrp"),
        _ESF,
        "Neural Networks 2025",
        {"tsp": 3_107_539, "cvrp": 3_108_116},
        "naver/bq-nco",
        "weights of bq; attention logits times log_100 of the current number of tokens",
    ),
    "sigd": ModelEntry(
        "nco_bench.solvers.path.sigd",
        ("tsp", "cvrp"),
        _SIGD,
        "TMLR 2024",
        {"tsp": 1_780_618, "cvrp": 3_111_563},
        "grimmlab/gumbeldore",
    ),
    "sigd-lehd": ModelEntry(
        "nco_bench.solvers.path.sigd",
        ("tsp", "cvrp"),
        _SIGD,
        "TMLR 2024",
        repository="grimmlab/gumbeldore",
        note="the LEHD-style network of the SIGD paper",
    ),
    "sit": ModelEntry(
        "nco_bench.solvers.path.sit",
        ("tsp", "cvrp"),
        _SIT,
        "ICLR 2025",
        {"tsp": 2_633_217, "cvrp": 2_635_522},
        "CIAM-Group/SIL",
    ),
    "pens-a": _pens(),
    "pens-r": _pens(),
    "pens-ar": _pens(),
    "coordns": _pens(2_842_944),
    **{f"decoder-{size}": _decoder({"tsp": round(count * 1e6)}) for size, count in _TABLE_1.items()},
    "decoder-24x64": _decoder({}),
    "decoder-96x32": _decoder({}),
}


def entry(name: str) -> ModelEntry:
    """Return what is known about a path model or an encode-once model; raises `UnknownNameError`."""
    from nco_bench.solvers.divide.models import DIVIDE_MODELS
    from nco_bench.solvers.edges.models import EDGE_MAP_MODELS
    from nco_bench.solvers.packing.models import PACKING_MODELS
    from nco_bench.solvers.stepwise.local_models import LOCAL_VIEW_MODELS
    from nco_bench.solvers.stepwise.models import ENCODE_ONCE_MODELS

    known = (
        PATH_MODELS
        | ENCODE_ONCE_MODELS
        | LOCAL_VIEW_MODELS
        | DIVIDE_MODELS
        | PACKING_MODELS
        | EDGE_MAP_MODELS
    )
    if name not in known:
        raise UnknownNameError("model", name, known, "See `nco-bench list models`.")
    return known[name]


def model_config(name: str, problem: str | None = None, /, **overrides: Any) -> Any:
    """Return the frozen configuration of a model, with some fields replaced.

    The problem is ``tsp`` where neither the argument nor the overrides, which may be a stored configuration, say it.

    Raises
    ------
    UnknownNameError
        For a model, a problem that the model cannot solve, or a field that its configuration lacks.
    """
    known = entry(name)
    problem = problem or overrides.get("problem", "tsp")
    if problem not in known.problems:
        raise UnknownNameError(f"problem of {name}", problem, known.problems)
    config = importlib.import_module(known.module).config_for(name, problem)
    fields = {f.name: f for f in dataclasses.fields(config)}
    for key, value in overrides.items():
        if key not in fields:
            raise UnknownNameError(f"option of {name}", key, fields)
        expected = type(getattr(config, key))
        if not isinstance(value, expected) and not (expected is float and isinstance(value, int)):
            raise BadInputError(f"{name}: option {key} is {value!r}, expected {expected.__name__}.")
    return dataclasses.replace(config, **overrides)


def build_path_policy(
    name: str, problem: str | None = None, /, *, logit_scale: str | LogitScale | None = None, **overrides: Any
) -> nn.Module:
    """Build a path policy with fresh weights, in evaluation mode.

    Parameters
    ----------
    name
        A key of `PATH_MODELS`.
    problem
        ``tsp`` or ``cvrp``; that of the overrides, else ``tsp``, where it is None.
    logit_scale
        Name of a scale, as `nco_bench.nn.logit_scale.logit_scale` takes it, or the scale itself; None is the
        model's own.
    overrides
        Fields of the model's configuration.

    Raises
    ------
    UnknownNameError
        For an unknown model, problem, scale or option.
    """
    config = model_config(name, problem, **overrides)
    if isinstance(logit_scale, str):
        from nco_bench.nn.logit_scale import logit_scale as scale_called
        from nco_bench.nn.logit_scale import resolved

        logit_scale = scale_called(resolved(logit_scale, glimpse=entry(name).glimpse, model=name))
    return importlib.import_module(entry(name).module).build(config, logit_scale).eval()


def count_parameters(policy: nn.Module) -> int:
    """Return the number of trainable values of a model."""
    return sum(parameter.numel() for parameter in policy.parameters())


def load_official(policy: nn.Module, name: str, state: dict[str, Tensor], source: str = "state dict") -> None:
    """Load an official state dict into a policy of ours, through the model's `from_official`.

    Raises
    ------
    BadWeightsError
        If the model has no official weights, or a key is missing, left over or of another shape.
    """
    module = importlib.import_module(entry(name).module)
    if not hasattr(module, "from_official"):
        raise BadWeightsError(
            f"{source}: there are no official weights of {name}, its paper has no public code."
        )
    try:
        policy.load_state_dict(module.from_official(state))
    except KeyError as error:
        raise BadWeightsError(
            f"{source}: not official weights of {name}, {error.args[0]} is missing."
        ) from None
    except RuntimeError as error:
        cause = " ".join(str(error).split()[:40])
        raise BadWeightsError(f"{source}: does not fit {name} of this configuration: {cause}") from None

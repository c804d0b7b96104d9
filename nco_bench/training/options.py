"""``--config KEY=VALUE``: texts become values of their field's type; ``model.KEY`` belongs to the model's configuration."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nco_bench.cards import network_card, weights_owner
from nco_bench.errors import BadInputError
from nco_bench.settings import pairs, parse

FILES = (".toml", ".json", ".yaml", ".yml")
"""How a file ends that somebody may take for ``--config``."""
MODEL_PREFIX = "model."
"""Of ``--config`` keys that belong to the model's configuration, such as ``model.initialisation=zero``."""


def given_options(texts: Sequence[str]) -> dict[str, str]:
    """Read what ``--config`` gives, one ``KEY=VALUE`` each.

    Raises
    ------
    BadInputError
        For anything else, such as a file of options, and a key that is given twice.
    """
    for text in texts:
        if not text.strip():
            raise BadInputError("--config is empty; give KEY=VALUE, such as lr=1e-3, or leave --config out.")
        if "=" not in text and (text.endswith(FILES) or Path(text).exists()):
            raise BadInputError(
                f"--config {text}: options are KEY=VALUE, such as lr=1e-3, one --config each; a file of recipes is "
                "trained by --campaign FILE."
            )
    return pairs("--config", texts)


def model_options(config: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Split ``--config`` values: those of the recipe, and those of the model (``model.KEY``, the prefix taken off).

    Raises
    ------
    BadInputError
        For a key without a value.
    """
    for key, value in config.items():
        if not value.strip():
            raise BadInputError(
                f"--config {key}= has no value; give one, or leave {key} out to keep the recipe's."
            )
    model = {k.removeprefix(MODEL_PREFIX): v for k, v in config.items() if k.startswith(MODEL_PREFIX)}
    return {k: v for k, v in config.items() if not k.startswith(MODEL_PREFIX)}, model


def checked_options(
    defaults: Any, options: Mapping[str, str], decided: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Parse options of a model by the types of its configuration's fields; unknown keys stay texts for it to refuse.

    Parameters
    ----------
    defaults
        The model's configuration.
    options
        ``KEY=VALUE`` without the prefix.
    decided
        Fields that the recipe or the command decides, and how they are set there.

    Raises
    ------
    BadInputError
        For a value of the wrong type, sizes below 1, heads that do not divide the width, and fields decided elsewhere.
    """
    for key in options:
        if decided is not None and key in decided:
            raise BadInputError(f"--config {MODEL_PREFIX}{key}: choose it with {decided[key]}.")
    kinds = {f.name: type(getattr(defaults, f.name)) for f in dataclasses.fields(defaults)}
    parsed = {k: parsed_text(MODEL_PREFIX + k, v, kinds.get(k, str)) for k, v in options.items()}
    for key, value in parsed.items():
        if kinds.get(key) is int and value < 1:
            raise BadInputError(f"--config {MODEL_PREFIX}{key}={value}: expected 1 or more.")
    sizes = {k: parsed.get(k, getattr(defaults, k, 1)) for k in ("width", "heads")}
    if "head_dim" not in kinds and sizes["width"] % sizes["heads"]:
        raise BadInputError(
            f"--config {MODEL_PREFIX}width={sizes['width']} {MODEL_PREFIX}heads={sizes['heads']}: "
            "expected a width that the heads divide."
        )
    return parsed


def refuse_own_name(weights: Path, model: str, options: Mapping[str, str], way_out: str = "") -> None:
    """Refuse to call a network of other sizes or choices as the model's own weights are called.

    Runs take weights of those names where none are named, and tables say nothing of them.

    Parameters
    ----------
    weights
        The file to write.
    model, options
        What is trained; options that say what is so anyway make no other network.
    way_out
        How another name is given; ``--out`` where it is empty.

    Raises
    ------
    BadInputError
        Also for what `checked_options` refuses.
    """
    from nco_bench.nn.build import model_config  # with the network, torch

    known, owner = network_card(model), weights_owner(model)
    own = {
        name + end for name in (model, owner) for end in ("", *(f"-{problem}" for problem in known.problems))
    }
    if not options or weights.stem not in own:
        return
    defaults = model_config(model, known.problems[0])
    for key, value in checked_options(defaults, options).items():
        if getattr(defaults, key, value) != value:
            told = weights.with_stem(f"{weights.stem}-{key}-{options[key]}")
            raise BadInputError(
                f"--config {MODEL_PREFIX}{key}={options[key]}: makes another network than {model}, whose own weights are "
                f"called {weights.stem}; {way_out or f'name it otherwise, such as --out {told}'}."
            )


def prefixed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a model as a run's identity holds them."""
    return {MODEL_PREFIX + key: value for key, value in options.items()}


def parsed_text(key: str, text: str, kind: type) -> Any:
    """Return a text as a value of a type; raises `BadInputError`, naming the key."""
    return parse(f"--config {key}", text, kind)

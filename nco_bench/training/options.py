"""``--config KEY=VALUE``: texts become values of their field's type; ``model.KEY`` belongs to the model's configuration."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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


def prefixed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a model as a run's identity holds them."""
    return {MODEL_PREFIX + key: value for key, value in options.items()}


def parsed_text(key: str, text: str, kind: type) -> Any:
    """Return a text as a value of a type; raises `BadInputError`, naming the key."""
    return parse(f"--config {key}", text, kind)

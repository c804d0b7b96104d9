"""The table of path models: published parameter counts, options, mistakes."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from nco_bench.cards import networks
from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.nn.build import build_path_policy, count_parameters, model_config

PATH_MODELS = {name: card for name, card in networks().items() if card.family == "path"}
# Table 1 of the decoder scaling paper in millions, but for two last digits: its own layer formula gives 35.99 and 143.81.
TABLE_1 = {
    "6x128": 1.32, "12x128": 2.60, "24x128": 5.17, "42x128": 9.02,
    "6x256": 5.26, "12x256": 10.38, "24x256": 20.62, "42x256": 35.99,
    "6x512": 21.00, "12x512": 41.46, "24x512": 82.40, "42x512": 143.81,
}  # fmt: skip


@pytest.mark.parametrize(("size", "millions"), TABLE_1.items())
def test_decoders_have_the_published_number_of_parameters(size: str, millions: float) -> None:
    with torch.device("meta"):
        policy = build_path_policy(f"decoder-{size}")
    assert round(count_parameters(policy) / 1e6, 2) == millions


@pytest.mark.parametrize(
    ("name", "problem", "count"),
    [
        (
            "lehd",
            "tsp",
            1_431_681 - 128 * 129,
        ),  # without the linear map k_1 that the official code never uses
        ("lehd", "cvrp", 1_415_682),
        ("bq", "tsp", 3_107_539),
        ("bq", "cvrp", 3_108_116),
        ("sigd", "tsp", 1_780_618),
        ("sigd", "cvrp", 3_111_563),
        ("sit", "tsp", 2_633_217),
        ("sit", "cvrp", 2_635_522),
    ],
)
def test_models_have_the_official_number_of_parameters(name: str, problem: str, count: int) -> None:
    assert count_parameters(build_path_policy(name, problem)) == count


def test_deep_narrow_lehd_is_rounded_as_in_its_paper() -> None:
    assert round(count_parameters(build_path_policy("lehd-24x64")) / 1e6, 2) == 1.25


@pytest.mark.parametrize("name", ["pens-a", "pens-r", "pens-ar", "coordns"])
def test_pens_has_nine_layers_and_the_2_8_million_parameters_of_section_5_1(name: str) -> None:
    """By hand, width 192 and hidden width 512, no W_O: nine of (W_q, W_k, W_v, two feed-forward maps, two norms), then
    e_o and e_d, a norm and the output layer's two maps; CoordNS embeds two coordinates."""
    layer = 3 * 192**2 + 2 * 192 * 512 + 2 * 192
    by_hand = 9 * layer + 2 * 192 + 192 + 2 * 192**2 + (2 * 192 if name == "coordns" else 0)
    count = count_parameters(build_path_policy(name))
    assert count == by_hand == PATH_MODELS[name].parameters["tsp"]
    assert round(count / 1e6, 1) == 2.8


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"output_projection": True}, 3_174_336),
        ({"output_projection": True, "layers": 8}, 2_829_888),  # the other reading that makes 2.8M
    ],
)
def test_other_readings_of_pens_are_options(options: dict, count: int) -> None:
    assert count_parameters(build_path_policy("pens-a", **options)) == count


def test_every_model_of_the_table_has_a_configuration() -> None:
    for name, entry in PATH_MODELS.items():
        for problem in entry.problems:
            assert model_config(name, problem).training_size in (100, 1000)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("lehdd",), {}, "Did you mean 'lehd'"),
        (("pens-a", "cvrp"), {}, "Known: tsp"),
        (("bq",), {"logit_scale": "smax"}, "Did you mean 'ssmax'"),
        (("bq",), {"with_layers": 3}, "option of bq 'with_layers'"),
    ],
)
def test_unknown_names_are_named(arguments: tuple[str, ...], options: dict, message: str) -> None:
    with pytest.raises(UnknownNameError, match=message):
        build_path_policy(*arguments, **options)


def test_an_option_of_the_wrong_kind_is_named() -> None:
    with pytest.raises(BadInputError, match="option layers is 'many', expected int"):
        build_path_policy("bq", layers="many")


@pytest.mark.parametrize(("name", "problem"), [(n, p) for n, e in PATH_MODELS.items() for p in e.problems])
def test_a_stored_configuration_builds_its_model_again(name: str, problem: str) -> None:
    """As solvers build it from a manifest: LEHD's, BQ's and SIT's configurations hold the problem themselves."""
    config = model_config(name, problem)
    assert model_config(name, problem, **dataclasses.asdict(config)) == config
    if hasattr(config, "problem"):
        assert model_config(name, **dataclasses.asdict(config)) == config

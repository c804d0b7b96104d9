"""Parity of the networks for algorithmic tasks with the Tropical Attention repository."""

from __future__ import annotations

import torch
from torch import Tensor

from nco_bench.errors import BadInputError
from nco_bench.parity.fixture import Checks, Fixture, ParityResult, result
from nco_bench.solvers.sequences.softmax import adaptive_softmax
from nco_bench.solvers.sequences.task_networks import EncoderLayer, TaskNetwork, TaskNetworkConfig
from nco_bench.solvers.sequences.tropical import VARIANTS as TRAINED
from nco_bench.solvers.sequences.tropical import TropicalAttention, TropicalOptions

VARIANTS = {
    "tropical": TRAINED[""],
    "tropical-qkv": TRAINED["qkv"],
    "tropical-norm": TropicalOptions(learned_shift=True),
    "tropical-asym": TropicalOptions(symmetric=False),
    "tropical-noproj": TropicalOptions(projections=False),
}
"""What the fixtures call the variants of tropical attention."""

OURS = (
    ("input_linear.", "embed."),
    ("output_linear.", "readout."),
    ("encoder.", ""),
    (".attn.lambda_param", ".attention.shift"),
    (".attn.query_trop.W", ".attention.tropical_query"),
    (".attn.key_trop.W", ".attention.tropical_key"),
    (".attn.value_trop.W", ".attention.tropical_value"),
    (".attn.query_linear.", ".attention.query."),
    (".attn.key_linear.", ".attention.key."),
    (".attn.value_linear.", ".attention.value."),
    (".attn.", ".attention."),
    (".ff.", ".feed_forward."),
)
"""Official parts of keys and ours, replaced in this order."""


def official_to_ours(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename the tensors of an official checkpoint."""
    renamed = {}
    for key, value in state.items():
        for theirs, ours in OURS:
            key = key.replace(theirs, ours)
        renamed[key] = value
    return renamed


def check(fixture: Fixture) -> ParityResult:
    """Compare embeddings, attention outputs, scores, layers and outputs; or adaptive softmax alone."""
    checks = Checks()
    with torch.no_grad():
        if fixture.has("state_dict"):
            network = _network(fixture)
            for size in fixture.groups(r"n\d+"):
                _compare(fixture, network, size, checks)
            if "unique_parameters" in fixture.meta:
                count = torch.tensor(sum(p.numel() for p in network.parameters()))
                checks.same("parameters", count, torch.tensor(fixture.fact("unique_parameters")))
        else:
            for size in fixture.groups(r"n\d+"):
                ours = adaptive_softmax(fixture.input(f"{size}.logits"))
                checks.close(f"{size}.probs", ours, fixture.wanted(f"{size}.probs"))
    return result(fixture, str(fixture.meta.get("attention", "adaptive-softmax")), "tasks", checks)


def _network(fixture: Fixture) -> TaskNetwork:
    attention = str(fixture.meta.get("attention"))
    if attention not in VARIANTS and attention not in ("vanilla", "adaptive"):
        raise BadInputError(f"{fixture.path.with_suffix('.json')}: unknown attention {attention!r}.")
    config = TaskNetworkConfig(
        features=fixture.option("input_dim"),
        pooled=fixture.option("pool_mean"),
        attention="tropical" if attention in VARIANTS else attention,
        width=fixture.option("d_model"),
        heads=fixture.option("n_heads"),
        layers=fixture.option("num_layers"),
        pre_norm=fixture.option("pre_norm"),
        outputs=fixture.option("output_dim"),
        tropical=VARIANTS.get(attention, TropicalOptions()),
    )
    network = TaskNetwork(config).eval()
    network.load_state_dict(official_to_ours(fixture.state_dict))
    return network


def _compare(fixture: Fixture, network: TaskNetwork, size: str, checks: Checks) -> None:
    x = fixture.input(f"{size}.x")
    h = network.embed(x)
    checks.close(f"{size}.embedded", h, fixture.wanted(f"{size}.embedded"))
    for index, layer in enumerate(network.layers):
        assert isinstance(layer, EncoderLayer)
        name = f"{size}.layer{index}"
        seen = layer.attention_input(h)
        checks.close(f"{name}.attn", layer.attention(seen), fixture.wanted(f"{name}.attn"))
        if fixture.has(f"expected.{name}.attn_scores"):
            assert isinstance(layer.attention, TropicalAttention)
            scores = layer.attention.weights(seen).flatten(0, 1)
            checks.close(f"{name}.attn_scores", scores, fixture.wanted(f"{name}.attn_scores"))
        h = layer(h)
        checks.close(f"{name}.block", h, fixture.wanted(f"{name}.block"))
    expected = fixture.wanted(f"{size}.output")
    if expected is not None:
        checks.close(f"{size}.output", network(x).view_as(expected), expected)

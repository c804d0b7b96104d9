"""Numbers of the papers' text: what their own tables give, and what our networks show."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from nco_bench.papers.claims_measured import attention_inputs, divergence_from_normal  # noqa: E402
from nco_bench.papers.decoder_scaling.claims import claims_of_decoder_scaling  # noqa: E402
from nco_bench.papers.published import load_table  # noqa: E402


def test_text_and_tables_of_decoder_scaling_agree_but_where_the_text_cuts_digits_off() -> None:
    """2.2667 / 0.4785 = 4.737, printed 4.73; 1 - 0.576 / 2.172 = 73.48 %, printed 73.4; both not rounded."""
    table = load_table("decoder-scaling", "text")
    found = claims_of_decoder_scaling(table, "smoke")
    assert set(found) == {(cell.row, cell.column) for cell in table.cells}
    differs = {key for key, (_, verdict) in found.items() if verdict.status != "agrees"}
    cut = {
        ("RRC 1000 over greedy on TSP1000 (Table 19), baseline", "D=6, W=128"),
        ("D=42, W=512 for D=6, W=128 (Table 5), TSP1000", "Improvement"),
    }
    assert differs - {key for key in differs if "Figure 4" in key[0]} == cut
    keys = [("4a", "D=6, W=128"), ("4a", "D=6, W=512"), ("4b", "D=42, W=128")]
    exponents = [found[f"Figure {figure}, exponents", shape][0] for figure, shape in keys]
    # The text prints 0.82, 1.34 and 1.71; NumPy's polyfit of the logarithms of Table 18 gives these.
    assert exponents == pytest.approx([1.055, 1.365, 1.655], abs=5e-4)
    gain, verdict = found["RRC 1000 over greedy on TSP1000 (Table 19), baseline", "D=6, W=128"]
    assert gain == pytest.approx(2.2667 / 0.4785)
    assert verdict.reason == "from the paper's Table 19: 4.737"
    assert found["Models better than a larger one", "Count"][0] == 6
    assert found["log(n) on TSP1000 (Table 8)", "D=6, W=512"][0] == pytest.approx(100 * (1 - 1.504 / 2.239))


def test_divergence_from_the_normal_distribution() -> None:
    """Nothing for normal draws, ln 2 for what lies where a normal value hardly ever is; shifts by 1: a known value.

    For N(1, 1) against N(0, 1) the divergence is 0.1114 nats (integral of the definition, by SciPy's quad).
    """
    rng = np.random.default_rng(5)
    values = np.stack(
        [rng.standard_normal(200_000), rng.standard_normal(200_000) + 1, np.full(200_000, 4.95)], axis=1
    )
    found = divergence_from_normal(values)
    assert found[0] < 1e-4
    assert found[1] == pytest.approx(0.1114, abs=2e-3)
    assert found[2] == pytest.approx(np.log(2), abs=1e-5)


def test_inputs_of_attention_are_normalised_behind_the_first_layer() -> None:
    from nco_bench.nn.build import build_path_policy

    policy = build_path_policy("am", normalization="layer", centred=True)
    first, *others = attention_inputs(policy, torch.rand(3, 20, 2))
    assert first.shape == (3, 20, 128)
    assert len(others) == 2
    for x in others:  # LayerNorm with fresh weights: mean 0 and deviation 1 per node
        torch.testing.assert_close(x.mean(dim=2), torch.zeros(3, 20), atol=1e-5, rtol=0)
        torch.testing.assert_close(x.std(dim=2, correction=0), torch.ones(3, 20), atol=1e-3, rtol=0)

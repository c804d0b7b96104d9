"""Make fixtures of the networks for algorithmic tasks from the authors' code: embeddings, attention, blocks, outputs.

git clone https://github.com/Baran-phys/Tropical-Attention
python tools/parity/make_tropical.py --official Tropical-Attention --out parity
nco-bench parity parity/tropical-*.safetensors
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from making import arguments, import_from, scatter, write_fixture
from torch import Tensor

REPOSITORY = "Baran-phys/Tropical-Attention"
COMMIT = "e3c12f3e7c401245b9b5577d7181922b0150efc6"
FEATURES, WIDTH, HEADS, SEED = 3, 16, 2, 1400
LENGTHS = (6, 13)
NETWORKS: dict[str, dict[str, Any]] = {
    "tropical": {}, "tropical-norm": {}, "tropical-asym": {}, "tropical-noproj": {}, "tropical-qkv": {},
    "adaptive": {"aggregator": "adaptive"}, "vanilla": {},
    "tropical-pool-prenorm": {"pool": True, "pre_norm": True, "num_layers": 1},
    "vanilla-pool-prenorm": {"pool": True, "pre_norm": True, "num_layers": 2},
}  # fmt: skip
"""Name of a fixture -> arguments of the official model beyond its attention."""


def main() -> None:
    options = arguments(__doc__)
    os.environ["TROPICAL_ATTENTION_MAXPLUS_BACKEND"] = "torch"  # the reference, not a compiled extension
    import_from(options.official, options.official, COMMIT, any_commit=options.any_commit)
    for name in NETWORKS:
        make(name, options.out)


def make(name: str, out: Path) -> None:
    """Make the fixture of one network."""
    kind = name.removesuffix("-pool-prenorm")
    model = network(name, kind)
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    inputs: dict[str, Tensor] = {}
    expected: dict[str, Tensor] = {}
    generator = torch.Generator().manual_seed(SEED)
    for length in LENGTHS:
        x = torch.randn(3, length, FEATURES, generator=generator) * 2
        inputs[f"n{length}.x"] = x
        expected |= {f"n{length}.{key}": value for key, value in seen(model, x).items()}
    settings = NETWORKS[name]
    facts = {
        "model": "tropical", "fixture": f"tropical-{name}", "attention": kind, "official_repo": REPOSITORY, "commit": COMMIT,
        "config": {
            "input_dim": FEATURES, "d_model": WIDTH, "n_heads": HEADS, "num_layers": settings.get("num_layers", 1),
            "pool_mean": settings.get("pool", False), "pre_norm": settings.get("pre_norm", False), "output_dim": 1,
        },
        "unique_parameters": sum(p.numel() for p in model.parameters()), "seed": SEED, "torch": torch.__version__,
    }  # fmt: skip
    write_fixture(out, f"tropical-{name}", weights, inputs, expected, facts)


def network(name: str, kind: str) -> Any:
    """Build a small official network with random weights."""
    from models import SimpleTransformerModel

    torch.manual_seed(SEED)
    tropical = kind.startswith("tropical")
    given = {"tropical_attention_cls": attention(kind)} if tropical else {}
    model = SimpleTransformerModel(
        FEATURES, WIDTH, HEADS, tropical=tropical, classification=True, **given, **NETWORKS[name]
    )
    scatter(model, SEED)
    generator = torch.Generator().manual_seed(SEED)
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.weight.data.uniform_(0.6, 1.4, generator=generator)
    return model.eval()


def attention(kind: str) -> Any:
    """Build tropical attention: of the paper's module, or of the repository's models file (with linear maps)."""
    if kind == "tropical-qkv":
        from models import TropicalAttention as Mapped

        return Mapped(WIDTH, HEADS, torch.device("cpu"))
    from TropicalAttention import TropicalAttention

    made = TropicalAttention(
        WIDTH, HEADS, torch.device("cpu"), tropical_proj=kind != "tropical-noproj",
        tropical_norm=kind == "tropical-norm", symmetric=kind != "tropical-asym",
    )  # fmt: skip
    if kind == "tropical-norm":
        made.lambda_param.data.uniform_(0.5, 1.5, generator=torch.Generator().manual_seed(SEED))
    return made


def seen(model: Any, x: Tensor) -> dict[str, Tensor]:
    """Run the model; note the embedding, each layer's attention (with its scores where it gives them) and block."""
    out: dict[str, Tensor] = {}

    def note(name: str, value: Any) -> None:
        if isinstance(value, tuple):
            value, out[f"{name}_scores"] = value
        out[name] = value

    watched = {"embedded": model.input_linear}
    for index, layer in enumerate(model.encoder.layers):
        watched |= {f"layer{index}.attn": layer.attn, f"layer{index}.block": layer}
    hooks = [
        m.register_forward_hook(lambda _m, _g, o, name=name: note(name, o)) for name, m in watched.items()
    ]
    with torch.no_grad():
        out["output"] = model(x)
    for hook in hooks:
        hook.remove()
    return out


if __name__ == "__main__":
    main()

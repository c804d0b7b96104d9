"""Names of INViT's official weights (Kasumigaoka-Utaha/INViT) in ours."""

from __future__ import annotations

import re

import torch
from torch import Tensor

OFFICIAL = (
    (r"^decoder\.decoder_layers\.(\d+)\.W0_att\.", r"decoder.\1.out."),
    (r"^decoder\.decoder_layers\.(\d+)\.Wq_att\.", r"decoder.\1.query."),
    (r"^decoder\.decoder_layers\.(\d+)\.W1_MLP\.", r"decoder.\1.inner."),
    (r"^decoder\.decoder_layers\.(\d+)\.W2_MLP\.", r"decoder.\1.outer."),
    (r"^decoder\.decoder_layers\.(\d+)\.BN_att\.", r"decoder.\1.norm_attention."),
    (r"^decoder\.decoder_layers\.(\d+)\.BN_MLP\.", r"decoder.\1.norm."),
    (r"^decoder\.Wq_final\.", "pointer."),
    (r"^WK_att_decoder\.", "keys."),
    (r"^WV_att_decoder\.", "values."),
    (r"^query_mlp\.", "query."),
    (r"^action_encoder\.", "action."),
    (r"^state_encoders\.", "states."),
    (r"\.input_emb\.", ".embed."),
    (r"\.input_emb_for_last\.", ".embed_last."),
    (r"\.input_emb_for_first\.", ".embed_end."),
    (r"\.encoder\.MHA_layers\.(\d+)\.w_qs\.", r".layers.\1.query."),
    (r"\.encoder\.MHA_layers\.(\d+)\.keys_values\.", r".layers.\1.keys_values."),
    (r"\.encoder\.MHA_layers\.(\d+)\.fc\.", r".layers.\1.out."),
    (r"\.encoder\.MHA_layers\.(\d+)\.layer_norm\.", r".layers.\1.norm_attention."),
    (r"\.encoder\.linear1_layers\.(\d+)\.", r".layers.\1.inner."),
    (r"\.encoder\.linear2_layers\.(\d+)\.", r".layers.\1.outer."),
    (r"\.encoder\.norm1_layers\.(\d+)\.", r".layers.\1.norm_sum."),
    (r"\.encoder\.norm2_layers\.(\d+)\.", r".layers.\1.norm."),
)
"""Parts of official names and of ours."""


def from_official(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Translate a state dict of Kasumigaoka-Utaha/INViT; unknown keys stay as they are."""
    left = dict(state)
    for key in [key for key in left if key.endswith(".w_ks.weight")]:
        stem = key.removesuffix("w_ks.weight")
        joined = torch.cat([left.pop(key), left.pop(f"{stem}w_vs.weight")])
        left[f"{stem}keys_values.weight"] = joined
    ours = {}
    for key, value in left.items():
        for pattern, name in OFFICIAL:
            key = re.sub(pattern, name, key)
        ours[key] = value
    return ours

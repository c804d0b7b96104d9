"""PENS and CoordNS, "Solving the Traveling Salesman Problem with Positional Encoding" (2025), for the Euclidean TSP.

A pre-norm transformer over the nodes of the path problem. PENS starts from random Gaussian node vectors and learns the
geometry through the attention only: ALiBi on distances (PENS-A), axial RoPE on coordinates (PENS-R), or both (PENS-AR).
CoordNS is the same network on linearly embedded coordinates. All use scalable softmax (SSMax), in every self-attention
and not in the output layer.

The paper has no public code. What it leaves open is chosen as follows, and the configuration changes most of it:

- Its attention has no output projection W_O (`output_projection`). Section 5.1 has "9 transformer layers" and "a total of
  2.8M learnable parameters"; with W_O nine layers make 3,174,336, without it 2,842,560. Eight layers with W_O, the output
  layer counted as the ninth, would make 2,829,888, which prints alike; but Section 4.3 applies the output layer to the
  states "after L layers", the nine are BQ-NCO's, which has its scores on top of them, and W_O occurs nowhere in the paper:
  Section 3.2 names W_q, W_k and W_v as the projections and ends with softmax(...) V. So nine layers without W_O agree
  with every number and formula of the text, though "a standard transformer backbone" (Section 4.3) usually has W_O.
  Table 4's 2.7M agrees with neither, unless it counts in 2^20 (2.71, and 2.70 for eight layers); its 3.1M for BQ-NCO
  (3,107,539) does not. Weights made before this was decided say `output_projection` in their manifests.
- The ALiBi bias is not multiplied by SSMax (`scale_bias`): s q.k / sqrt(K) - m D.
- When origin and destination are the same city, one token carries both marker vectors.
- ReLU between the two feed-forward maps, as in BQ-NCO; no biases; RMSNorm before the output layer.
- Trainable slopes, which the authors tried first and gave up (appendix A.3), are `trainable_slopes`: one per head for all
  layers, from the fixed ones on, never decayed. The regularisation that they needed against slopes of 0 is not given; here
  it is `slope_penalty` times the mean of (1 - m / m_fixed)^2.
- Node vectors are drawn anew at every forward pass (`noise`), as in training; ``solve`` draws them once per solve.
- Tours begin at node 0 in each of the five solves of an instance (Section 5.1), which differ in their node vectors alone.
- TSPLIB's coordinates are shifted to 0 and divided by the longer side, before they are stretched.

Letters in shapes: B batch, N nodes, M candidates, T tokens, W width, H heads, K head width.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from nco_bench.errors import UnknownNameError
from nco_bench.nn.device import on_cpu
from nco_bench.nn.layers import (
    KERNELS,
    attend,
    compiles_attention,
    listened,
    products_bytes,
    scaled,
    split_parts,
    trains_in_bf16,
    works_in_place,
)
from nco_bench.nn.logit_scale import LogitScale, ScaleContext, ssmax
from nco_bench.nn.products import add_product, added, feed_forward, rectified
from nco_bench.solvers.path import pens_geometry
from nco_bench.solvers.path.pens_geometry import (
    Geometry,
    attend_with_distances,
    distances,
    kept_biases,
    rotate,
)
from nco_bench.solvers.path.pens_vectors import gaussian_vectors, mix
from nco_bench.solvers.path.policy import AuxiliaryTokens, PathNodes, PathPolicy, PathState

ROWS_AT_A_TIME = 1024
"""Tokens whose hidden values are held at once where layers work in place: they stay in the processor's cache."""


@dataclass(frozen=True)
class PensConfig:
    """Sizes and choices of PENS (paper, section 5.1); the defaults are PENS-A.

    Attributes
    ----------
    alibi, rope
        Which positional encodings are used; neither makes CoordNS.
    width, heads, ffn, layers
        Embedding width, attention heads (each ``width // heads`` wide), hidden width, number of layers.
    output_projection
        Whether the heads' outputs are mixed by W_O; without it they are only set side by side.
    initialisation
        Node vectors: ``gaussian``, ``zero`` (the ablation) or ``coordinates`` (CoordNS).
    noise
        ``step`` draws Gaussian node vectors anew at every forward pass, ``solve`` once per solve.
    max_slope
        ALiBi slope of the first head; each further head divides by sqrt(2).
    trainable_slopes, slope_penalty
        Whether the slopes are learned, and the weight of the loss that holds them near the fixed ones (appendix A.3).
    scale_bias
        Whether the logit scale also multiplies the ALiBi bias.
    max_frequency, base
        RoPE frequencies per axis: ``max_frequency * base ** (-i / (K / 4))``.
    training_size
        Instance size the weights were trained on, for logit scales.
    """

    alibi: bool = True
    rope: bool = False
    width: int = 192
    heads: int = 12
    ffn: int = 512
    layers: int = 9
    output_projection: bool = False
    initialisation: str = "gaussian"
    noise: str = "step"
    max_slope: float = 10.0
    trainable_slopes: bool = False
    slope_penalty: float = 0.01
    scale_bias: bool = False
    max_frequency: float = 14.0
    base: float = 100.0
    training_size: int = 100

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.width // self.heads


CHOICES = {"initialisation": ("gaussian", "zero", "coordinates"), "noise": ("step", "solve")}
"""Of fields that are words."""


def config_for(name: str, problem: str) -> PensConfig:
    """Return the configuration of ``pens-a``, ``pens-r``, ``pens-ar`` or ``coordns``."""
    if problem != "tsp":
        raise UnknownNameError(f"problem of {name}", problem, ["tsp"])
    if name == "coordns":
        return PensConfig(alibi=False, rope=False, initialisation="coordinates")
    return PensConfig(alibi=name in ("pens-a", "pens-ar"), rope=name in ("pens-r", "pens-ar"))


class Attention(nn.Module):
    """Multi-head self-attention with ALiBi and/or axial RoPE, without biases (section 4)."""

    def __init__(self, config: PensConfig) -> None:
        super().__init__()
        self.heads, self.head_dim = config.heads, config.head_dim
        self.scale_bias = config.scale_bias
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.out = (
            nn.Linear(config.width, config.width, bias=False) if config.output_projection else nn.Identity()
        )

    def forward(self, x: Tensor, geometry: Geometry, scale: float | Tensor) -> Tensor:
        """Mix tokens, ``(B, T, W)`` to ``(B, T, W)``; `scale` is the logit scale (SSMax)."""
        return self.mixed(self.qkv(x), geometry, scale)

    def mixed(self, joined: Tensor, geometry: Geometry, scale: float | Tensor) -> Tensor:
        """Do so with queries, keys and values, ``(B, T, 3 W)``."""
        if geometry.compiled and torch.is_grad_enabled() and isinstance(scale, float):
            from nco_bench.nn import attention_training

            factor = scale / math.sqrt(self.head_dim)
            return self.out(
                attention_training.attend((joined,), self.heads, factor, geometry.slopes, geometry.coords)
            )
        batch, tokens, _ = joined.shape
        query, key, value = split_parts(joined, 3, self.heads)
        query, key = rotate(query, geometry), rotate(key, geometry)
        factor = 1 / math.sqrt(self.head_dim)
        if isinstance(scale, Tensor):
            query = scaled(query, scale)
        else:
            factor *= scale
        slopes = geometry.slopes
        if slopes is not None and self.scale_bias:
            slopes = slopes * scale
        if geometry.compiled and not torch.is_grad_enabled():
            from nco_bench.nn import compiled_attention

            heads = compiled_attention.attend(query, key, value, factor, slopes, geometry.coords)
        elif slopes is None:
            heads = attend(query, key, value, factor, geometry.real)
        else:
            heads = attend_with_distances(query, key, value, slopes, geometry, factor)
        return self.out(heads.transpose(1, 2).reshape(batch, tokens, -1))


def epsilon(norm: nn.RMSNorm, dtype: torch.dtype) -> float:
    """Return what the norm adds to the mean square."""
    return torch.finfo(dtype).eps if norm.eps is None else norm.eps


def normed(x: Tensor, norm: nn.RMSNorm) -> Tensor:
    """Return ``norm(x)`` in few operations, where PyTorch takes six on the CPU and a dozen with the derivative."""
    width = x.shape[-1]
    eps = epsilon(norm, x.dtype)
    if trains_in_bf16(x.device):
        from nco_bench.nn import bf16_training  # runs do without

        return bf16_training.rms_norm(x, norm.weight, eps)
    if not works_in_place(x):
        return norm(x)
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return (x * length.square_().div_(width).add_(eps).rsqrt_()).mul_(norm.weight)


class Layer(nn.Module):
    """X + MHA(norm(X)), then X + FFN(norm(X)), with RMSNorm."""

    def __init__(self, config: PensConfig) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.width)
        self.attention = Attention(config)
        self.ffn_norm = nn.RMSNorm(config.width)
        self.ffn_in = nn.Linear(config.width, config.ffn, bias=False)
        self.ffn_out = nn.Linear(config.ffn, config.width, bias=False)

    def forward(self, x: Tensor, geometry: Geometry, scale: float | Tensor) -> Tensor:
        """Transform tokens, ``(B, T, W)`` to ``(B, T, W)``."""
        if works_in_place(x):
            change = self.attention(normed(x, self.attention_norm), geometry, scale)
            x = change.add_(x)
            parts = x.view(-1, x.shape[2]).split(ROWS_AT_A_TIME)
            for rows in parts:
                hidden = rectified(normed(rows, self.ffn_norm), self.ffn_in.weight)
                if len(parts) == 1:
                    return added(rows, hidden, self.ffn_out.weight, None).view(x.shape)
                add_product(rows, hidden, self.ffn_out.weight)
            return x
        x = x + self.attention(normed(x, self.attention_norm), geometry, scale)
        return x + feed_forward(normed(x, self.ffn_norm), self.ffn_in, self.ffn_out)


class Pens(nn.Module, PathPolicy):
    """The whole policy: random node vectors, `layers` layers, scores (x_o W_q).(x_c W_k)."""

    problem = "tsp"
    masks = True
    flex: bool = False
    slopes: Tensor
    frequencies: Tensor

    def __init__(self, config: PensConfig, logit_scale: LogitScale = ssmax) -> None:
        super().__init__()
        self.config = config
        self.logit_scale = logit_scale
        self.noise_seeds = torch.zeros(1, dtype=torch.int64)
        self.embedding = (
            nn.Linear(2, config.width, bias=False) if config.initialisation == "coordinates" else None
        )
        # The vectors e_o and e_d are as large as the node vectors they mark, and the first scores are near 0 [our choice]:
        # with smaller marks and PyTorch's default scores training starts at three times the loss of a uniform choice.
        self.origin = nn.Parameter(torch.randn(config.width))
        self.destination = nn.Parameter(torch.randn(config.width))
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.width)
        self.query = nn.Linear(config.width, config.width, bias=False)
        self.key = nn.Linear(config.width, config.width, bias=False)
        with torch.no_grad():
            self.query.weight.mul_(0.1)
        self.fixed_slopes = config.max_slope * 2.0 ** (-torch.arange(config.heads) / 2)
        quarter = max(1, config.head_dim // 4)
        frequencies = config.max_frequency * config.base ** (-torch.arange(quarter) / quarter)
        if config.trainable_slopes and config.alibi:
            self.slopes = nn.Parameter(self.fixed_slopes.clone())
        else:
            self.register_buffer("slopes", self.fixed_slopes, persistent=False)
        self.register_buffer("frequencies", frequencies, persistent=False)

    @property
    def undecayed(self) -> tuple[nn.Parameter, ...]:
        """What an optimiser must not decay: trainable slopes, which weight decay draws to 0 (appendix A.3)."""
        return (self.slopes,) if isinstance(self.slopes, nn.Parameter) else ()

    def penalty(self) -> Tensor | None:
        """Return what is added to the loss for slopes that leave the fixed ones, or None where they are not learned."""
        if not self.undecayed:
            return None
        share = self.slopes / self.fixed_slopes.to(self.slopes)
        return self.config.slope_penalty * ((1 - share) ** 2).mean()

    def reseed(self, seeds: int | Tensor) -> None:
        """Choose the random node vectors of the following solves: one seed for all, or ``(B,)``, one per instance."""
        self.noise_seeds = torch.as_tensor(seeds, dtype=torch.int64).reshape(-1)

    def embed(self, nodes: PathNodes) -> Tensor:
        """Give every node what its vector is made from, ``(B, N, E)``.

        CoordNS: its embedded coordinates. PENS: the key of its random vector, int64 with E = 1, so that vectors stay
        with their nodes when others leave and nothing of size N x W is stored. In evaluation they follow from the seed of
        the instance, so a tour does not depend on the batch that it is solved in (versions and segments of an instance
        share its seed); in training every sample has its own.
        """
        if self.embedding is not None:
            return self.embedding(nodes.coords)
        batch, count, _ = nodes.coords.shape
        device = nodes.coords.device
        if self.training:
            return torch.randint(2**62, (batch, count, 1), device=device)
        seeds = self.noise_seeds.to(device)
        seeds = (
            seeds.repeat_interleave(batch // len(seeds))
            if batch % len(seeds) == 0
            else seeds[:1].expand(batch)
        )
        return mix(mix(seeds + 1)[:, None] ^ mix(torch.arange(1, count + 1, device=device)))[..., None]

    def scores(self, state: PathState) -> Tensor:
        """Score the candidates, ``(B, M)``."""
        x = self._vectors(state)
        coords = state.coords
        if state.closed:  # one city is origin and destination: one token with both vectors
            x, coords = x[:, :-1], coords[:, :-1]
            x = torch.cat([x[:, :1] + self.origin + self.destination, x[:, 1:]], dim=1)
        else:
            x = torch.cat([x[:, :1] + self.origin, x[:, 1:-1], x[:, -1:] + self.destination], dim=1)
        geometry = self._geometry(coords, state.real(1, 0 if state.closed else 1))
        scale = self.factor_at(state)
        x = self.norm(self._through_layers(x, geometry, scale))
        candidates = x[:, 1 : 1 + state.candidates]
        return (self.key(candidates) @ self.query(x[:, 0]).unsqueeze(-1)).squeeze(-1)

    def _through_layers(self, x: Tensor, geometry: Geometry, scale: float | Tensor) -> Tensor:
        quick = KERNELS and works_in_place(x) and x.dtype is torch.float32
        layers = cast("Iterable[Layer]", self.layers)
        if quick and not listened(layers):
            from nco_bench.solvers.path.pens_quick import through

            return through(layers, x, geometry, scale)
        for layer in layers:
            x = layer(x, geometry, scale)
        return x

    def logit_factor(self, candidates: int, instance_size: int, *, closed: bool) -> float | Tensor:
        """Return the logit scale for candidates and ends, which are one token at a tour's first step."""
        tokens, config = candidates + (1 if closed else 2), self.config
        return self.logit_scale(ScaleContext(tokens, instance_size, config.head_dim, config.training_size))

    def auxiliary_tokens(self) -> AuxiliaryTokens:
        """Those of the last layer; origin and destination are one token at a tour's first step."""
        return AuxiliaryTokens(self.layers[-1])

    def _vectors(self, state: PathState) -> Tensor:
        if self.embedding is not None:
            return state.features
        dtype = self.origin.dtype
        if self.config.initialisation == "zero":
            batch, tokens, _ = state.features.shape
            return torch.zeros(batch, tokens, self.config.width, dtype=dtype, device=state.features.device)
        count = state.candidates if state.padding is None else state.padding.count
        step = count if self.config.noise == "step" else 0
        if KERNELS and dtype is torch.float32 and works_in_place(state.features) and isinstance(step, int):
            from nco_bench.solvers.path import pens_quick

            return pens_quick.gaussian_vectors(state.features.squeeze(-1), step, self.config.width)
        return gaussian_vectors(state.features.squeeze(-1), step, self.config.width).to(dtype)

    def _geometry(self, coords: Tensor, real: Tensor | None) -> Geometry:
        slopes, bias, config = None, None, self.config
        compiled = self._compiled(coords, real)
        if config.alibi:
            slopes = self.slopes
            batch, tokens, _ = coords.shape
            limit = pens_geometry.BIAS_BLOCK_BYTES.on(coords.device)
            small = products_bytes(coords.device) * batch * config.heads * tokens**2 <= limit
            if small and not (self.flex or config.scale_bias or compiled):
                bias = kept_biases(distances(coords, coords), slopes)
                bias = bias if real is None else bias.masked_fill(~real, -torch.inf)
        if not self.config.rope:
            return Geometry(coords, slopes, None, None, bias, self.flex, real, compiled)
        # The first half of the rotated pairs turns with x, the second half with y.
        phases = (coords[..., None] * self.frequencies).flatten(2)[:, None]  # (B, 1, T, K / 2)
        return Geometry(coords, slopes, phases.cos(), phases.sin(), bias, self.flex, real, compiled)

    def _compiled(self, coords: Tensor, real: Tensor | None) -> bool:
        """Tell whether compiled loops attend with distances between these tokens, which have no padding."""
        config, tokens = self.config, coords.shape[1]
        if real is not None or self.flex or not config.alibi or self.origin.dtype is not torch.float32:
            return False
        if torch.is_grad_enabled():
            plain = not (config.rope or config.scale_bias or config.trainable_slopes)
            if not (plain and KERNELS and on_cpu(coords.device)):
                return False
            from nco_bench.nn import attention_training

            return attention_training.pays(tokens, config.head_dim)
        if not compiles_attention(coords):
            return False
        from nco_bench.nn.compiled_attention import FEWEST_BIASED, pays

        return pays(tokens, FEWEST_BIASED, config.head_dim)


def build(config: PensConfig, logit_scale: LogitScale | None = None) -> Pens:
    """Build the policy with fresh weights (PyTorch's default initialisation of linear maps)."""
    for key, known in CHOICES.items():
        if getattr(config, key) not in known:
            raise UnknownNameError(f"{key} of PENS", getattr(config, key), known)
    return Pens(config, logit_scale or ssmax)

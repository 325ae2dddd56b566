"""Sizes of the policies this project knows, as frozen configs. One definition covers the Llama-3 and Qwen3 families."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class RopeScaling:
    """Llama 3.1's change of the rotary frequencies, for contexts longer than the pretraining's.

    A pair that turns more than `high_freq_factor` times within the original context keeps its frequency, one that turns
    less than `low_freq_factor` times is slowed down by `factor`, and between the two the change is gradual.

    Attributes:
        factor: how many times slower the slow pairs turn.
        low_freq_factor, high_freq_factor: turns within the original context.
        original_max_position: tokens of the context before the change.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position: int

    def __post_init__(self):
        if self.factor <= 0 or self.original_max_position <= 0:
            raise ValueError(
                f"factor={self.factor} and original_max_position={self.original_max_position} must be positive"
            )
        if not 0 < self.low_freq_factor < self.high_freq_factor:
            raise ValueError(
                f"low_freq_factor={self.low_freq_factor} must be positive and below "
                f"high_freq_factor={self.high_freq_factor}"
            )


DTYPES = ("float32", "bfloat16")


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
    """A decoder-only transformer: RMSNorm, RoPE, grouped-query attention, SwiGLU.

    Attributes:
        vocab_size: rows of the embedding table.
        d_model: width of the residual stream.
        n_layers: blocks.
        n_heads: query heads.
        n_kv_heads: key/value heads; must divide n_heads.
        head_dim: width of a head; n_heads * head_dim need not equal d_model (Qwen3).
        d_ff: hidden width of the gated MLP.
        rope_theta: base of the rotary angles.
        norm_eps: epsilon of every RMSNorm.
        qk_norm: RMSNorm over each query and key head before the rotation (Qwen3).
        tie_embeddings: read logits off the embedding table instead of a separate head.
        rope_scaling: change of the rotary frequencies (Llama 3.1 and later), or None.
        dtype: computation and cache dtype, `float32` or `bfloat16`; parameters keep the dtype they are given in.
    """

    vocab_size: int
    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_ff: int
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-6
    qk_norm: bool = False
    tie_embeddings: bool = True
    rope_scaling: RopeScaling | None = None
    dtype: str = "float32"

    def __post_init__(self):
        if self.n_heads % self.n_kv_heads:
            raise ValueError(f"n_kv_heads={self.n_kv_heads} must divide n_heads={self.n_heads}")
        if self.head_dim % 2:
            raise ValueError(f"head_dim={self.head_dim} must be even: RoPE rotates pairs")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype={self.dtype!r} is not one of {', '.join(DTYPES)}")


def _qwen3(d_model: int, n_layers: int, n_heads: int, d_ff: int, *, tied: bool) -> TransformerConfig:
    """What all dense Qwen3 models have in common."""
    return TransformerConfig(
        vocab_size=151_936, d_model=d_model, n_layers=n_layers, n_heads=n_heads, n_kv_heads=8, head_dim=128, d_ff=d_ff,
        rope_theta=1_000_000.0, norm_eps=1e-6, qk_norm=True, tie_embeddings=tied,
    )  # fmt: skip


def _llama3(
    d_model: int, n_layers: int, n_heads: int, head_dim: int, d_ff: int, *, factor: float, tied: bool
) -> TransformerConfig:
    """What Llama 3.1 and 3.2 have in common."""
    return TransformerConfig(
        vocab_size=128_256, d_model=d_model, n_layers=n_layers, n_heads=n_heads, n_kv_heads=8, head_dim=head_dim,
        d_ff=d_ff, rope_theta=500_000.0, norm_eps=1e-5, tie_embeddings=tied,
        rope_scaling=RopeScaling(factor, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position=8192),
    )  # fmt: skip


def _smollm2(
    d_model: int, n_layers: int, n_heads: int, n_kv_heads: int, d_ff: int, rope_theta: float
) -> TransformerConfig:
    """What the SmolLM2 models have in common; they are Llamas."""
    return TransformerConfig(
        vocab_size=49_152, d_model=d_model, n_layers=n_layers, n_heads=n_heads, n_kv_heads=n_kv_heads, head_dim=64,
        d_ff=d_ff, rope_theta=rope_theta, norm_eps=1e-5, tie_embeddings=True,
    )  # fmt: skip


# The published models' numbers are those of their config.json files.
PRESETS: dict[str, TransformerConfig] = {
    # The embedded policy of the `errands` domain. One key/value head keeps the attention of many short lanes in few,
    # larger matrix products, which is what a CPU wants.
    "errands": TransformerConfig(
        vocab_size=512, d_model=160, n_layers=4, n_heads=5, n_kv_heads=1, head_dim=32, d_ff=448, qk_norm=True
    ),
    "qwen3-0.6b": _qwen3(1024, 28, 16, 3072, tied=True),
    "qwen3-1.7b": _qwen3(2048, 28, 16, 6144, tied=True),
    "qwen3-4b": _qwen3(2560, 36, 32, 9728, tied=True),
    "qwen3-8b": _qwen3(4096, 36, 32, 12_288, tied=False),
    "qwen3-14b": _qwen3(5120, 40, 40, 17_408, tied=False),
    "qwen3-32b": _qwen3(5120, 64, 64, 25_600, tied=False),
    "llama-3.1-8b": _llama3(4096, 32, 32, 128, 14_336, factor=8.0, tied=False),
    # Llama-3.1-Nemotron-Nano-8B-v1 was trained on from Llama-3.1-8B-Instruct and kept its shape.
    "nemotron-nano-8b": _llama3(4096, 32, 32, 128, 14_336, factor=8.0, tied=False),
    "llama-3.2-1b": _llama3(2048, 16, 32, 64, 8192, factor=32.0, tied=True),
    "llama-3.2-3b": _llama3(3072, 28, 24, 128, 8192, factor=32.0, tied=True),
    "smollm2-135m": _smollm2(576, 30, 9, 3, 1536, 100_000.0),
    "smollm2-360m": _smollm2(960, 32, 15, 5, 2560, 100_000.0),
    "smollm2-1.7b": _smollm2(2048, 24, 32, 32, 8192, 130_000.0),
}


def preset(name: str) -> TransformerConfig:
    """The preset of that name. Raises ValueError naming the known ones."""
    if name not in PRESETS:
        raise ValueError(f"preset {name!r} is unknown; known are: {', '.join(sorted(PRESETS))}")
    return PRESETS[name]

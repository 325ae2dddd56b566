"""Sizes of the policies this project knows, as frozen configs. One definition covers the Llama-3 and Qwen3 families."""

from __future__ import annotations

import dataclasses


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
    dtype: str = "float32"

    def __post_init__(self):
        if self.n_heads % self.n_kv_heads:
            raise ValueError(f"n_kv_heads={self.n_kv_heads} must divide n_heads={self.n_heads}")
        if self.head_dim % 2:
            raise ValueError(f"head_dim={self.head_dim} must be even: RoPE rotates pairs")
        if self.dtype not in ("float32", "bfloat16"):
            raise ValueError(f"dtype={self.dtype!r} is not one of float32, bfloat16")


PRESETS: dict[str, TransformerConfig] = {
    # The embedded policy of the `errands` domain. One key/value head keeps the attention of many short lanes in few,
    # larger matrix products, which is what a CPU wants.
    "errands": TransformerConfig(
        vocab_size=512, d_model=160, n_layers=4, n_heads=5, n_kv_heads=1, head_dim=32, d_ff=448, qk_norm=True
    ),
}


def preset(name: str) -> TransformerConfig:
    """The preset of that name. Raises ValueError naming the known ones."""
    if name not in PRESETS:
        raise ValueError(f"policy.preset={name!r} is unknown; known presets: {', '.join(sorted(PRESETS))}")
    return PRESETS[name]

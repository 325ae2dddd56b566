"""google-tunix's Llama with our weights, and a tokenizer that turns "12 7 3" into ids 12, 7, 3. In its environment."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from tunix.models.llama3 import model as llama
from tunix.models.llama3.params import create_model_from_safe_tensors

# Version 0.1.7 rotates with this base whatever its config says.
ROPE_THETA = 1_000_000.0


class Ids:
    """The tokenizer that tunix's interface asks for: texts are ids in decimal. No text ends early or is padded."""

    def encode(self, text: str) -> list[int]:
        return [int(word) for word in text.split()]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(map(str, ids))

    def pad_id(self) -> int:
        return 0

    def bos_id(self) -> int:
        return 0

    def eos_id(self) -> int:
        return -1


def load(spec: dict[str, Any]) -> llama.Llama3:
    """The model of spec["shape"] with the weights in spec["weights"]."""
    shape = spec["shape"]
    config = llama.ModelConfig(
        num_layers=shape["n_layers"],
        vocab_size=shape["vocab_size"],
        embed_dim=shape["d_model"],
        hidden_dim=shape["d_ff"],
        num_heads=shape["n_heads"],
        head_dim=shape["head_dim"],
        num_kv_heads=shape["n_kv_heads"],
        rope_theta=int(shape["rope_theta"]),
        norm_eps=shape["norm_eps"],
        weight_tying=shape["tie_embeddings"],
        remat_config=llama.RematConfig[spec.get("remat", "NONE")],
    )
    return create_model_from_safe_tensors(spec["weights"], config, dtype=jnp.float32)


def versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in ("google-tunix", "jax", "jaxlib", "flax")}


def log_probs(model: llama.Llama3, tokens: list[int]) -> dict[str, Any]:
    """Of tokens[1:], each given those before it."""
    ids = jnp.asarray([tokens])
    n = ids.shape[1]
    z, _ = model(ids, jnp.arange(n)[None], None, jnp.tril(jnp.ones((1, n, n), bool)))
    chosen = jnp.take_along_axis(jax.nn.log_softmax(z[0, :-1]), ids[0, 1:, None], axis=-1)
    return {"log_probs": chosen[:, 0].tolist()}

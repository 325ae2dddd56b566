"""Our weights in the layout and under the names that Hugging Face's Llama has, so that every side computes the same."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import jax
import numpy as np
from safetensors.numpy import save_file

from benchmarks.peers import HOME
from hdl_jax.policy import transformer as tr
from hdl_jax.policy.presets import TransformerConfig


def folder(cfg: TransformerConfig, seed: int) -> Path:
    """Where the weights of this shape and seed lie."""
    shape = json.dumps(dataclasses.asdict(cfg), sort_keys=True)
    return HOME / "weights" / f"{hashlib.sha256(shape.encode()).hexdigest()[:12]}-{seed}"


def write(params: tr.Params, cfg: TransformerConfig, seed: int) -> Path:
    """Writes config.json and model.safetensors, unless they are there; returns their folder.

    Args:
        params: stacked, of a tied Llama without query and key norms.
        seed: what they were made from, part of the folder's name.
    """
    if cfg.qk_norm or not cfg.tie_embeddings:
        raise ValueError("only tied Llama shapes without query and key norms are written for peers")
    to = folder(cfg, seed)
    if (to / "config.json").is_file():
        return to
    to.mkdir(parents=True, exist_ok=True)
    save_file(hugging_face(params, cfg), to / "model.safetensors", metadata={"format": "pt"})
    (to / "config.json").write_text(json.dumps(hugging_face_config(cfg)))  # last: it says that all is there
    return to


def hugging_face(params: tr.Params, cfg: TransformerConfig) -> dict[str, np.ndarray]:
    """Tensors by their names in LlamaForCausalLM; products are stored [out, in] there and [in, out] here."""
    params = jax.device_get(params)
    blocks, out = params["blocks"], {"model.embed_tokens.weight": params["embed"], "model.norm.weight": params["norm"]}
    names = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj",
             "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}  # fmt: skip
    norms = {"attention_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"}
    for i in range(cfg.n_layers):
        for ours, theirs in names.items():
            out[f"model.layers.{i}.{theirs}.weight"] = blocks[ours]["kernel"][i].T
        for ours, theirs in norms.items():
            out[f"model.layers.{i}.{theirs}.weight"] = blocks[ours]["scale"][i]
    return {name: np.ascontiguousarray(p, np.float32) for name, p in out.items()}


def hugging_face_config(cfg: TransformerConfig) -> dict[str, object]:
    """config.json of a LlamaForCausalLM of this shape."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "vocab_size": cfg.vocab_size,
        "hidden_size": cfg.d_model,
        "num_hidden_layers": cfg.n_layers,
        "num_attention_heads": cfg.n_heads,
        "num_key_value_heads": cfg.n_kv_heads,
        "head_dim": cfg.head_dim,
        "intermediate_size": cfg.d_ff,
        "rope_theta": cfg.rope_theta,
        "rms_norm_eps": cfg.norm_eps,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
        "dtype": "float32",
    }

"""Our weights as the Hugging Face folder that the peers read, so that every side computes the same."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

from benchmarks.peers import HOME
from hdl_jax.policy import transformer as tr
from hdl_jax.policy.folder import save_folder
from hdl_jax.policy.hf_config import write_config
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
    if not to.is_dir():
        config = write_config(cfg, max_position_embeddings=8192, dtype="float32")
        save_folder(to, params, cfg, files={"config.json": json.dumps(config).encode()}, dtype="float32")
    return to

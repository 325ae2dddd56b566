"""config.json of a Hugging Face folder: which policy it describes, and one for policies that never had it.

Two architectures are read, LlamaForCausalLM (Llama 2 and 3, Llama-Nemotron-Nano, SmolLM2) and Qwen3ForCausalLM. A field
that would make the network another one than ours is refused by name; defaults are those of transformers, which leaves
out what equals them. Rotary settings are read where transformers 5 keeps them (`rope_parameters`) and where version 4
did (`rope_theta`, `rope_scaling`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hdl_jax.policy.presets import RopeScaling, TransformerConfig

MODEL_TYPES = {"LlamaForCausalLM": "llama", "Qwen3ForCausalLM": "qwen3"}

# What transformers takes for an absent field, where it is not worked out from the others.
DEFAULTS = {"qwen3": {"num_key_value_heads": 32, "head_dim": 128}}
# Ours -> theirs, for what has to be there.
SIZES = {
    "vocab_size": "vocab_size",
    "d_model": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "d_ff": "intermediate_size",
}
# Fields of which only one value is the network that we have, and what another would mean.
ONLY = {
    "hidden_act": ("silu", "another activation"),
    "attention_bias": (False, "biases in the attention"),
    "mlp_bias": (False, "biases in the MLP"),
    "rope_interleaved": (False, "rotation of neighbours instead of halves"),
    "quantization_config": (None, "quantised weights: take the float checkpoint"),
}


def read_config(folder: Path) -> TransformerConfig:
    """The policy that folder/config.json describes, in float32.

    Raises:
        FileNotFoundError: there is no config.json.
        ValueError: it is not JSON, or describes something we do not support; names the file and every such field.
    """
    path = Path(folder) / "config.json"
    if not path.is_file():
        raise FileNotFoundError(f"no config.json in {folder}: not a Hugging Face checkpoint folder")
    return parse_config(path.read_bytes(), str(path))


def parse_config(text: bytes, where: str) -> TransformerConfig:
    """`read_config` of a config.json in memory; `where` names it in errors."""
    try:
        config = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{where} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{where} is not a JSON object")
    model_type = config.get("model_type")
    config = {**DEFAULTS.get(model_type if isinstance(model_type, str) else "", {}), **config}
    problems = _unsupported(config)
    shape: dict[str, Any] = {ours: _size(config, theirs, problems) for ours, theirs in SIZES.items()}
    a_head = max(1, shape["d_model"] // shape["n_heads"])
    shape["n_kv_heads"] = _size(config, "num_key_value_heads", problems, default=shape["n_heads"])
    shape["head_dim"] = _size(config, "head_dim", problems, default=a_head)
    shape["norm_eps"] = _number(config, "rms_norm_eps", problems, default=1e-6)
    shape["tie_embeddings"] = config.get("tie_word_embeddings", False)
    if not isinstance(shape["tie_embeddings"], bool):
        problems.append(f"tie_word_embeddings={shape['tie_embeddings']!r}: must be true or false")
    shape["rope_theta"], shape["rope_scaling"] = _rotary(config, problems)
    if not problems:
        try:
            return TransformerConfig(**shape, qk_norm=model_type == "qwen3")
        except ValueError as error:
            problems.append(str(error))
    raise ValueError(f"{where} describes a policy that is not supported:\n  " + "\n  ".join(dict.fromkeys(problems)))


def write_config(cfg: TransformerConfig, **fields: Any) -> dict[str, Any]:
    """A config.json for a policy, that transformers 4 and 5 load.

    Args:
        fields: what is not in cfg: bos_token_id, eos_token_id, pad_token_id, max_position_embeddings, torch_dtype, ...

    Raises:
        ValueError: transformers has no architecture of this shape.
        TypeError: a field is one that cfg decides.
    """
    architecture = "Qwen3ForCausalLM" if cfg.qk_norm else "LlamaForCausalLM"
    if not cfg.qk_norm and cfg.d_model % cfg.n_heads:
        raise ValueError(f"{architecture} needs d_model={cfg.d_model} to be a multiple of n_heads={cfg.n_heads}")
    scaling = cfg.rope_scaling
    return dict(
        **{theirs: getattr(cfg, ours) for ours, theirs in SIZES.items()},
        architectures=[architecture],
        model_type=MODEL_TYPES[architecture],
        num_key_value_heads=cfg.n_kv_heads,
        head_dim=cfg.head_dim,
        hidden_act="silu",
        attention_bias=False,
        rms_norm_eps=cfg.norm_eps,
        rope_theta=cfg.rope_theta,
        rope_scaling=scaling
        and {
            "rope_type": "llama3",
            "factor": scaling.factor,
            "low_freq_factor": scaling.low_freq_factor,
            "high_freq_factor": scaling.high_freq_factor,
            "original_max_position_embeddings": scaling.original_max_position,
        },
        tie_word_embeddings=cfg.tie_embeddings,
        **fields,
    )


def _unsupported(config: Mapping[str, Any]) -> list[str]:
    """What makes this another network than ours, one line each."""
    problems = []
    names, model_type = config.get("architectures"), config.get("model_type")
    if (names, model_type) not in [([a], m) for a, m in MODEL_TYPES.items()]:
        pairs = " and ".join(f'["{a}"] with model_type "{m}"' for a, m in MODEL_TYPES.items())
        problems.append(f"architectures={names}, model_type={model_type!r}: supported are {pairs}")
    for field, (value, meaning) in ONLY.items():
        if config.get(field) not in (None, value):
            problems.append(f"{field}={config[field]!r}: only {value!r} is supported ({meaning})")
    layers, full = config.get("layer_types"), "full_attention"
    if layers is not None and not (isinstance(layers, list) and all(kind == full for kind in layers)):
        problems.append(f"layer_types={layers!r}: only {full} is supported")
    window = config.get("sliding_window", 4096)
    if layers is None and config.get("use_sliding_window") and window is not None:
        # From this layer on.
        first, n = (_size(config, f, problems, default=28) for f in ("max_window_layers", "num_hidden_layers"))
        if first < n:
            problems.append(f"use_sliding_window=true, sliding_window={window!r}: only full attention is supported")
    return problems


def _size(config: Mapping[str, Any], field: str, problems: list[str], default: int | None = None) -> int:
    value = config.get(field)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        problems.append(f"{field}={value!r}: must be a positive whole number")
        return 1
    return value


def _number(config: Mapping[str, Any], field: str, problems: list[str], default: float | None = None) -> float:
    value = config.get(field, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
        problems.append(f"{field}={value!r}: must be a positive number")
        return 1.0
    return float(value)


def _rotary(config: Mapping[str, Any], problems: list[str]) -> tuple[float, RopeScaling | None]:
    """The base of the rotary angles, and their scaling if any."""
    # As transformers merges the places.
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(rope, dict) or any(isinstance(value, dict) for value in rope.values()):
        problems.append(f"rope_parameters={rope!r}: only one set of parameters for all layers is supported")
        return 1.0, None
    beside = ("rope_theta", "partial_rotary_factor")
    rope = {**{field: config[field] for field in beside if field in config}, **rope}
    original = "original_max_position_embeddings"
    if original in config:
        rope[original] = config[original]
    if rope.get("partial_rotary_factor") not in (None, 1):
        problems.append(f"partial_rotary_factor={rope['partial_rotary_factor']!r}: only 1 is supported")
    theta = _number(rope, "rope_theta", problems, default=10_000.0)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return theta, None
    if kind != "llama3":
        problems.append(f"rope type {kind!r}: supported are default and llama3")
        return theta, None
    found = len(problems)
    low, high, factor = (_number(rope, f, problems) for f in ("low_freq_factor", "high_freq_factor", "factor"))
    context = _size(rope, original, problems)
    if len(problems) > found:
        return theta, None
    try:
        return theta, RopeScaling(factor, low, high, context)
    except ValueError as error:
        problems.append(str(error))
        return theta, None

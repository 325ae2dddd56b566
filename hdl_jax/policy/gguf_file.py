"""Policies from GGUF files, the format of llama.cpp: weights (often quantised), vocabulary and chat template in one.

Metadata are keys such as `llama.block_count`; tensors have the format's own names and are stored [out, in]:

    blk.3.attn_q.weight   is   blocks/q/kernel[3]          token_embd.weight    is   embed
    blk.3.ffn_norm.weight      blocks/mlp_norm/scale[3]    output.weight             head    (none: embeddings are tied)

For `llama` the rows of queries and keys are stored as llama.cpp rotates them, a pair side by side, where the halves
convention has a head's first halves of all pairs, then the second ones; for `qwen3` they are stored as published.
Llama 3.1's rotary scaling is not metadata but a tensor, `rope_freqs.weight`, of how many times slower each pair turns.
Everything is dequantised to float32.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import numpy as np

from hdl_jax.policy import transformer as tr
from hdl_jax.policy.byte_level import byte_level_bpe
from hdl_jax.policy.gguf_metadata import Metadata
from hdl_jax.policy.hf_config import write_config
from hdl_jax.policy.presets import RopeScaling, TransformerConfig
from hdl_jax.policy.tensors import assemble, places
from hdl_jax.policy.tokenizer_files import FastTokenizer

OUTER = {"embed": "token_embd", "norm": "output_norm", "head": "output"}
LAYER = {
    "attention_norm/scale": "attn_norm",
    "q/kernel": "attn_q",
    "k/kernel": "attn_k",
    "v/kernel": "attn_v",
    "o/kernel": "attn_output",
    "q_norm/scale": "attn_q_norm",
    "k_norm/scale": "attn_k_norm",
    "mlp_norm/scale": "ffn_norm",
    "gate/kernel": "ffn_gate",
    "up/kernel": "ffn_up",
    "down/kernel": "ffn_down",
}
ROPE_FREQS = "rope_freqs.weight"
# What ends a turn: the end of a sequence, of a turn, of a message.
STOPS = ("eos", "eot", "eom")
# A tokenizer_config.json's names of the tokens with a role -> the format's.
SPECIAL = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}


class GgufFile:
    """One file, read as it is asked for."""

    def __init__(self, path: str | Path):
        """Opens a file and reads its header.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is not GGUF, or cut short.
            ImportError: without the package gguf.
        """
        try:
            import gguf
        except ImportError as error:
            raise ImportError("reading a GGUF file needs the gguf package: pip install 'hdl_jax[gguf]'") from error
        self.path = Path(path)
        if not self.path.is_file():
            raise FileNotFoundError(f"no GGUF file at {self.path}")
        try:
            reader = gguf.GGUFReader(self.path)
        # What reading beyond the end comes to, by where the end is.
        except (ValueError, IndexError, KeyError, OverflowError) as error:
            raise ValueError(f"{self.path} is not a readable GGUF file: {error}") from error
        self._dequantize = gguf.dequantize
        self._metadata = Metadata(reader.fields, str(self.path))
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}
        self._shapes = {name: tuple(map(int, t.shape[::-1])) for name, t in self._tensors.items()}

    # ---- the network ------------------------------------------------------------------------------------------------

    @functools.cached_property
    def config(self) -> TransformerConfig:
        """The policy that the file holds, in float32.

        Raises ValueError for an architecture, key or rotary scaling that is not supported, or a key that is missing.
        """
        cfg = self._metadata.network(self._shapes)
        if ROPE_FREQS not in self._shapes:
            return cfg
        slower = self._tensor(ROPE_FREQS)
        # The tensor cannot tell all of Llama 3.1's four numbers: these three are the same in every model published.
        scaled = dataclasses.replace(cfg, rope_scaling=RopeScaling(float(slower.max()), 1.0, 4.0, 8192))
        ours = tr.rotary_frequencies(cfg) / tr.rotary_frequencies(scaled)
        if slower.shape != ours.shape or not np.allclose(slower, ours, rtol=1e-4):
            raise ValueError(
                f"{self.path}: {ROPE_FREQS} is not Llama 3.1's scaling, between 1 and 4 turns in a context of 8192"
            )
        return scaled

    def load(self, sharding: tr.Params | None = None) -> tr.Params:
        """The parameters, dequantised; host memory holds one tensor at a time.

        Args:
            sharding: of each parameter, a tree like them; None: all on the default device.

        Returns:
            stacked parameters, float32.

        Raises:
            ValueError: tensors are missing, unexpected, misshapen or quantised in a way that is not read; one error
                names every one, before any is read.
        """
        cfg, names, wanted = self.config, {}, {}
        for theirs, place in places(cfg).items():
            part = OUTER[place.leaf] if place.layer is None else LAYER[place.leaf.removeprefix("blocks/")]
            names[theirs] = f"{part}.weight" if place.layer is None else f"blk.{place.layer}.{part}.weight"
            wanted[names[theirs]] = place.shape
        problems = [f"missing {name} {shape}" for name, shape in wanted.items() if name not in self._shapes]
        unexpected = sorted(set(self._shapes) - set(wanted) - {ROPE_FREQS})
        problems += [f"unexpected {name} {self._shapes[name]}" for name in unexpected]
        for name, shape in wanted.items():
            if (found := self._shapes.get(name, shape)) != shape:
                problems.append(f"misshapen {name}: {found} in the file, {shape} wanted")
        problems += self._unreadable([name for name in wanted if name in self._shapes])
        if problems:
            raise ValueError(f"{self.path} does not fit this policy:\n  " + "\n  ".join(problems))

        held: dict[str, np.ndarray] = {}  # the last tensor: every device takes its part of it

        def read(theirs: str, index: Any) -> np.ndarray:
            if theirs not in held:
                held.clear()
                held[theirs] = self._tensor(names[theirs])
            return held[theirs][index]

        return assemble(cfg, read, sharding)

    def _unreadable(self, names: list[str]) -> list[str]:
        """The tensors of a type that the package does not dequantise, one line each."""
        first = {self._tensors[name].tensor_type: self._tensors[name] for name in names}
        unknown = set()
        for kind, tensor in first.items():
            try:
                self._dequantize(tensor.data[:1], kind)
            except NotImplementedError:
                unknown.add(kind)
        return [
            f"{name} is quantised as {self._tensors[name].tensor_type.name}, which the gguf package does not read"
            for name in names
            if self._tensors[name].tensor_type in unknown
        ]

    def _tensor(self, name: str) -> np.ndarray:
        """A tensor in float32 and in the order of a Hugging Face folder."""
        tensor = self._tensors[name]
        array = self._dequantize(tensor.data, tensor.tensor_type).reshape(self._shapes[name])
        if self._metadata.architecture == "llama" and name.endswith((".attn_q.weight", ".attn_k.weight")):
            pairs = self.config.head_dim // 2
            array = array.reshape(-1, pairs, 2, array.shape[-1]).swapaxes(1, 2).reshape(array.shape)
        return array

    # ---- text -------------------------------------------------------------------------------------------------------

    def tokenizer(self) -> FastTokenizer:
        """The vocabulary, with its control tokens as special ones.

        Raises:
            ValueError: a kind of vocabulary or a pre-tokenizer that is not supported, or parts that do not fit.
            ImportError: without the package tokenizers.
        """
        byte_level = self._byte_level()
        try:
            return FastTokenizer(byte_level, self._spelt("bos"))
        except ValueError as error:
            raise ValueError(f"{self.path}: {error}") from error

    @property
    def bos_id(self) -> int | None:
        """The token that begins a sequence, if there is one."""
        return self._id("bos")

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """What ends a turn, the end of a sequence first. Raises ValueError if the file names nothing."""
        ids = tuple(dict.fromkeys(i for name in STOPS if (i := self._id(name)) is not None))
        if not ids:
            raise ValueError(f"{self.path} names no token that ends a turn: tokenizer.ggml.eos_token_id is missing")
        return ids

    def files(self) -> dict[str, bytes]:
        """What lies beside the weights in a Hugging Face folder of this policy: name -> content.

        Raises ValueError or ImportError as `config` and `tokenizer` do.
        """
        ids = {"bos_token_id": self.bos_id, "eos_token_id": self.stop_ids, "pad_token_id": self._id("padding")}
        length = self._metadata.value(f"{self._metadata.architecture}.context_length", int)
        tokens = {f"{name}_token": self._spelt(key) for name, key in SPECIAL.items()}
        tokenizer = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **tokens,
            "add_bos_token": bool(self._metadata.get("tokenizer.ggml.add_bos_token")),
            "clean_up_tokenization_spaces": False,
            "model_max_length": length,
            "chat_template": self._metadata.get("tokenizer.chat_template"),
        }
        config = write_config(self.config, **ids, max_position_embeddings=length)
        json_files = {"config.json": config, "generation_config.json": ids, "tokenizer_config.json": tokenizer}
        files = {name: json.dumps(content, indent=2).encode() for name, content in json_files.items()}
        return {**files, "tokenizer.json": self._byte_level().to_str().encode()}

    def _byte_level(self) -> Any:
        kind, pre = (self._metadata.value(f"tokenizer.ggml.{key}", str) for key in ("model", "pre"))
        if kind != "gpt2":
            raise ValueError(f"{self.path}: tokenizer.ggml.model={kind!r}: only gpt2, byte-level BPE, is supported")
        kinds, merges = (self._metadata.value(f"tokenizer.ggml.{key}", list) for key in ("token_type", "merges"))
        try:
            return byte_level_bpe(self._tokens, kinds, merges, pre)
        except ValueError as error:
            raise ValueError(f"{self.path}: {error}") from error

    @functools.cached_property
    def _tokens(self) -> list[str]:
        tokens = self._metadata.value("tokenizer.ggml.tokens", list)
        if len(tokens) > self.config.vocab_size:
            raise ValueError(f"{self.path}: {len(tokens)} tokens, but embeddings of {self.config.vocab_size}")
        return tokens

    def _id(self, name: str) -> int | None:
        """The id of the token with a role, or None if none has it. Raises ValueError if there is no such token."""
        key = f"tokenizer.ggml.{name}_token_id"
        i = self._metadata.get(key)
        if i is not None and not (type(i) is int and 0 <= i < len(self._tokens)):
            raise ValueError(f"{self.path}: {key}={i!r}: there are {len(self._tokens)} tokens")
        return i

    def _spelt(self, name: str) -> str | None:
        """How that token is spelt."""
        i = self._id(name)
        return None if i is None else self._tokens[i]

"""The metadata of a GGUF file: keys such as `llama.block_count`, and the network that they describe."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from hdl_jax.policy.presets import TransformerConfig

ARCHITECTURES = ("llama", "qwen3")
EMBEDDING, HEAD = "token_embd.weight", "output.weight"
# Keys of which only one value is the network that we have, and what another would mean.
ONLY = {
    "expert_count": (0, "a mixture of experts"),
    "rope.scaling.type": ("none", "a rotary scaling other than Llama 3.1's"),
    "rope.scale_linear": (1.0, "a rotary scaling other than Llama 3.1's"),
    "attention.sliding_window": (0, "attention in a window"),
}


@dataclasses.dataclass(frozen=True)
class Metadata:
    """Key -> value; every error is a ValueError that names the file and the key.

    Attributes:
        fields: what the gguf package's reader makes of them.
        where: the file.
    """

    fields: Mapping[str, Any]
    where: str

    def get(self, key: str) -> Any:
        """The value of a key, or None."""
        value = self.fields[key].contents() if key in self.fields else None
        # Numbers are stored in float32: 1e-5, say, is what the model's config.json says, not 9.999999747378752e-06.
        return float(str(np.float32(value))) if type(value) is float else value

    def value(self, key: str, kind: type, default: Any = None) -> Any:
        """The value of a key. ValueError if it is missing and there is no default, or it is of another kind."""
        value = self.get(key)
        value = default if value is None else value
        if value is None:
            raise ValueError(f"{self.where}: {key} is missing")
        if type(value) is not kind:
            raise ValueError(f"{self.where}: {key} is {value!r:.60}, not {kind.__name__}")
        return value

    @property
    def architecture(self) -> str:
        """One of ARCHITECTURES; ValueError for another."""
        name = self.value("general.architecture", str)
        if name not in ARCHITECTURES:
            raise ValueError(f"{self.where}: general.architecture={name!r}: supported are {', '.join(ARCHITECTURES)}")
        return name

    def network(self, shapes: Mapping[str, tuple[int, ...]]) -> TransformerConfig:
        """The policy, in float32 and without the rotary scaling that is not metadata.

        Args:
            shapes: of the file's tensors, [out, in].

        Raises:
            ValueError: an architecture or a key that is not supported, or a key that is missing; names all of them.
        """
        name = self.architecture
        problems: list[str] = []

        def number(key: str, kind: type, default: Any = None) -> Any:
            try:
                found = self.value(f"{name}.{key}", kind, default)
            except ValueError as error:
                problems.append(str(error).removeprefix(f"{self.where}: "))
                return 1
            if not found > 0:
                problems.append(f"{name}.{key}={found}: must be positive")
                return 1
            return found

        for key, (value, meaning) in ONLY.items():
            found = self.get(f"{name}.{key}")
            if found not in (None, value):
                problems.append(f"{name}.{key}={found!r}: only {value!r} is supported ({meaning})")
        # Defaults are what llama.cpp takes where the key is absent.
        d_model, n_heads = number("embedding_length", int), number("attention.head_count", int)
        head_dim = number("attention.key_length", int, d_model // n_heads)
        for key in ("attention.value_length", "rope.dimension_count"):
            if (found := number(key, int, head_dim)) != head_dim:
                problems.append(f"{name}.{key}={found}: only a whole head, {head_dim}, is supported")
        if len(shapes.get(EMBEDDING, ())) != 2:
            problems.append(f"missing {EMBEDDING}, a matrix")
        shape = dict(
            d_model=d_model,
            n_layers=number("block_count", int),
            n_heads=n_heads,
            n_kv_heads=number("attention.head_count_kv", int, n_heads),
            head_dim=head_dim,
            d_ff=number("feed_forward_length", int),
            rope_theta=number("rope.freq_base", float, 10_000.0),
            norm_eps=number("attention.layer_norm_rms_epsilon", float),
            qk_norm=name == "qwen3",
            tie_embeddings=HEAD not in shapes,
        )
        if not problems:
            try:
                return TransformerConfig(vocab_size=shapes[EMBEDDING][0], **shape)
            except ValueError as error:
                problems.append(str(error))
        raise ValueError(f"{self.where} holds a policy that is not supported:\n  " + "\n  ".join(problems))

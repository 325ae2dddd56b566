"""Our parameters as the tensors of a Hugging Face folder, one by one.

Theirs are ours under other names: a layer's each by itself, products stored [out, in] where we have [in, out].

    model.layers.3.self_attn.q_proj.weight [H * d, D]   is   blocks/q/kernel[3] [D, H * d]
    model.embed_tokens.weight              [V, D]            embed              [V, D]
    lm_head.weight                         [V, D]            head               [D, V]   (untied embeddings only)
"""

from __future__ import annotations

import dataclasses
import functools
import gc
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from hdl_jax.policy import transformer as tr
from hdl_jax.policy.presets import TransformerConfig
from hdl_jax.policy.weights import flatten_params, unflatten_params

OUTER = {"embed": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}
LAYER = {
    "attention_norm/scale": "input_layernorm",
    "q/kernel": "self_attn.q_proj",
    "k/kernel": "self_attn.k_proj",
    "v/kernel": "self_attn.v_proj",
    "o/kernel": "self_attn.o_proj",
    "q_norm/scale": "self_attn.q_norm",
    "k_norm/scale": "self_attn.k_norm",
    "mlp_norm/scale": "post_attention_layernorm",
    "gate/kernel": "mlp.gate_proj",
    "up/kernel": "mlp.up_proj",
    "down/kernel": "mlp.down_proj",
}


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a stored tensor lies in our parameters.

    Attributes:
        leaf: path of the parameter, joined by '/'.
        layer: its layer, or None where the parameter is not stacked.
        shape: as stored.
        turned: whether it is stored [out, in].
    """

    leaf: str
    layer: int | None
    shape: tuple[int, ...]
    turned: bool


def places(cfg: TransformerConfig) -> dict[str, Place]:
    """By the names of a folder of this policy, a leaf's tensors in the order of its layers."""
    out = {}
    for leaf, like in flatten_params(tr.abstract_params(cfg)).items():
        scope, _, inner = leaf.partition("/")
        if scope != "blocks":
            turned = leaf == "head"
            out[f"{OUTER[leaf]}.weight"] = Place(leaf, None, like.shape[::-1] if turned else like.shape, turned)
            continue
        for i in range(cfg.n_layers):
            name = f"model.layers.{i}.{LAYER[inner]}.weight"
            out[name] = Place(leaf, i, like.shape[:0:-1], len(like.shape) == 3)
    return out


def assemble(
    cfg: TransformerConfig, read: Callable[[str, Any], np.ndarray], sharding: tr.Params | None = None
) -> tr.Params:
    """Builds the parameters from tensors that are read one by one.

    Args:
        read: (name, index) -> that part of the tensor, stored as in a folder; index is a tuple of slices.
        sharding: as in `load_folder`.
    """
    targets = {} if sharding is None else flatten_params(sharding)
    abstract, params = flatten_params(tr.abstract_params(cfg)), {}
    for name, place in places(cfg).items():
        leaf, target = place.leaf, targets.get(place.leaf)
        source = functools.partial(read, name)
        if place.layer is None:
            convert = jax.jit(_convert, static_argnames="turned", out_shardings=target)
            params[leaf] = convert(_put(source, place, target), turned=place.turned)
        else:
            if place.layer == 0:
                params[leaf] = jnp.zeros(abstract[leaf].shape, jnp.float32, device=target)
            write = jax.jit(_write, donate_argnums=0, out_shardings=target)
            params[leaf] = write(params[leaf], _put(source, place, target), place.layer)
        # Before the next tensor is read: what waits for the device is memory of the host, and what the device has taken
        # jax lets go of when the collector runs.
        params[leaf].block_until_ready()
        gc.collect(0)
    return unflatten_params(params)


def _put(read: Callable[[Any], np.ndarray], place: Place, target: Sharding | None) -> Array:
    """The tensor on the devices, in its own dtype and order, cut so that turning it moves nothing between them."""
    if target is None:
        return jax.device_put(read((slice(None),) * len(place.shape)))
    if isinstance(target, NamedSharding):
        axes = (*target.spec, *(None,) * (len(place.shape) + (place.layer is not None) - len(target.spec)))
        axes = axes if place.layer is None else axes[1:]
        target = NamedSharding(target.mesh, PartitionSpec(*(axes[::-1] if place.turned else axes)))
    return jax.make_array_from_callback(place.shape, target, read)


def _write(stack: Array, tensor: Array, layer: Array) -> Array:
    """A layer's tensor, as stored, into a stack [L, ...] of ours."""
    return jax.lax.dynamic_update_index_in_dim(stack, _convert(tensor, turned=tensor.ndim == 2), layer, 0)


def _convert(tensor: Array, *, turned: bool) -> Array:
    return (tensor.T if turned else tensor).astype(jnp.float32)


def disassemble(flat: Mapping[str, Any], place: Place, dtype: str) -> np.ndarray:
    """A tensor as it is stored, in the dtype given; flat are the parameters by their paths."""
    leaf = flat[place.leaf]
    tensor = leaf if place.layer is None else leaf[place.layer]
    return np.ascontiguousarray(_stored(tensor, dtype=dtype, turned=place.turned))


@functools.partial(jax.jit, static_argnames=("dtype", "turned"))
def _stored(tensor: Array, dtype: str, turned: bool) -> Array:
    return (tensor.T if turned else tensor).astype(dtype)

"""The KV cache of one pool: rows of families. A family is a shared prefix, stored once, and lanes that leave it.

          prefix (one per row, shared)                suffix (one per lane)
  row r   [ p0 p1 p2 p3 p4 p5 p6 p7 ...... ]   lane 0 [ s0 s1 s2 ........ ]   fork 8: sees p0..p7, then s0..
                        |                      lane 1 [ s0 s1 ........... ]   fork 5: sees p0..p4, then s0..
                        fork of lane 1                                         depth of s_j is fork + j

Which slots are filled is told by lengths and forks alone; stale numbers beyond them are never looked at.
"""

from __future__ import annotations

import dataclasses

import flax.struct
import jax.numpy as jnp
from jax import Array

from hdl_jax.policy.presets import TransformerConfig


@dataclasses.dataclass(frozen=True)
class PoolShape:
    """The static shape of a pool; one compiled decode and prefill program each.

    Attributes:
        rows: families in flight.
        lanes: lanes of a row that run at once; a family with more lets the others wait for a free one.
        prefix: token capacity of a row's prefix.
        suffix: token capacity of a lane's suffix.
    """

    rows: int
    lanes: int
    prefix: int
    suffix: int


@flax.struct.dataclass
class Cache:
    """Keys and values, a tuple over layers of arrays in the computation dtype.

    prefix_k, prefix_v: [R, K, P, d]; suffix_k, suffix_v: [R, K, C, S, d].
    """

    prefix_k: tuple[Array, ...]
    prefix_v: tuple[Array, ...]
    suffix_k: tuple[Array, ...]
    suffix_v: tuple[Array, ...]


def round_up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def empty(cfg: TransformerConfig, shape: PoolShape, block: int) -> Cache:
    """A zeroed cache; capacities are rounded up to whole attention blocks."""
    prefix = (shape.rows, cfg.n_kv_heads, round_up(shape.prefix, block), cfg.head_dim)
    suffix = (shape.rows, cfg.n_kv_heads, shape.lanes, round_up(shape.suffix, block), cfg.head_dim)

    def zeros(s: tuple[int, ...]) -> tuple[Array, ...]:
        return tuple(jnp.zeros(s, cfg.dtype) for _ in range(cfg.n_layers))

    return Cache(zeros(prefix), zeros(prefix), zeros(suffix), zeros(suffix))


def cache_bytes(cfg: TransformerConfig, shape: PoolShape, block: int) -> int:
    """Bytes `empty` would take."""
    tokens = shape.rows * (round_up(shape.prefix, block) + shape.lanes * round_up(shape.suffix, block))
    return 2 * cfg.n_layers * cfg.n_kv_heads * cfg.head_dim * tokens * jnp.dtype(cfg.dtype).itemsize

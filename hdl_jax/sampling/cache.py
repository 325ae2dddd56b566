"""The KV cache: prefixes and suffixes in blocks. A family is a shared prefix, stored once, and lanes that leave it.

          prefix (a row, shared)                      suffix (a slot, one lane's own)
  row r   [ p0 p1 p2 p3 | p4 p5 p6 p7 | ... ]   slot 0 [ s0 s1 s2 . | ... ]   fork 8: sees p0..p7, then s0..
                          |                     slot 1 [ s0 s1 .  . | ... ]   fork 5: sees p0..p4, then s0..
                          fork of slot 1                                       depth of s_j is fork + j

Rows and slots are separate stores, so that a family may have any number of lanes and a slot serves any row. Which
places are filled is told by lengths and forks alone; stale numbers beyond them are never looked at. The last row and
the last slot are scratch: what is idle reads and writes there.

A block of keys is stored with its tokens last, [K, d, B]: a query's product with it then runs along memory, which made
decode attention on CPU twice as fast as [K, B, d].
"""

from __future__ import annotations

import dataclasses

import flax.struct
import jax.numpy as jnp
from jax import Array

from hdl_jax.policy.presets import TransformerConfig


@dataclasses.dataclass(frozen=True)
class CacheShape:
    """The static shape of an engine's cache.

    Attributes:
        rows: prefixes in flight. lanes: lanes in flight.
        prefix: token capacity of a row. suffix: token capacity of a lane.
        block: tokens of a block; capacities are rounded up to whole ones.
    """

    rows: int
    lanes: int
    prefix: int
    suffix: int
    block: int

    @property
    def prefix_blocks(self) -> int:
        return -(-self.prefix // self.block)

    @property
    def suffix_blocks(self) -> int:
        return -(-self.suffix // self.block)


@flax.struct.dataclass
class Cache:
    """Keys and values, a tuple over layers of arrays in the computation dtype; R rows, L lanes, B tokens a block.

    prefix_k: [R + 1, blocks, K, d, B]; prefix_v: [R + 1, blocks, K, B, d]; suffix_k, suffix_v: the same of L + 1 slots.
    """

    prefix_k: tuple[Array, ...]
    prefix_v: tuple[Array, ...]
    suffix_k: tuple[Array, ...]
    suffix_v: tuple[Array, ...]


def empty(cfg: TransformerConfig, shape: CacheShape) -> Cache:
    """A zeroed cache."""

    def zeros(n: int, blocks: int, *block: int) -> tuple[Array, ...]:
        return tuple(jnp.zeros((n + 1, blocks, cfg.n_kv_heads, *block), cfg.dtype) for _ in range(cfg.n_layers))

    keys, values = (cfg.head_dim, shape.block), (shape.block, cfg.head_dim)
    return Cache(
        zeros(shape.rows, shape.prefix_blocks, *keys),
        zeros(shape.rows, shape.prefix_blocks, *values),
        zeros(shape.lanes, shape.suffix_blocks, *keys),
        zeros(shape.lanes, shape.suffix_blocks, *values),
    )


def take(keys: Array, values: Array, index: Array, block: Array) -> tuple[Array, Array]:
    """One block of several rows or slots: stores [X, blocks, ...], index int32 [M], block int32 scalar -> [M, ...]."""
    k, v = (x.at[index, block].get(mode="promise_in_bounds") for x in (keys, values))
    return k, v


def cache_bytes(cfg: TransformerConfig, shape: CacheShape) -> int:
    """Bytes `empty` would take."""
    blocks = (shape.rows + 1) * shape.prefix_blocks + (shape.lanes + 1) * shape.suffix_blocks
    return 2 * cfg.n_layers * cfg.n_kv_heads * cfg.head_dim * blocks * shape.block * jnp.dtype(cfg.dtype).itemsize

"""The prefill program, pure and jitted: writes chunks of prefixes into the cache and scores the tokens that follow."""

from __future__ import annotations

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
from jax import Array

from hdl_jax.policy import attention as attn
from hdl_jax.policy import transformer as tr
from hdl_jax.policy.presets import TransformerConfig
from hdl_jax.sampling.cache import Cache, take


@functools.partial(jax.jit, static_argnames=("cfg", "score"), donate_argnames=("cache",))
def prefill(
    params: tr.Params,
    cache: Cache,
    rows: Array,
    blocks: Array,
    tokens: Array,
    targets: Array,
    temperature: Array,
    *,
    cfg: TransformerConfig,
    score: bool,
) -> tuple[Cache, Array]:
    """Runs N chunks through the network together: of several prefixes, or several chunks of one.

    A chunk is one block of a row, so a token's arithmetic does not depend on what else is in flight. In each layer all
    chunks are written before any is read: a later chunk sees an earlier one of the same call. Padding at the end of a
    last chunk fills places beyond the prefix, which nothing reads.

    Args:
        params: sampling layout.
        cache: donated.
        rows, blocks: int32 [N], which block of which row each chunk is; idle chunks name the scratch row.
        tokens: int32 [N, B]. targets: int32 [N, B], the token after each; read only with score.
        temperature: float32 scalar.

    Returns:
        the cache, and float32 [2, N, B]: log-probabilities of the targets and entropies with score, zeros without.
    """
    n, w = tokens.shape
    chex.assert_shape([rows, blocks], (n,))
    chex.assert_axis_dimension(cache.prefix_k[0], -1, w)
    kv, group, d = cfg.n_kv_heads, cfg.n_heads // cfg.n_kv_heads, cfg.head_dim
    positions = (blocks[:, None] * w + jnp.arange(w)).reshape(-1)
    query_position = jnp.repeat(positions.reshape(n, w), group, axis=1)[:, None, :, None]
    x = tr.embed(params, cfg, tokens.reshape(-1)).T
    keys, values = list(cache.prefix_k), list(cache.prefix_v)

    def attend(layer: int, q: Array, k: Array, v: Array) -> tuple[Array, None]:
        keys[layer] = keys[layer].at[rows, blocks].set(k.reshape(kv, d, n, w).transpose(2, 0, 1, 3))
        values[layer] = values[layer].at[rows, blocks].set(v.reshape(kv, d, n, w).transpose(2, 0, 3, 1))
        q = (q * d**-0.5).reshape(kv, group, d, n, w).transpose(3, 0, 4, 1, 2).reshape(n, kv, w * group, d)

        def step(i: Array, run: attn.Running) -> attn.Running:
            visible = (i * w + jnp.arange(w)) <= query_position
            return attn.absorb(run, q, *take(keys[layer], values[layer], rows, i), visible)

        out = attn.finish(jax.lax.fori_loop(0, blocks.max() + 1, step, attn.begin(q)))
        return out.reshape(n, kv, w, group, d).transpose(1, 3, 4, 0, 2).reshape(cfg.n_heads, d, n * w), None

    for i, layer_params in enumerate(params["blocks"]):
        block_of = tr.Block(cfg, columns=True)
        x, _ = block_of.apply({"params": layer_params}, x, positions, functools.partial(attend, i))
    cache = dataclasses.replace(cache, prefix_k=tuple(keys), prefix_v=tuple(values))
    if not score:
        return cache, jnp.zeros((2, n, w))
    return cache, jnp.stack(tr.token_logprobs(params, cfg, x.T.reshape(n, w, -1), targets, temperature))

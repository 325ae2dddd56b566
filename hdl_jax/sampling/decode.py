"""The two device programs of sampling, both pure and jitted: prefill a chunk of prefixes, decode a burst of lanes."""

from __future__ import annotations

import dataclasses
import functools

import chex
import flax.struct
import jax
import jax.numpy as jnp
from jax import Array

from hdl_jax.policy import attention as attn
from hdl_jax.policy import transformer as tr
from hdl_jax.policy.presets import TransformerConfig
from hdl_jax.sampling.cache import Cache
from hdl_jax.sampling.draw import inverse_cdf, lane_keys, uniforms


@flax.struct.dataclass
class Lanes:
    """What the host tells a decode burst about each lane; every array [R, C] unless said otherwise.

    A lane first feeds its forced tokens (the last one it sampled, then an observation), one a step, and then samples
    until it draws a stop token or spends its budget. A lane whose observation does not fit into one burst's `forced`
    has budget 0: it feeds what it is given and waits for the rest.

    Attributes:
        active: bool; idle lanes compute nothing that anybody reads.
        fork: int32, prefix tokens the lane sees, and the depth of its first suffix slot.
        length: int32, suffix slots filled.
        forced: int32 [R, C, F] tokens to feed; n_forced int32, at least 1 where active.
        budget: int32, tokens the lane may sample in this turn.
        stop: int32 [R, C, E], the token ids that end a turn.
        temperature: float32.
        path: int32 [R, C, PATH_LENGTH], the name of the lane's random stream.
    """

    active: Array
    fork: Array
    length: Array
    forced: Array
    n_forced: Array
    budget: Array
    stop: Array
    temperature: Array
    path: Array


@flax.struct.dataclass
class Burst:
    """What a burst of at most N steps did.

    Attributes:
        tokens: int32 [R, C, N] sampled, log_probs float32 [R, C, N], count int32 [R, C] of them.
        fed: int32 [R, C], forced tokens consumed.
        length: int32 [R, C], suffix slots filled now.
        stopped: bool [R, C], whether the lane drew a stop token or spent its budget.
    """

    tokens: Array
    log_probs: Array
    count: Array
    fed: Array
    length: Array
    stopped: Array


@functools.partial(jax.jit, static_argnames=("cfg", "block", "score"), donate_argnames=("cache",))
def prefill(
    params: tr.Params,
    cache: Cache,
    rows: Array,
    tokens: Array,
    start: Array,
    targets: Array,
    temperature: Array,
    *,
    cfg: TransformerConfig,
    block: int,
    score: bool,
) -> tuple[Cache, Array | None, Array | None]:
    """Writes one chunk of several prefixes into the cache, and scores the tokens that follow on request.

    Chunks are aligned to positions that are multiples of W = block, so a token's arithmetic does not depend on what
    else is in flight. Padding at the end of a last chunk writes slots beyond the prefix, which nothing reads.

    Args:
        params: sampling layout.
        cache: donated.
        rows: int32 [N], the cache row of each chunk; a value of R or more writes nothing.
        tokens: int32 [N, W]. start: int32 [N], multiples of W.
        targets: int32 [N, W], the token after each; read only with score.
        temperature: float32 scalar.

    Returns:
        the cache, and with score the log-probabilities of the targets and the entropies, float32 [N, W].
    """
    n, w = tokens.shape
    chex.assert_shape([rows, start], (n,))
    if w != block:
        raise ValueError(f"chunks are {w} wide, attention blocks {block}: they must agree")
    kv, group = cfg.n_kv_heads, cfg.n_heads // cfg.n_kv_heads
    positions = start[:, None] + jnp.arange(w)
    n_blocks = start.max() // block + 1
    x = tr.embed(params, cfg, tokens)
    keys, values = list(cache.prefix_k), list(cache.prefix_v)
    at = (rows[:, None, None], jnp.arange(kv)[None, :, None], positions[:, None, :])

    def attend(layer: int, q: Array, k: Array, v: Array) -> tuple[Array, None]:
        keys[layer] = keys[layer].at[at].set(k.swapaxes(1, 2), mode="drop")
        values[layer] = values[layer].at[at].set(v.swapaxes(1, 2), mode="drop")
        q = (q * cfg.head_dim**-0.5).reshape(n, w, kv, group, -1).swapaxes(1, 2).reshape(n, kv, w * group, -1)
        query_position = jnp.repeat(positions, group, axis=1)[:, None, :, None]

        def step(i: Array, run: attn.Running) -> attn.Running:
            part = [jax.lax.dynamic_slice_in_dim(c[layer], i * block, block, axis=2) for c in (keys, values)]
            k_block, v_block = (p.at[rows].get(mode="clip") for p in part)
            visible = (i * block + jnp.arange(block))[None, None, None, :] <= query_position
            return attn.absorb(run, q, k_block, v_block, visible)

        out = attn.finish(jax.lax.fori_loop(0, n_blocks, step, attn.begin(q)))
        return out.reshape(n, kv, w, group, -1).swapaxes(1, 2).reshape(n, w, cfg.n_heads, -1), None

    for i, layer_params in enumerate(params["blocks"]):
        x, _ = tr.Block(cfg).apply({"params": layer_params}, x, positions, functools.partial(attend, i))
    cache = dataclasses.replace(cache, prefix_k=tuple(keys), prefix_v=tuple(values))
    if not score:
        return cache, None, None
    log_p, entropy = tr.token_logprobs(params, cfg, x, targets, temperature)
    return cache, log_p, entropy


def decode_step(
    params: tr.Params,
    cfg: TransformerConfig,
    block: int,
    cache: Cache,
    tokens: Array,
    fork: Array,
    length: Array,
    write: Array,
) -> tuple[Array, Cache]:
    """Feeds one token a lane and returns the logits of the next.

    Args:
        tokens, fork, length: int32 [R, C]; write: bool [R, C], lanes whose key and value are stored.

    Returns:
        logits float32 [R, C, V] and the cache with slot `length` of each writing lane set.
    """
    r, c = tokens.shape
    kv, group, d = cfg.n_kv_heads, cfg.n_heads // cfg.n_kv_heads, cfg.head_dim
    x = tr.embed(params, cfg, tokens)
    position = fork + length
    suffix_capacity = cache.suffix_k[0].shape[3]
    # An idle lane's slot is out of range, and a scatter drops what is out of range.
    slot = jnp.where(write, length, suffix_capacity)
    at = (jnp.arange(r)[:, None, None], jnp.arange(kv)[None, None, :], jnp.arange(c)[None, :, None], slot[:, :, None])
    prefix_blocks = (jnp.where(write, fork, 0).max() + block - 1) // block
    suffix_blocks = jnp.where(write, length, 0).max() // block + 1
    suffix_k, suffix_v = list(cache.suffix_k), list(cache.suffix_v)

    def attend(layer: int, q: Array, k: Array, v: Array) -> tuple[Array, None]:
        suffix_k[layer] = suffix_k[layer].at[at].set(k, mode="drop")
        suffix_v[layer] = suffix_v[layer].at[at].set(v, mode="drop")
        # [R, C, H, d] -> [R, K, C * G, d]: all lanes of a row meet a prefix block in one product.
        q = (q * d**-0.5).reshape(r, c, kv, group, d).swapaxes(1, 2).reshape(r, kv, c * group, d)
        lane_fork = jnp.repeat(fork, group, axis=1)[:, None, :, None]

        def over_prefix(i: Array, run: attn.Running) -> attn.Running:
            k_block, v_block = (
                jax.lax.dynamic_slice_in_dim(p[layer], i * block, block, axis=2)
                for p in (cache.prefix_k, cache.prefix_v)
            )
            return attn.absorb(run, q, k_block, v_block, (i * block + jnp.arange(block)) < lane_fork)

        def over_suffix(i: Array, run: attn.Running) -> attn.Running:
            k_block, v_block = (
                jax.lax.dynamic_slice_in_dim(s[layer], i * block, block, axis=3) for s in (suffix_k, suffix_v)
            )
            visible = (i * block + jnp.arange(block)) <= length[:, None, :, None, None]
            return attn.absorb(run, q_lane, k_block, v_block, visible)

        run = jax.lax.fori_loop(0, prefix_blocks, over_prefix, attn.begin(q))
        per_lane = (r, kv, c, group)
        q_lane = q.reshape(*per_lane, d)
        run = attn.Running(run.out.reshape(*per_lane, d), run.top.reshape(per_lane), run.total.reshape(per_lane))
        out = attn.finish(jax.lax.fori_loop(0, suffix_blocks, over_suffix, run))
        return out.swapaxes(1, 2).reshape(r, c, cfg.n_heads, d), None

    for i, layer_params in enumerate(params["blocks"]):
        x, _ = tr.Block(cfg).apply({"params": layer_params}, x, position, functools.partial(attend, i))
    return tr.logits(params, cfg, x), dataclasses.replace(cache, suffix_k=tuple(suffix_k), suffix_v=tuple(suffix_v))


@functools.partial(jax.jit, static_argnames=("cfg", "block", "steps"), donate_argnames=("cache",))
def decode(
    params: tr.Params,
    cache: Cache,
    seed: Array,
    lanes: Lanes,
    *,
    cfg: TransformerConfig,
    block: int,
    steps: int,
) -> tuple[Cache, Burst]:
    """Runs all lanes for up to `steps` tokens, without the host; leaves early once a quarter of them wait for it.

    Where a burst ends changes no lane's tokens: whatever a lane feeds or draws depends on its own state and key alone.

    Args:
        params: sampling layout. cache: donated. seed: key of the run.
    """
    r, c = lanes.active.shape
    keys = lane_keys(seed, lanes.path).reshape(-1)
    started = lanes.active.sum()

    def running(burst: Burst) -> Array:
        more_to_feed = burst.fed < lanes.n_forced
        return lanes.active & ~burst.stopped & (more_to_feed | (lanes.budget > 0))

    def alive(carry: tuple) -> Array:
        i, _, _, burst = carry
        return (i < steps) & (4 * running(burst).sum() > 3 * started)

    def body(carry: tuple) -> tuple:
        i, cache, last, burst = carry
        go = running(burst)
        feeding = burst.fed < lanes.n_forced
        ahead = jnp.take_along_axis(lanes.forced, jnp.minimum(burst.fed, lanes.n_forced - 1)[..., None], axis=-1)
        token = jnp.where(feeding, ahead[..., 0], last)
        z, cache = decode_step(params, cfg, block, cache, token, lanes.fork, burst.length, go)
        fed = burst.fed + (go & feeding)
        length = burst.length + go

        z = (z / lanes.temperature[..., None]).reshape(r * c, -1)
        drawn, log_p = (y.reshape(r, c) for y in inverse_cdf(z, uniforms(keys, (lanes.fork + length).reshape(-1))))
        sampled = go & (fed >= lanes.n_forced) & (lanes.budget > 0)
        at = (jnp.arange(r)[:, None], jnp.arange(c)[None], jnp.where(sampled, burst.count, steps))
        count = burst.count + sampled
        ends = (drawn[..., None] == lanes.stop).any(axis=-1) | (count >= lanes.budget)
        burst = Burst(
            tokens=burst.tokens.at[at].set(drawn, mode="drop"),
            log_probs=burst.log_probs.at[at].set(log_p, mode="drop"),
            count=count,
            fed=fed,
            length=length,
            stopped=burst.stopped | (sampled & ends),
        )
        return i + 1, cache, jnp.where(sampled, drawn, last), burst

    zeros = jnp.zeros((r, c), jnp.int32)
    burst = Burst(
        tokens=jnp.zeros((r, c, steps), jnp.int32),
        log_probs=jnp.zeros((r, c, steps), jnp.float32),
        count=zeros,
        fed=zeros,
        length=lanes.length,
        stopped=jnp.zeros((r, c), bool),
    )
    _, cache, _, burst = jax.lax.while_loop(alive, body, (jnp.int32(0), cache, zeros, burst))
    return cache, burst

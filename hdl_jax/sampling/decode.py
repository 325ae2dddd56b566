"""The decode program, pure and jitted: a burst of many lanes and many tokens, without the host."""

from __future__ import annotations

import dataclasses
import functools

import flax.struct
import jax
import jax.numpy as jnp
from jax import Array

from hdl_jax.policy import attention as attn
from hdl_jax.policy import transformer as tr
from hdl_jax.policy.presets import TransformerConfig
from hdl_jax.sampling.cache import Cache, take
from hdl_jax.sampling.draw import inverse_cdf, lane_keys, uniforms


@flax.struct.dataclass
class Lanes:
    """What the host tells a decode burst, for N places of which some hold a lane.

    `tile` neighbouring places share a row, `width` neighbouring places go through the network together: always exactly
    that many, whatever is in flight, so that a lane's arithmetic is its own. Lanes stand in front; groups of places
    without any cost nothing.

    A lane first feeds its forced tokens (the last one it sampled, then an observation), one a step, and then samples
    until it draws a stop token or spends its budget. A lane whose observation does not fit into one burst's `forced`
    has budget 0: it feeds what it is given and waits for the rest.

    Attributes:
        row: int32 [N / tile], the cache row of each tile.
        slot: int32 [N], the lane's suffix store.
        active: bool [N]; what an idle place computes nobody reads.
        fork: int32 [N], prefix tokens the lane sees, and the depth of its first suffix token.
        length: int32 [N], suffix tokens stored.
        forced: int32 [N, F] tokens to feed; n_forced int32 [N], at least 1 where active.
        budget: int32 [N], tokens the lane may sample in this turn.
        stop: int32 [N, E], the token ids that end a turn.
        temperature: float32 [N].
        path: int32 [N, PATH_LENGTH], the name of the lane's random stream.
    """

    row: Array
    slot: Array
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
    """What a burst of at most `steps` steps did.

    Attributes:
        tokens: int32 [N, steps] sampled, log_probs float32 [N, steps], count int32 [N] of them.
        fed: int32 [N], forced tokens consumed.
        length: int32 [N], suffix tokens stored now.
        stopped: bool [N], whether the lane drew a stop token or spent its budget.
        last: int32 [N], the token to feed next where no forced one is left.
    """

    tokens: Array
    log_probs: Array
    count: Array
    fed: Array
    length: Array
    stopped: Array
    last: Array


def running(lanes: Lanes, burst: Burst) -> Array:
    """bool [N], the lanes that have something to feed or may sample."""
    return lanes.active & ~burst.stopped & ((burst.fed < lanes.n_forced) | (lanes.budget > 0))


def decode_step(
    params: tr.Params,
    cfg: TransformerConfig,
    cache: Cache,
    tokens: Array,
    row: Array,
    slot: Array,
    fork: Array,
    length: Array,
) -> tuple[Array, Cache]:
    """Feeds one token a lane and returns the logits of the next.

    Args:
        params: sampling layout.
        tokens, slot, fork, length: int32 [M], M = T x C lanes, C of them a tile. row: int32 [T].

    Returns:
        logits float32 [V, M], and the cache with token `length` of each slot set.
    """
    m, t = len(tokens), len(row)
    c, kv, d = m // t, cfg.n_kv_heads, cfg.head_dim
    group, block = cfg.n_heads // kv, cache.prefix_k[0].shape[-1]
    x = tr.embed(params, cfg, tokens).T
    prefix_blocks = (fork.max() + block - 1) // block
    suffix_blocks = length.max() // block + 1
    suffix_k, suffix_v = list(cache.suffix_k), list(cache.suffix_v)
    head = jnp.arange(kv)[None]
    at = (slot[:, None], length[:, None] // block, head)
    offset = length[:, None] % block
    lane_fork = jnp.repeat(fork.reshape(t, c), group, axis=1)[:, None, :, None]

    def attend(layer: int, q: Array, k: Array, v: Array) -> tuple[Array, None]:
        suffix_k[layer] = suffix_k[layer].at[(*at, slice(None), offset)].set(k.transpose(2, 0, 1))
        suffix_v[layer] = suffix_v[layer].at[(*at, offset)].set(v.transpose(2, 0, 1))
        # [H, d, M] -> [T, K, C * G, d]: the lanes of a tile meet a block of their prefix in one product.
        q = (q * d**-0.5).reshape(kv, group, d, t, c).transpose(3, 0, 4, 1, 2)
        q_tile, q_lane = q.reshape(t, kv, c * group, d), q.swapaxes(1, 2).reshape(m, kv, group, d)

        def over_prefix(i: Array, run: attn.Running) -> attn.Running:
            visible = (i * block + jnp.arange(block)) < lane_fork
            return attn.absorb(run, q_tile, *take(cache.prefix_k[layer], cache.prefix_v[layer], row, i), visible)

        def over_suffix(i: Array, run: attn.Running) -> attn.Running:
            visible = (i * block + jnp.arange(block)) <= length[:, None, None, None]
            return attn.absorb(run, q_lane, *take(suffix_k[layer], suffix_v[layer], slot, i), visible)

        def by_lane(y: Array) -> Array:
            return y.reshape(t, kv, c, group, *y.shape[3:]).swapaxes(1, 2).reshape(m, kv, group, *y.shape[3:])

        run = jax.lax.fori_loop(0, prefix_blocks, over_prefix, attn.begin(q_tile))
        run = attn.Running(by_lane(run.out), by_lane(run.top), by_lane(run.total))
        out = attn.finish(jax.lax.fori_loop(0, suffix_blocks, over_suffix, run))
        return out.reshape(m, cfg.n_heads, d).transpose(1, 2, 0), None

    for i, layer_params in enumerate(params["blocks"]):
        block_of = tr.Block(cfg, columns=True)
        x, _ = block_of.apply({"params": layer_params}, x, fork + length, functools.partial(attend, i))
    cache = dataclasses.replace(cache, suffix_k=tuple(suffix_k), suffix_v=tuple(suffix_v))
    return tr.column_logits(params, cfg, x), cache


@functools.partial(jax.jit, static_argnames=("cfg", "tile", "width", "steps"), donate_argnames=("cache",))
def decode(
    params: tr.Params,
    cache: Cache,
    seed: Array,
    lanes: Lanes,
    *,
    cfg: TransformerConfig,
    tile: int,
    width: int,
    steps: int,
) -> tuple[Cache, Burst]:
    """Runs all lanes for up to `steps` tokens, without the host; leaves early once a quarter of them wait for it.

    Where a burst ends changes no lane's tokens: whatever a lane feeds or draws depends on its own state and key alone.

    Args:
        params: sampling layout. cache: donated. seed: key of the run.
        tile, width: places that share a row, and that go through the network together; width is whole tiles, N is
            whole widths.
    """
    n = len(lanes.slot)
    keys = lane_keys(seed, lanes.path)
    started = lanes.active.sum()
    scratch = cache.suffix_k[0].shape[0] - 1

    def alive(carry: tuple) -> Array:
        i, _, burst = carry
        return (i < steps) & (4 * running(lanes, burst).sum() > 3 * started)

    def group_step(g: Array, cache: Cache, burst: Burst) -> tuple[Cache, Burst]:
        mine, b = jax.tree.map(
            lambda x: jax.lax.dynamic_slice_in_dim(x, g * width * len(x) // n, width * len(x) // n), (lanes, burst)
        )
        own_keys = jax.lax.dynamic_slice_in_dim(keys, g * width, width)
        go = running(mine, b)
        feeding = b.fed < mine.n_forced
        ahead = jnp.take_along_axis(mine.forced, jnp.clip(b.fed, 0, mine.n_forced - 1)[:, None], axis=1)[:, 0]
        token = jnp.where(feeding, ahead, b.last)
        # An idle place goes through the network too: into the scratch slot, over no prefix.
        z, cache = decode_step(
            params, cfg, cache, token, mine.row, jnp.where(go, mine.slot, scratch),
            jnp.where(go, mine.fork, 0), jnp.where(go, b.length, 0),
        )  # fmt: skip
        fed, length = b.fed + (go & feeding), b.length + go
        drawn, log_p = inverse_cdf(z / mine.temperature, uniforms(own_keys, mine.fork + length))
        sampled = go & (fed >= mine.n_forced) & (mine.budget > 0)
        at = (jnp.arange(width), jnp.where(sampled, b.count, steps))
        count = b.count + sampled
        ends = (drawn[:, None] == mine.stop).any(axis=-1) | (count >= mine.budget)
        after = Burst(
            tokens=b.tokens.at[at].set(drawn, mode="drop"),
            log_probs=b.log_probs.at[at].set(log_p, mode="drop"),
            count=count,
            fed=fed,
            length=length,
            stopped=b.stopped | (sampled & ends),
            last=jnp.where(sampled, drawn, b.last),
        )
        put = functools.partial(jax.lax.dynamic_update_slice_in_dim, start_index=g * width, axis=0)
        return cache, jax.tree.map(put, burst, after)

    def body(carry: tuple) -> tuple:
        i, cache, burst = carry
        busy = running(lanes, burst).reshape(-1, width).any(axis=1)
        order = jnp.argsort(~busy)  # groups with a running lane first
        cache, burst = jax.lax.fori_loop(0, busy.sum(), lambda j, state: group_step(order[j], *state), (cache, burst))
        return i + 1, cache, burst

    zeros = jnp.zeros(n, jnp.int32)
    burst = Burst(
        tokens=jnp.zeros((n, steps), jnp.int32),
        log_probs=jnp.zeros((n, steps), jnp.float32),
        count=zeros,
        fed=zeros,
        length=lanes.length,
        stopped=jnp.zeros(n, bool),
        last=zeros,
    )
    _, cache, burst = jax.lax.while_loop(alive, body, (jnp.int32(0), cache, burst))
    return cache, burst

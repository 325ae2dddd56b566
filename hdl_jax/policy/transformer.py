"""The policy network. Flax modules whose parameters are an argument; every function here is pure.

Parameters are stacked over layers: {"embed": [V, D], "blocks": {... [L, ...]}, "norm": [D], "head": [D, V]} (no "head"
where embeddings are tied). Training scans over the stack with rematerialisation; sampling loops over the layers of
`sampling_layout`. Both call the same `Block`, which is handed the attention to use.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from hdl_jax.policy import packed
from hdl_jax.policy.attention import causal_attention
from hdl_jax.policy.presets import TransformerConfig

Params = dict[str, Any]
# attend(q [..., H, d], k [..., K, d], v [..., K, d]) -> ([..., H, d], whatever the caller wants back, such as a cache);
# with columns [H, d, M], [K, d, M] -> [H, d, M].
Attend = Callable[[Array, Array, Array], tuple[Array, Any]]

# packed_attention, or another implementation of it: (q [N, H, d], k [N, K, d], v [N, K, d], layout) -> [N, H, d]
PackedAttention = Callable[[Array, Array, Array, packed.Layout], Array]

# Logits held at once by the chunked head: [chunk, V] of about this many elements, and at most so many positions, so
# that chunks without a trained token can be left out.
HEAD_ELEMENTS = 1 << 23
HEAD_POSITIONS = 512


def rms_norm(x: Array, scale: Array, eps: float, axis: int = -1) -> Array:
    """x over its root mean square along the features' axis, times scale [D]; statistics in float32."""
    y = x.astype(jnp.float32)
    y = y * jax.lax.rsqrt((y * y).mean(axis=axis, keepdims=True) + eps)
    return (y * jnp.expand_dims(scale, tuple(range(axis + 1, 0)))).astype(x.dtype)


def rotary_frequencies(cfg: TransformerConfig) -> np.ndarray:
    """float32 [head_dim / 2]: radians a position by which each pair of a head turns.

    Constants, worked out in float64 and rounded once: what a frequency is off by is multiplied by the position.
    """
    half = cfg.head_dim // 2
    frequency = cfg.rope_theta ** (-np.arange(half) / half)
    if cfg.rope_scaling is not None:
        scaling = cfg.rope_scaling
        low, high = scaling.low_freq_factor, scaling.high_freq_factor
        turns = scaling.original_max_position * frequency / (2 * np.pi)
        kept = np.clip((turns - low) / (high - low), 0, 1)
        frequency *= kept + (1 - kept) / scaling.factor
    return frequency.astype(np.float32)


def rotate(x: Array, positions: Array, frequency: np.ndarray, axis: int = -1) -> Array:
    """Rotary embedding at positions (depth in the path), halves convention (Llama, Qwen).

    x is [..., heads, d] at positions [...], or with axis -2 [heads, d, M] at positions [M]; frequency is [d / 2].
    """
    where = positions.astype(jnp.float32)
    angle = where[..., None, None] * frequency if axis == -1 else frequency[:, None] * where
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    a, b = jnp.split(x.astype(jnp.float32), 2, axis=axis)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=axis).astype(x.dtype)


class RMSNorm(nn.Module):
    eps: float
    axis: int = -1

    @nn.compact
    def __call__(self, x: Array) -> Array:
        scale = self.param("scale", nn.initializers.ones, (x.shape[self.axis],))
        return rms_norm(x, scale, self.eps, self.axis)


class Linear(nn.Module):
    """x [..., in] @ kernel [in, out], or for columns kernel [out, in] @ x [in, M]."""

    features: int
    dtype: str
    columns: bool

    @nn.compact
    def __call__(self, x: Array) -> Array:
        init, width = nn.initializers.lecun_normal(), x.shape[-2 if self.columns else -1]
        shape = (self.features, width) if self.columns else (width, self.features)
        kernel = self.param("kernel", init, shape).astype(self.dtype)
        return kernel @ x if self.columns else x @ kernel


class Block(nn.Module):
    """One layer: attention and gated MLP, each behind an RMSNorm.

    x is [..., D] with free leading dimensions, or with `columns` [D, M], a token a column: the sampling layout. With
    the few tokens of a decode step the weights are the large side of every product, and a CPU reads them a fifth faster
    as the left side.
    """

    cfg: TransformerConfig
    columns: bool = False

    @nn.compact
    def __call__(self, x: Array, positions: Array, attend: Attend) -> tuple[Array, Any]:
        cfg = self.cfg
        axis = -2 if self.columns else -1

        def dense(width: int, name: str) -> Linear:
            return Linear(width, cfg.dtype, self.columns, name=name)

        def norm(name: str) -> RMSNorm:
            return RMSNorm(cfg.norm_eps, axis, name=name)

        def heads(y: Array, n: int) -> Array:
            return y.reshape(n, cfg.head_dim, -1) if self.columns else y.reshape(*y.shape[:-1], n, cfg.head_dim)

        h = norm("attention_norm")(x)
        q = heads(dense(cfg.n_heads * cfg.head_dim, "q")(h), cfg.n_heads)
        k = heads(dense(cfg.n_kv_heads * cfg.head_dim, "k")(h), cfg.n_kv_heads)
        v = heads(dense(cfg.n_kv_heads * cfg.head_dim, "v")(h), cfg.n_kv_heads)
        if cfg.qk_norm:
            q, k = norm("q_norm")(q), norm("k_norm")(k)
        frequency = rotary_frequencies(cfg)
        out, extra = attend(rotate(q, positions, frequency, axis), rotate(k, positions, frequency, axis), v)
        flat = (-1, x.shape[-1]) if self.columns else (*x.shape[:-1], -1)
        x = x + dense(cfg.d_model, "o")(out.reshape(flat).astype(x.dtype))

        h = norm("mlp_norm")(x)
        gated = nn.silu(dense(cfg.d_ff, "gate")(h)) * dense(cfg.d_ff, "up")(h)
        return x + dense(cfg.d_model, "down")(gated), extra


def init(cfg: TransformerConfig, key: Array) -> Params:
    """Fresh float32 parameters."""
    k_embed, k_blocks, k_head = jax.random.split(key, 3)
    x, position = jnp.zeros((1, cfg.d_model)), jnp.zeros((1,), jnp.int32)

    def init_block(k: Array) -> Params:
        return Block(cfg).init(k, x, position, lambda q, k, v: (q, None))["params"]

    params: Params = {
        "embed": jax.random.normal(k_embed, (cfg.vocab_size, cfg.d_model)) * cfg.d_model**-0.5,
        "blocks": jax.vmap(init_block)(jax.random.split(k_blocks, cfg.n_layers)),
        "norm": jnp.ones((cfg.d_model,)),
    }
    if not cfg.tie_embeddings:
        params["head"] = jax.random.normal(k_head, (cfg.d_model, cfg.vocab_size)) * cfg.d_model**-0.5
    return params


def abstract_params(cfg: TransformerConfig) -> Params:
    """The parameters' shapes and dtypes, without memory."""
    return jax.eval_shape(lambda: init(cfg, jax.random.key(0)))


def sampling_layout(params: Params, cfg: TransformerConfig) -> Params:
    """The parameters as sampling reads them: `blocks` a tuple of per-layer trees, kernels [out, in], in cfg.dtype.

    Slicing a stack inside a decode loop would cost 1.2 to 1.65 times as much.
    """

    def of_layer(i: int) -> Callable[[Array], Array]:
        return lambda p: p[i].T.astype(cfg.dtype) if p.ndim == 3 else p[i]

    blocks = tuple(jax.tree.map(of_layer(i), params["blocks"]) for i in range(cfg.n_layers))
    cast: Params = {name: params[name].astype(cfg.dtype) for name in ("embed", "head") if name in params}
    return {**params, **cast, "blocks": blocks}


def embed(params: Params, cfg: TransformerConfig, tokens: Array) -> Array:
    """tokens [...] -> [..., D]."""
    return params["embed"][tokens].astype(cfg.dtype)


def logits(params: Params, cfg: TransformerConfig, hidden: Array) -> Array:
    """hidden [..., D] (before the final norm) -> float32 [..., V]. For few positions only: see token_logprobs."""
    h = rms_norm(hidden, params["norm"], cfg.norm_eps)
    head = params["embed"].T if cfg.tie_embeddings else params["head"]
    return jnp.einsum("...d,dv->...v", h, head.astype(h.dtype), preferred_element_type=jnp.float32)


def column_logits(params: Params, cfg: TransformerConfig, hidden: Array) -> Array:
    """hidden [D, M] (before the final norm) -> float32 [V, M]: the head of a decode step."""
    h = rms_norm(hidden, params["norm"], cfg.norm_eps, axis=-2)
    head = params["embed"] if cfg.tie_embeddings else params["head"].T
    return jnp.matmul(head.astype(h.dtype), h, preferred_element_type=jnp.float32)


def packed_forward(
    params: Params, cfg: TransformerConfig, tokens: Array, layout: packed.Layout, attention: PackedAttention
) -> Array:
    """Forward of a packed stream, rematerialised layer by layer but for what attention saves; for training.

    Args:
        params: stacked parameters.
        tokens: int32 [N].
        layout: of the stream, with the tables of `attention`.

    Returns:
        hidden states [N, D], before the final norm.
    """
    chex.assert_rank(tokens, 1)

    @functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.save_only_these_names(*packed.SAVED))
    def layer(x: Array, block: Params) -> tuple[Array, None]:
        def attend(q: Array, k: Array, v: Array) -> tuple[Array, None]:
            return attention(q, k, v, layout), None

        return Block(cfg).apply({"params": block}, x, layout.positions, attend)[0], None

    return jax.lax.scan(layer, embed(params, cfg, tokens), params["blocks"])[0]


def forward(params: Params, cfg: TransformerConfig, tokens: Array) -> Array:
    """Causal forward of whole rows, rematerialised layer by layer; `packed_forward` is the one to train with.

    Args:
        params: stacked parameters.
        tokens: int32 [B, T], padded on the right.

    Returns:
        hidden states [B, T, D], before the final norm.
    """
    chex.assert_rank(tokens, 2)
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)

    @jax.checkpoint
    def layer(x: Array, block: Params) -> tuple[Array, None]:
        x, _ = Block(cfg).apply({"params": block}, x, positions, lambda q, k, v: (causal_attention(q, k, v), None))
        return x, None

    return jax.lax.scan(layer, embed(params, cfg, tokens), params["blocks"])[0]


def token_logprobs(
    params: Params,
    cfg: TransformerConfig,
    hidden: Array,
    targets: Array,
    temperature: float | Array = 1.0,
    count: Array | None = None,
) -> tuple[Array, Array]:
    """Log-probability of each target and exact entropy of the distribution it was drawn from.

    The head runs over chunks of HEAD_ELEMENTS / V positions and is rematerialised: logits never take more than that.

    Args:
        hidden: [..., D], the state that predicts the target at the same place.
        targets: int32 [...].
        temperature: the sampler's temperature; both results are of the tempered distribution (cases P1).
        count: how many of the flattened targets matter, the first ones; chunks of none that does are skipped.

    Returns:
        log-probabilities and entropies in nats, both float32 [...]; what lies beyond `count` means nothing.
    """
    chex.assert_equal_shape_prefix([hidden, targets], targets.ndim)
    n = targets.size
    chunk = min(n, HEAD_POSITIONS, max(1, HEAD_ELEMENTS // cfg.vocab_size))
    pad = -n % chunk
    flat = jnp.pad(hidden.reshape(n, -1), ((0, pad), (0, 0))).reshape(-1, chunk, hidden.shape[-1])
    flat_targets = jnp.pad(targets.reshape(n), (0, pad)).reshape(-1, chunk)

    def head(args: tuple[Array, Array]) -> tuple[Array, Array]:
        h, t = args
        z = logits(params, cfg, h) / temperature
        log_z = jax.nn.logsumexp(z, axis=-1)
        log_p = jnp.take_along_axis(z, t[:, None], axis=-1)[:, 0] - log_z
        entropy = log_z - (jax.nn.softmax(z, axis=-1) * z).sum(axis=-1)
        return log_p, entropy

    # Around the cond, not within: a cond hands its branch's weights to the backward pass, a copy of them a chunk.
    @jax.checkpoint
    def head_if_any(args: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        first, *chunk_args = args
        nothing = jnp.zeros(chunk), jnp.zeros(chunk)
        return jax.lax.cond(first < (n if count is None else count), head, lambda _: nothing, tuple(chunk_args))

    log_p, entropy = jax.lax.map(head_if_any, (jnp.arange(0, n, chunk), flat, flat_targets))
    return log_p.reshape(-1)[:n].reshape(targets.shape), entropy.reshape(-1)[:n].reshape(targets.shape)


def parameter_count(params: Params) -> int:
    """How many numbers the parameters hold (arrays or ShapeDtypeStructs)."""
    return sum(int(p.size) for p in jax.tree.leaves(params))

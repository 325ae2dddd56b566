"""The policy network. Flax modules whose parameters are an argument; every function here is pure.

Parameters are stacked over layers: {"embed": [V, D], "blocks": {... [L, ...]}, "norm": [D], "head": [D, V]} (no "head"
where embeddings are tied). Training scans over the stack with rematerialisation; sampling loops over the `unstack`ed
layers, since slicing a stack inside a decode loop costs 1.2 to 1.65 times as much. Both call the same `Block`, which is
handed the attention to use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from hdl_jax.policy.attention import causal_attention
from hdl_jax.policy.presets import TransformerConfig

Params = dict[str, Any]
# attend(q [..., H, d], k [..., K, d], v [..., K, d]) -> ([..., H, d], whatever the caller wants back, such as a cache)
Attend = Callable[[Array, Array, Array], tuple[Array, Any]]

# Logits held at once by the chunked head: [chunk, V] of about this many elements.
HEAD_ELEMENTS = 1 << 23


def rms_norm(x: Array, scale: Array, eps: float) -> Array:
    """x [..., D] over its root mean square, times scale [D]; statistics in float32."""
    y = x.astype(jnp.float32)
    y = y * jax.lax.rsqrt((y * y).mean(axis=-1, keepdims=True) + eps)
    return (y * scale).astype(x.dtype)


def rotate(x: Array, positions: Array, theta: float) -> Array:
    """Rotary embedding of x [..., heads, d] at positions [...] (depth in the path), halves convention (Llama, Qwen)."""
    half = x.shape[-1] // 2
    frequency = theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angle = positions[..., None, None].astype(jnp.float32) * frequency
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    a, b = x[..., :half].astype(jnp.float32), x[..., half:].astype(jnp.float32)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1).astype(x.dtype)


class RMSNorm(nn.Module):
    eps: float

    @nn.compact
    def __call__(self, x: Array) -> Array:
        return rms_norm(x, self.param("scale", nn.initializers.ones, (x.shape[-1],)), self.eps)


class Block(nn.Module):
    """One layer: attention and gated MLP, each behind an RMSNorm. Leading dimensions of x are free."""

    cfg: TransformerConfig

    @nn.compact
    def __call__(self, x: Array, positions: Array, attend: Attend) -> tuple[Array, Any]:
        cfg = self.cfg

        def dense(width: int, name: str) -> nn.Dense:
            return nn.Dense(width, use_bias=False, dtype=jnp.dtype(cfg.dtype), name=name)

        def heads(y: Array, n: int) -> Array:
            return y.reshape(*y.shape[:-1], n, cfg.head_dim)

        h = RMSNorm(cfg.norm_eps, name="attention_norm")(x)
        q = heads(dense(cfg.n_heads * cfg.head_dim, "q")(h), cfg.n_heads)
        k = heads(dense(cfg.n_kv_heads * cfg.head_dim, "k")(h), cfg.n_kv_heads)
        v = heads(dense(cfg.n_kv_heads * cfg.head_dim, "v")(h), cfg.n_kv_heads)
        if cfg.qk_norm:
            q, k = RMSNorm(cfg.norm_eps, name="q_norm")(q), RMSNorm(cfg.norm_eps, name="k_norm")(k)
        out, extra = attend(rotate(q, positions, cfg.rope_theta), rotate(k, positions, cfg.rope_theta), v)
        x = x + dense(cfg.d_model, "o")(out.reshape(*x.shape[:-1], -1).astype(x.dtype))

        h = RMSNorm(cfg.norm_eps, name="mlp_norm")(x)
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


def unstack(params: Params) -> Params:
    """The sampling layout: `blocks` as a tuple of per-layer trees instead of one stacked tree."""
    blocks = params["blocks"]
    n_layers = jax.tree.leaves(blocks)[0].shape[0]
    return {**params, "blocks": tuple(jax.tree.map(lambda p, i=i: p[i], blocks) for i in range(n_layers))}


def embed(params: Params, cfg: TransformerConfig, tokens: Array) -> Array:
    """tokens [...] -> [..., D]."""
    return params["embed"][tokens].astype(cfg.dtype)


def logits(params: Params, cfg: TransformerConfig, hidden: Array) -> Array:
    """hidden [..., D] (before the final norm) -> float32 [..., V]. For few positions only: see token_logprobs."""
    h = rms_norm(hidden, params["norm"], cfg.norm_eps)
    head = params["embed"].T if cfg.tie_embeddings else params["head"]
    return jnp.einsum("...d,dv->...v", h, head.astype(h.dtype), preferred_element_type=jnp.float32)


def forward(params: Params, cfg: TransformerConfig, tokens: Array) -> Array:
    """Causal forward of whole rows, rematerialised layer by layer; for training.

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
    params: Params, cfg: TransformerConfig, hidden: Array, targets: Array, temperature: float | Array = 1.0
) -> tuple[Array, Array]:
    """Log-probability of each target and exact entropy of the distribution it was drawn from.

    The head runs over chunks of HEAD_ELEMENTS / V positions and is rematerialised: logits never take more than that.

    Args:
        hidden: [..., D], the state that predicts the target at the same place.
        targets: int32 [...].
        temperature: the sampler's temperature; both results are of the tempered distribution (cases P1).

    Returns:
        log-probabilities and entropies in nats, both float32 [...].
    """
    chex.assert_equal_shape_prefix([hidden, targets], targets.ndim)
    n = targets.size
    chunk = min(n, max(1, HEAD_ELEMENTS // cfg.vocab_size))
    pad = -n % chunk
    flat = jnp.pad(hidden.reshape(n, -1), ((0, pad), (0, 0))).reshape(-1, chunk, hidden.shape[-1])
    flat_targets = jnp.pad(targets.reshape(n), (0, pad)).reshape(-1, chunk)

    @jax.checkpoint
    def head(args: tuple[Array, Array]) -> tuple[Array, Array]:
        h, t = args
        z = logits(params, cfg, h) / temperature
        log_z = jax.nn.logsumexp(z, axis=-1)
        log_p = jnp.take_along_axis(z, t[:, None], axis=-1)[:, 0] - log_z
        entropy = log_z - (jax.nn.softmax(z, axis=-1) * z).sum(axis=-1)
        return log_p, entropy

    log_p, entropy = jax.lax.map(head, (flat, flat_targets))
    return log_p.reshape(-1)[:n].reshape(targets.shape), entropy.reshape(-1)[:n].reshape(targets.shape)


def parameter_count(params: Params) -> int:
    """How many numbers the parameters hold (arrays or ShapeDtypeStructs)."""
    return sum(int(p.size) for p in jax.tree.leaves(params))

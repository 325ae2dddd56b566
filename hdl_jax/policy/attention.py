"""Attention in two forms: whole causal rows for training, and fixed blocks with a running softmax for sampling.

The block form serves prefill and decoding alike. Blocks have one fixed width and are visited in order, so a lane's
arithmetic is the same however many further blocks its longest neighbour makes the loop visit: a block that is masked
out for a lane leaves its running maximum, sum and output bit for bit as they were.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

# Finite, so that a fully masked block gives exp(MASKED - MASKED) * 0 terms and never NaN.
MASKED = -1e30


def causal_attention(q: Array, k: Array, v: Array) -> Array:
    """Causal attention of whole rows.

    Args:
        q: [B, T, H, d]. k, v: [B, T, K, d], K dividing H.

    Returns:
        [B, T, H, d]. Rows are padded on the right only, so no padding mask is needed: no real query sees padding.
    """
    b, t, h, d = q.shape
    kv, group = k.shape[2], h // k.shape[2]
    # The heads that share a key/value head are folded into the query axis: one larger product per (row, kv head).
    q = (q * d**-0.5).reshape(b, t, kv, group, d).swapaxes(1, 2).reshape(b, kv, t * group, d)
    k, v = k.swapaxes(1, 2), v.swapaxes(1, 2)
    scores = jnp.einsum("bkqd,bksd->bkqs", q, k, preferred_element_type=jnp.float32)
    visible = (jnp.arange(t * group) // group)[:, None] >= jnp.arange(t)
    weights = jax.nn.softmax(jnp.where(visible, scores, MASKED), axis=-1).astype(v.dtype)
    out = jnp.einsum("bkqs,bksd->bkqd", weights, v)
    return out.reshape(b, kv, t, group, d).swapaxes(1, 2).reshape(b, t, h, d)


class Running(NamedTuple):
    """A softmax-weighted sum in progress, all float32: `out` [..., M, d], `top` and `total` [..., M]."""

    out: Array
    top: Array
    total: Array


def begin(q: Array) -> Running:
    """The empty sum for queries q [..., M, d]."""
    return Running(
        jnp.zeros(q.shape, jnp.float32),
        jnp.full(q.shape[:-1], MASKED, jnp.float32),
        jnp.zeros(q.shape[:-1], jnp.float32),
    )


def absorb(run: Running, q: Array, k: Array, v: Array, visible: Array) -> Running:
    """Adds one block of keys.

    Args:
        run: the sum so far for q.
        q: [..., M, d], already scaled by d**-0.5.
        k: [..., d, B], v: [..., B, d], with the same leading dimensions.
        visible: bool, broadcastable to [..., M, B].
    """
    scores = jnp.einsum("...md,...db->...mb", q, k, preferred_element_type=jnp.float32)
    scores = jnp.where(visible, scores, MASKED)
    top = jnp.maximum(run.top, scores.max(axis=-1))
    keep = jnp.exp(run.top - top)
    weights = jnp.where(visible, jnp.exp(scores - top[..., None]), 0.0)
    out = run.out * keep[..., None] + jnp.einsum(
        "...mb,...bd->...md", weights.astype(v.dtype), v, preferred_element_type=jnp.float32
    )
    return Running(out, top, run.total * keep + weights.sum(axis=-1))


def finish(run: Running) -> Array:
    """The weighted mean [..., M, d]. A query that saw no key at all (an idle lane) gives 0, not NaN."""
    return run.out / jnp.maximum(run.total, 1e-30)[..., None]

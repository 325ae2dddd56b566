"""The masked, clipped surrogate of one micro-batch, as sums; the denominator is the step's and comes from outside."""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
from jax import Array


def surrogate(
    log_p: Array, old: Array, advantages: Array, mask: Array, *, clip_low: float, clip_high: float
) -> tuple[Array, dict[str, Array]]:
    """Clipped policy-gradient loss, summed over trained tokens (method step 9; DAPO's asymmetric clip).

    loss_t = -min(r_t A, clip(r_t, 1 - clip_low, 1 + clip_high) A), r_t = exp(log_p - old). No KL term.

    Args:
        log_p: float32 [N], differentiable. old: float32 [N], the trainer's own log-probs before this update.
        advantages: float32 [N], of each token's trajectory. mask: bool [N], trained tokens.

    Returns:
        the sum of losses over the mask, and sums over the mask of: clipped (the clip is active), kl (k1, old - new),
        tokens.
    """
    chex.assert_equal_shape([log_p, old, advantages, mask])
    # Masked positions may hold anything at all: they are cut off before exp, so that no inf meets a 0.
    log_ratio = jnp.where(mask, log_p - old, 0.0)
    ratio = jnp.exp(log_ratio)
    free, clipped = ratio * advantages, jnp.clip(ratio, 1 - clip_low, 1 + clip_high) * advantages
    loss = -jnp.where(mask, jnp.minimum(free, clipped), 0.0).sum()
    sums = {
        "clipped": (mask & (clipped < free)).sum().astype(jnp.float32),
        "kl": -jax.lax.stop_gradient(log_ratio).sum(),
        "tokens": mask.sum().astype(jnp.float32),
    }
    return loss, sums

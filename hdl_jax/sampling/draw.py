"""Drawing tokens: keys that name their draw, and an inverse CDF over two levels."""

from __future__ import annotations

import enum

import jax
import jax.numpy as jnp
from jax import Array


class Stream(enum.IntEnum):
    """What a draw is for. Without it a continuation's lane 0 would replay its root."""

    ROOT = 0
    REFLECTION = 1
    CONTINUATION = 2
    EVALUATION = 3
    ORACLE_ROOT = 4
    ORACLE_CONTINUATION = 5


# A temperature at which only the likeliest token has any probability (several, where float32 cannot tell them apart).
# A power of two: a compiler may divide by it in one place and multiply by its inverse in another, and the largest logit
# must come out the same to the bit. Logits up to 2**28 over it are finite.
GREEDY = 2.0**-100

# Every lane is named by (step, stream, problem, root, fork, round, lane); the position is folded in per draw.
PATH_LENGTH = 7


def lane_keys(seed: Array, paths: Array) -> Array:
    """Keys of lanes. seed: a key; paths: int32 [..., PATH_LENGTH] -> keys [...]."""

    def one(path: Array) -> Array:
        key = seed
        for i in range(PATH_LENGTH):
            key = jax.random.fold_in(key, path[i])
        return key

    flat = jax.vmap(one)(paths.reshape(-1, PATH_LENGTH))
    return flat.reshape(paths.shape[:-1])


def uniforms(keys: Array, positions: Array) -> Array:
    """One uniform in [0, 1) a lane: keys [N], positions int32 [N] (absolute index of the token drawn) -> [N]."""
    return jax.vmap(lambda k, i: jax.random.uniform(jax.random.fold_in(k, i)))(keys, positions)


def inverse_cdf(logits: Array, u: Array) -> tuple[Array, Array]:
    """Draws one token a lane by inverse CDF; block sums first, then inside the block that holds u.

    Args:
        logits: float32 [V, N], a lane a column, already divided by the temperature.
        u: [N] in [0, 1).

    Returns:
        tokens int32 [N] and their log-probabilities float32 [N]. A token of probability 0 is never drawn.
    """
    v, n = logits.shape
    width = 1 << max(1, v.bit_length() // 2)
    blocked = jnp.pad(logits, ((0, -v % width), (0, 0)), constant_values=-jnp.inf).reshape(-1, width, n)
    # Maxima and sums go block by block: one long reduction of few columns would keep a single core busy.
    top = blocked.max(axis=1).max(axis=0)
    block_mass = jnp.exp(blocked - top).sum(axis=1).T  # [N, blocks]
    cumulative = jnp.cumsum(block_mass, axis=-1)
    total = cumulative[:, -1]
    x = u * total

    def pick(cum: Array, weights: Array, target: Array) -> Array:
        """First index of positive weight whose cumulative sum exceeds the target; the last positive one if none does.

        The weight is asked for, not only the sum: `x - before` may round below 0, where a sum of 0 exceeds it.
        """
        hit = (weights > 0) & (cum > target[:, None])
        last_positive = weights.shape[-1] - 1 - jnp.argmax(weights[:, ::-1] > 0, axis=-1)
        return jnp.where(hit.any(axis=-1), jnp.argmax(hit, axis=-1), last_positive)

    block = pick(cumulative, block_mass, x)
    before = jnp.take_along_axis(cumulative - block_mass, block[:, None], axis=-1)[:, 0]
    lane = jnp.arange(n)
    inside = jnp.exp(blocked[block, :, lane] - top[:, None])  # [N, width]
    token = block * width + pick(jnp.cumsum(inside, axis=-1), inside, x - before)
    log_p = logits[token, lane] - top - jnp.log(total)
    return token.astype(jnp.int32), log_p

"""Attention over a packed stream: every token sees its own segment up to itself, and a piece of its parent's.

A stream is one flat row of N tokens that holds segments: roots, which see themselves causally, and continuations,
which besides see the first `fork` tokens of the root they left. So one root serves all its continuations, and memory
grows with N alone.

    stream     a b c d e f | x y z | u v        x y z left the root after b, u v after e
    start      0 0 0 0 0 0   6 6 6   9 9
    prefix     none          [0, 2)  [0, 5)

Queries and keys are cut into blocks. The host lists the key blocks that each query block sees a part of; the device
visits only those, a running softmax forward and its exact derivative backward, so that the cost follows the visible
pairs. Query blocks of like counts run together: one loop of a few large products.
"""

from __future__ import annotations

import chex
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.ad_checkpoint import checkpoint_name

from hdl_jax.policy.attention import MASKED

# Tokens a block, and query blocks that run together. Measured on 2 CPU cores: wider blocks waste more on pairs that
# nobody sees than their larger products win, narrower ones spend their time between products.
BLOCK = 64
TOGETHER = 8
# What the backward pass needs of the attention and cannot cheaply compute again; for jax.checkpoint policies.
SAVED = ("attention_out", "attention_lse")


@flax.struct.dataclass
class Blocks:
    """Which blocks see which, Q = N / width rounded up. Query blocks stand in groups of Z, those with most keys first.

    Attributes:
        queries: int32 [Q / Z rounded up, Z], query blocks, Q where a group is not full.
        keys: int32 [groups, Z, Q], the key blocks that each of them sees, Q where there are no more.
        counts: int32 [groups], the most key blocks of any block in the group.
        places: int32 [Q], where in `queries`, flattened, each block stands.
        width: tokens a block.
    """

    queries: np.ndarray | Array
    keys: np.ndarray | Array
    counts: np.ndarray | Array
    places: np.ndarray | Array
    width: int = flax.struct.field(pytree_node=False)


@flax.struct.dataclass
class Layout:
    """Who sees whom in a stream of N tokens: query q sees key k if start[q] <= k <= q, or k lies in q's prefix.

    Attributes:
        start: int32 [N], the first token of the token's segment; its own index for padding.
        prefix_start, prefix_end: int32 [N], the half-open interval of its parent's tokens that it sees; empty for a
            root. It begins at the first token of a root, so that its length is the fork.
        blocks: the tables of `packed_attention`.
        rows, slots: those of the kernels in policy/flash.py.
    """

    start: np.ndarray | Array
    prefix_start: np.ndarray | Array
    prefix_end: np.ndarray | Array
    rows: np.ndarray | Array | None = None
    slots: np.ndarray | Array | None = None
    blocks: Blocks | None = None

    @property
    def positions(self) -> Array:
        """int32 [N], depth in the path: what the rotary embedding turns by."""
        return jnp.arange(self.start.shape[0]) - self.start + self.prefix_end - self.prefix_start


def blocks_of(
    start: np.ndarray, prefix_start: np.ndarray, prefix_end: np.ndarray, width: int = BLOCK, together: int = TOGETHER
) -> Blocks:
    """The block tables of a stream, made on the host.

    Args:
        start, prefix_start, prefix_end: int [N], as in Layout. width: tokens a block. together: Z.
    """
    n = len(start)
    count = -(-n // width)
    own = np.arange(n) // width
    # Each token adds an interval of key blocks to its query block's row: +1 where it begins, -1 behind its end.
    edges = np.zeros((count, count + 1), np.int32)
    np.add.at(edges, (own, start // width), 1)
    np.add.at(edges, (own, own + 1), -1)
    some = prefix_end > prefix_start
    np.add.at(edges, (own[some], prefix_start[some] // width), 1)
    np.add.at(edges, (own[some], (prefix_end[some] - 1) // width + 1), -1)
    sees = edges.cumsum(axis=1)[:, :count] > 0

    together = min(together, count)
    order = np.argsort(-sees.sum(axis=1), kind="stable")
    places = np.argsort(order)
    spare = -count % together
    # Seen blocks first and in order, the others replaced by Q.
    keys = np.sort(np.where(sees, np.arange(count), count), axis=1)[order]
    keys = np.pad(keys, ((0, spare), (0, 0)), constant_values=count).reshape(-1, together, count)
    queries = np.pad(order, (0, spare), constant_values=count).reshape(-1, together)
    counts = (keys < count).sum(axis=2).max(axis=1)
    return Blocks(
        queries.astype(np.int32), keys.astype(np.int32), counts.astype(np.int32), places.astype(np.int32), width
    )


@jax.custom_vjp
def packed_attention(q: Array, k: Array, v: Array, layout: Layout) -> Array:
    """Attention of a packed stream, in blocks; memory linear in N, forward and backward.

    Args:
        q: [N, H, d]. k, v: [N, K, d], K dividing H. layout: with its `blocks`.

    Returns:
        [N, H, d] in q's dtype; scores and sums are float32.
    """
    return _forward(q, k, v, layout)[0]


def _forward(q: Array, k: Array, v: Array, layout: Layout) -> tuple[Array, Array]:
    """The output [N, H, d], and the log-sum-exp of each query's scores, float32 [Q, K, G, W] (see _query_blocks)."""
    chex.assert_equal_shape([k, v])
    table = _table(layout)
    queries, keys, values = _query_blocks(q, k.shape[1], table), _key_blocks(k, table), _key_blocks(v, table)
    _, kv, group, width, d = queries.shape
    scale = d**-0.5

    def several(args: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        which, seen, count = args
        mine = queries.at[which].get(mode="clip").reshape(-1, kv, group * width, d)
        limits = _limits(layout, table, which)

        def body(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
            i, out, top, total = carry
            block = jax.lax.dynamic_index_in_dim(seen, i, axis=1, keepdims=False)
            k_i, v_i = keys.at[block].get(mode="clip"), values.at[block].get(mode="clip")
            scores = jnp.einsum("zkmd,zkwd->zkmw", mine, k_i, preferred_element_type=jnp.float32)
            scores = scores.reshape(-1, kv, group, width, width) * scale
            scores = jnp.where(_visible(limits, block, width), scores, MASKED)
            new = jnp.maximum(top, scores.max(axis=-1))
            # Of a query that has seen nothing yet, what is added here is wiped out by `keep` at its first visible key;
            # every token sees at least itself.
            keep, weights = jnp.exp(top - new), jnp.exp(scores - new[..., None])
            more = jnp.einsum(
                "zkmw,zkwd->zkmd",
                weights.reshape(-1, kv, group * width, width).astype(v_i.dtype),
                v_i,
                preferred_element_type=jnp.float32,
            )
            return i + 1, out * keep.reshape(*out.shape[:-1], 1) + more, new, total * keep + weights.sum(axis=-1)

        per_query = (len(which), kv, group, width)
        begin = (jnp.int32(0), jnp.zeros(mine.shape), jnp.full(per_query, MASKED), jnp.zeros(per_query))
        _, out, top, total = jax.lax.while_loop(lambda carry: carry[0] < count, body, begin)
        return (out.reshape(*per_query, d) / total[..., None]).astype(q.dtype), top + jnp.log(total)

    out, lse = jax.lax.map(several, _groups(table))
    return _from_query_blocks(_in_order(out, table), len(q)), _in_order(lse, table)


def _forward_rule(q: Array, k: Array, v: Array, layout: Layout) -> tuple[Array, tuple]:
    out, lse = _forward(q, k, v, layout)
    out, lse = checkpoint_name(out, SAVED[0]), checkpoint_name(lse, SAVED[1])
    return out, (q, k, v, out, lse, layout)


def _backward_rule(saved: tuple, gradient: Array) -> tuple[Array, Array, Array, None]:
    q, k, v, out, lse, layout = saved
    table = _table(layout)
    queries, keys, values = _query_blocks(q, k.shape[1], table), _key_blocks(k, table), _key_blocks(v, table)
    gradients = _query_blocks(gradient.astype(q.dtype), k.shape[1], table)
    # The derivative of a softmax takes from each weight's gradient their weighted mean, which is gradient . out.
    means = (gradient.astype(jnp.float32) * out.astype(jnp.float32)).sum(axis=-1, keepdims=True)
    means = _query_blocks(means, k.shape[1], table)[..., 0]
    _, kv, group, width, d = queries.shape
    scale = d**-0.5

    def several(carry: tuple[Array, Array], args: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], Array]:
        which, seen, count = args
        mine = queries.at[which].get(mode="clip").reshape(-1, kv, group * width, d)
        theirs = gradients.at[which].get(mode="clip").reshape(mine.shape)
        mean, log_total = means.at[which].get(mode="clip"), lse.at[which].get(mode="clip")
        limits = _limits(layout, table, which)

        def body(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
            i, d_q, d_k, d_v = carry
            block = jax.lax.dynamic_index_in_dim(seen, i, axis=1, keepdims=False)
            k_i, v_i = keys.at[block].get(mode="clip"), values.at[block].get(mode="clip")
            # Scores stand with keys first here: two of the three products that follow then need no transpose.
            scores = jnp.einsum("zkwd,zkmd->zkwm", k_i, mine, preferred_element_type=jnp.float32)
            scores = scores.reshape(-1, kv, width, group, width) * scale
            visible = jnp.swapaxes(_visible(limits, block, width), 2, 4).swapaxes(3, 4)
            weights = jnp.exp(jnp.where(visible, scores, MASKED) - log_total[:, :, None])
            d_weights = jnp.einsum("zkwd,zkmd->zkwm", v_i, theirs, preferred_element_type=jnp.float32)
            d_scores = weights * (d_weights.reshape(weights.shape) - mean[:, :, None]) * scale
            weights, d_scores = (x.reshape(-1, kv, width, group * width).astype(q.dtype) for x in (weights, d_scores))
            more_v = jnp.einsum("zkwm,zkmd->zkwd", weights, theirs, preferred_element_type=jnp.float32)
            more_k = jnp.einsum("zkwm,zkmd->zkwd", d_scores, mine, preferred_element_type=jnp.float32)
            more_q = jnp.einsum("zkwm,zkwd->zkmd", d_scores, k_i, preferred_element_type=jnp.float32)
            # Index Q, a spare one, is out of range: nothing is added.
            return i + 1, d_q + more_q, d_k.at[block].add(more_k, mode="drop"), d_v.at[block].add(more_v, mode="drop")

        begin = (jnp.int32(0), jnp.zeros(mine.shape), *carry)
        _, d_q, d_k, d_v = jax.lax.while_loop(lambda carry: carry[0] < count, body, begin)
        return (d_k, d_v), d_q.reshape(-1, kv, group, width, d)

    zeros = jnp.zeros(keys.shape)
    (d_k, d_v), d_q = jax.lax.scan(several, (zeros, zeros), _groups(table))
    return (
        _from_query_blocks(_in_order(d_q, table), len(q)).astype(q.dtype),
        _from_key_blocks(d_k, len(k)).astype(k.dtype),
        _from_key_blocks(d_v, len(v)).astype(v.dtype),
        None,
    )


packed_attention.defvjp(_forward_rule, _backward_rule)


# ---- blocks: Q of W tokens each; G query heads share each of K key/value heads, H = K G ------------------------------


def _table(layout: Layout) -> Blocks:
    if layout.blocks is None:
        raise ValueError("this layout has no block tables: make them with blocks_of, or use the attention it is for")
    return layout.blocks


def _groups(table: Blocks) -> tuple[Array, Array, Array]:
    return jnp.asarray(table.queries), jnp.asarray(table.keys), jnp.asarray(table.counts)


def _pad(x: np.ndarray | Array, table: Blocks) -> Array:
    """x [N, ...] -> [Q W, ...]."""
    return jnp.pad(x, ((0, table.places.shape[0] * table.width - x.shape[0]), *((0, 0),) * (x.ndim - 1)))


def _query_blocks(x: Array, kv: int, table: Blocks) -> Array:
    """[N, H, d] -> [Q, K, G, W, d]: the heads that share a key head make one larger product with it."""
    return _pad(x, table).reshape(-1, table.width, kv, x.shape[1] // kv, x.shape[2]).transpose(0, 2, 3, 1, 4)


def _from_query_blocks(x: Array, n: int) -> Array:
    """[Q, K, G, W, d] -> [N, H, d]."""
    q, kv, group, width, d = x.shape
    return x.transpose(0, 3, 1, 2, 4).reshape(q * width, kv * group, d)[:n]


def _key_blocks(x: Array, table: Blocks) -> Array:
    """[N, K, d] -> [Q, K, W, d]."""
    return _pad(x, table).reshape(-1, table.width, *x.shape[1:]).swapaxes(1, 2)


def _from_key_blocks(x: Array, n: int) -> Array:
    """[Q, K, W, d] -> [N, K, d]."""
    return x.swapaxes(1, 2).reshape(-1, x.shape[1], x.shape[3])[:n]


def _in_order(x: Array, table: Blocks) -> Array:
    """[groups, Z, ...] -> [Q, ...], by block."""
    return x.reshape(-1, *x.shape[2:])[table.places]


def _limits(layout: Layout, table: Blocks, which: Array) -> tuple[Array, ...]:
    """Of the queries in blocks `which` [Z]: index, start, prefix start and prefix end, int32 [Z, W] each."""
    n = layout.start.shape[0]
    parts = (jnp.arange(n, dtype=jnp.int32), layout.start, layout.prefix_start, layout.prefix_end)
    return tuple(_pad(x, table).reshape(-1, table.width).at[which].get(mode="clip") for x in parts)


def _visible(limits: tuple[Array, ...], block: Array, width: int) -> Array:
    """bool [Z, 1, 1, W, W]: which queries see which keys of block [Z]; none of a block that is not there."""
    index, start, prefix_start, prefix_end = (x[:, :, None] for x in limits)
    key = (block[:, None] * width + jnp.arange(width))[:, None, :]
    own = (start <= key) & (key <= index)
    return (own | ((prefix_start <= key) & (key < prefix_end)))[:, None, None]

"""Attention over a packed stream by the chips' own flash kernels, behind the same call as `packed.packed_attention`.

Both use differentiable calls of jax only, so that the gradients are the kernels' own. The kernels want the stream in
rows, inside attention alone (projections, MLP and head still run once a token): `Layout.rows` says which token lies in
which slot, `Layout.slots` in which slot each token's own query is.

*splash* (TPU). A row is one kernel block of one segment: segments start on block borders. Which blocks a segment sees
is then a small table made on the device. Two of a query block's are partly visible, its own and the one the fork falls
into, and what nobody sees is not visited. Masks take 8 bytes times the block's width a slot: 4 KiB at 512.

*cudnn* (NVIDIA). A row is one segment's whole path, since the kernel masks by lengths from the row's first token on;
the prefix's queries are computed again and dropped. A suffix thus pays the attention of an unpacked row: 1.5 times the
visible pairs when forks are uniform over the root. Two calls a suffix (prefix by length, self causal) merged by their
log-sum-exp would compute visible pairs only, but jax ignores the gradient of the log-sum-exp. An exact backward then
takes a second backward call for each part, dearer than the waste for every fork before 70 % of the path, or jax's
private primitive, whose parameters changed between 0.10 and 0.12.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from hdl_jax.policy.packed import Layout, blocks_of, packed_attention
from hdl_jax.policy.presets import TransformerConfig

# Slots of all rows, over tokens of the stream: room for the prefixes that cudnn's rows repeat, or splash's rest of a
# block behind each segment.
SLOTS = 2


def row_shapes(attention: str, tokens: int, longest: int) -> tuple[tuple[int, int], ...]:
    """The static shapes (R, W) that `Layout.rows` may have, narrowest first; none for xla. Each is compiled once.

    Args:
        attention: xla, cudnn or splash. tokens: the stream's length N. longest: tokens of the longest path in a run.
    """
    longest = min(longest, tokens)
    if attention == "splash":
        # Wide blocks keep the chip busiest; in short streams too many segments would not fill theirs.
        width = next((w for w in (512, 256) if 16 * w <= tokens), 128)
        return ((max(3, -(-SLOTS * tokens // width)), width),)
    if attention == "cudnn":
        # Few paths are nearly as long as the longest: the shorter the paths, the more of them.
        widths = sorted({-(-longest // part) for part in (1, 2, 4)})
        return tuple((max(2, SLOTS * tokens // width), width) for width in widths)
    return ()


def row_shape(
    attention: str, shapes: Sequence[tuple[int, int]], segments: Sequence[tuple[int, int]]
) -> tuple[int, int] | None:
    """The first of `row_shapes` that holds those segments, (fork, own tokens) each; None where none does.

    The last holds any two that make a path: a member and as much of its root as it sees.
    """
    for rows, width in shapes:
        if attention == "splash":
            held = sum(-(-own // width) for _, own in segments) <= rows
        else:
            held = len(segments) <= rows and all(fork + own <= width for fork, own in segments)
        if held:
            return rows, width
    return None


def rows_of(
    attention: str,
    start: np.ndarray,
    prefix_start: np.ndarray,
    prefix_end: np.ndarray,
    real: np.ndarray,
    shape: tuple[int, int],
) -> tuple[np.ndarray, np.ndarray]:
    """The tables a kernel reads the stream by, made on the host.

    Args:
        attention: cudnn or splash. start, prefix_start, prefix_end: int [N], as in Layout.
        real: bool [N], false for padding. shape: (R, W), one of `row_shapes`.

    Returns:
        rows: int32 [R, W], the token in each slot, N in an empty one. For cudnn a row is the path of a segment, from
        the root's first token; for splash a segment's own tokens take as many rows as they need, in order.
        slots: int32 [N], where in the flattened rows a token's own query is, R * W for padding.

    Raises:
        ValueError: the stream needs more or longer rows than that.
    """
    n, (count, width) = len(start), shape
    rows, slots = np.full(shape, n, np.int32), np.full(n, count * width, np.int32)
    index, flat, row = np.arange(n), rows.reshape(-1), 0
    firsts = np.flatnonzero(real & (start == index))
    for first, own in zip(firsts, np.bincount(start[real], minlength=n)[firsts], strict=True):
        prefix = index[prefix_start[first] : prefix_end[first]] if attention == "cudnn" else index[:0]
        path = np.concatenate([prefix, index[first : first + own]])
        if attention == "cudnn" and len(path) > width:
            raise ValueError(f"a path of {len(path)} tokens in a stream laid out for {width}")
        taken = -(-len(path) // width)
        if row + taken > count:
            raise ValueError(f"the stream's {len(firsts)} segments need more than the {count} rows it is laid out for")
        flat[row * width : row * width + len(path)] = path
        slots[first : first + own] = row * width + np.arange(len(prefix), len(path))
        row += taken
    return rows, slots


def _laid_out(layout: Layout) -> tuple[Array, Array]:
    """rows and slots of the layout."""
    if layout.rows is None or layout.slots is None:
        raise ValueError("this stream was packed without a kernel's rows: give its packing the same attention")
    return jnp.asarray(layout.rows), jnp.asarray(layout.slots)


def _take(x: Array, index: Array) -> Array:
    """x [N, ...] at index, 0 where that is N. What flows back into an empty slot is dropped, whatever it is."""
    return x.at[index].get(mode="fill", fill_value=0)


def _tables(layout: Layout) -> tuple[Array, Array, Array]:
    """What each block of queries sees of each block of keys.

    Returns:
        kind: int32 [R, R], 0 nothing, 1 a part, 2 all. which: int32 [R, R], the partial mask to use where kind is 1.
        masks: bool [1 + R, W, W]: the causal one of a block on the diagonal, and for each query block the one that
        ends at its fork.
    """
    rows, slots = _laid_out(layout)
    start, prefix_start, prefix_end = (jnp.asarray(x) for x in (layout.start, layout.prefix_start, layout.prefix_end))
    count, width = rows.shape
    n, index, token = slots.shape[0], jnp.arange(count), rows[:, 0]
    empty, token = token == n, jnp.minimum(token, n - 1)
    # An empty block has only itself to see.
    first = jnp.where(empty, index, slots[start[token]] // width)[:, None]
    fork = jnp.where(empty, 0, prefix_end[token] - prefix_start[token])
    parent = slots[jnp.minimum(prefix_start[token], n - 1)] // width
    # Tokens of key block j that lie before the fork of query block i.
    seen = fork[:, None] - (index - parent[:, None]) * width
    seen = jnp.where(index >= parent[:, None], jnp.clip(seen, 0, width), 0)
    own = (first <= index) & (index < index[:, None])
    diagonal = index == index[:, None]
    kind = jnp.where(own | (seen == width), 2, jnp.where(diagonal | (seen > 0), 1, 0))
    which = jnp.where(diagonal, 0, jnp.where(kind == 1, 1 + index[:, None], 0))
    column = jnp.arange(width)
    at_fork = jnp.broadcast_to(column < (fork % width)[:, None, None], (count, width, width))
    return kind, which, jnp.concatenate([(column <= column[:, None])[None], at_fork])


def splash_attention(q: Array, k: Array, v: Array, layout: Layout, *, interpret: bool = False) -> Array:
    """Attention of the packed stream by the Pallas kernel for TPUs.

    Args:
        q: [N, H, d]. k, v: [N, K, d], K dividing H. layout: with the rows of splash.
        interpret: run the kernel's Python on any backend; for tests.

    Returns:
        [N, H, d] in q's dtype; 0 for padding.
    """
    from jax.experimental.pallas.ops.tpu import splash_attention as splash

    chex.assert_equal_shape([k, v])
    rows, slots = _laid_out(layout)
    count, width = rows.shape
    kind, which, masks = _tables(layout)
    index = jnp.arange(count)
    passes = ("q", "kv", "q_dkv", "kv_dkv", "kv_dkv_compute", "q_dq", "kv_dq")
    widths: Any = {f"block_{name}": width for name in passes}
    sizes = splash.BlockSizes(**widths)
    # The public constructor would have a dense mask, 8 bytes a pair of tokens: it makes the kernel for a mask of one
    # block, whose tables are then replaced. One table, that of head 0, serves all heads.
    kernel = splash.make_splash_mha(
        jnp.ones((1, width, width), bool), block_sizes=sizes, head_shards=1, q_seq_shards=1, interpret=interpret
    )
    by_query = kernel.fwd_mask_info._replace(
        block_mask=kind[None].astype(jnp.int8),
        data_next=jnp.where(kind > 0, index, 0)[None].astype(jnp.int32),
        mask_next=which[None].astype(jnp.int32),
        partial_mask_blocks=masks,
        is_dynamic_mask=True,
    )
    kernel.fwd_mask_info = kernel.dq_mask_info = by_query
    kernel.dkv_mask_info = by_query._replace(
        data_next=jnp.where(kind > 0, index[:, None], 0)[None].astype(jnp.int32),
        partial_mask_blocks=masks.swapaxes(1, 2),
    )

    def blocks(x: Array) -> Array:
        return _take(x, rows.reshape(-1)).swapaxes(0, 1)

    out = kernel(blocks(q * q.shape[-1] ** -0.5), blocks(k), blocks(v))
    return _take(out.swapaxes(0, 1), slots)


def cudnn_attention(
    q: Array, k: Array, v: Array, layout: Layout, *, kernel: Callable[..., Array] = jax.nn.dot_product_attention
) -> Array:
    """Attention of the packed stream by cuDNN's flash attention.

    Args:
        q: [N, H, d], bfloat16 or float16. k, v: [N, K, d], K dividing H. layout: with the rows of cudnn.
        kernel: has the contract of jax.nn.dot_product_attention, except that outputs and gradients beyond a row's
            length may hold anything; for tests.

    Returns:
        [N, H, d] in q's dtype; 0 for padding.
    """
    n, heads, d = q.shape
    chex.assert_equal_shape([k, v])
    rows, slots = _laid_out(layout)

    def path(x: Array) -> Array:
        # A key's gradient is a sum over all rows that read it: taken in float32.
        return _take(x.astype(jnp.float32), rows).astype(x.dtype)

    # A row without tokens would have a softmax over nothing: it gets one empty slot.
    lengths = jnp.maximum((rows < n).sum(axis=1, dtype=jnp.int32), 1)
    by_length = {"query_seq_lengths": lengths, "key_value_seq_lengths": lengths}
    out = kernel(path(q), path(k), path(v), is_causal=True, implementation="cudnn", **by_length)
    return _take(out.reshape(-1, heads, d), slots)


ATTENTION: dict[str, Callable[[Array, Array, Array, Layout], Array]] = {
    "xla": packed_attention,
    "cudnn": cudnn_attention,
    "splash": splash_attention,
}
# The backend, as jax.default_backend() calls it, and how to say it.
NEEDS = {"cudnn": ("gpu", "an NVIDIA GPU"), "splash": ("tpu", "a TPU")}
# Largest share of the norm by which a kernel's results may miss those of xla: bfloat16 misses by under 0.01, a mask
# that is off by one token by over 0.05.
TOLERANCE = 0.03


def check(attention: str, cfg: TransformerConfig) -> str:
    """Makes sure at start that the attention of `learn.attention` can be had here, by running it on a small stream.

    Its output and gradients must be those of xla.

    Args:
        attention: xla, cudnn or splash. cfg: the policy's shape and dtype.

    Returns:
        what to print of it.

    Raises:
        ValueError: there is none of that name, or not on this device, with this dtype or this version of the kernel.
    """
    if attention not in ATTENTION:
        raise ValueError(f"learn.attention={attention!r}: must be one of {', '.join(ATTENTION)}")
    if attention == "xla":
        return "xla: blockwise, compiled by XLA for any device"
    backend, device = NEEDS[attention]
    instead = "use learn.attention='xla', which runs anywhere"
    if jax.default_backend() != backend:
        raise ValueError(
            f"learn.attention={attention!r} needs {device}, and this process runs on {jax.default_backend()}: {instead}"
        )
    if attention == "cudnn" and cfg.dtype != "bfloat16":
        raise ValueError(f"learn.attention='cudnn' computes in bfloat16 and the policy in {cfg.dtype}: {instead}")
    try:
        miss = _miss(attention, cfg)
    except Exception as error:
        raise ValueError(f"learn.attention={attention!r} does not run here ({error}): {instead}") from error
    if not miss <= TOLERANCE:
        raise ValueError(
            f"learn.attention={attention!r} misses the results of xla by {miss:.3f} of their norm, more than "
            f"{TOLERANCE}, on {jax.devices()[0].device_kind} with jax {jax.__version__}: {instead}"
        )
    return f"{attention}: {jax.devices()[0].device_kind}, within {miss:.4f} of xla on a small stream"


def _miss(attention: str, cfg: TransformerConfig) -> float:
    """The largest difference of output and gradients from xla's, over their norm: root of 300, suffixes 100, 150, 3."""
    n, ends = 640, (300, 400, 550, 553)
    start, prefix_start, prefix_end = (np.arange(n, dtype=np.int32) for _ in range(3))
    for first, end, fork in zip((0, *ends), ends, (0, 129, 300, 7), strict=False):
        start[first:end], prefix_start[first:end], prefix_end[first:end] = first, 0, fork
    parts = (start, prefix_start, prefix_end)
    shape = {"cudnn": (5, 450), "splash": (9, 128)}[attention]
    rows, slots = rows_of(attention, *parts, np.arange(n) < ends[-1], shape)
    layout = Layout(*parts, rows=rows, slots=slots, blocks=blocks_of(*parts))
    rng = np.random.default_rng(0)
    heads = (cfg.n_heads, cfg.n_kv_heads, cfg.n_kv_heads, cfg.n_heads)
    q, k, v, weight = (jnp.asarray(rng.normal(size=(n, h, cfg.head_dim)), cfg.dtype) for h in heads)
    weight = weight.at[ends[-1] :].set(0)

    @functools.partial(jax.jit, static_argnums=0)
    def results(name: str) -> list[Array]:
        out, pull = jax.vjp(lambda q, k, v: ATTENTION[name](q, k, v, layout), q, k, v)
        return [x[: ends[-1]].astype(jnp.float32) for x in (out, *pull(weight))]

    pairs = zip(jax.device_get(results(attention)), jax.device_get(results("xla")), strict=True)
    return max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in pairs)

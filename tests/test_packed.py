"""Attention of a packed stream against the dense softmax over exactly the visible pairs, values and gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learn_fixtures import POLICY, learn_config

from hdl_jax.learn import packing
from hdl_jax.learn.update import make_loss
from hdl_jax.policy import packed
from hdl_jax.policy import transformer as tr


def stream(segments, length):
    """start, prefix_start, prefix_end int [N] and real bool [N] of (parent or None, fork, own tokens) in that order."""
    start, prefix_start, prefix_end = np.arange(length), np.arange(length), np.arange(length)
    first, at = [], 0
    for parent, fork, own in segments:
        first.append(at)
        start[at : at + own] = at
        if parent is not None:
            prefix_start[at : at + own], prefix_end[at : at + own] = first[parent], first[parent] + fork
        at += own
    assert at <= length
    return start, prefix_start, prefix_end, np.arange(length) < at


def layout(parts, width, together):
    tables = packed.blocks_of(*parts, width=width, together=together)
    return packed.Layout(*(jnp.asarray(x, jnp.int32) for x in parts), blocks=jax.tree.map(jnp.asarray, tables))


def visible(start, prefix_start, prefix_end):
    """bool [N, N], pair by pair, as the stream is defined."""
    n = len(start)
    sees = np.zeros((n, n), bool)
    for q in range(n):
        sees[q, start[q] : q + 1] = True
        sees[q, prefix_start[q] : prefix_end[q]] = True
    return sees


def dense(q, k, v, sees, weight):
    """Output and gradients of q, k, v of its product with weight, all in float64, head by head."""
    n, heads, d = q.shape
    out, d_q, d_k, d_v = np.zeros((n, heads, d)), np.zeros((n, heads, d)), np.zeros(k.shape), np.zeros(v.shape)
    for h in range(heads):
        g = h // (heads // k.shape[1])
        q_h, k_h, v_h, w_h = (x.astype(np.float64) for x in (q[:, h], k[:, g], v[:, g], weight[:, h]))
        scores = np.where(sees, q_h @ k_h.T / np.sqrt(d), -np.inf)
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        out[:, h] = p @ v_h
        d_p = w_h @ v_h.T
        d_s = p * (d_p - (p * d_p).sum(axis=1, keepdims=True)) / np.sqrt(d)
        d_q[:, h] = d_s @ k_h
        d_k[:, g] += d_s.T @ q_h
        d_v[:, g] += p.T @ w_h
    return out, d_q, d_k, d_v


@jax.jit
def run(q, k, v, lay, weight):
    out, pull = jax.vjp(lambda q, k, v: packed.packed_attention(q, k, v, lay), q, k, v)
    return out, *pull(weight.astype(out.dtype))


def inputs(n, heads=4, kv=2, d=8, seed=0, spread=1.0):
    rng = np.random.default_rng(seed)
    q, k, v, weight = (rng.normal(size=(n, h, d)).astype(np.float32) for h in (heads, kv, kv, heads))
    return q * spread, k, v, weight


# Forks at 0, 1, on a block's border, within and at the end; two continuations at one fork; a second root.
WILD = [(None, 0, 21), (0, 0, 3), (0, 1, 9), (0, 8, 5), (0, 8, 2), (0, 21, 1), (None, 0, 6), (6, 5, 4), (6, 6, 1)]


@pytest.mark.parametrize("heads, kv", [(4, 2), (5, 1), (2, 2)])
@pytest.mark.parametrize("width, together", [(8, 1), (8, 3), (16, 8), (64, 8)])
def test_values_and_gradients_are_those_of_the_dense_softmax(width, together, heads, kv):
    *parts, real = stream(WILD, 57)
    q, k, v, weight = inputs(57, heads, kv)
    weight *= real[:, None, None]
    got = run(q, k, v, layout(parts, width, together), weight)
    want = dense(q, k, v, visible(*parts), weight)
    np.testing.assert_allclose(got[0][real], want[0][real], atol=1e-5)
    for a, b in zip(got[1:], want[1:], strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)


@settings(deadline=None, max_examples=30)
@given(data=st.data(), seed=st.integers(0, 2**31))
def test_random_families(data, seed):
    """One shape, so that it is compiled once: streams of 96 tokens in blocks of 8, three together."""
    segments, left = [], 96
    while left and (not segments or data.draw(st.booleans())):
        roots = [i for i, (parent, _, _) in enumerate(segments) if parent is None]
        parent = data.draw(st.sampled_from([None, *roots]))
        fork = 0 if parent is None else data.draw(st.integers(0, segments[parent][2]))
        own = data.draw(st.integers(1, left))
        segments.append((parent, fork, own))
        left -= own
    *parts, real = stream(segments, 96)
    q, k, v, weight = inputs(96, seed=seed, spread=3.0)
    weight *= real[:, None, None]
    got = run(q, k, v, layout(parts, 8, 3), weight)
    want = dense(q, k, v, visible(*parts), weight)
    np.testing.assert_allclose(got[0][real], want[0][real], atol=1e-5)
    for a, b in zip(got[1:], want[1:], strict=True):
        np.testing.assert_allclose(a, b, atol=5e-5)


@settings(deadline=None, max_examples=60)
@given(
    segments=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40), st.integers(1, 40)), min_size=1, max_size=8),
    padding=st.integers(0, 9),
    width=st.integers(1, 40),
    together=st.integers(1, 5),
)
def test_tables_list_exactly_the_blocks_that_are_seen(segments, padding, width, together):
    """Neither a block too few, which would lose pairs, nor one too many, which would cost time."""
    wild = []
    for parent, fork, own in segments:
        roots = [i for i, (p, _, _) in enumerate(wild) if p is None]
        at = roots[parent % len(roots)] if roots and parent else None
        wild.append((at, 0 if at is None else min(fork, wild[at][2]), own))
    n = sum(own for _, _, own in wild) + padding
    *parts, _ = stream(wild, n)
    tables = packed.blocks_of(*parts, width=width, together=together)
    count = -(-n // width)
    sees = np.zeros((count * width, count * width), bool)
    sees[:n, :n] = visible(*parts)
    wanted = sees.reshape(count, width, count, width).any(axis=(1, 3))
    flat_queries, flat_keys = tables.queries.reshape(-1), tables.keys.reshape(-1, count)
    assert tables.keys.shape[:2] == tables.queries.shape and tables.queries.shape[1] <= together
    for block in range(count):
        assert flat_queries[tables.places[block]] == block
        keys = flat_keys[tables.places[block]]
        assert keys[keys < count].tolist() == np.flatnonzero(wanted[block]).tolist()
        assert (np.diff((keys == count).astype(int)) >= 0).all(), "the seen ones come first"
        assert wanted[block].sum() <= tables.counts[tables.places[block] // tables.queries.shape[1]]
    assert (np.diff(tables.counts) <= 0).all() and tables.counts[0] == wanted.sum(axis=1).max()


def test_padding_and_other_segments_leave_every_bit():
    """Whatever stands in the stream's unused end, and in the tokens that a segment does not see."""
    segments = [(None, 0, 20), (0, 11, 9), (None, 0, 13)]
    *parts, real = stream(segments, 64)
    lay = layout(parts, 8, 2)
    q, k, v, weight = inputs(64)
    weight *= real[:, None, None]
    plain = run(q, k, v, lay, weight)
    rng = np.random.default_rng(5)
    for x in (q, k, v):
        x[~real] = 1e3 * rng.normal(size=x[~real].shape)
    other = run(q, k, v, lay, weight)
    for a, b in zip(plain, other, strict=True):
        assert np.asarray(a[:42]).tobytes() == np.asarray(b[:42]).tobytes()
    # The first 29 tokens are one family: the last root's tokens, and the root's from the fork on, are nothing to the
    # continuation.
    for x in (k, v):
        x[29:] = 1e3 * rng.normal(size=x[29:].shape)
    family = run(q, k, v, lay, weight)
    assert np.asarray(family[0][:29]).tobytes() == np.asarray(plain[0][:29]).tobytes()
    for x in (k, v):
        x[11:20] = 1e3 * rng.normal(size=x[11:20].shape)
    assert np.asarray(run(q, k, v, lay, weight)[0][20:29]).tobytes() == np.asarray(plain[0][20:29]).tobytes()


def test_large_scores_do_not_overflow():
    *parts, real = stream(WILD, 57)
    q, k, v, weight = inputs(57, spread=300.0)
    weight *= real[:, None, None]
    got = run(q, k, v, layout(parts, 8, 3), weight)
    assert all(np.isfinite(x).all() for x in got)
    np.testing.assert_allclose(got[0][real], dense(q, k, v, visible(*parts), weight)[0][real], atol=2e-3)


def test_bfloat16_inputs_have_float32_sums():
    """Within a few roundings of bfloat16 over a segment of hundreds of tokens."""
    *parts, _ = stream([(None, 0, 400), (0, 300, 112)], 512)
    half = [jnp.asarray(x, jnp.bfloat16) for x in inputs(512)]
    got = run(*half[:3], layout(parts, 64, 8), half[3])
    assert [x.dtype for x in got] == [jnp.bfloat16] * 4
    q, k, v, weight = (np.asarray(x, np.float32) for x in half)
    for a, b in zip(got, dense(q, k, v, visible(*parts), weight), strict=True):
        assert np.linalg.norm(np.asarray(a, np.float64) - b) < 0.01 * np.linalg.norm(b)


def test_a_layout_of_another_kernel_is_refused():
    parts = [jnp.zeros(8, jnp.int32)] * 3
    q, k, v, _ = inputs(8)
    with pytest.raises(ValueError, match="blocks_of"):
        packed.packed_attention(q, k, v, packed.Layout(*parts))


def temporaries(n):
    """Bytes that a gradient step of a one-layer policy takes beside its arguments and results, at N tokens."""
    (batch,) = packing.empty(packing.Streams(n, n), n)
    gradient = jax.jit(jax.grad(make_loss(POLICY, learn_config(), 1.0), has_aux=True))
    compiled = gradient.lower(tr.abstract_params(POLICY), batch, None, np.float32(1)).compile()
    return compiled.memory_analysis().temp_size_in_bytes


def test_temporaries_grow_with_the_length_not_with_its_square():
    """Twice the tokens, at most twice the bytes; whole rows would take four times as many."""
    assert temporaries(8192) < 2.1 * temporaries(4096)

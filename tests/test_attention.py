"""Attention in blocks against the dense softmax, and the promise that masked blocks leave no trace."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from hdl_jax.policy import attention as attn


def _dense(q, k, v, visible):
    """Softmax attention in float64; q [M, d], k and v [N, d], visible [M, N]."""
    scores = np.where(visible, q.astype(np.float64) @ k.T.astype(np.float64), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def _blocks(q, k, v, visible, width):
    run = attn.begin(q)
    for i in range(0, k.shape[-2], width):
        part = slice(i, i + width)
        run = attn.absorb(run, q, k[part].T, v[part], visible[:, part])
    return run


def _random(seed, m=5, n=24, d=8, spread=3.0):
    rng = np.random.default_rng(seed)
    q, k, v = (rng.normal(size=(rows, d)).astype(np.float32) for rows in (m, n, n))
    visible = rng.random((m, n)) < 0.5
    visible[np.arange(m), rng.integers(0, n, m)] = True
    return q * spread, k, v, visible


@pytest.mark.parametrize("width", [1, 4, 8, 24])
@pytest.mark.parametrize("seed", range(3))
def test_running_softmax_is_the_dense_one(seed, width):
    q, k, v, visible = _random(seed)
    got = attn.finish(_blocks(q, k, v, visible, width))
    np.testing.assert_allclose(got, _dense(q, k, v, visible), rtol=1e-4, atol=1e-5)


def test_large_scores_do_not_overflow():
    q, k, v, visible = _random(9, spread=300.0)
    got = attn.finish(_blocks(q, k, v, visible, 8))
    np.testing.assert_allclose(got, _dense(q, k, v, visible), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_a_masked_block_leaves_every_bit(seed):
    """First, between and last: a lane's arithmetic does not know how far its neighbours make the loop go."""
    q, k, v, visible = _random(seed, n=16)
    rng = np.random.default_rng(seed + 100)
    far_k, far_v = (1e4 * rng.normal(size=(8, 8)).astype(np.float32) for _ in range(2))
    absorb = jax.jit(attn.absorb)

    def total(places):
        run = attn.begin(q)
        for i in range(0, 16, 8):
            for _ in range(places.count(i)):
                run = absorb(run, q, far_k, far_v, np.zeros((5, 8), bool))
            run = absorb(run, q, k[i : i + 8].T, v[i : i + 8], visible[:, i : i + 8])
        for _ in range(places.count(16)):
            run = absorb(run, q, far_k, far_v, np.zeros((5, 8), bool))
        return [np.asarray(part).tobytes() for part in (*run, attn.finish(run))]

    plain = total([])
    for places in ([0], [8], [16], [0, 8, 16, 16]):
        assert total(places) == plain


def test_a_query_that_sees_nothing_gives_zero():
    q, k, v, visible = _random(4)
    visible[2] = False
    got = np.asarray(attn.finish(_blocks(q, k, v, visible, 8)))
    assert (got[2] == 0).all()
    others = [0, 1, 3, 4]
    np.testing.assert_allclose(got[others], _dense(q[others], k, v, visible[others]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("heads", "kv"), [(4, 2), (4, 4), (6, 1)])
def test_causal_attention_is_dense_attention_per_head(heads, kv):
    rng = np.random.default_rng(heads)
    b, t, d = 2, 13, 8
    q = rng.normal(size=(b, t, heads, d)).astype(np.float32)
    k, v = (rng.normal(size=(b, t, kv, d)).astype(np.float32) for _ in range(2))
    got = jax.jit(attn.causal_attention)(q, k, v)
    visible = np.tril(np.ones((t, t), bool))
    for row in range(b):
        for head in range(heads):
            shared = head // (heads // kv)
            expected = _dense(q[row, :, head] * d**-0.5, k[row, :, shared], v[row, :, shared], visible)
            np.testing.assert_allclose(got[row, :, head], expected, rtol=1e-4, atol=1e-5)

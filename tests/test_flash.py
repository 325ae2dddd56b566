"""The kernels' attention against a dense softmax over exactly the visible pairs, values and gradients."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import learn_fixtures
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdl_jax.learn import packing
from hdl_jax.learn.update import make_loss
from hdl_jax.policy import flash
from hdl_jax.policy.packed import Layout
from hdl_jax.policy.presets import TransformerConfig

PARAMS = learn_fixtures.random_params()


@st.composite
def streams(draw, tokens):
    """A list of (parent or None, fork, own tokens): roots, and continuations of them, forks at 0 and at the end too."""
    segments = []
    for _ in range(draw(st.integers(1, 7))):
        roots = [i for i, (parent, _, _) in enumerate(segments) if parent is None]
        parent = draw(st.sampled_from([None, *roots]))
        fork = 0 if parent is None else draw(st.integers(0, segments[parent][2]))
        segments.append((parent, fork, draw(tokens)))
    return segments


def arrays(segments, padding):
    """start, prefix_start, prefix_end, real: [N], the segments one after another and padding behind them."""
    firsts = np.cumsum([0] + [own for _, _, own in segments])
    n = firsts[-1] + padding
    start, prefix_start, prefix_end = np.arange(n), np.arange(n), np.arange(n)
    for i, (parent, fork, own) in enumerate(segments):
        mine = slice(firsts[i], firsts[i] + own)
        start[mine] = firsts[i]
        prefix_start[mine] = firsts[parent] if parent is not None else firsts[i]
        prefix_end[mine] = prefix_start[mine] + fork
    return start, prefix_start, prefix_end, np.arange(n) < firsts[-1]


def layout_for(attention, segments, tokens, shape):
    """A Layout of N = tokens with that kernel's rows [shape], and which tokens are real."""
    *parts, real = arrays(segments, tokens - sum(own for _, _, own in segments))
    rows, slots = flash.rows_of(attention, *parts, real, shape)
    return Layout(*map(jnp.asarray, (*parts, rows, slots))), real


def dense(q, k, v, layout):
    """The definition: softmax over the visible tokens of the stream."""
    t = jnp.arange(q.shape[0])
    own = (layout.start[:, None] <= t) & (t <= t[:, None])
    prefix = (layout.prefix_start[:, None] <= t) & (t < layout.prefix_end[:, None])
    group = q.shape[1] // k.shape[1]
    k, v = jnp.repeat(k, group, axis=1), jnp.repeat(v, group, axis=1)
    scores = jnp.einsum("qhd,khd->hqk", q, k) * q.shape[-1] ** -0.5
    return jnp.einsum("hqk,khd->qhd", jax.nn.softmax(jnp.where(own | prefix, scores, -jnp.inf), axis=-1), v)


@functools.partial(jax.jit, static_argnums=0)
def run(attend, q, k, v, layout, weight):
    """The output, and the gradients of q, k and v of its product with weight [N, H, d]."""
    out, pull = jax.vjp(lambda q, k, v: attend(q, k, v, layout), q, k, v)
    return out, *pull(weight)


def assert_same(attend, layout, real, heads=(4, 2), d=8, seed=0):
    """Outputs at real tokens and gradients of q, k, v agree with the dense ones."""
    rng, n = np.random.default_rng(seed), len(real)
    q, k, v, weight = (rng.normal(size=(n, h, d)).astype(np.float32) for h in (heads[0], heads[1], heads[1], heads[0]))
    weight *= real[:, None, None]
    got, want = (run(f, q, k, v, layout, weight) for f in (attend, dense))
    np.testing.assert_allclose(got[0][real], want[0][real], atol=2e-5)
    for a, b in zip(got[1:], want[1:], strict=True):
        np.testing.assert_allclose(a, b, atol=5e-5)


# Forks at 0, within, at the end and on a block's border; a root of exactly one block; two continuations of one parent;
# a continuation of the second root.
WILD = [(None, 0, 128), (0, 0, 3), (0, 128, 130), (None, 0, 300), (3, 256, 1), (3, 299, 140), (3, 127, 20), (0, 60, 5)]


splash = functools.partial(flash.splash_attention, interpret=True)


@pytest.mark.parametrize("segments", [WILD, [(None, 0, 300), *((0, fork, own) for _, fork, own in WILD[4:])], WILD[:1]])
def test_splash_equals_dense_attention(segments):
    assert_same(splash, *layout_for("splash", segments, 768, (14, 128)))


def test_splash_with_one_key_head_in_the_smallest_layout():
    assert_same(splash, *layout_for("splash", WILD[:3], 261, (4, 128)), heads=(3, 1), d=16)


@jax.custom_vjp
def poisoned(q, k, v, lengths):
    """Plain attention of rows that leaves NaN wherever cuDNN leaves what was there: beyond the lengths."""
    return _beyond(_rows(q, k, v, lengths), lengths)


def _rows(q, k, v, lengths):
    return jax.nn.dot_product_attention(
        q, k, v, is_causal=True, query_seq_lengths=lengths, key_value_seq_lengths=lengths, implementation="xla"
    )


def _beyond(x, lengths):
    # What a kernel makes of a row without any token is nobody's promise.
    return jnp.where(((jnp.arange(x.shape[1]) < lengths[:, None]) & lengths.all())[..., None, None], x, jnp.nan)


def _forward(q, k, v, lengths):
    return poisoned(q, k, v, lengths), (q, k, v, lengths)


def _backward(saved, g):
    *qkv, lengths = saved
    _, pull = jax.vjp(lambda q, k, v: _rows(q, k, v, lengths), *qkv)
    return (*(_beyond(x, lengths) for x in pull(g)), None)


poisoned.defvjp(_forward, _backward)


def stand_in(q, k, v, *, is_causal, query_seq_lengths, key_value_seq_lengths, implementation):
    """Has the contract of jax.nn.dot_product_attention(implementation="cudnn") for the call that flash makes."""
    assert is_causal and implementation == "cudnn"
    np.testing.assert_array_equal(query_seq_lengths.shape, key_value_seq_lengths.shape)
    return poisoned(q, k, v, query_seq_lengths)


cudnn = functools.partial(flash.cudnn_attention, kernel=stand_in)


@settings(max_examples=60, deadline=None)
@given(streams(st.integers(1, 9)), st.integers(0, 99))
def test_cudnn_equals_dense_attention_whatever_the_kernel_leaves_beyond_lengths(segments, seed):
    assert_same(cudnn, *layout_for("cudnn", segments, 64, (7, 18)), seed=seed)


@given(streams(st.integers(1, 400)), st.integers(0, 300), st.sampled_from(["cudnn", "splash"]))
def test_rows_hold_every_token_once_as_a_query_and_cudnn_rows_whole_paths(segments, padding, attention):
    start, prefix_start, prefix_end, real = arrays(segments, padding)
    n = len(start)
    longest = max(fork + own for _, fork, own in segments)
    shape = (len(segments), longest) if attention == "cudnn" else (sum(-(-own // 128) for *_, own in segments), 128)
    rows, slots = flash.rows_of(attention, start, prefix_start, prefix_end, real, shape)
    flat = rows.reshape(-1)
    np.testing.assert_array_equal(flat[slots[real]], np.flatnonzero(real))
    assert (slots[~real] == flat.size).all()
    assert len(set(slots[real])) == real.sum()
    if attention == "splash":
        assert (flat < n).sum() == real.sum()
        assert all(len(set(start[row[row < n]])) == 1 for row in rows)
        return
    for row, (_, fork, own) in zip(rows, segments, strict=True):
        path = row[row < n]
        first = path[-1] - own + 1
        assert start[first] == first
        np.testing.assert_array_equal(path, [*range(prefix_start[first], prefix_start[first] + fork), *path[fork:]])
        np.testing.assert_array_equal(path[fork:], np.arange(first, first + own))


@given(streams(st.integers(1, 3000)), st.sampled_from(["cudnn", "splash"]), st.sampled_from([1, 2, 4]))
def test_segments_that_a_shape_is_said_to_hold_fit_it_and_few_others_do(segments, attention, more):
    *parts, real = arrays(segments, 0)
    pairs = [(fork, own) for _, fork, own in segments]
    longest = max(fork + own for fork, own in pairs)
    shapes = flash.row_shapes(attention, len(real), more * longest)
    shape = flash.row_shape(attention, shapes, pairs)
    if shape is not None:
        flash.rows_of(attention, *parts, real, shape)
    for narrower in shapes[: shapes.index(shape) if shape else None]:
        with pytest.raises(ValueError):
            flash.rows_of(attention, *parts, real, narrower)


@given(st.integers(0, 5000), st.integers(1, 5000), st.integers(0, 600), st.sampled_from(["cudnn", "splash"]))
def test_a_member_and_what_it_sees_of_its_root_always_fit(fork, own, padding, attention):
    shapes = flash.row_shapes(attention, fork + own + padding, fork + own)
    assert flash.row_shape(attention, shapes, [(0, fork), (fork, own)] if fork else [(0, own)]) is not None


def test_a_stream_that_does_not_fit_its_rows_is_an_error():
    parts = arrays([(None, 0, 200), (0, 100, 50)], 0)
    with pytest.raises(ValueError, match="path of 200 tokens in a stream laid out for 199"):
        flash.rows_of("cudnn", *parts, (2, 199))
    with pytest.raises(ValueError, match="2 segments need more than the 1 rows"):
        flash.rows_of("cudnn", *parts, (1, 200))
    with pytest.raises(ValueError, match="2 segments need more than the 2 rows"):
        flash.rows_of("splash", *parts, (2, 128))


def gradients(attention, groups):
    """Of the packed loss of all groups, and its sums, over that attention's own micro-batches."""
    streams = packing.Streams(96, 30, attention)
    families = [f for group in groups for f in packing.families(group, np.linspace(-1, 1, len(group)))]
    update = learn_fixtures.learn_config(attention=attention)
    loss = jax.jit(jax.grad(make_loss(learn_fixtures.POLICY, update, 1.0), has_aux=True))
    batches = packing.pack(families, streams)
    shapes = {jax.tree.map(np.shape, b) for n in streams.lengths for b in packing.empty(streams, n)}
    assert {jax.tree.map(np.shape, b) for b in batches} <= shapes
    results = [loss(PARAMS, batch, None, 0.01) for batch in batches]
    return jax.tree.map(lambda *x: np.sum(x, axis=0), *results)


@pytest.mark.parametrize("attention", ["cudnn", "splash"])
def test_the_packed_loss_is_the_same_with_every_attention(monkeypatch, attention):
    monkeypatch.setitem(flash.ATTENTION, attention, {"cudnn": cudnn, "splash": splash}[attention])
    rng, vocabulary = np.random.default_rng(0), learn_fixtures.POLICY.vocab_size
    groups = [
        learn_fixtures.random_group(rng, (9, 16, 30), vocabulary=vocabulary, roots=roots, continuations=continuations)
        for roots, continuations in ((2, 5), (3, 0))
    ]
    (grads, sums), (want, want_sums) = gradients(attention, groups), gradients("xla", groups)
    learn_fixtures.assert_trees_close(grads, want, atol=2e-6)
    assert sums["tokens"] == want_sums["tokens"]
    np.testing.assert_allclose(sums["entropy"], want_sums["entropy"], rtol=1e-5)


POLICY = TransformerConfig(64, 32, 1, 2, 1, 16, 64, dtype="bfloat16")


def test_an_attention_that_cannot_be_had_is_refused_by_name_and_xla_never():
    assert flash.check("xla", POLICY).startswith("xla")
    with pytest.raises(ValueError, match="learn.attention='flash': must be one of xla, cudnn, splash"):
        flash.check("flash", POLICY)
    for attention, device in (("cudnn", "an NVIDIA GPU"), ("splash", "a TPU")):
        with pytest.raises(ValueError, match=f"learn.attention='{attention}' needs {device}, and this .* runs on cpu"):
            flash.check(attention, POLICY)


def test_a_chip_whose_kernel_does_not_run_or_is_wrong_is_refused(monkeypatch):
    """With the chip's backend feigned: a missing kernel, one that works, and one that is off by a token."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with pytest.raises(ValueError, match="learn.attention='cudnn' computes in bfloat16 and the policy in float32"):
        flash.check("cudnn", dataclasses.replace(POLICY, dtype="float32"))
    with pytest.raises(ValueError, match="learn.attention='cudnn' does not run here .*use learn.attention='xla'"):
        flash.check("cudnn", POLICY)

    monkeypatch.setitem(flash.ATTENTION, "cudnn", cudnn)
    assert "within 0.0" in flash.check("cudnn", POLICY)
    monkeypatch.setitem(
        flash.ATTENTION, "cudnn", lambda q, k, v, layout: cudnn(q, jnp.roll(k, 1, 0), jnp.roll(v, 1, 0), layout)
    )
    with pytest.raises(ValueError, match="misses the results of xla"):
        flash.check("cudnn", POLICY)


@pytest.mark.parametrize("field", ["prefix_end", "start"])
def test_a_mask_that_is_off_by_one_token_misses_by_more_than_the_tolerance(monkeypatch, field):
    def off(q, k, v, layout):
        change = (layout.prefix_end > layout.prefix_start).astype(jnp.int32)
        return dense(q, k, v, layout.replace(**{field: getattr(layout, field) + change}))

    monkeypatch.setitem(flash.ATTENTION, "cudnn", off)
    assert flash._miss("cudnn", POLICY) > flash.TOLERANCE
